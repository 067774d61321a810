"""Weighted quantiles over axes of arrays: lines, their weights, and treatment of NaN."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from distarray.array import DistArray, as_distarray, to_layout
from distarray.comm.agree import agree
from distarray.comm.group import Group
from distarray.engines.selecting.exact_sums import UNIT
from distarray.engines.selecting.order_statistics import brought, lines_of, missing
from distarray.engines.selecting.weighted import Weighted, select_weighted
from distarray.layout import Cut, Layout
from distarray.plan import plan_reduction
from distarray.typing import Array, ArrayLike, Axes

__all__ = ["WeightedCall", "checked"]

_UNWEIGHABLE = "Weights included NaN, inf or were all zero."
#: Smallest exact sum for which NumPy's float64 sum is infinite.
_INFINITE = (1 << 1024) - (1 << 970) << UNIT


def checked(given: ArrayLike, x: DistArray, axis: Axes, method: str) -> DistArray:
    """Broadcast the weights to the shape of the array; raise NumPy's errors about them."""
    weights: Any = as_distarray(given, x.mesh)
    if method != "inverted_cdf":
        raise ValueError(f"Only method 'inverted_cdf' supports weights. Got: {method}.")
    if axis is not None:
        axis = normalize_axis_tuple(axis, x.ndim, argname="axis")
    if weights.shape != x.shape:
        if axis is None:
            raise TypeError("Axis must be specified when shapes of a and weights differ.")
        if weights.shape != tuple([x.shape[dim] for dim in axis]):
            raise ValueError(
                "Shape of weights must be consistent with shape of a along specified axis."
            )
        order = np.argsort(axis).tolist()
        key = tuple([slice(None) if dim in axis else None for dim in range(x.ndim)])
        weights = np.broadcast_to(np.transpose(weights, order)[key], x.shape)
    if bool(np.any(weights < 0)) and x.mesh.coords is not None:
        raise ValueError("Weights must be non-negative.")
    plain: DistArray = weights.plain()
    return plain


class WeightedCall(NamedTuple):
    """Call of a NumPy quantile function with weights.

    Attributes
    ----------
    function : callable
        The function of NumPy.
    shares : array
        The quantiles from 0 to 1.
    """

    function: Callable[..., Any]
    shares: Array

    @property
    def skips_nan(self) -> bool:
        """True if NaN is ignored."""
        return self.function in (np.nanquantile, np.nanpercentile)

    def along(
        self, x: DistArray, weights: DistArray, axes: tuple[int, ...], keepdims: bool
    ) -> tuple[Any, Layout]:
        """Compute this rank's part of the quantiles over axes, array or scalar, and its layout."""
        mesh = x.mesh
        layout = brought(x.layout, axes, x.nbytes + weights.nbytes)
        block, scale = (mesh.to_host(to_layout(v, layout).block) for v in (x, weights))
        plan = plan_reduction(layout, axes, keepdims, x.dtype)
        lead = [Cut.whole(extent) for extent in self.shares.shape]
        result = Layout.from_cuts([*lead, *plan.layout.cuts], layout.mesh_shape)
        shape = result.local_shape(mesh.coords)
        part: Any = np.zeros(shape, x.dtype)
        error = None
        if mesh.coords is not None and 0 not in shape:
            try:
                part = self._part(block, scale, axes, mesh.subgroup(plan.mesh_dims))
            except ValueError as caught:
                error = caught
        agree(mesh.group, error)
        if isinstance(part, np.generic) and not shape:
            return part, result
        return mesh.asarray(part).reshape(shape), result

    def _part(self, block: Array, scale: Array, axes: Sequence[int], group: Group) -> Any:
        """Compute the quantiles of this rank's lines; the last dimension counts the lines."""
        pairs = zip(lines_of(block, axes), lines_of(scale, axes), strict=True)
        lines = [Weighted(line, weights.astype(np.float64)) for line, weights in pairs]
        kept = [line.where(line.values == line.values) for line in lines]  # NaN equals nothing
        own = [(k.values.size, w.values.size) for k, w in zip(kept, lines, strict=True)]
        counts = group.allgather(np.array(own, np.int64))
        totals = _totals(kept if self.skips_nan else lines, group)
        counted = self._good(counts)
        if any(good and not total for good, total in zip(counted, totals, strict=True)):
            raise ValueError(_UNWEIGHABLE)
        sizes = np.where(counted, counts[:, :, 0], 0)
        found = select_weighted(kept, sizes, totals, self.shares.reshape(-1), group)
        rows = [
            row.reshape(self.shares.shape) if good else self._unknown(missing(block.dtype))
            for row, good in zip(found, counted, strict=True)
        ]
        # NumPy returns a single quantile with weights as a 0-d array, but NaN as a scalar.
        return rows[0] if len(rows) == 1 else np.stack(rows, axis=-1)

    def _good(self, counts: Array) -> Array:
        """Return True for each line whose quantiles are not NaN."""
        left, whole = counts[:, :, 0].sum(0), counts[:, :, 1].sum(0)
        good: Array = left > 0 if self.skips_nan else left == whole
        return good

    def _unknown(self, nan: Any) -> Any:
        if self.skips_nan:
            self.function(np.array([nan]), 0)  # warns
        return np.full(self.shares.shape, nan)[()]


def _totals(lines: Sequence[Weighted], group: Group) -> list[int]:
    """Return the exact sums of the lines' weights; raise on all ranks if one is infinite or NaN."""
    finite = all(np.isfinite(line.weights).all() for line in lines)
    own = [line.weight for line in lines] if finite else None
    found = group.allgather_object(own)
    if None in found:
        raise ValueError(_UNWEIGHABLE)
    totals = [sum(of_ranks) for of_ranks in zip(*found, strict=True)]
    if any(total >= _INFINITE for total in totals):
        raise ValueError(_UNWEIGHABLE)
    return totals
