"""median, percentile, quantile, and their versions that ignore NaN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from distarray.array import DistArray, Objects, as_distarray, common_mesh, implements
from distarray.engines.reducing import NoValue, write
from distarray.engines.selecting.interpolation import Places, interpolated, places
from distarray.engines.selecting.order_statistics import Statistic, along
from distarray.engines.selecting.weighted_lines import WeightedCall, checked
from distarray.plan import plan_reduction
from distarray.typing import Array, ArrayLike, Axes, DType, Shape

__all__ = ["median", "nanmedian", "nanpercentile", "nanquantile", "percentile", "quantile"]


class _Median(NamedTuple):
    """Middle element of a line, or the mean of the two in the middle, as NumPy computes it."""

    function: Callable[..., Any]
    dtype: DType

    def wanted(self, n: int) -> list[int]:
        """Return the positions needed from a line of n elements."""
        return sorted({(n - 1) // 2, n // 2})

    def value(self, n: int, found: dict[int, Any]) -> Any:
        """Compute the statistic from the elements at these positions."""
        return self._of([found[position] for position in self.wanted(n)])

    def unknown(self, nan: float) -> Any:
        """Return the statistic of a line with NaN, or of an all-NaN line if NaN is ignored."""
        return self._of([nan])

    def _of(self, middle: list[Any]) -> Any:
        return self.function(np.array(middle), out=np.empty((), self.dtype))


class _Quantiles(NamedTuple):
    """Quantiles of a line at the fractions `q`."""

    function: Callable[..., Any]
    method: str
    q: Array
    weak: bool

    def wanted(self, n: int) -> list[int]:
        """Return the positions needed from a line of n elements."""
        return self._places(n).wanted

    def value(self, n: int, found: dict[int, Any]) -> Any:
        """Compute the statistic from the elements at these positions."""
        at = self._places(n)
        previous, following = (_taken(found, index) for index in (at.previous, at.following))
        if at.gamma is None:
            return previous
        return interpolated(previous, following, at.gamma)

    def unknown(self, nan: float) -> Any:
        """Return the statistic of a line with NaN, or of an all-NaN line if NaN is ignored."""
        if self.function in (np.nanquantile, np.nanpercentile):
            self.function(np.array([nan]), 0)  # warns
        return np.full(self.q.shape, nan)

    def _places(self, n: int) -> Places:
        return places(self.method, n, self.q, self.weak)


def _taken(found: dict[int, Any], index: Array) -> Any:
    """Return the elements at positions, in the positions' shape; a scalar for a single one."""
    values = np.array([found[position] for position in index.ravel().tolist()])
    return values.reshape(index.shape)[()]


@implements(np.median, objects=Objects.GATHER)
def median(
    a: ArrayLike,
    axis: Axes = None,
    out: DistArray | None = None,
    overwrite_input: bool = False,
    keepdims: bool = False,
) -> Any:
    """Compute the median over axes; see :func:`numpy.median`.

    Parameters
    ----------
    a : DistArray
        Any layout; it is never overwritten.
    axis, out, overwrite_input, keepdims
        As in :func:`numpy.median`.

    Returns
    -------
    DistArray
        The remaining dimensions are cut as in `a`. If each line was sent to one rank, the ranks
        along `axis` cut another dimension. A scalar on every rank for ``axis=None``.

    Cost
    ----
    Nothing if `axis` is not cut. Long lines, and the whole array: rounds of small allgathers
    (usually two), then one of a few thousand candidates, and about two passes over the block. Many
    short lines: one exchange of `a` that sends each line to one rank. Arrays of a few thousand
    elements are gathered.
    """
    return _median(np.median, a, axis, out, keepdims)


@implements(np.nanmedian, objects=Objects.GATHER)
def nanmedian(
    a: ArrayLike,
    axis: Axes = None,
    out: DistArray | None = None,
    overwrite_input: bool = False,
    keepdims: bool = NoValue,
) -> Any:
    """Compute the median over axes, ignoring NaN; see :func:`numpy.nanmedian` and :func:`median`.

    Cost
    ----
    The cost of :func:`median`.
    """
    return _median(np.nanmedian, a, axis, out, keepdims)


def _median(
    function: Callable[..., Any], a: ArrayLike, axis: Axes, out: DistArray | None, keepdims: bool
) -> Any:
    x = as_distarray(a, common_mesh(a, out))
    keepdims = keepdims is not NoValue and bool(keepdims)
    kind = _probed(function, x, (), axis, out, keepdims)
    rule = _Median(function, kind if out is None else out.dtype)

    def whole(block: Array, axis: tuple[int, ...], keepdims: bool) -> Any:
        return function(block, axis, keepdims=keepdims)

    if out is not None:
        whole = _into(function, out.dtype, kind)
    statistic = Statistic(whole, rule, (), rule.dtype, function is np.nanmedian)
    return _finished(statistic, x, axis, out, keepdims)


@implements(np.quantile, objects=Objects.GATHER)
def quantile(
    a: ArrayLike,
    q: ArrayLike,
    axis: Axes = None,
    out: DistArray | None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: ArrayLike | None = None,
) -> Any:
    """Compute quantiles over axes; see :func:`numpy.quantile`.

    Parameters
    ----------
    a : DistArray
        Any layout; it is never overwritten.
    q : array_like of float
        Every rank gets all quantiles.
    axis, out, overwrite_input, method, keepdims
        As in :func:`numpy.quantile`.
    weights : array_like, optional
        Best in the layout of `a`. They are summed exactly; NumPy rounds its sums, and may take the
        next element where a sum equals a quantile.

    Returns
    -------
    DistArray
        The dimensions of `q` come first, and are whole; the others are cut as for :func:`median`.

    Cost
    ----
    The cost of :func:`median`; all quantiles are found together.
    """
    arguments = {"method": method, "weights": weights}
    return _quantiles(np.quantile, a, q, axis, out, keepdims, arguments)


@implements(np.percentile, objects=Objects.GATHER)
def percentile(
    a: ArrayLike,
    q: ArrayLike,
    axis: Axes = None,
    out: DistArray | None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: ArrayLike | None = None,
) -> Any:
    """Compute percentiles over axes; see :func:`numpy.percentile` and :func:`quantile`.

    Cost
    ----
    The cost of :func:`quantile`.
    """
    arguments = {"method": method, "weights": weights}
    return _quantiles(np.percentile, a, q, axis, out, keepdims, arguments)


@implements(np.nanquantile, objects=Objects.GATHER)
def nanquantile(
    a: ArrayLike,
    q: ArrayLike,
    axis: Axes = None,
    out: DistArray | None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = NoValue,
    *,
    weights: ArrayLike | None = None,
) -> Any:
    """Compute quantiles over axes, ignoring NaN; see :func:`numpy.nanquantile`.

    Cost
    ----
    The cost of :func:`quantile`.
    """
    arguments = {"method": method, "weights": weights}
    return _quantiles(np.nanquantile, a, q, axis, out, keepdims, arguments)


@implements(np.nanpercentile, objects=Objects.GATHER)
def nanpercentile(
    a: ArrayLike,
    q: ArrayLike,
    axis: Axes = None,
    out: DistArray | None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = NoValue,
    *,
    weights: ArrayLike | None = None,
) -> Any:
    """Compute percentiles over axes, ignoring NaN; see :func:`numpy.nanpercentile`.

    Cost
    ----
    The cost of :func:`quantile`.
    """
    arguments = {"method": method, "weights": weights}
    return _quantiles(np.nanpercentile, a, q, axis, out, keepdims, arguments)


def _quantiles(
    function: Callable[..., Any],
    a: ArrayLike,
    q: ArrayLike,
    axis: Axes,
    out: DistArray | None,
    keepdims: bool,
    arguments: dict[str, Any],
) -> Any:
    """Compute any of the four kinds of quantiles; `arguments` holds the method and the weights."""
    x = as_distarray(a, common_mesh(a, q, out, arguments["weights"]))
    keepdims = keepdims is not NoValue and bool(keepdims)
    q = np.asarray(q) if isinstance(q, DistArray) else q
    if out is not None and _is_spread(_shape_of(x, q, axis, keepdims), tuple(out.shape)):
        _copyto(out, _quantiles(function, x, q, axis, None, keepdims, arguments))
        return out
    weights = arguments["weights"]
    if x.dtype.kind == "c":
        raise TypeError("a must be an array of real numbers")
    if weights is not None:
        weights = checked(weights, x, axis, arguments["method"])
        arguments["weights"] = np.ones([min(extent, 1) for extent in x.shape])
    kind = _probed(function, x, (q,), axis, out, keepdims, **arguments)
    fractions, weak = _fractions(function, q)
    skips = function in (np.nanquantile, np.nanpercentile)
    if weights is not None and x.size:
        axes = tuple(range(x.ndim)) if axis is None else normalize_axis_tuple(axis, x.ndim)
        parts = WeightedCall(function, fractions).along(x, weights, axes, keepdims)
        return write(*parts, x.mesh, out)
    rule = _Quantiles(function, arguments["method"], fractions, weak)

    def whole(block: Array, axis: tuple[int, ...], keepdims: bool) -> Any:
        return function(block, q, axis, method=arguments["method"], keepdims=keepdims)

    return _finished(Statistic(whole, rule, fractions.shape, kind, skips), x, axis, out, keepdims)


_copyto: Any = np.copyto


def _shape_of(x: DistArray, q: ArrayLike, axis: Axes, keepdims: bool) -> Shape:
    return (*np.shape(q), *plan_reduction(x.layout, axis, keepdims, x.dtype).layout.shape)


def _is_spread(shape: Shape, target: Shape) -> bool:
    """Return True if a result must be broadcast to the shape of an `out`, as by a ufunc."""
    try:
        return shape != target and np.broadcast_shapes(shape, target) == target
    except ValueError:
        return False


def _fractions(function: Callable[..., Any], q: ArrayLike) -> tuple[Array, bool]:
    """Return the quantiles as fractions from 0 to 1, and whether they are a Python number."""
    weak = type(q) in (int, float)
    if function in (np.percentile, np.nanpercentile):
        return np.true_divide(q, 100, out=...), weak
    return np.asanyarray(q), weak


def _probed(
    function: Callable[..., Any],
    x: DistArray,
    given: tuple[Any, ...],
    axis: Axes,
    out: DistArray | None,
    keepdims: bool,
    **arguments: ArrayLike | None,
) -> DType:
    """Return the data type of the result; raise NumPy's exceptions about any argument."""
    probe = np.zeros((1,) * x.ndim, x.dtype)  # NumPy warns twice about an empty array
    value = np.asarray(function(probe, *given, axis=axis, keepdims=keepdims, **arguments))
    if out is not None:
        lead = value.shape[: np.ndim(given[0])] if given else ()
        wanted = (*lead, *plan_reduction(x.layout, axis, keepdims, x.dtype).layout.shape)
        if tuple(out.shape) != wanted:
            raise ValueError(f"the result has shape {wanted}, but `out` has {tuple(out.shape)}")
        small = np.zeros(value.shape, out.dtype)
        function(probe, *given, axis=axis, out=small, keepdims=keepdims, **arguments)
    return value.dtype


def _into(function: Callable[..., Any], dtype: DType, kind: DType) -> Any:
    """Return the function with an `out` of a data type, in which NumPy then computes."""

    def whole(block: Array, axis: tuple[int, ...], keepdims: bool) -> Any:
        kept = [1 if dim in axis else extent for dim, extent in enumerate(block.shape)]
        shape = kept if keepdims else [e for dim, e in enumerate(block.shape) if dim not in axis]
        return function(block, axis, np.empty(shape, dtype), keepdims=keepdims)

    return whole


def _finished(
    statistic: Statistic, x: DistArray, axis: Axes, out: DistArray | None, keepdims: bool
) -> Any:
    """Return the statistic as an array, or write it to `out`."""
    axes = tuple(range(x.ndim)) if axis is None else normalize_axis_tuple(axis, x.ndim)
    if not x.size:
        whole = statistic.function(np.empty(x.shape, x.dtype), axis=axes, keepdims=keepdims)
        empty = as_distarray(whole, x.mesh)
        return write(empty.block, empty.layout, x.mesh, out)
    part, layout = along(statistic, x, axes, keepdims)
    return write(part, layout, x.mesh, out)
