"""Divide and conquer: eigenvalues and vectors of a real symmetric tridiagonal matrix.

Subtracting a matrix of rank one splits the matrix in two. The halves are solved and merged
(:mod:`.secular`). Every rank stores the eigenvalues and the first and last element of each vector;
merging needs no other elements. Each rank also stores some rows of all vectors, which merging
multiplies by matrices in place.

References
----------
J. J. M. Cuppen, A divide and conquer method for the symmetric tridiagonal eigenproblem, Numer.
Math. 36 (1981). F. Tisseur and J. Dongarra, A parallel divide and conquer algorithm for the
symmetric eigenvalue problem on distributed memory architectures, SIAM J. Sci. Comput. 20 (1999).
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from distarray.comm import DeviceMesh
from distarray.comm.progress import advance, stage
from distarray.engines.factoring import secular
from distarray.typing import Array

__all__ = ["tridiagonal_eigen"]


#: Matrices of up to this many rows are solved by LAPACK.
LEAF = 48
#: From this many eigenvalues on, the ranks share the work of computing them.
SHARED_FROM = 256


def tridiagonal_eigen(
    diagonal: Array, below: Array, rows: tuple[int, int], mesh: DeviceMesh
) -> tuple[Array, Array]:
    """Compute the eigenvalues in ascending order, and some rows of the matrix of eigenvectors.

    Parameters
    ----------
    diagonal, below : ndarray
        The matrix, equal on every rank; the elements of `below` are not negative.
    rows : tuple of int
        The range of rows for this rank; an empty range for eigenvalues alone.
    mesh : DeviceMesh
        The ranks that share the work.

    Returns
    -------
    tuple of array
        The eigenvalues, on the host, and the rows, transposed: shape (n, last - first).

    Cost
    ----
    4/3 n**3 operations over all ranks for the vectors, fewer where eigenvalues cluster, and n**2 on
    each rank; a broadcast and two gathers of n elements for each merge of at least `SHARED_FROM`
    rows.
    """
    size = len(diagonal)
    scale = max(np.abs(diagonal).max(initial=0), np.abs(below).max(initial=0))
    scale = scale if scale else 1.0
    problem = _Problem(diagonal / scale, below / scale, rows, mesh)
    with stage("eigenvalues", _joined(size), "columns"):
        problem.solve(0, size)
    return problem.values * scale, problem.rows


def _joined(size: int) -> int:
    """Return the total number of columns of all merges."""
    return 0 if size <= LEAF else size + _joined(size // 2) + _joined(size - size // 2)


class _Problem:
    """Tridiagonal matrix that is split and merged; `solve` solves a diagonal block of it.

    Attributes
    ----------
    values : ndarray, shape (n,)
        The diagonal; in the diagonal blocks solved so far, their eigenvalues in ascending order.
    edges : ndarray, shape (2, n)
        The first and last element of each eigenvector of a solved block.
    rows : array, shape (n, last - first)
        This rank's rows of the eigenvectors, transposed: one eigenvector per line.
    """

    def __init__(self, values: Array, below: Array, rows: tuple[int, int], mesh: DeviceMesh):
        self.values = values
        self.below = below
        self.first, self.last = rows
        self.mesh = mesh
        self.edges = np.zeros((2, len(values)))
        self.rows = mesh.xp.zeros((len(values), self.last - self.first))

    def solve(self, start: int, stop: int) -> None:
        """Solve the diagonal block from `start` to `stop`."""
        if stop - start <= LEAF:
            self._leaf(start, stop)
            return
        middle = (start + stop) // 2
        rho = self.below[middle - 1]
        self.values[middle - 1 : middle + 1] -= rho
        self.solve(start, middle)
        self.solve(middle, stop)
        self._join(start, middle, stop, float(rho))
        advance(stop - start)

    def _columns(self, start: int, stop: int) -> slice:
        """Return the slice of this rank's rows that are inside a diagonal block."""
        low, high = max(start, self.first), min(stop, self.last)
        return slice(low - self.first, max(low, high) - self.first)

    def _leaf(self, start: int, stop: int) -> None:
        """Solve a small diagonal block by LAPACK."""
        matrix = np.diag(self.values[start:stop])
        if stop - start > 1:
            matrix += np.diag(self.below[start : stop - 1], -1)  # eigh reads the lower triangle
        values, vectors = np.linalg.eigh(matrix)
        self.values[start:stop] = values
        if stop > start:
            self.edges[:, start:stop] = vectors[[0, -1]]
        columns = self._columns(start, stop)
        here = slice(columns.start + self.first - start, columns.stop + self.first - start)
        self.rows[start:stop, columns] = self.mesh.asarray(vectors[here].T)

    def _join(self, start: int, middle: int, stop: int, rho: float) -> None:
        """Merge two solved halves."""
        half, stretch = middle - start, slice(start, stop)
        z = np.concatenate([self.edges[1, start:middle], self.edges[0, middle:stop]]) * 0.5**0.5
        edges = self.edges[:, stretch]
        edges[1, :half] = edges[0, half:] = 0
        parts = secular.deflated(self.values[stretch], z, 2 * rho)
        if self._is_shared(stop - start):
            # Different processors may round differently: all ranks use the result of rank 0.
            parts = self.mesh.group.broadcast_object(parts, 0, "deflation")
        sides = np.zeros((2, stop - start), bool)  # the halves in which a vector is nonzero
        sides[0, :half] = sides[1, half:] = True
        self._rotate(parts.rotations, stretch, sides)
        kept = parts.kept
        d = parts.diagonal[kept]
        found = pieces = None
        values = parts.diagonal[parts.deflated]
        if len(kept):
            found = secular.roots(d, parts.z[kept], 2 * rho, self._share)
            pieces = secular.vectors(d, parts.z[kept], found, self._share)
            values = np.concatenate([found.values(d), values])
        order = np.argsort(values, kind="stable")
        self.values[stretch] = values[order]
        places = np.empty_like(order)
        places[order] = np.arange(len(order))
        self._multiply(start, middle, stop, parts, places, sides[:, kept], pieces)

    def _rotate(
        self, rotations: list[tuple[int, int, float, float]], stretch: slice, sides: Array
    ) -> None:
        """Rotate pairs of vectors."""
        rows, edges = self.rows[stretch], self.edges[:, stretch]
        for one, two, c, s in rotations:
            rows[one], rows[two] = c * rows[one] + s * rows[two], c * rows[two] - s * rows[one]
            x, y = edges[:, one].copy(), edges[:, two].copy()
            edges[:, one], edges[:, two] = c * x + s * y, c * y - s * x
            sides[:, one] |= sides[:, two]
            sides[:, two] |= sides[:, one]

    def _multiply(
        self,
        start: int,
        middle: int,
        stop: int,
        parts: secular.Deflation,
        places: Array,
        sides: Array,
        pieces: Callable[[], Any] | None,
    ) -> None:
        """Compute the merged block's vectors, in the order of their eigenvalues."""
        mesh, kept = self.mesh, parts.kept
        old_edges, old = self.edges[:, start:stop].copy(), self.rows[start:stop]
        stay = places[len(kept) :]
        self.edges[:, start + stay] = old_edges[:, parts.deflated]
        new = mesh.xp.zeros_like(old)
        new[mesh.asarray(stay)] = old[mesh.asarray(parts.deflated)]
        halves = []
        for side, columns in zip(
            sides, (self._columns(start, middle), self._columns(middle, stop)), strict=True
        ):
            if columns.stop > columns.start:
                halves.append((side, columns, old[mesh.asarray(kept[side]), columns]))
        for columns_of, block in pieces() if pieces is not None else ():
            target = places[columns_of]
            self.edges[:, start + target] = old_edges[:, kept] @ block
            for side, columns, part in halves:
                new[mesh.asarray(target), columns] = mesh.asarray(block[side].T) @ part
        old[...] = new

    def _is_shared(self, count: int) -> bool:
        """Return True if the ranks share the work for this many eigenvalues."""
        return count >= SHARED_FROM and self.mesh.size() > 1

    def _share(self, count: int, compute: Callable[[int, int], Array]) -> Array:
        """Compute ``compute(0, count)`` jointly with all ranks; see :data:`.secular.Share`."""
        if not self._is_shared(count):
            return compute(0, count)
        ranks = self.mesh.size()
        bounds = [count * rank // ranks for rank in range(ranks + 1)]
        mine = compute(bounds[self.mesh.rank], bounds[self.mesh.rank + 1])
        counts = np.diff(bounds).tolist()
        found = self.mesh.group.allgather_varied(np.ascontiguousarray(mine.T), counts, "roots")
        return np.concatenate(found).T
