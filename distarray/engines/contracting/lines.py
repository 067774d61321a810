"""Products of a matrix and a vector, or of two vectors: equal bits wherever the arrays are cut.

The summands of a leaf of the tree are added by :func:`numpy.einsum`, without a copy: its loops
treat every element alike, regardless of the element's address and neighbors. Neighboring leaves are
added in pairs.
"""

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from distarray.engines.contracting.tiling import Tiling
from distarray.engines.rehearsing.hollow import ordinary
from distarray.engines.reproducible import two_and_two
from distarray.typing import Array, DType

__all__ = ["line_product", "takes"]

#: Numbers that are copied at a time if they are not stored as NumPy reads them.
_AT_A_TIME = 1 << 16
#: Columns whose sums are held at a time, so that the sums stay in a cache.
_WIDE = 1 << 12


def takes(tiling: Tiling, dtype: DType) -> bool:
    """Return True for a product of a real matrix or vector and a vector."""
    sides = tiling.left, tiling.right
    alone = not (tiling.stack or tiling.inner or any(side.others for side in sides))
    return alone and not all(side.edge for side in sides) and dtype.kind == "f" and _is_even(dtype)


@lru_cache(maxsize=8)
def _is_even(dtype: DType) -> bool:
    """Check that NumPy's sums depend neither on the number of columns nor on their alignment."""
    numbers = np.random.Generator(np.random.PCG64(1)).standard_normal((43, 39)).astype(dtype)
    line, room = numbers[:, 0].copy(), np.empty((43, 40), dtype)
    shifted = room[:, 1:]
    shifted[...] = numbers
    columns = np.einsum("i,ij->j", line, numbers)
    apart = [np.einsum("i,ij->j", line, numbers[:, n : n + 2].copy()) for n in range(38)]
    rows = np.einsum("ij,j->i", numbers.T.copy(), line)
    again = [np.einsum("i,i->", row, line) for row in numbers.T.copy()]
    return (
        all(np.array_equal(columns[n : n + 2], pair) for n, pair in enumerate(apart))
        and np.array_equal(columns, np.einsum("i,ij->j", line, shifted))
        and np.array_equal(rows, again)
    )


def line_product(matrix: Array, line: Array, grain: int, along: bool, dtype: DType) -> Array:
    """Sum the products of a matrix's columns and a vector, over a whole node of the tree.

    Parameters
    ----------
    matrix : array
        The matrix, of shape (summands, columns).
    line : array
        The vector of the other factors.
    grain : int
        The number of summands of a leaf.
    along : bool
        True to read the summands of a column one after the other, as if they were a row in memory;
        False to read the columns of a row one after the other. The order determines the bits.
    dtype : dtype
        The data type to compute in.

    Returns
    -------
    array
        One sum for each column.
    """
    line = _ready(line, dtype)
    if not along and matrix.shape[1] == 1:  # NumPy would read it as a vector
        return line_product(np.repeat(matrix, 2, axis=1), line, grain, along, dtype)[:1]
    act = _along if along else _across
    found = np.empty(matrix.shape[1], dtype)
    for part in _parts(matrix, along, dtype):
        found[part] = two_and_two(act(matrix[:, part], line, grain, dtype), 1)
    if not ordinary(np.isfinite(found).all(), True) or np.geterr()["under"] != "ignore":
        np.matmul(line, matrix, dtype=dtype)  # warns or raises, unlike `einsum`
    return found


def _parts(matrix: Array, along: bool, dtype: DType) -> Iterator[slice]:
    """Yield the columns that are read at a time: all, or as many as fit in a cache."""
    count, width = matrix.shape
    most = width if along else _WIDE
    if not _is_ready(matrix.T if along else matrix, dtype):
        most = min(most, max(2, _AT_A_TIME // max(1, count)))
    parts = max(1, width // max(1, most))  # none has one column, if there are more
    for n in range(parts):
        yield slice(width * n // parts, width * (n + 1) // parts)


def _along(matrix: Array, line: Array, grain: int, dtype: DType) -> Array:
    """Compute the sums of leaves, (columns, leaves), each as a product of two vectors."""
    rows = _ready(matrix.T, dtype)
    full = len(line) // grain
    leaves = rows[:, : full * grain].reshape(len(rows), full, grain)
    sums: Array = np.einsum("ikj,kj->ik", leaves, line[: full * grain].reshape(full, grain))
    if full * grain == len(line):
        return sums
    rest = np.einsum("ij,j->i", rows[:, full * grain :], line[full * grain :])
    return np.concatenate([sums, rest[:, None]], axis=1)


def _across(matrix: Array, line: Array, grain: int, dtype: DType) -> Array:
    """Compute the sums of leaves, (columns, leaves), adding one row after the other."""
    rows = _ready(matrix, dtype)
    full = len(line) // grain
    leaves = rows[: full * grain].reshape(full, grain, rows.shape[1])
    sums: Array = np.einsum("ki,kij->kj", line[: full * grain].reshape(full, grain), leaves)
    if full * grain < len(line):
        rest = np.einsum("i,ij->j", line[full * grain :], rows[full * grain :])
        sums = np.concatenate([sums, rest[None]])
    return sums.T


def _is_ready(block: Array, dtype: DType) -> bool:
    """Return True if NumPy reads a block without a copy, row by row, each from start to end."""
    rows = block[0] if len(block) == 1 and block.ndim == 2 else block
    lies = rows.strides[-1] == rows.itemsize and rows.strides[0] >= rows.itemsize * rows[:1].size
    return block.dtype == dtype and block.flags.aligned and (lies or not block.size)


def _ready(block: Array, dtype: DType) -> Array:
    """Return the block itself, or a copy that NumPy reads row by row."""
    return block if _is_ready(block, dtype) else np.array(block, dtype, order="C")
