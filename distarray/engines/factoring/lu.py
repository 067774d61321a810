"""LU factorization of one large matrix over all ranks: solutions, inverses, determinants.

The algorithm is right-looking, with partial pivoting, on a block-cyclic distribution of the columns
(:mod:`.cyclic`). The owner of a panel factors it alone, by LAPACK on the host, so that the search
for pivots needs no messages. The owner then broadcasts the panel with its pivots. Every rank then
updates its own columns by a product. The columns of the next panel are updated first, so that its
factorization and broadcast overlap with the other updates. Right-hand sides are appended to the
matrix as columns, so that L is applied at once and never stored.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from distarray.array import DistArray, empty, to_layout, wrap
from distarray.comm.pending import Pending
from distarray.engines.factoring.cyclic import Dealing, collected, dealt
from distarray.engines.factoring.lapack import (
    factor_panel,
    row_order,
    solve_unit_lower,
    subtract_product,
)
from distarray.engines.factoring.triangular import inverse_of_lower, solve_upper
from distarray.engines.rehearsing.hollow import host_empty, ordinary
from distarray.layout import Fold, Layout
from distarray.typing import Array

__all__ = ["inverse", "log_determinant", "solution"]


#: Up to this many right-hand sides are stored on every rank.
FEW = 64
#: Rows of a panel that are transposed at a time.
_TILE = 64


class _Elimination:
    """Elimination of a matrix, with right-hand sides, to an upper triangle.

    Attributes
    ----------
    work : array, shape (n, own columns of the matrix + right-hand sides)
        This rank's columns and right-hand sides.
    diagonal : list of ndarray
        The diagonals of the panels' U, on the host of every rank.
    swaps : int
        The number of row exchanges.
    """

    def __init__(self, work: Array, dealing: Dealing) -> None:
        self.work = work
        self.dealing = dealing
        self.mesh = dealing.mesh
        self.diagonal: list[Array] = []
        self.swaps = 0

    @np.errstate(all="ignore")  # silent about NaN, like NumPy
    def run(self, stops: Callable[[Array], bool]) -> bool:
        """Eliminate panel by panel until ``stops(diagonal of a panel)``; return True at the end.

        All ranks get the same diagonals, and stop at the same panel. The result is False if `stops`
        ended the elimination early.
        """
        dealing = self.dealing
        coming = self._begun(0)
        for panel in range(dealing.panels):
            columns, pivots = _arrived(*coming)
            width = len(columns)
            self.diagonal.append(columns[:, :width].diagonal().copy())
            self.swaps += int(np.count_nonzero(pivots != np.arange(width)))
            if stops(self.diagonal[-1]):
                return False
            order = row_order(pivots)
            first = ahead = dealing.place(panel + 1)
            if panel + 1 < dealing.panels:
                if dealing.owner(panel + 1) == self.mesh.rank:
                    ahead += len(range(*dealing.interval(panel + 1)))
                    self._update(panel, columns, order, slice(first, ahead))
                coming = self._begun(panel + 1)
            self._update(panel, columns, order, slice(ahead, None))
        return True

    def _begun(self, panel: int) -> tuple[Array, Pending]:
        """Start the broadcast of a panel with its pivots, which the panel's owner factors first."""
        start, stop = self.dealing.interval(panel)
        width, rows = stop - start, len(self.work) - start
        # The pivots are sent as an extra line of the same message, in the matrix's data type.
        message = host_empty((width + 1, rows), self.work)
        owner = self.dealing.owner(panel)
        if self.mesh.rank == owner:
            place = self.dealing.place(panel)
            own = self.work[start:, place : place + width]
            host = self.mesh.to_host(own)
            for row in range(0, rows, _TILE):  # transposing in tiles takes a third of the time
                message[:width, row : row + _TILE] = host[row : row + _TILE].T
            message[width, :width] = factor_panel(message[:width])
            own[:width] = self.mesh.asarray(message[:width, :width].T)
        return message, self.mesh.group.begin_broadcast(message, owner, "factored panel")

    def _update(self, panel: int, columns: Array, order: tuple[Array, Array], own: slice) -> None:
        """Exchange rows, and subtract the panel's contribution from some of this rank's columns."""
        start, stop = self.dealing.interval(panel)
        width = stop - start
        rest = self.work[start:, own]
        if not rest.size:
            return
        changed, sources = order
        if len(changed):
            rest[self.mesh.asarray(changed)] = rest[self.mesh.asarray(sources)]
        if not solve_unit_lower(columns, rest[:width]):
            lower = np.tril(columns[:, :width].T, -1) + np.eye(width, dtype=columns.dtype)
            rest[:width] = self.mesh.asarray(inverse_of_lower(lower)) @ rest[:width]
        left = self.mesh.asarray(columns[:, width:]).T
        subtract_product(rest[width:], left, rest[:width])


def _arrived(message: Array, coming: Pending) -> tuple[Array, Array]:
    """Wait for a factored panel; return its columns, in host memory, and its pivots."""
    coming.wait()
    width = len(message) - 1
    pivots = ordinary(message[width, :width].real, np.arange(width))
    return message[:width], pivots.astype(np.int64)


def _is_singular(diagonal: Array) -> bool:
    return bool(ordinary((diagonal == 0).any(), False))


def _eliminate(work: Array, dealing: Dealing) -> None:
    """Eliminate all columns; raise LinAlgError on all ranks if a pivot is zero."""
    if not _Elimination(work, dealing).run(_is_singular):
        raise np.linalg.LinAlgError("Singular matrix")


def log_determinant(a: DistArray, dtype: np.dtype[Any]) -> tuple[Any, Any]:
    """Compute the sign and the log of the absolute value of a determinant, on every rank.

    Returns
    -------
    tuple of scalar
        The sign, in the data type `dtype`, and the logarithm, which is real.

    Cost
    ----
    2/3 n**3 operations over all ranks; each rank receives n**2 / 2 elements in n / PANEL
    broadcasts, after the exchange that distributes the columns.
    """
    mesh = a.mesh
    if mesh.coords is None:
        return dtype.type(1), 0.0
    dealing = Dealing.in_panels(mesh, a.shape[1])
    elimination = _Elimination(dealt(a, dealing, dealing.empty(len(a), dtype)), dealing)
    if not elimination.run(_is_singular):
        return dtype.type(0), -np.inf
    diagonal = np.concatenate(elimination.diagonal)
    sizes = np.abs(diagonal)
    with np.errstate(all="ignore"):
        signs = diagonal / sizes
    sign = np.prod(signs) * (-1) ** elimination.swaps
    return dtype.type(sign), np.log(sizes).sum()


def inverse(a: DistArray, dtype: np.dtype[Any], layout: Layout) -> DistArray:
    """Compute the inverse of a large matrix, in a layout; the cost is that of :func:`solution`."""
    if a.mesh.coords is None:
        return empty(layout, dtype, a.mesh)
    dealing = Dealing.in_panels(a.mesh, a.shape[1])
    columns = dealing.indices(a.mesh.rank)
    work = dealing.empty(len(a), dtype, extra=len(columns))
    dealt(a, dealing, work[:, : len(columns)])
    unit = work[:, len(columns) :]
    unit[...] = 0
    unit[a.mesh.asarray(columns), a.mesh.asarray(np.arange(len(columns)))] = 1
    return collected(_wide(work, len(columns), dealing), dealing, layout)


def solution(a: DistArray, b: DistArray, dtype: np.dtype[Any], layout: Layout) -> DistArray:
    """Solve a large system of equations; the solution has the given layout.

    Parameters
    ----------
    a : DistArray, shape (n, n)
        The matrix, in any layout.
    b : DistArray, shape (n, r)
        Right-hand sides, in any layout.
    dtype : dtype
        The data type to compute in: float64 or complex128.
    layout : Layout
        The layout of the solution.

    Raises
    ------
    LinAlgError
        On all ranks, if a pivot is exactly zero.

    Cost
    ----
    2/3 n**3 + 2 n**2 r operations over all ranks. After the exchange that distributes the columns,
    each rank receives n**2 / 2 elements in n / PANEL broadcasts. More than `FEW` right-hand sides
    are distributed as well, and the broadcasts of U send as many elements again. Otherwise every
    rank stores all right-hand sides, and one allreduce for each panel adds up the contributions of
    the ranks.
    """
    mesh = a.mesh
    if mesh.coords is None:
        return empty(layout, dtype, mesh)
    dealing = Dealing.in_panels(mesh, a.shape[1])
    count = dealing.count(mesh.rank)
    if b.shape[1] > FEW:
        sides = Dealing.in_panels(mesh, b.shape[1])
        work = dealing.empty(len(a), dtype, extra=sides.count(mesh.rank))
        dealt(a, dealing, work[:, :count])
        dealt(b, sides, work[:, count:])
        return collected(_wide(work, count, dealing), sides, layout)
    work = dealing.empty(len(a), dtype, extra=b.shape[1])
    dealt(a, dealing, work[:, :count])
    whole = Layout.replicated(b.shape, mesh.shape)
    work[:, count:] = to_layout(b, whole).block
    return to_layout(wrap(_narrow(work, count, dealing), whole, mesh), layout)


@np.errstate(all="ignore")  # silent about NaN, like NumPy
def _wide(work: Array, count: int, dealing: Dealing) -> Array:
    """Solve for this rank's own right-hand sides, from column `count` on; U is broadcast."""
    mesh = dealing.mesh
    _eliminate(work, dealing)
    found = work[:, count:]
    for panel in reversed(range(dealing.panels)):
        start, stop = dealing.interval(panel)
        place = dealing.place(panel)
        upper = mesh.xp.empty((stop, stop - start), work.dtype)
        if mesh.rank == dealing.owner(panel):
            upper[...] = work[:stop, place : place + stop - start]
        mesh.group.broadcast(upper, dealing.owner(panel), "panel of U")
        if found.size:
            found[start:stop] = solve_upper(upper[start:], found[start:stop])
            subtract_product(found[:start], upper[:start], found[start:stop])
    return found


@np.errstate(all="ignore")  # silent about NaN, like NumPy
def _narrow(work: Array, count: int, dealing: Dealing) -> Array:
    """Solve for few right-hand sides, the last columns on every rank; U is not communicated."""
    mesh = dealing.mesh
    _eliminate(work, dealing)
    given = work[:, count:]
    found: Array = mesh.xp.zeros(given.shape, given.dtype)
    taken = np.zeros_like(found)  # the terms of each equation in this rank's columns of U
    coming = _sum_begun(taken, dealing, dealing.panels - 1)
    for panel in reversed(range(dealing.panels)):
        (start, stop), (parts, pending) = dealing.interval(panel), coming
        next_start = max(start - dealing.width, 0)
        upper = None
        if mesh.rank == dealing.owner(panel):
            pending.wait()
            place = dealing.place(panel)
            upper = work[:stop, place : place + stop - start]
            found[start:stop] = solve_upper(upper[start:], given[start:stop] - mesh.asarray(parts))
            taken[next_start:start] += upper[next_start:start] @ found[start:stop]
        if panel:
            coming = _sum_begun(taken, dealing, panel - 1)
        if upper is not None:  # while another rank solves for the next unknowns
            taken[:next_start] += upper[:next_start] @ found[start:stop]
        pending.wait()
    return mesh.group.allreduce(found, Fold.SUM, "solution")


def _sum_begun(taken: Array, dealing: Dealing, panel: int) -> tuple[Array, Pending]:
    """Start the sum over the ranks of the known terms of a panel's equations."""
    start, stop = dealing.interval(panel)
    parts = dealing.mesh.to_host(taken[start:stop]).copy()
    return parts, dealing.mesh.group.begin_allreduce(parts, Fold.SUM, "solution")
