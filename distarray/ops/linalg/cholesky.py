"""Cholesky factorization of one large matrix over all ranks."""

from typing import Any

import numpy as np

from distarray.array import DistArray, empty
from distarray.comm.pending import Pending
from distarray.layout import Layout
from distarray.ops.linalg.cyclic import Dealing, collected, dealt, panel_width
from distarray.ops.linalg.lapack import divide_by_adjoint, subtract_product
from distarray.ops.linalg.triangular import inverse_of_lower

__all__ = ["factor"]

Array = Any


@np.errstate(all="ignore")  # as NumPy: what is not a number stays silent
def factor(a: DistArray, dtype: np.dtype[Any], layout: Layout) -> DistArray:
    """The lower Cholesky factor of a large matrix, of which the lower triangle is read.

    Right-looking, on columns dealt out in panels: the rank that has a panel factors its diagonal
    block on the host, and broadcasts the panel; each rank updates the panels that it has, from
    their diagonals down. The next panel comes first in that, and is factored and on its way while
    the others are updated.

    Parameters
    ----------
    a : DistArray, shape (n, n)
        Placed as it may be.
    dtype : dtype
        In which to compute: float64 or complex128.
    layout : Layout
        Of the result.

    Raises
    ------
    LinAlgError
        On all ranks, if the matrix is not positive definite.

    Cost
    ----
    1/3 n**3 operations over all ranks. After the exchange that deals out the columns each rank
    receives n**2 / 2 elements in n / PANEL broadcasts.
    """
    if a._mesh.coords is None:
        return empty(layout, dtype, a._mesh)
    dealing = Dealing(a._mesh, a.shape[1], panel_width(a.shape[1], a._mesh))
    work = dealt(a, dealing, dealing.empty(len(a), dtype))
    coming = _begun(work, dealing, 0)
    for panel in range(dealing.panels):
        column = _arrived(*coming)
        if column is None:
            raise np.linalg.LinAlgError("Matrix is not positive definite")
        mine = [n for n in range(panel + 1, dealing.panels) if dealing.owner(n) == a._mesh.rank]
        if panel + 1 in mine:
            _update(work, dealing, panel, mine.pop(0), column)
        if panel + 1 < dealing.panels:
            coming = _begun(work, dealing, panel + 1)
        for later in mine:
            _update(work, dealing, panel, later, column)
            coming[1].poke()
    return collected(work, dealing, layout)


def _begun(work: Array, dealing: Dealing, panel: int) -> tuple[Array, Pending]:
    """The panel of the factor on its way to every rank: factored where it is, then sent."""
    mesh = dealing.mesh
    start, stop = dealing.interval(panel)
    width = stop - start
    # One row more: whether it is positive definite.
    message = mesh.xp.empty((len(work) - start + 1, width), work.dtype)
    if mesh.rank == dealing.owner(panel):
        place = dealing.place(panel)
        own = work[:, place : place + width]
        lower = _lower(mesh.to_host(own[start:stop]))
        message[-1] = lower is not None
        if lower is not None:
            own[:start] = 0
            own[start:stop] = mesh.asarray(lower)
            if not divide_by_adjoint(own[stop:], lower):
                own[stop:] = own[stop:] @ mesh.asarray(inverse_of_lower(lower).conj().T)
            message[:-1] = own[start:]
    owner = dealing.owner(panel)
    return message, mesh.group.begin_broadcast(message, owner, "panel of the factor")


def _arrived(message: Array, coming: Pending) -> Array | None:
    """The panel from its diagonal down; None if the matrix is not positive definite."""
    coming.wait()
    return message[:-1] if bool(message[-1, 0]) else None


def _lower(block: Array) -> Array | None:
    try:
        return np.linalg.cholesky(block)
    except np.linalg.LinAlgError:
        return None


def _update(work: Array, dealing: Dealing, panel: int, later: int, column: Array) -> None:
    """Subtract what a panel of the factor contributes from a later one, from its diagonal down."""
    start, stop = dealing.interval(later)
    place, first = dealing.place(later), dealing.interval(panel)[0]
    own = work[start:, place : place + stop - start]
    other = column[start - first : stop - first].conj().T
    subtract_product(own, column[start - first :], other)
