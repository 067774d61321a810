"""Products of blocks, tile by tile: bitwise equal results wherever the arrays are cut.

Each tile is one call of BLAS, with operands of the same shape, in memory of the same order and
alignment, on one thread. The operands are copied for this. If a rank has only some rows or columns
of a tile, it repeats these rows or columns in place of the missing ones, since copies raise no
floating-point errors of their own. At the end of the summands, both operands are padded with zeros.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from distarray.engines.contracting.lines import line_product, takes
from distarray.engines.contracting.tiling import Side, Tiling
from distarray.engines.reproducible import two_and_two
from distarray.plan import Contraction
from distarray.typing import Array

__all__ = ["tiled_product"]

#: Alignment of buffers, in bytes: BLAS may process numbers before the first boundary differently.
_ALIGNMENT = 64
#: Approximate number of elements copied at a time, for tiles and for a batch of small matrices.
_STRETCH = _BATCH = 1 << 17
#: Rows and columns whose results are held at a time.
_PANEL = (4096, 1024)

Interval = tuple[int, int]


def tiled_product(
    spec: Contraction,
    tiling: Tiling,
    blocks: Sequence[Array],
    box: Sequence[Interval],
    dtype: np.dtype[Any],
) -> Array:
    """Compute the product of this rank's blocks, in pieces of the tree of sums.

    Parameters
    ----------
    spec : Contraction
        The labels of the operands and of the result.
    tiling : Tiling
        The division into tiles.
    blocks : sequence of array
        The blocks of both operands, on the host.
    box : sequence of (int, int)
        For each label, the range of indices that the blocks have.
    dtype : dtype
        The data type to multiply and add in.

    Returns
    -------
    array
        The sums of the pieces, along an additional first dimension.
    """
    left, right, depth = tiling.left, tiling.right, box[tiling.depth]
    a, b = blocks
    a = np.conjugate(a) if spec.conjugated and a.dtype.kind == "c" else a
    factors = [
        _arranged(block, term, side, tiling)
        for block, term, side in zip((a, b), spec.terms, (left, right), strict=True)
    ]
    rows, columns = [box[side.edge[0]] if side.edge else (0, 1) for side in (left, right)]
    pieces = tiling.tree.pieces(*depth)
    (r, stack, _, _, m), (c, _, _, _, n) = [factor.shape for factor in factors]
    result = np.empty((len(pieces), r, c, stack, m, n), dtype)
    if takes(tiling, dtype):
        for number, piece in enumerate(pieces):
            stretch = slice(piece.start - depth[0], piece.stop - depth[0])
            parts = [factor[0, 0, stretch, 0] for factor in factors]
            result[number] = _with_line(spec, tiling, parts, dtype).reshape(result.shape[1:])
        return _in_order(result, spec, tiling, box)
    for key in _panels(tiling, result.shape, rows, columns):
        into = result[(slice(None), *key)]
        panel = _Panel(
            tiling,
            factors[0][key[0], key[2], ..., key[3]],
            factors[1][key[1], key[2], ..., key[4]],
            (depth[0], rows[0] + key[3].start, columns[0] + key[4].start),
            dtype,
        )
        for number, piece in enumerate(pieces):
            panel.node(piece.start, piece.stop, into[number])
    return _in_order(result, spec, tiling, box)


def _with_line(
    spec: Contraction, tiling: Tiling, factors: Sequence[Array], dtype: np.dtype[Any]
) -> Array:
    """Sum a node of a product with a vector; the factors are (depth, edge)."""
    first = bool(tiling.left.edge)
    matrix, line = factors if first else reversed(factors)
    labels = [label for label in spec.terms[0 if first else 1] if label >= 0]
    along = labels[-1] == tiling.depth
    return line_product(matrix, line[:, 0], tiling.tree.chunk, along, dtype)


def _arranged(block: Array, term: Sequence[int], side: Side, tiling: Tiling) -> Array:
    """Arrange a factor as (others, stack, depth, inner, edge), of one dimension each."""
    block = block[tuple([0 if label < 0 else slice(None) for label in term])]
    labels = [label for label in term if label >= 0]
    groups = (side.others, tiling.stack, (tiling.depth,), tiling.inner, side.edge)
    block = block.transpose([labels.index(label) for group in groups for label in group])
    extent = dict(zip([label for group in groups for label in group], block.shape, strict=True))
    return block.reshape([prod([extent[label] for label in group]) for group in groups])


def _in_order(result: Array, spec: Contraction, tiling: Tiling, box: Sequence[Interval]) -> Array:
    """Transpose the product of arranged factors to the dimensions of the result."""
    left, right = tiling.left, tiling.right
    made = (*left.others, *right.others, *tiling.stack, *left.edge, *right.edge)
    shape = [box[label][1] - box[label][0] for label in made]
    order = [1 + made.index(label) for label in spec.out]
    return result.reshape(len(result), *shape).transpose(0, *order)


def _panels(
    tiling: Tiling, shape: Sequence[int], rows: Interval, columns: Interval
) -> Iterator[tuple[slice, ...]]:
    """Yield keys of parts of the product, each small enough for the copies that it needs."""
    left, right, (_, r, c, stack, _, _) = tiling.left, tiling.right, shape
    leaf = tiling.summands * (left.tile + right.tile)
    several, counts = max(1, _BATCH // leaf), []
    for extent in (stack, c, r):
        counts.append(max(1, min(extent, several)))
        several //= counts[-1]
    edges = [
        [part for _, part in _cells(interval, max(1, most // side.tile) * side.tile)]
        for interval, most, side in zip((rows, columns), _PANEL, (left, right), strict=True)
    ]
    whole = zip((r, c, stack), reversed(counts), strict=True)
    batches = [[slice(k, k + n) for k in range(0, extent, n)] for extent, n in whole]
    yield from product(*batches, *edges)


def _cells(interval: Interval, size: int) -> Iterator[tuple[int, slice]]:
    """Yield the cells of a grid that an interval intersects.

    Each cell is given by the interval's offset in the cell, and by the slice of the interval.
    """
    start, stop = interval
    for first in range(start // size * size, stop if start < stop else 0, size):
        low = max(first, start)
        yield low - first, slice(low - start, min(first + size, stop) - start)


class _Panel(NamedTuple):
    """Factors of a part of the product, as (others, stack, depth, inner, edge).

    Attributes
    ----------
    tiling : Tiling
        The division into tiles.
    a, b : array
        The factors.
    origin : (int, int, int)
        The factors' first indices of depth, row and column.
    dtype : dtype
        The data type to compute in.
    """

    tiling: Tiling
    a: Array
    b: Array
    origin: tuple[int, int, int]
    dtype: np.dtype[Any]

    def node(self, start: int, stop: int, into: Array) -> None:
        """Sum a node of the tree of summands."""
        tree = self.tiling.tree
        left, right = self.tiling.left, self.tiling.right
        batch = self.a.shape[1] * max(len(self.a), len(self.b))
        leaf = self.tiling.summands * (left.tile + self.b.shape[4]) * batch
        several = self.a.shape[4] > left.tile and self.b.shape[4] > right.tile
        most = max(4 if several else 1, _STRETCH // leaf)
        if stop - start <= tree.chunk * most:
            self._tiles(slice(start - self.origin[0], stop - self.origin[0]), into)
            return
        middle = tree.middle(start, stop)
        self.node(start, middle, into)
        rest = np.empty_like(into)
        self.node(middle, stop, rest)
        into += rest

    def _tiles(self, stretch: slice, into: Array) -> None:
        """Sum some leaves, tile by tile."""
        tiling, (_, row, column) = self.tiling, self.origin
        a, b = self.a[:, :, stretch], self.b[:, :, stretch]
        rows = list(_cells((row, row + a.shape[4]), tiling.left.tile))
        columns = list(_cells((column, column + b.shape[4]), tiling.right.tile))
        made = (
            _filled(b[..., part], offset, tiling.right.tile, tiling, self.dtype, False)
            for offset, part in columns
        )
        right = made if len(rows) == 1 else list(made)  # the factors of a single row are used once
        room = self._room(-(-a.shape[2] // tiling.tree.chunk))
        for offset, part in rows:
            left = _filled(a[..., part], offset, tiling.left.tile, tiling, self.dtype, True)
            there = slice(offset, offset + part.stop - part.start)
            for (first, across), factor in zip(columns, right, strict=True):
                found = _summed(left, factor, room)
                stop = first + across.stop - across.start
                into[..., part, across] = found[..., there, first:stop]

    def _room(self, leaves: int) -> Array:
        """Allocate memory for the products of this number of leaves of one tile."""
        tiles = self.tiling.left.tile, self.tiling.right.tile
        counts = (len(self.a), len(self.b), self.a.shape[1], leaves)
        return _room(counts, prod(tiles), self.dtype).reshape(*counts, *tiles)


def _filled(
    source: Array, offset: int, tile: int, tiling: Tiling, dtype: np.dtype[Any], turned: bool
) -> Array:
    """Copy a factor into a padded row or column of tiles: (others, stack, leaves, matrices)."""
    others, stack, count, inner, width = source.shape
    grain = tiling.tree.chunk
    leaves, (full, rest) = -(-count // grain), divmod(count, grain)
    room = _room((others, stack, leaves), tile * grain * inner, dtype)
    if turned:
        room = room.reshape(others, stack, leaves, tile, grain, inner)
        whole = room.transpose(0, 1, 2, 4, 5, 3)
    else:
        room = whole = room.reshape(others, stack, leaves, grain, inner, tile)
    into = whole[..., offset : offset + width]
    shape = (others, stack, full, grain, inner, width)
    into[:, :, :full] = source[:, :, : full * grain].reshape(shape)
    if rest:
        into[:, :, full, :rest] = source[:, :, full * grain :]
        whole[:, :, full, rest:] = 0
    whole[..., :offset] = into[..., :1]
    whole[..., offset + width :] = into[..., -1:]
    if turned:
        return room.reshape(others, stack, leaves, tile, grain * inner)
    return room.reshape(others, stack, leaves, grain * inner, tile)


def _room(counts: tuple[int, ...], size: int, dtype: np.dtype[Any]) -> Array:
    """Allocate memory for matrices of `size` numbers, each of which begins at a boundary."""
    unit = max(1, _ALIGNMENT // dtype.itemsize)
    padded = -(-size // unit) * unit
    memory = np.empty(prod(counts) * padded + unit, dtype)
    first = -memory.ctypes.data % _ALIGNMENT // dtype.itemsize
    line = memory[first : first + prod(counts) * padded]
    return line.reshape(*counts, padded)[..., :size]


def _summed(a: Array, b: Array, room: Array) -> Array:
    """Multiply the matrices of leaves, and add up the products in the tree's order."""
    np.matmul(a[:, None], b, out=room)
    return two_and_two(room, 3)
