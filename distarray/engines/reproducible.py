"""Floating-point reductions with the same bits on every mesh: ``config.reproducible``.

A sum is computed by a tree that depends only on the number of summands
(:mod:`distarray.plan.summation`). Over the last dimensions, contiguous in memory, it is the tree of
NumPy's own pairwise sum, so that the bits are NumPy's: each rank lets NumPy add the tree nodes that
are complete in its part. The ranks then join these few sums, and the summands at their borders, in
pairs. Over leading dimensions NumPy adds one row after the other, which two ranks cannot do at the
same time; there the leaves of the tree are chunks of rows, each added in NumPy's order.

A sum takes as long as a plain sum, plus log2(ranks) messages of about 2 log2(n) numbers and some
summands if the axis is cut. Products and other ufuncs that round (hypot, logaddexp) have no such
tree: the ranks along the axis compute one after another (:mod:`distarray.engines.chains`), which
takes as long as on one rank.
"""

import functools
from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from distarray.array import DistArray, movement
from distarray.array.portable import on_host
from distarray.comm import DeviceMesh
from distarray.comm.group import Group
from distarray.engines import chains
from distarray.layout import Cut, Layout
from distarray.plan import Tree
from distarray.plan.summation import CHUNK
from distarray.typing import Array, ArrayLike

__all__ = [
    "Held",
    "added_up",
    "in_order_dtype",
    "join",
    "ordered_sum",
    "reduce",
    "scattered",
    "two_and_two",
]

NoValue: Any = np._NoValue
NOTE = "sum in order"


def reduce(
    ufunc: np.ufunc,
    x: DistArray,
    axes: tuple[int, ...],
    dtype: np.dtype[Any],
    initial: ArrayLike = NoValue,
    mask: Array | None = None,
) -> Array:
    """Apply ``ufunc.reduce`` to real or complex floats, with the same bits on every mesh.

    Parameters and result are those of :func:`distarray.engines.chains.reduce`.
    """
    if ufunc is not np.add:
        work = in_order_dtype(ufunc, dtype)
        return chains.reduce(ufunc, x, axes, work, initial, mask).astype(dtype)
    block = x.block
    if mask is not None:
        block = np.where(mask, block, block.dtype.type(0))
    total = ordered_sum(block, axes, x.layout, x.mesh, dtype)
    return total if initial is NoValue or initial is None else np.add(initial, total).astype(dtype)


def in_order_dtype(ufunc: np.ufunc, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the data type to compute in so that equal operations give equal bits.

    NumPy multiplies complex numbers with fused instructions in some loops and without them in
    others, depending on lengths and strides; for extended precision it has a single loop.
    """
    return np.dtype(np.clongdouble) if dtype.kind == "c" and ufunc is not np.add else dtype


def ordered_sum(
    block: Array, axes: tuple[int, ...], layout: Layout, mesh: DeviceMesh, dtype: np.dtype[Any]
) -> Array:
    """Sum a distributed array over axes.

    Parameters
    ----------
    block : array
        This rank's block of the array. A GPU adds in its own order, so the host adds GPU blocks.
    axes : tuple of int
        The dimensions to sum over.
    layout : Layout
        The layout of the array, a plain layout.
    mesh : DeviceMesh
        The mesh of the array.
    dtype : dtype
        The data type of the result: floating-point or complex.

    Returns
    -------
    array
        This rank's block of the result, with the reduced dimensions kept.

    Cost
    ----
    For each reduced dimension that is cut, log2(ranks) messages and a broadcast of the result. If
    trailing dimensions are reduced and any but the first of these is cut, the array is first
    redistributed. A block that is not in C order is copied.
    """
    total: Array = on_host(_ordered_sum, block, axes, layout, mesh, dtype)
    return total


def _ordered_sum(
    block: Array, axes: tuple[int, ...], layout: Layout, mesh: DeviceMesh, dtype: np.dtype[Any]
) -> Array:
    if dtype == np.float16:  # NumPy also adds these in single precision
        return _ordered_sum(block, axes, layout, mesh, np.dtype(np.float32)).astype(dtype)
    if not axes:
        return block.astype(dtype)
    first = layout.ndim
    while first - 1 in axes:
        first -= 1
    shape = [1 if dim in axes else extent for dim, extent in enumerate(block.shape)]
    if first < layout.ndim:
        lead = next((d for d in range(first, layout.ndim) if layout.shape[d] != 1), first)
        block, layout = _cut_first(block, layout, lead, range(first, layout.ndim), mesh)
        data = np.ascontiguousarray(block, dtype)
        inner = prod(layout.shape[lead + 1 :])
        tree = Tree(layout.shape[lead] * inner, 2 if dtype.kind == "c" else 1)
        data = data.reshape(prod(data.shape[:first]), -1 if data.size else 0, 1)
        data = _along(data, tree, layout.cuts[lead], inner, mesh)
    else:
        data = np.ascontiguousarray(block, dtype)
    for axis in sorted([axis for axis in axes if axis < first], reverse=True):
        before, count, after = prod(block.shape[:axis]), block.shape[axis], prod(shape[axis + 1 :])
        tree = Tree(layout.shape[axis], 0)
        data = _along(data.reshape(before, count, after), tree, layout.cuts[axis], 1, mesh)
    return data.reshape(shape)


def _cut_first(
    block: Array, layout: Layout, lead: int, dims: Sequence[int], mesh: DeviceMesh
) -> tuple[Array, Layout]:
    """Redistribute so that of `dims` only `lead` is cut, by the mesh dimensions of all."""
    others = [dim for dim in dims if dim != lead and layout.cuts[dim].parts > 1]
    if not others:
        return block, layout
    cutting = [m for dim in (lead, *others) for m in layout.cuts[dim].mesh_dims]
    radix = tuple([mesh.shape[m] for m in cutting])
    cut = Cut.chunked(layout.shape[lead], tuple(cutting), radix)
    wanted = layout.without_cut(others).replace(lead, cut)
    return movement.moved(block, layout, wanted, mesh.on("cpu")), wanted


# -- trees -------------------------------------------------------------------------------------


class Held(NamedTuple):
    """Range of summands and the values of its tree pieces, along an array's first dimension."""

    start: int
    stop: int
    values: Array


def _along(data: Array, tree: Tree, cut: Cut, inner: int, mesh: DeviceMesh) -> Array:
    """Sum over the middle of three dimensions, of which this rank holds a range.

    Parameters
    ----------
    data : array
        This rank's summands: (before, summands, after), in C order.
    tree : Tree
        The tree of all summands.
    cut : Cut
        The cut of the summands, in units of `inner`.
    inner : int
        Summands per index of the cut.
    mesh : DeviceMesh
        The mesh.
    """
    if cut.parts == 1:
        return _node(tree, data)
    part = mesh.subgroup(cut.mesh_dims).rank
    bounds = [bound * inner for bound in cut.interval(part)]
    return added_up(_held(tree, data, *bounds), tree, cut, mesh, inner)


def added_up(held: Held, tree: Tree, cut: Cut, mesh: DeviceMesh, inner: int = 1) -> Array:
    """Compute the whole sum, on all ranks of the cut.

    Parameters
    ----------
    held : Held
        This rank's range of the summands.
    tree : Tree
        The tree of all summands.
    cut : Cut
        The cut of the summands, in units of `inner`.
    mesh : DeviceMesh
        The mesh.
    inner : int
        Summands per index of the cut.
    """
    group = mesh.subgroup(cut.mesh_dims)  # its ranks hold the blocks of the cut
    order = range(group.size)[:: -1 if cut.step < 0 else 1]
    found = _brought_together(held, tree, cut, inner, group, order)
    return group.broadcast(found, order[0], NOTE) if found.size else found


def scattered(
    parts: Sequence[Held], tree: Tree, bounds: Sequence[tuple[int, int]], group: Group
) -> Array:
    """Compute this rank's part of the whole sum, as in a reduce-scatter.

    Parameters
    ----------
    parts : sequence of Held
        For each rank of the group, this rank's tree pieces for that rank's part of the sum.
    tree : Tree
        The tree of all summands.
    bounds : sequence of (int, int)
        Start and stop of each rank's summands.
    group : Group
        The ranks that have summands.
    """
    shape = parts[group.rank].values.shape[1:]
    lines = group.alltoall_varied([part.values.reshape(-1) for part in parts], NOTE)
    if not tree.length or not prod(shape):
        return np.zeros(shape, lines[0].dtype)
    pairs = zip(bounds, lines, strict=True)
    held = [Held(start, stop, line.reshape(-1, *shape)) for (start, stop), line in pairs]
    held.sort(key=lambda part: (part.start, part.stop))
    whole: Array = functools.reduce(functools.partial(join, tree), held).values[0]
    return whole


def _held(tree: Tree, data: Array, start: int, stop: int) -> Held:
    """Compute the values of the tree pieces of this rank's range."""
    values = [np.empty((0, data.shape[0], data.shape[2]), data.dtype)]
    for piece in tree.pieces(start, stop):
        part = data[:, piece.start - start : piece.stop - start]
        values.append(_node(tree, part)[None] if piece.is_node else part.transpose(1, 0, 2))
    return Held(start, stop, np.concatenate(values))


def _brought_together(
    held: Held, tree: Tree, cut: Cut, inner: int, group: Group, order: Sequence[int]
) -> Array:
    """Join the ranks' values in pairs; return the sum on the first rank in `order`.

    The other ranks return an uninitialized array of the sum's shape.
    """
    place, size, step = order.index(group.rank), group.size, 1
    rest, kind = held.values.shape[1:], held.values.dtype
    while step < size:
        if place % (2 * step):
            if held.values.size:
                group.exchange([(order[place - step], held.values)], [], NOTE)
            return np.empty(rest, kind)
        if place + step < size:
            peer, last = order[place + step], order[min(place + 2 * step, size) - 1]
            start, stop = cut.interval(peer)[0] * inner, cut.interval(last)[1] * inner
            count = sum([piece.values for piece in tree.pieces(start, stop)])
            theirs = np.empty((count, *rest), kind)
            if theirs.size:
                group.exchange([], [(peer, theirs)], NOTE)
            held = join(tree, held, Held(start, stop, theirs))
        step *= 2
    return held.values[0] if tree.length else np.zeros(rest, kind)


def join(tree: Tree, left: Held, right: Held) -> Held:
    """Join two neighboring ranges: compute the values of the tree pieces of the joint range."""
    if left.start == left.stop or right.start == right.stop:
        return right if left.start == left.stop else left
    known = _Known(tree, left, right)
    values = [
        known.total(piece.start, piece.stop)[None]
        if piece.is_node
        else known.summands(piece.start, piece.stop)
        for piece in tree.pieces(left.start, right.stop)
    ]
    return Held(left.start, right.stop, np.concatenate(values))


class _Known:
    """Sums of nodes and summands of leaves that two neighboring ranges hold."""

    def __init__(self, tree: Tree, *sides: Held) -> None:
        self._tree = tree
        self._nodes: dict[tuple[int, int], Array] = {}
        self._loose: list[tuple[int, Array]] = []
        for side in sides:
            place = 0
            for piece in tree.pieces(side.start, side.stop):
                found = side.values[place : place + piece.values]
                place += piece.values
                if piece.is_node:
                    self._nodes[piece.start, piece.stop] = found[0]
                else:
                    self._loose.append((piece.start, found))

    def summands(self, start: int, stop: int) -> Array:
        """Return the summands of a range within a leaf."""
        inside = [
            found[max(start - first, 0) : stop - first]
            for first, found in self._loose
            if first < stop and start < first + len(found)
        ]
        return np.concatenate(inside)

    def total(self, start: int, stop: int) -> Array:
        """Return the sum of a node."""
        known = self._nodes.get((start, stop))
        if known is not None:
            return known
        tree = self._tree
        if tree.is_leaf(start, stop):
            return _node(tree, np.ascontiguousarray(self.summands(start, stop).swapaxes(0, 1)))
        middle = tree.middle(start, stop)
        added: Array = self.total(start, middle) + self.total(middle, stop)
        return added


def _node(tree: Tree, data: Array) -> Array:
    """Compute the sum of a whole node of the tree; `data` is (before, summands, after)."""
    if tree.width:
        total: Array = np.add.reduce(data[:, :, 0], axis=1)[:, None]
        return total
    if data.shape[2] == 1:  # NumPy would add a single contiguous column pairwise
        return _sum_of_chunks(np.repeat(data, 2, axis=2))[:, :1]
    return _sum_of_chunks(data)


def _sum_of_chunks(data: Array) -> Array:
    """Sum rows chunk by chunk, then sum the chunks in pairs."""
    before, count, after = data.shape
    full = count // CHUNK
    chunks = data[:, : full * CHUNK].reshape(before, full, CHUNK, after)
    sums: Array = np.add.reduce(chunks, axis=2)
    if full * CHUNK < count or not count:
        rest = np.add.reduce(data[:, full * CHUNK :], axis=1)
        sums = np.concatenate([sums, rest[:, None]], axis=1)
    return two_and_two(sums, 1)


def two_and_two(sums: Array, axis: int) -> Array:
    """Sum along a dimension in place: add neighbors in pairs until one sum is left."""
    rows = np.moveaxis(sums, axis, 0)
    count, step = len(rows), 1
    while step < count:
        rows[: count - step : 2 * step] += rows[step :: 2 * step]
        step *= 2
    total: Array = rows[0]
    return total
