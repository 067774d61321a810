"""Statistics of the lines of an array along axes, computed from a few order statistics per line.

If the axes are not cut, each rank calls NumPy; a GPU selects from long lines itself, to avoid a
copy to the host. If the axes are cut, short lines are gathered, each on one rank, provided that
there are enough lines for all ranks; otherwise the ranks find the order statistics together
(:mod:`distarray.engines.selecting.selection`).
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple, Protocol

import numpy as np

from distarray.array import DistArray, to_layout
from distarray.array.portable import as_array, contiguous, on_host
from distarray.comm.group import Group
from distarray.engines.selecting.selection import select
from distarray.layout import Cut, Layout
from distarray.plan import plan_reduction
from distarray.typing import Array, DType

__all__ = [
    "LONG",
    "REPLICATED_BELOW",
    "Rule",
    "Statistic",
    "along",
    "brought",
    "lines_of",
    "missing",
]

#: Bytes of an array below which every rank gathers it: NumPy then takes less time than a message.
REPLICATED_BELOW = 1 << 17
#: Elements of a line per rank below which each line is gathered on one rank: a search takes as
#: long as NumPy takes for about this number of elements.
LONG = 1 << 15


class Rule(Protocol):
    """Rule that computes a statistic from the order statistics of a line."""

    def wanted(self, n: int) -> list[int]:
        """Return the required positions in a sorted line of n elements, n > 0."""

    def value(self, n: int, found: dict[int, Any]) -> Any:
        """Return the statistic, given the elements at these positions."""

    def unknown(self, nan: Any) -> Any:
        """Return the statistic of a line with NaN; of a line of only NaN if NaN is ignored."""


class Statistic(NamedTuple):
    """Call of a NumPy function that computes a statistic.

    Attributes
    ----------
    function : callable
        The function of an array, with keywords `axis` and `keepdims`.
    rule : Rule
        Rule that computes the result from order statistics.
    lead : tuple of int
        Shape of a line's statistic; these dimensions come first in the result.
    dtype : dtype
        Data type of the result.
    skips_nan : bool
        True if NaN is ignored.
    """

    function: Callable[..., Any]
    rule: Rule
    lead: tuple[int, ...]
    dtype: DType
    skips_nan: bool = False


def along(
    statistic: Statistic, x: DistArray, axes: tuple[int, ...], keepdims: bool
) -> tuple[Array, Layout]:
    """Compute this rank's part of a statistic over axes, and its layout.

    Parameters
    ----------
    statistic : Statistic
        The call.
    x : DistArray
        The array, in a plain layout.
    axes : tuple of int
        The reduced dimensions, nonnegative: all dimensions that form the lines.
    keepdims : bool
        True to keep the reduced dimensions with extent 1.
    """
    layout = brought(x.layout, axes, x.nbytes)
    x = to_layout(x, layout)
    plan = plan_reduction(layout, axes, keepdims, statistic.dtype)
    cuts = [*[Cut.whole(extent) for extent in statistic.lead], *plan.layout.cuts]
    result = Layout.from_cuts(cuts, layout.mesh_shape)
    shape = result.local_shape(x.mesh.coords)
    if x.mesh.coords is None or not prod(shape):
        part = x.mesh.xp.zeros(shape, statistic.dtype)
        return part if shape else x.mesh.scalar(part), result
    together = bool(plan.mesh_dims) or _stays_on_device(x, axes)
    if together:
        part = _selected(statistic, x, axes, x.mesh.subgroup(plan.mesh_dims))
    else:
        part = on_host(statistic.function, x.block, axis=axes, keepdims=keepdims)
    scalar = together or isinstance(part, np.generic)  # for a 0-d operand NumPy may return an array
    # The result of a single line of only NaN is a NaN of the line's own data type.
    own = getattr(as_array(part), "dtype", statistic.dtype)  # a Python object has no dtype
    dtype = own if len(axes) == x.ndim else statistic.dtype
    part = x.mesh.asarray(part, dtype).reshape(shape)
    return x.mesh.scalar(part) if scalar and not shape else part, result


def _stays_on_device(x: DistArray, axes: tuple[int, ...]) -> bool:
    """Return True if this rank's whole lines are on a device and too long to copy to the host."""
    return x.mesh.device_type != "cpu" and prod([x.shape[axis] for axis in axes]) >= LONG


def brought(layout: Layout, axes: tuple[int, ...], nbytes: int) -> Layout:
    """Return the layout in which lines along axes are processed; the array's own if possible."""
    parts = prod([layout.cuts[axis].parts for axis in axes])
    if parts == 1:
        return layout
    if nbytes < REPLICATED_BELOW:
        return Layout.replicated(layout.shape, layout.mesh_shape)
    if prod([layout.shape[axis] for axis in axes]) >= LONG * parts:
        return layout
    return whole_lines(layout, axes) or layout


def whole_lines(layout: Layout, axes: tuple[int, ...]) -> Layout | None:
    """Return a layout with the axes whole and another dimension cut; None if all are too short."""
    others = [dim for dim in range(layout.ndim) if dim not in axes]
    if not others:
        return None
    target = max(others, key=lambda dim: layout.shape[dim] // layout.cuts[dim].parts)
    freed = {m for axis in axes for m in layout.cuts[axis].mesh_dims}
    mesh_dims = tuple(sorted({*freed, *layout.cuts[target].mesh_dims}))
    radix = tuple([layout.mesh_shape[m] for m in mesh_dims])
    if layout.shape[target] < prod(radix):
        return None
    cut = Cut.chunked(layout.shape[target], mesh_dims, radix)
    return layout.settled().without_cut(axes).replace(target, cut)


def _selected(statistic: Statistic, x: DistArray, axes: Sequence[int], group: Group) -> Array:
    """Compute the statistics of lines that several ranks share; the last dimension counts lines."""
    lines, sizes = cleaned(lines_of(x.block, axes), group)
    counts = sizes.sum(0).tolist()
    length = prod([x.shape[axis] for axis in axes])
    rule = statistic.rule
    known = [bool(n) and (statistic.skips_nan or n == length) for n in counts]
    wanted = [rule.wanted(n) if good else [] for n, good in zip(counts, known, strict=True)]
    found = select(lines, sizes, wanted, group, x.mesh.to_host)
    nan = missing(x.dtype)
    values = [
        rule.value(n, answers) if good else rule.unknown(nan)
        for n, answers, good in zip(counts, found, known, strict=True)
    ]
    return np.stack([np.asarray(value) for value in values], axis=-1)


def missing(dtype: DType) -> Any:
    """Return the NaN or NaT of a data type; 0 if the type has neither."""
    if dtype.kind in "mM":
        return np.array("NaT", dtype)[()]
    return dtype.type(np.nan) if dtype.kind in "fc" else dtype.type(0)


def lines_of(block: Array, axes: Sequence[int]) -> list[Array]:
    """Split a block into 1-d lines along the axes, one for each index of the other dimensions."""
    others = [dim for dim in range(block.ndim) if dim not in axes]
    if not others:
        return [contiguous(block).reshape(-1)]
    count = prod([block.shape[dim] for dim in others])
    moved = block.transpose(*others, *sorted(axes))
    return list(contiguous(moved).reshape(count, prod([block.shape[dim] for dim in axes])))


def cleaned(lines: Sequence[Array], group: Group) -> tuple[list[Array], Array]:
    """Return the lines without NaN, and the number of elements per rank and line."""
    found = [_without_nan(line) for line in lines]
    return found, group.allgather(np.array([line.size for line in found], np.int64))


def _without_nan(line: Array) -> Array:
    # The minimum is NaN if any element is, and computing it is faster than testing each element.
    if line.dtype.kind not in "fcmM" or not line.size or not np.isnan(line.min()):
        return line
    return line[~np.isnan(line)]
