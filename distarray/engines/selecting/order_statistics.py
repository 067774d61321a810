"""Statistics of the lines of an array along axes, made of a few order statistics of each.

Where the axes are not cut, each rank calls NumPy; a GPU, whose block would have to go to the host
for that, selects from long lines itself. Where they are cut, short lines are brought together,
each on one rank, if there are enough of them to keep all ranks busy; otherwise the ranks find the
order statistics together (:mod:`distarray.engines.selecting.selection`).
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

#: Arrays of fewer bytes are gathered on every rank, where NumPy takes less time than a message.
REPLICATED_BELOW = 1 << 17
#: Lines of which a rank has fewer elements are moved whole to one rank each: a search takes as
#: long as NumPy takes for about so many elements.
LONG = 1 << 15


class Rule(Protocol):
    """How a statistic is made of the order statistics of a line."""

    def wanted(self, n: int) -> list[int]:
        """The positions in a sorted line of n elements, n > 0, that it needs."""

    def value(self, n: int, found: dict[int, Any]) -> Any:
        """The statistic, from the elements at these positions."""

    def unknown(self, nan: Any) -> Any:
        """The statistic of a line with NaN; of nothing but NaN where NaN is left out."""


class Statistic(NamedTuple):
    """A call of one of NumPy's functions.

    Attributes
    ----------
    function : callable
        Takes an array, and `axis` and `keepdims` as keywords.
    rule : Rule
        How its result is made of order statistics.
    lead : tuple of int
        Dimensions of a line's statistic, which come first in the result.
    dtype : dtype
        Of the result.
    skips_nan : bool
        Whether NaN are left out.
    """

    function: Callable[..., Any]
    rule: Rule
    lead: tuple[int, ...]
    dtype: DType
    skips_nan: bool = False


def along(
    statistic: Statistic, x: DistArray, axes: tuple[int, ...], keepdims: bool
) -> tuple[Array, Layout]:
    """This rank's part of a statistic over axes, and its layout.

    Parameters
    ----------
    statistic : Statistic
        The call.
    x : DistArray
        In a plain layout.
    axes : tuple of int
        Counted from the front; all that the lines run along.
    keepdims : bool
        Whether they stay with extent 1.
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
    scalar = together or isinstance(part, np.generic)  # of a 0-d operand NumPy may give an array
    # A single line of nothing but NaN gives NaN of its own data type.
    own = getattr(as_array(part), "dtype", statistic.dtype)  # an object has none
    dtype = own if len(axes) == x.ndim else statistic.dtype
    part = x.mesh.asarray(part, dtype).reshape(shape)
    return x.mesh.scalar(part) if scalar and not shape else part, result


def _stays_on_device(x: DistArray, axes: tuple[int, ...]) -> bool:
    """Whether the lines, of which this rank has all, are too long to go through the host."""
    return x.mesh.device_type != "cpu" and prod([x.shape[axis] for axis in axes]) >= LONG


def brought(layout: Layout, axes: tuple[int, ...], nbytes: int) -> Layout:
    """The layout in which the lines along axes are worked on; the array's own where possible."""
    parts = prod([layout.cuts[axis].parts for axis in axes])
    if parts == 1:
        return layout
    if nbytes < REPLICATED_BELOW:
        return Layout.replicated(layout.shape, layout.mesh_shape)
    if prod([layout.shape[axis] for axis in axes]) >= LONG * parts:
        return layout
    return whole_lines(layout, axes) or layout


def whole_lines(layout: Layout, axes: tuple[int, ...]) -> Layout | None:
    """A layout with the axes whole, cut along another dimension; None if none is long enough."""
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
    """The statistic of lines that several ranks share; the other dimensions in one, the last."""
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
    """NaN or NaT of a data type; 0 where it has neither."""
    if dtype.kind in "mM":
        return np.array("NaT", dtype)[()]
    return dtype.type(np.nan) if dtype.kind in "fc" else dtype.type(0)


def lines_of(block: Array, axes: Sequence[int]) -> list[Array]:
    """The elements along some axes, 1-d, for each place in the others; their order is kept."""
    others = [dim for dim in range(block.ndim) if dim not in axes]
    if not others:
        return [contiguous(block).reshape(-1)]
    count = prod([block.shape[dim] for dim in others])
    moved = block.transpose(*others, *sorted(axes))
    return list(contiguous(moved).reshape(count, prod([block.shape[dim] for dim in axes])))


def cleaned(lines: Sequence[Array], group: Group) -> tuple[list[Array], Array]:
    """Lines without NaN, and how many elements of each every rank has."""
    found = [_without_nan(line) for line in lines]
    return found, group.allgather(np.array([line.size for line in found], np.int64))


def _without_nan(line: Array) -> Array:
    # The least element is NaN if any is, and finding it is faster than testing each.
    if line.dtype.kind not in "fcmM" or not line.size or not np.isnan(line.min()):
        return line
    return line[~np.isnan(line)]
