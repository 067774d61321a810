"""Cholesky factorization of one large matrix over all ranks."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from distarray.array import DistArray, empty, wrap
from distarray.comm.pending import FINISHED, Pending
from distarray.engines.factoring.cyclic import Dealing, dealt
from distarray.engines.factoring.lapack import divide_by_adjoint, subtract_product
from distarray.engines.factoring.triangular import inverse_of_lower
from distarray.engines.rehearsing.hollow import ordinary
from distarray.layout import Box, Interval, Layout
from distarray.typing import Array

__all__ = ["factor"]


@np.errstate(all="ignore")  # silent about NaN, like NumPy
def factor(a: DistArray, dtype: np.dtype[Any], layout: Layout) -> DistArray:
    """Compute the lower Cholesky factor of a large matrix; only the lower triangle is read.

    The algorithm is right-looking, on a block-cyclic distribution of the columns (:mod:`.cyclic`).
    The owner of a panel factors its diagonal block on the host and broadcasts the panel. Each rank
    copies the elements of its block of the result from every panel, and updates its own columns
    from their diagonals down. The next panel is updated first, so that its factorization and
    broadcast overlap with the update of the other panels.

    Parameters
    ----------
    a : DistArray, shape (n, n)
        In any layout.
    dtype : dtype
        The data type to compute in: float64 or complex128.
    layout : Layout
        The layout of the result.

    Raises
    ------
    LinAlgError
        On all ranks, if the matrix is not positive definite.

    Cost
    ----
    1/3 n**3 operations over all ranks. After the exchange that distributes the columns, each rank
    receives n**2 / 2 elements in n / PANEL broadcasts.
    """
    mesh = a.mesh
    if mesh.coords is None:
        return empty(layout, dtype, mesh)
    dealing = Dealing.in_panels(mesh, a.shape[1])
    work = dealt(a, dealing, dealing.empty(len(a), dtype), lower=True)
    found = mesh.xp.empty(layout.local_shape(mesh.coords), dtype)
    coming = _begun(work, dealing, 0)
    for panel in range(dealing.panels):
        column = _arrived(*coming)
        if column is None:
            raise np.linalg.LinAlgError("Matrix is not positive definite")
        mine = [n for n in range(panel + 1, dealing.panels) if dealing.owner(n) == mesh.rank]
        if panel + 1 in mine:
            _update(work, dealing, panel, [mine.pop(0)], column, FINISHED)
        if panel + 1 < dealing.panels:
            coming = _begun(work, dealing, panel + 1)
        _keep(found, layout.section(mesh.coords), dealing.interval(panel), column)
        _update(work, dealing, panel, mine, column, coming[1])
    return wrap(found, layout, mesh)


def _begun(work: Array, dealing: Dealing, panel: int) -> tuple[Array, Pending]:
    """Start the broadcast of a panel of the factor, which the panel's owner computes first."""
    mesh = dealing.mesh
    start, stop = dealing.interval(panel)
    width = stop - start
    # The last row is a flag: nonzero if the matrix is positive definite.
    message = mesh.xp.empty((len(work) - start + 1, width), work.dtype)
    if mesh.rank == dealing.owner(panel):
        place = dealing.place(panel)
        own = work[start:, place : place + width]
        lower = _lower(mesh.to_host(own[:width]))
        message[-1] = lower is not None
        if lower is not None:
            message[:width] = mesh.asarray(lower)
            message[width:-1] = own[width:]
            if not divide_by_adjoint(message[width:-1], lower):
                message[width:-1] = own[width:] @ mesh.asarray(inverse_of_lower(lower).conj().T)
    owner = dealing.owner(panel)
    return message, mesh.group.begin_broadcast(message, owner, "panel of the factor")


def _arrived(message: Array, coming: Pending) -> Array | None:
    """Wait for a panel; return it from its diagonal down, or None if not positive definite."""
    coming.wait()
    return message[:-1] if bool(ordinary(message[-1, 0], True)) else None


def _lower(block: Array) -> Array | None:
    """Factor a diagonal block; return None if it is not positive definite."""
    try:
        return np.linalg.cholesky(block)
    except np.linalg.LinAlgError:
        return None


def _keep(found: Array, own: Box, columns: Interval, column: Array) -> None:
    """Copy the elements of a panel that belong to this rank's block of the result."""
    (top, _), (left, right) = own
    start, stop = max(columns[0], left), min(columns[1], right)
    if stop <= start:
        return
    into, edge = found[:, start - left : stop - left], columns[0]
    above = min(max(edge - top, 0), len(into))  # rows above the panel's diagonal block
    into[:above] = 0
    into[above:] = column[max(top - edge, 0) :][: len(into) - above, start - edge : stop - edge]


def _update(
    work: Array,
    dealing: Dealing,
    panel: int,
    later: Sequence[int],
    column: Array,
    coming: Pending,
) -> None:
    """Subtract the contribution of a panel of the factor from later panels, below their diagonals.

    The later panels are adjacent in memory. For the rows between two diagonals, one product updates
    all panels whose diagonal is above, since wider products are faster. Between the products this
    rank progresses the broadcast `coming`.
    """
    first = dealing.interval(panel)[0]
    spans = [dealing.interval(number) for number in later]
    if not spans:
        return
    xp = dealing.mesh.xp
    right = xp.concatenate([column[a - first : b - first] for a, b in spans]).conj().T
    place, width = dealing.place(later[0]), 0
    bottoms = [start for start, _ in spans[1:]] + [len(work)]
    for (start, stop), bottom in zip(spans, bottoms, strict=True):
        width += stop - start
        own = work[start:bottom, place : place + width]
        subtract_product(own, column[start - first : bottom - first], right[:, :width])
        coming.poke()
