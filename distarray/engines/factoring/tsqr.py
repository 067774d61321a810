"""TSQR: the QR factorization of a matrix that is much taller than wide and cut along its rows.

Every rank factors its own rows, in chunks that fit in cache. The triangular factors of the ranks
are then merged in pairs, in about log2(p) rounds (Demmel, Grigori, Hoemmen and Langou,
Communication-optimal parallel and sequential QR and LU factorizations, SIAM J. Sci. Comput. 34,
2012). Both partners of a round compute the same merge. Thus every rank ends with the triangular
factor and with its own rows of the orthonormal factor, without a second pass of messages.

The signs are LAPACK's: the pivots of an elimination of the orthonormal factor's first rows
determine the sign of each Householder reflection (Ballard, Demmel, Grigori, Jacquelin, Knight and
Nguyen, Reconstructing Householder vectors from tall-skinny QR, J. Parallel Distrib. Comput. 85,
2015). Up to rounding, the result therefore does not depend on the number of ranks.
"""

from typing import Any, NamedTuple, cast

import numpy as np

from distarray.array.portable import on_host
from distarray.comm.devices import on_device
from distarray.comm.group import Group
from distarray.engines.rehearsing.hollow import ordinary
from distarray.layout import Fold
from distarray.typing import Array

__all__ = ["MOST_COLUMNS", "Reflections", "TallQR"]


#: Rows of a chunk; at least `_CHUNK_WIDTHS` times the number of columns.
_CHUNK_ROWS = 512
_CHUNK_WIDTHS = 4
#: Wider matrices are not factored in chunks; see :func:`distarray.ops.linalg.qr.is_tall`.
MOST_COLUMNS = 128
#: Matrices of up to this many rows are eliminated column by column.
_LEAF = 32


class _Rows:
    """Orthonormal factor of this rank's rows, as a product of two levels.

    Parameters
    ----------
    block : array of shape (m, n)
        This rank's rows, possibly none.
    keep : int
        The number of first rows of the orthonormal factor that will be needed.
    """

    def __init__(self, block: Array, keep: int) -> None:
        self.triangle: Array
        self._q: Array
        self._second: Array
        self.rows, self.columns = m, n = block.shape
        chunk = max(_CHUNK_ROWS, _CHUNK_WIDTHS * n)
        self._count = m // chunk if n <= MOST_COLUMNS and type(block) is np.ndarray else 0
        if m < n:
            self.triangle = block
        elif self._count < 2 and not keep:
            self.triangle = _triangle(block)
        elif self._count < 2:
            self._q, self.triangle = np.linalg.qr(block)
        else:
            self._in_chunks(block, keep)

    def _in_chunks(self, block: Array, keep: int) -> None:
        """Factor chunks of rows, and then their triangles."""
        count, n = self._count, self.columns
        chunk = self.rows // count
        self._used = count * chunk
        stack = block[: self._used].reshape(count, chunk, n)
        kept = min(count, -(-keep // chunk))
        self._q, triangles = np.linalg.qr(stack[:kept])
        parts = [triangles.reshape(-1, n)]
        if kept < count:
            parts.append(_triangle(stack[kept:]).reshape(-1, n))
        # The last rows, fewer than a chunk, go to the second level unfactored.
        self._second, self.triangle = np.linalg.qr(np.concatenate([*parts, block[self._used :]]))

    def times(self, right: Array, rows: int) -> Array:
        """Multiply the first rows of the orthonormal factor by a matrix."""
        if self.rows < self.columns:
            return right[:rows]
        if self._count < 2:
            product: Array = np.matmul(self._q[:rows], right)
            return product
        inner: Array = np.matmul(self._second, right)
        width = right.shape[1]
        chunk = self._q.shape[1]
        first = min(-(-rows // chunk), self._count)
        result = np.empty_like(inner, shape=(max(rows, first * chunk), width))
        below = first * self.columns
        stack = inner[:below].reshape(first, self.columns, width)
        whole = result[: first * chunk].reshape(first, chunk, width)
        np.matmul(self._q[:first], stack, out=whole)
        if rows > self._used:
            result[self._used :] = inner[below : below + rows - self._used]
        return result[:rows]


def _triangle(block: Array) -> Array:
    """Compute the triangular factors of (a stack of) matrices."""
    return cast("Array", np.linalg.qr(block, mode="r"))


class TallQR:
    """Factorization of a distributed tall matrix: an orthonormal factor times a triangle.

    The constructor is collective over the group.

    Parameters
    ----------
    block : array of shape (m_i, n)
        This rank's rows, in the data type to compute in.
    start : int
        The global index of this rank's first row.
    total : int
        The number of rows of the whole matrix; at least n.
    group : Group
        The ranks that hold the rows.
    with_q : bool
        True if :meth:`times` will be called.

    Attributes
    ----------
    r : array of shape (n, n)
        The triangular factor with LAPACK's signs, equal on every rank.
    reflections : Reflections
        The Householder reflections that LAPACK would use.

    Cost
    ----
    About log2(p) rounds of one message of n**2 elements, and one allreduce of as many.
    """

    def __init__(
        self, block: Array, start: int, total: int, group: Group, with_q: bool = True
    ) -> None:
        self._group, self._start, self._total = group, start, total
        self._width, self._with_q = block.shape[1], with_q
        mine = min(max(self._width - start, 0), len(block))
        self._rows = _Rows(block, len(block) if with_q else mine)
        self._top_rows = mine
        triangle, self._share = _merged(self._rows.triangle, group)
        diagonal = np.diagonal(triangle)
        phase = np.where(diagonal.real < 0, -1.0, 1.0)
        self._share = self._share * phase
        top = self._top()
        deep = total > self._width
        self.reflections = _signed_elimination(top, self._trivial(top, block), deep)
        self.r = np.triu(triangle * (phase * self.reflections.signs)[:, None])

    def times(self, right: Array | None = None) -> Array:
        """Multiply this rank's rows of the orthonormal factor by a matrix."""
        share = self._share * self.reflections.signs
        return self._rows.times(
            share if right is None else np.matmul(share, right), self._rows.rows
        )

    def unsigned(self) -> Array:
        """Return this rank's rows of the orthonormal factor for a triangle of positive diagonal."""
        return self._rows.times(self._share, self._rows.rows)

    def _top(self) -> Array:
        """Return the first n rows of the unsigned orthonormal factor, on every rank."""
        n, mine = self._width, self._top_rows
        top = np.zeros_like(self._share, shape=(n, n))
        if mine:
            top[self._start : self._start + mine] = self._rows.times(self._share, mine)
        return top if self._group.size == 1 else self._group.allreduce(top, Fold.SUM)

    def _trivial(self, top: Array, block: Array) -> Array:
        """Return the mask of columns that are exactly zero below the first n rows.

        LAPACK might leave these columns unreflected. The mask is equal on all ranks. Only a column
        whose norm equals that of its first rows can be zero below; if there is such a column, all
        ranks check their own rows.
        """
        if self._total == self._width:
            return np.ones(self._width, bool)
        inside = np.sum(np.abs(top) ** 2, axis=0)
        likely: Array = np.asarray(
            ordinary(_on_host(inside) > 1 - 1e-12, np.zeros(self._width, bool))
        )
        if not likely.any():
            return likely
        rows = self._rows if self._with_q else _Rows(block, len(block))
        below = rows.times(self._share, len(block))[self._top_rows :]
        filled: Array = np.asarray(_on_host((below != 0).any(axis=0)))
        if self._group.size > 1:
            filled = self._group.allreduce(filled, Fold.ANY)
        return likely & ~filled


def _on_host(block: Any) -> Any:
    """Return the block in host memory."""
    return block.get() if on_device(block) else block


# -- merging ---------------------------------------------------------------------------------------


def _merged(triangle: Array, group: Group) -> tuple[Array, Array]:
    """Merge the triangles of all ranks; return the result and the factor for this rank's rows.

    Ranks with fewer rows than columns contribute the rows themselves. They are not padded: if the
    matrix has lower rank, rows of zeros would change the factor.
    """
    share = _unit(triangle)
    rank, size = group.rank, group.size
    if size == 1:
        return triangle, share
    n = triangle.shape[1]
    core = 1 << (size.bit_length() - 1)  # the number of ranks in the rounds
    if rank >= core:
        group.exchange([(rank - core, _packed(triangle))], [])
        got = np.empty_like(triangle, shape=(n + len(triangle), n))
        group.exchange([], [(rank - core, got)])
        return got[:n], got[n:]
    theirs = None
    if rank + core < size:
        other = np.empty_like(triangle, shape=(n + 1, n))
        group.exchange([], [(rank + core, other)])
        triangle, share, theirs = _stacked(triangle, _unpacked(other))
    step = 1
    while step < core:
        peer = rank ^ step
        other = np.empty_like(triangle, shape=(n + 1, n))
        group.exchange([(peer, _packed(triangle))], [(peer, other)])
        pair = (triangle, _unpacked(other))
        triangle, *halves = _stacked(*(pair if rank < peer else reversed(pair)))
        half = halves[rank > peer]
        share = np.matmul(share, half)
        theirs = None if theirs is None else np.matmul(theirs, half)
        step *= 2
    if theirs is not None:
        group.exchange([(rank + core, np.concatenate([triangle, theirs]))], [])
    return triangle, share


def _stacked(upper: Array, lower: Array) -> tuple[Array, Array, Array]:
    """Factor two triangles stacked, unless they have few rows; return the triangle and factors."""
    both = np.concatenate([upper, lower])
    if len(both) < both.shape[1]:
        factor = _unit(both)
    else:
        factor, both = np.linalg.qr(both)
    return both, factor[: len(upper)], factor[len(upper) :]


def _unit(rows: Array) -> Array:
    """Return the identity matrix with as many rows."""
    count = len(rows)
    unit = np.zeros_like(rows, shape=(count * count,))
    unit[:: count + 1] = 1
    return unit.reshape(count, count)


def _packed(triangle: Array) -> Array:
    """Pack rows into a message of fixed size; its first row contains the number of rows."""
    rows, n = triangle.shape
    buffer = np.zeros_like(triangle, shape=(n + 1, n))
    buffer[0, 0] = rows
    buffer[1 : rows + 1] = triangle
    return buffer


def _unpacked(buffer: Array) -> Array:
    """Return the rows in a message."""
    return buffer[1 : 1 + round(float(ordinary(buffer[0, 0].real, len(buffer) - 1)))]


# -- Householder's signs --------------------------------------------------------------------------


class Reflections(NamedTuple):
    """LAPACK's reflections for the columns of an orthonormal matrix Q.

    ``Q * signs`` are the first columns of ``I - Y T Y^H``, where the first rows of Y are unit lower
    triangular, and ``Q - [diag(signs); 0] = Y U``.

    Attributes
    ----------
    signs : array of shape (n,)
        1.0 or -1.0.
    first : array of shape (n, n)
        The first rows of Y.
    right : array of shape (n, n)
        The inverse of U: the other rows of Y are those of Q times the inverse.
    t : array of shape (n, n)
        T, upper triangular; its diagonal is LAPACK's tau.
    """

    signs: Array
    first: Array
    right: Array
    t: Array


def _signed_elimination(top: Array, trivial: Array, deep: bool = True) -> Reflections:
    """Compute the reflections for an orthonormal matrix, from its first rows.

    Parameters
    ----------
    top : array of shape (n, n)
        The first rows; the diagonal of the triangular factor is not negative.
    trivial : array of bool
        Columns that are exactly zero below these rows.
    deep : bool
        True if the matrix has more rows.
    """
    found: Reflections = on_host(_eliminated, top, trivial, deep)
    return found


def _eliminated(top: Array, trivial: Array, deep: bool) -> Reflections:
    """Compute the result of :func:`_signed_elimination`, in host memory."""
    work = np.array(top)
    n = len(work)
    signs, skipped = np.ones(n), np.zeros(n, bool)
    _eliminate(work, (signs, skipped), trivial, deep)
    unit = np.tril(work, -1) + np.eye(n, dtype=work.dtype)
    upper = np.triu(work)
    upper[skipped, skipped] = 0
    # T = -U S Y1^-H
    t = -np.linalg.solve(unit, (upper * signs).conj().T).conj().T
    upper[skipped, skipped] = 1
    return Reflections(signs, unit, np.linalg.inv(upper), np.triu(t))


def _eliminate(work: Array, found: tuple[Array, Array], trivial: Array, deep: bool) -> None:
    """Eliminate in place without pivoting; each sign moves a pivot away from zero."""
    n = len(work)
    if n > _LEAF:
        _eliminate_halves(work, found, trivial, deep)
        return
    signs, skipped = found
    for j in range(n):
        pivot, below = work[j, j], work[j + 1 :, j]
        # The rows below `top` are still zero if nothing was subtracted from them.
        still = trivial[j] and not (deep and work[:j, j].any())
        if still and not pivot.imag and not below.any():
            # LAPACK does not reflect a column that is zero below its pivot.
            signs[j] = -1.0 if pivot.real < 0 else 1.0
            skipped[j] = True
            work[j, j] = 1
            continue
        signs[j] = 1.0 if pivot.real < 0 else -1.0
        work[j, j] = pivot - signs[j]
        below /= work[j, j]
        work[j + 1 :, j + 1 :] -= below[:, None] * work[j, j + 1 :]


def _eliminate_halves(work: Array, found: tuple[Array, Array], trivial: Array, deep: bool) -> None:
    """Eliminate the left half of the columns, then the right half."""
    h = len(work) // 2
    signs, skipped = found
    upper, lower = (signs[:h], skipped[:h]), (signs[h:], skipped[h:])
    _eliminate(work[:h, :h], upper, trivial[:h] & ~work[h:, :h].any(axis=0), True)
    first = work[:h, :h]
    unit = np.tril(first, -1) + np.eye(h, dtype=work.dtype)
    work[:h, h:] = np.linalg.solve(unit, work[:h, h:])
    work[h:, :h] = np.linalg.solve(np.triu(first).T, work[h:, :h].T).T
    work[h:, h:] -= np.matmul(work[h:, :h], work[:h, h:])
    after = trivial[h:] & ~work[:h, h:].any(axis=0) if deep else trivial[h:]
    _eliminate(work[h:, h:], lower, after, deep)
