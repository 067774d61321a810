"""Singular values of a large matrix by one-sided Jacobi rotations of blocks of columns.

Each rank has two blocks of columns. In every round each rank makes the columns of its two blocks
orthogonal to one another and sends blocks to its neighbors, in the order of a round-robin
tournament, so that in a sweep each block is paired once with every other block. When no pair needs
a rotation any more, the columns are the singular vectors times the singular values (Drmac and
Veselic, New fast and accurate Jacobi SVD algorithm, SIAM J. Matrix Anal. Appl. 29, 2008; Becka,
Oksa and Vajtersic, Dynamic ordering for a parallel block-Jacobi SVD algorithm, Parallel Computing
28, 2002). The larger columns of a pair go to the block with the lower number: without an order
common to all pairs the iteration does not converge.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from distarray.array import DistArray, call, wrap
from distarray.array.portable import contiguous
from distarray.comm.group import Group
from distarray.comm.progress import advance, stage
from distarray.engines.blockwise import apply_blockwise
from distarray.engines.factoring import small
from distarray.engines.factoring.householder import set_ones
from distarray.layout import Cut, Fold, Layout
from distarray.typing import Array

__all__ = ["values_and_vectors"]


_MOST_SWEEPS = 40
#: Outcome for a pair of blocks; the outcome of a sweep is the highest of all its pairs.
_SETTLED, _ROTATED, _FAILED = range(3)


@dataclass(slots=True)
class _Block:
    """Block of columns that moves between ranks; the accumulated rotations are below the matrix."""

    number: int
    columns: Array


def values_and_vectors(x: DistArray, vectors: bool = True) -> Any:
    """Compute the SVD of a large square matrix; fastest for a triangular one.

    Parameters
    ----------
    x : DistArray, shape (n, n)
        The matrix, in the data type to compute in. Its rows are cut, its columns are not.
    vectors : bool
        True to compute the singular vectors.

    Returns
    -------
    u, s, v or s
        ``x = u @ diag(s) @ v^H``; `u` and `v` are cut, the values are replicated.

    Raises
    ------
    LinAlgError
        On all ranks, if an element is not finite, or without convergence after 40 sweeps.

    Cost
    ----
    5 to 10 sweeps of 2 p - 1 rounds, in each of which a rank sends two messages of n^2 / p elements
    (half of that without vectors), and one small allreduce for each sweep.
    """
    mesh, cut = x.mesh, x.layout.cuts[0]
    group = mesh.subgroup(cut.mesh_dims)
    columns, exponent = _scaled(x.block.conj().T, group)
    tournament = _Tournament(columns, cut, group, vectors)
    tournament.run()
    found = np.concatenate([block.columns for block in tournament.blocks], axis=1)
    n = x.shape[0]
    sizes = np.sqrt(np.sum(np.abs(found[:n]) ** 2, axis=0))
    parts = group.allgather_varied(mesh.to_host(sizes))
    counts, values = [len(part) for part in parts], np.concatenate(parts)
    order = np.argsort(-values, kind="stable")
    s = small.replicated(np.ldexp(values[order], exponent), mesh)
    if not vectors:
        return s
    whole = [Cut.whole(n), Cut.ragged(counts, cut.mesh_dims, cut.radix)]
    layout = Layout.from_cuts(whole, mesh.shape)
    made = wrap(contiguous(found[:n]), layout, mesh)
    rotations = wrap(contiguous(found[n:]), layout, mesh)
    v = _orthonormal(call(np.take, made, order, axis=1))
    return call(np.take, rotations, order, axis=1), s, v


def _scaled(block: Array, group: Group) -> tuple[Array, int]:
    """Scale the block by a power of two, so that squares neither overflow nor underflow."""
    here = np.array(float(np.max(np.abs(block))) if block.size else 0.0)
    largest = float(group.allreduce(here, Fold.MAX))
    if not np.isfinite(largest):
        raise np.linalg.LinAlgError("SVD did not converge")
    exponent = int(np.frexp(largest)[1])
    return block * np.ldexp(1.0, -exponent), exponent


def _orthonormal(x: DistArray) -> DistArray:
    """Orthonormalize orthogonal columns, also those of tiny length; directions are kept."""
    q, r = call(np.linalg.qr, x)
    signs = np.where(call(np.diagonal, r).full().real < 0, -1.0, 1.0)
    result: DistArray = apply_blockwise(np.multiply, [q, signs])
    return result


class _Tournament:
    """Sequence of rounds of one rank; collective over the group.

    Parameters
    ----------
    columns : array of shape (n, w)
        The columns that this rank has initially.
    cut : Cut
        The initial division of the columns among the ranks.
    group : Group
        The ranks that share the columns.
    vectors : bool
        True to accumulate the rotations.
    """

    def __init__(self, columns: Array, cut: Cut, group: Group, vectors: bool) -> None:
        self._group, self._rows = group, columns.shape[0]
        half = [_halves(cut.interval(part)) for part in range(cut.parts)]
        self._widths = [width for pair in half for width in pair]
        first = cut.interval(group.rank)[0]
        both = columns
        if vectors:
            rotations = np.zeros_like(columns, order="C")
            set_ones(rotations[first:], 0, columns.shape[1])
            both = np.concatenate([columns, rotations])
        middle = half[group.rank][0]
        self.blocks = [
            _Block(2 * group.rank, contiguous(both[:, :middle])),
            _Block(2 * group.rank + 1, contiguous(both[:, middle:])),
        ]
        # The numbers of the blocks in the upper and the lower row of the tournament's schedule.
        self._upper = list(range(0, 2 * group.size, 2))
        self._lower = list(range(1, 2 * group.size, 2))
        squares = np.array(float(np.sum(np.abs(columns) ** 2)))
        self._size = float(np.sqrt(group.allreduce(squares, Fold.SUM)))
        self._enough = 16 * np.finfo(columns.dtype).eps * np.sqrt(self._rows)

    def run(self) -> None:
        """Sweep until no pair of blocks needs a rotation."""
        with stage("singular values", None, "rounds"):
            self._sweep()

    def _sweep(self) -> None:
        for sweep in range(_MOST_SWEEPS):
            state = _SETTLED
            for _ in range(2 * self._group.size - 1):
                try:
                    state = max(state, self._meet(first=sweep == 0))
                except np.linalg.LinAlgError:  # raised later, since other ranks wait
                    state = _FAILED
                self._pass_on()
                advance()
            state = int(self._group.allreduce(np.array(state), Fold.MAX))
            if state == _SETTLED:
                return
            if state == _FAILED:
                break
        raise np.linalg.LinAlgError("SVD did not converge")

    def _meet(self, first: bool) -> int:
        """Make the columns of both blocks orthogonal, unless they already are."""
        low, high = sorted(self.blocks, key=lambda block: block.number)
        n, middle = self._rows, low.columns.shape[1]
        if not first and self._coupling(low.columns[:n], high.columns[:n]) <= self._enough:
            return _SETTLED
        both = np.concatenate([low.columns, high.columns], axis=1)
        if not both.shape[1]:
            return _SETTLED
        _, _, vh = np.linalg.svd(np.linalg.qr(both[:n], mode="r"))
        both = np.matmul(both, vh.conj().T)
        low.columns = contiguous(both[:, :middle])
        high.columns = contiguous(both[:, middle:])
        return _ROTATED

    def _coupling(self, a: Array, b: Array) -> float:
        """Return the relative error of leaving two blocks unrotated.

        The error is the largest component of a column along a larger column, divided by the norm of
        the matrix. LAPACK guarantees no smaller error.
        """
        if not a.shape[1] or not b.shape[1]:
            return 0.0
        products = np.abs(np.matmul(a.conj().T, b))
        sizes = [np.sqrt(np.sum(np.abs(block) ** 2, axis=0)) for block in (a, b)]
        larger = np.maximum(sizes[0][:, None], sizes[1])
        larger[larger == 0] = 1
        return float(np.max(products / larger)) / (self._size or 1.0)

    def _pass_on(self) -> None:
        """Shift the upper row right and the lower row left by a rank; the first block stays."""
        rank, last = self._group.rank, self._group.size - 1
        upper, lower = self._upper, self._lower
        mine = {block.number: block for block in self.blocks}
        moved_upper = [upper[0], lower[0], *upper[1:-1]] if last else upper
        moved_lower = [*lower[1:], upper[-1]] if last else lower
        wanted = moved_upper[rank], moved_lower[rank]
        sends = []
        for number in (upper[rank], lower[rank]):
            if number not in wanted:
                row = moved_upper if number in moved_upper else moved_lower
                sends.append((row.index(number), mine[number].columns))
        places = {n: r for r in range(last + 1) for n in (upper[r], lower[r])}
        receives = []
        for number in wanted:
            if number not in mine:
                shape = (len(self.blocks[0].columns), self._widths[number])
                mine[number] = _Block(number, np.empty_like(self.blocks[0].columns, shape=shape))
                receives.append((places[number], mine[number].columns))
        self._group.exchange(
            [(peer, columns) for peer, columns in sends if columns.size],
            [(peer, columns) for peer, columns in receives if columns.size],
        )
        self.blocks = [mine[number] for number in wanted]
        self._upper, self._lower = moved_upper, moved_lower


def _halves(interval: tuple[int, int]) -> tuple[int, int]:
    """Return the widths of the two blocks into which an interval of columns is divided."""
    length = interval[1] - interval[0]
    return (length + 1) // 2, length // 2
