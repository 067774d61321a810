"""Memory order of the blocks of an array: one result for the whole array, the same on all ranks.

Whether a result shares memory with its operand is a property of the global array, as in NumPy: all
ranks share memory, or all copy. If this follows from the layouts (elements that change rank are
copied), no message is needed. If it depends on strides (:func:`is_contiguous`, :func:`can_merge`,
:func:`stored_order`), a rank's own block may not determine it. A block with one index along a
dimension is consistent with any order along that dimension, and an empty block with any order at
all. On such a block NumPy's operations do not preserve the order that they preserve on other
blocks. Also, a view may leave gaps in the blocks of some ranks and take all elements of other
blocks. In these cases, and only in these, the ranks vote.

This assumes that blocks with two or more indices are stored in the same order on all ranks. That
holds for results of operations, and :func:`~distarray.array.from_local` ensures it.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from distarray.array.base import Base, natural_of, raw_block
from distarray.comm import DeviceMesh
from distarray.layout import Cut, Fold, Interval, Layout
from distarray.typing import Array, DType, DTypeLike

__all__ = [
    "can_merge",
    "common_order",
    "has_items_in_line",
    "has_lines_in_blocks",
    "has_several",
    "is_contiguous",
    "cast_type",
    "is_natural",
    "is_unlike",
    "natural",
    "placing_strides",
    "stored_order",
    "stored_walk",
    "suits",
    "unlike",
    "vacant",
    "walked",
]

#: Function that returns the placement of a view in the memory of the whole array, or None for an
#: array that is no view. Set by :mod:`distarray.array.geometry`.
in_whole: Callable[[Base], Array | None] = lambda _: None  # noqa: E731
#: Votes; the highest one decides. The first two come from blocks that do not determine the result.
_MAYBE, _HARDLY, _YES, _NO = range(4)


def vacant(own: Array, layout: Layout, mesh: DeviceMesh) -> Array:
    """Return the block of a view on a rank that has none of its elements; writeable as `own`.

    An empty block is made as a view, so that its flag can be set again where NumPy allows it.
    """
    shape = layout.local_shape(mesh.coords)
    if 0 in shape and np.ndim(own):
        return own[:0].reshape(shape)
    block: Array = mesh.xp.empty(shape, own.dtype)
    if not getattr(own.flags, "writeable", True):
        block = block[...]
        block.flags.writeable = False
    return block


def is_contiguous(x: Base, order: str, everywhere: bool = True) -> bool:
    """Return True if an array is stored without gaps in C order ("C") or in Fortran order ("F").

    Parameters
    ----------
    x : DistArray
        The array.
    order : str
        The order.
    everywhere : bool
        True if ranks without elements need the same result, too. They share no memory in any case;
        if False, their result may differ.

    Cost
    ----
    One allreduce of an integer if blocks do not determine the result: if some rank has a single
    index of a longer dimension, or (with `everywhere`) no elements; or if a view takes only some
    elements of one rank's block of its base, and all elements of another block. None otherwise, nor
    for "C" if the array is known to have been made in C order.
    """
    if order == "C" and is_natural(x):
        return True
    if is_unlike(x):
        return False
    whole = in_whole(x)
    if whole is not None:
        return whole.flags.c_contiguous if order == "C" else whole.flags.f_contiguous
    block, layout = x.to_local(), x.layout
    dims = [dim for dim, extent in enumerate(layout.shape) if extent > 1]
    inner = dims[1:] if order == "C" else dims[:-1]
    return _decided(x, _of_contiguity(block, layout, order), dims, inner, everywhere)


def is_fortran_alone(x: Base) -> bool:
    """Return True if an array is in Fortran order and not in C order, as NumPy's ``flags.fnc``.

    Cost
    ----
    Twice that of :func:`is_contiguous`.
    """
    return x.ndim > 1 and not is_contiguous(x, "C") and is_contiguous(x, "F")


def has_items_in_line(x: Base) -> bool:
    """Return True if the items along the last dimension (of extent above 1) are adjacent in memory.

    Cost
    ----
    That of :func:`is_contiguous`.
    """
    if is_natural(x):
        return True
    whole = in_whole(x)
    if whole is not None:
        return whole.shape[-1] == 1 or whole.strides[-1] == whole.itemsize
    return has_lines_in_blocks(x)


def has_lines_in_blocks(x: Base) -> bool:
    """Return :func:`has_items_in_line` for blocks; an alias may store them in another order."""
    dims = [dim for dim, extent in enumerate(x.layout.shape) if extent > 1]
    return _decided(x, _of_items(x.block, x.layout), dims, (), everywhere=True)


def _of_items(block: Array, layout: Layout) -> int:
    if not block.size:
        return _MAYBE
    size = block.itemsize
    if block.shape[-1] > 1 and block.strides[-1] != size:
        return _NO
    if not _is_open(block, layout, range(layout.ndim)):
        return _YES
    # The step of an outer dimension with a single index may be an item or less.
    near = block.shape[-1] > 1 and any(abs(step) <= size for step, _ in _steps(block, layout)[:-1])
    return _HARDLY if near or block.strides[-1] != size else _MAYBE


def cast_type(dtype: DTypeLike) -> DType:
    """Return the data type to cast to; for a class its instance without size, left to the cast."""
    if isinstance(dtype, type) and issubclass(dtype, np.dtype):
        if dtype is np.dtype:
            np.empty(0, dtype)  # raises NumPy's error
        kind: Any = dtype
        made: DType = kind() if kind.type is str else np.dtype(kind.type)
        return made
    return np.dtype(dtype)


def suits(x: Base, dtype: DTypeLike, order: str) -> bool:
    """Return True if an array has a data type and is stored in an order: "C", "F", or any ("K").

    Then a conversion need not copy it.

    Cost
    ----
    That of :func:`is_contiguous` for the orders "C" and "F"; else none.
    """
    own = x.block.dtype
    kind = own if dtype is None else cast_type(dtype)
    if kind != own and kind.type is own.type:
        kind = np.empty(0, own).astype(kind).dtype  # strings of any length, dates of any unit
    if kind != own or isinstance(x.block, np.generic):
        return False
    return order not in ("C", "F") or is_contiguous(x, order)


def is_natural(x: Base) -> bool:
    """Return True if all ranks know that all blocks are in C order, without gaps."""
    return natural_of(x) is raw_block(x)


def is_unlike(x: Base) -> bool:
    """Return True if blocks may be stored in different orders on different ranks."""
    return natural_of(x) is False


def unlike(x: Base) -> Any:
    """Mark an array, on all ranks, as possibly stored in different orders; return the array."""
    x._natural = False
    return x


def natural(x: Base) -> Any:
    """Mark an array, on all ranks, as stored in C order on all ranks; return the array."""
    x._natural = raw_block(x)
    return x


def _of_contiguity(block: Array, layout: Layout, order: str) -> int:
    flags = block.flags
    if not block.size:
        return _MAYBE
    if not (flags.c_contiguous if order == "C" else flags.f_contiguous):
        return _NO
    if not _is_open(block, layout, range(layout.ndim)):
        return _YES
    steps = _steps(block, layout)
    kept = _is_chained(steps if order == "F" else steps[::-1], block.itemsize)
    return _MAYBE if kept else _HARDLY


def _steps(block: Array, layout: Layout) -> list[tuple[int, int]]:
    """Return the step in bytes and the block's extent, for dimensions with several indices.

    A dimension with one index in the whole array is left out: its step is arbitrary.
    """
    pairs = zip(block.strides, block.shape, layout.shape, strict=True)
    return [(step, extent) for step, extent, whole in pairs if whole > 1]


def _is_chained(steps: Sequence[tuple[int, int]], step: int) -> bool:
    """Return True if the first step is `step`, and each other one the span of the previous ones."""
    for own, extent in steps:
        if own != step:
            return False
        step *= extent
    return True


def can_merge(x: Base, groups: Sequence[Interval], everywhere: bool = True) -> bool:
    """Return True if each group of adjacent dimensions can be merged into one without a copy.

    Parameters
    ----------
    x : DistArray
        The array.
    groups : sequence of (int, int)
        For each group the first dimension, and the one after its last.
    everywhere : bool
        The same as for :func:`is_contiguous`.

    Cost
    ----
    That of :func:`is_contiguous`.
    """
    dims = [dim for first, last in groups if last - first > 1 for dim in range(first, last)]
    if not dims or is_natural(x):
        return True
    if is_unlike(x):
        return False
    whole = in_whole(x)
    if whole is not None:
        return _of_merging(whole, Layout.replicated(whole.shape, ()), groups, dims) != _NO
    inner = [dim for first, last in groups for dim in range(first + 1, last)]
    return _decided(x, _of_merging(x.block, x.layout, groups, dims), dims, inner, everywhere)


def _of_merging(
    block: Array, layout: Layout, groups: Sequence[Interval], dims: Sequence[int]
) -> int:
    if not block.size:
        return _MAYBE
    loose = False
    for first, last in groups:
        kept = [dim for dim in range(first, last) if block.shape[dim] > 1]
        if not _is_chain(block, kept):
            return _NO
        loose = loose or not _is_chain(block, range(first, last))
    if not _is_open(block, layout, dims):
        return _YES
    return _HARDLY if loose else _MAYBE


def _is_chain(block: Array, dims: Sequence[int]) -> bool:
    """Return True if each dimension's step is exactly the span of the next dimension."""
    strides, shape = block.strides, block.shape
    return all(strides[dim] == strides[after] * shape[after] for dim, after in pairwise(dims))


def _decided(
    x: Base, vote: int, dims: Sequence[int], inner: Sequence[int], everywhere: bool
) -> bool:
    # Ranks without elements need the result if the array is read-only: a copy of it is writeable.
    layout, all_ask = x.layout, everywhere or not getattr(raw_block(x).flags, "writeable", True)
    if not layout.is_whole and _is_asked(layout, tuple(dims), tuple(inner), all_ask):
        vote = int(x.mesh.group.allreduce(np.array(vote), Fold.MAX, "storage"))
    return vote in (_YES, _MAYBE)


def _is_open(block: Array, layout: Layout, dims: Sequence[int]) -> bool:
    """Return True if a block has a single index of a dimension that is longer in the array."""
    return any(block.shape[dim] == 1 < layout.shape[dim] for dim in dims)


@lru_cache(maxsize=4096)
def _is_asked(
    layout: Layout, dims: tuple[int, ...], inner: tuple[int, ...], everywhere: bool
) -> bool:
    """Return True if on some rank the block does not determine the result for these dimensions.

    Gaps in the `inner` dimensions separate elements along the other dimensions.
    """
    cuts = layout.cuts
    if any(_lengths(cuts[dim])[0] for dim in dims if layout.shape[dim] > 1):
        return True
    if any(_lengths(cuts[dim])[2] for dim in inner):
        return True
    return everywhere and (bool(layout.ats) or any(_lengths(cut)[1] for cut in cuts))


@lru_cache(maxsize=4096)
def _lengths(cut: Cut) -> tuple[bool, bool, bool]:
    """Return three predicates about the blocks that a cut makes.

    They are: some block has a single index; some block has none; and a view takes only some indices
    of one block of its base, and all indices of another block.
    """
    if cut.parts == 1:
        return cut.extent == 1, cut.extent == 0, False
    base = Cut(cut.base, cut.mesh_dims, cut.radix, cut.base, bounds=cut.bounds)
    counts = [stop - start for start, stop in map(cut.interval, range(cut.parts))]
    before = [stop - start for start, stop in map(base.interval, range(cut.parts))]
    taken = {here == there for here, there in zip(counts, before, strict=True) if here}
    return 1 in counts, 0 in counts, len(taken) > 1


def stored_order(x: Base) -> tuple[int, ...]:
    """Return the dimensions from the largest stride to the smallest; the same on all ranks.

    Ranks whose block does not determine the order do not vote: a block with one index along all
    dimensions but one is consistent with any order. If no rank votes, the result is C order. The
    vote of a block with one index along some dimension counts only if no other rank is certain.

    Cost
    ----
    That of :func:`common_order`.
    """
    return common_order([x])


def common_order(arrays: Sequence[Base]) -> tuple[int, ...]:
    """Return the order in which arrays with equally many dimensions are stored; C if they differ.

    An array with several indices along only one dimension fits any order.

    Cost
    ----
    One allreduce for all arrays. None if one is known to be in C order, if none has an order, or
    if all are replicated.
    """
    ndim = arrays[0].ndim
    natural = tuple(range(ndim))
    asked = [x for x in arrays if sum([extent > 1 for extent in x.layout.shape]) > 1]
    if not asked or any(is_natural(x) for x in asked):
        return natural
    votes = np.array([_vote_on_order(x, in_whole(x)) for x in asked])
    if not all(x.layout.is_replicated for x in asked):
        votes = arrays[0].mesh.group.allreduce(votes, Fold.MAX, "storage order")
    known = {int(vote) for vote in votes if vote >= 0}
    orders = {tuple([vote // ndim**place % ndim for place in natural]) for vote in known}
    return orders.pop() if len(orders) == 1 else natural


@lru_cache(maxsize=4096)
def has_several(layout: Layout) -> bool:
    """Return True if every rank has two or more indices of each dimension of extent above 1."""
    several = [cut for cut in layout.cuts if cut.extent > 1]
    return not layout.ats and not any(single or none for single, none, _ in map(_lengths, several))


def stored_walk(x: Base) -> tuple[tuple[int, ...], tuple[bool, ...]]:
    """Return the order of :func:`stored_order`, and True for each dimension with negative stride.

    Cost
    ----
    One allreduce of ``1 + ndim`` integers, unless the array is replicated or known to be in C
    order.
    """
    natural = tuple(range(x.ndim))
    if is_natural(x) or not x.ndim:
        return natural, (False,) * x.ndim
    whole = in_whole(x)
    block = x.to_local() if whole is None else whole
    pairs = zip(block.strides, x.layout.shape, strict=True)
    back = [bool(block.size) and extent > 1 and step < 0 for step, extent in pairs]
    several = sum([extent > 1 for extent in x.layout.shape]) > 1
    votes = np.array([_vote_on_order(x, whole) if several else -1, *back])
    if not x.layout.is_replicated:
        votes = x.mesh.group.allreduce(votes, Fold.MAX, "storage order")
    vote = int(votes[0])
    order = tuple([vote // x.ndim**place % x.ndim for place in natural]) if vote >= 0 else natural
    return order, tuple([bool(found) for found in votes[1:]])


def _vote_on_order(x: Base, whole: Array | None) -> int:
    """Return this rank's vote on the order: its code, -1 if undetermined; higher if it is certain.

    `whole` is the placement of a view in the memory of the whole array, if that is known.
    """
    natural = tuple(range(x.ndim))
    if whole is not None:
        certain: int = _coded(walked(whole.strides, whole.shape)) + x.ndim**x.ndim
        return certain
    block = x.to_local()
    vote = -1
    long = sum([extent > 1 for extent in block.shape]) > 1
    steps = [step for step, _ in _steps(block, x.layout)]
    if block.size and (long or (len(steps) > 1 and 0 not in steps)):
        order = walked(placing_strides(block, x.layout), block.shape)
        vote = _coded(order)
        if not _is_open(block, x.layout, natural):
            vote += x.ndim**x.ndim  # outweighs votes of blocks that do not determine the order
    return vote


def placing_strides(block: Array, layout: Layout) -> tuple[int, ...]:
    """Return the strides of a block that determine the order of dimensions.

    If a view takes every second index of a dimension and a rank has one of these, its stride is
    divided by the step of the view: the block's other strides are smaller than NumPy's for the
    whole array.
    """
    if block.flags.owndata:
        return block.strides
    triples = zip(block.strides, block.shape, layout.cuts, strict=True)
    return tuple([step // abs(cut.step) if n == 1 else step for step, n, cut in triples])


def walked(strides: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the dimensions as NumPy's iterator orders them for order "K", the outermost first.

    A dimension of stride 0 fits anywhere: it keeps its place, unless a neighbor moves past it. A
    dimension with a single index, which may have more on other ranks, has the stride of the
    dimension around it, and counts as the inner one.
    """
    steps = [(abs(step), extent > 1) for step, extent in zip(strides, shape, strict=True)]
    order = list(range(len(strides)))
    for place in reversed(order[:-1]):
        dim, new = order[place], place
        for other in range(place + 1, len(order)):
            if strides[dim] and strides[order[other]]:
                if steps[order[other]] <= steps[dim]:
                    break
                new = other
        order.insert(new, order.pop(place))
    return tuple(order)


def _coded(order: tuple[int, ...]) -> int:
    """Encode an order of dimensions as an integer."""
    return sum([dim * len(order) ** place for place, dim in enumerate(order)])
