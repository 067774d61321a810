"""Eigenvalues and vectors of one large Hermitian matrix over all ranks."""

from typing import Any

import numpy as np

from distarray.array import DistArray, empty, movement, wrap
from distarray.comm import DeviceMesh
from distarray.engines.factoring.cyclic import Dealing, dealt
from distarray.engines.factoring.divide_and_conquer import tridiagonal_eigen
from distarray.engines.factoring.tridiagonal import Tridiagonal, reduced
from distarray.layout import Fold, Layout, Shard
from distarray.typing import Array, DTypeLike

__all__ = ["eigen"]


#: Columns in a panel, after which the rest of a large matrix is updated.
WIDTH = 32
#: A matrix whose largest element is outside these bounds is scaled, lest its square overflow or
#: underflow.
_SAFE = 1e-120, 1e120


def eigen(
    a: DistArray, lower: bool, dtype: np.dtype[Any], layout: Layout | None
) -> tuple[Array, DistArray | None]:
    """Compute the eigenvalues in ascending order, and the eigenvectors as columns of a matrix.

    The matrix is reduced to tridiagonal form (:mod:`.tridiagonal`). Divide and conquer
    (:mod:`.divide_and_conquer`) solves the tridiagonal problem. Householder reflections turn its
    eigenvectors into those of the matrix.

    Parameters
    ----------
    a : DistArray, shape (n, n)
        The matrix, in any layout; only one triangle is read.
    lower : bool
        True to read the lower triangle, False to read the upper one.
    dtype : dtype
        The data type to compute in: float64 or complex128.
    layout : Layout or None
        The layout of the eigenvectors; None for eigenvalues alone.

    Returns
    -------
    tuple of (ndarray, DistArray or None)
        The eigenvalues are equal on every rank.

    Raises
    ------
    LinAlgError
        On all ranks, if an element is infinite or not a number.

    Cost
    ----
    2 n**3 operations over all ranks for the eigenvalues, half of them bound by memory bandwidth,
    with n gathers of n elements. The vectors take up to 10/3 n**3 operations more, and broadcasts
    of n**2 elements. No rank holds more than a few times its share of the n**2 elements.
    """
    mesh = a.mesh
    if mesh.coords is None:
        return np.empty(0), None if layout is None else empty(layout, dtype, mesh)
    dealing = Dealing.in_panels(mesh, a.shape[1], WIDTH)
    own = _both_triangles(a, lower, dealing, dtype)
    scale = _scale(own, dealing)
    if scale != 1:
        own /= scale
    form = reduced(own, dealing)
    del own
    for part in (form.diagonal, form.below):
        mesh.group.broadcast(part, 0, "tridiagonal form")
    rows = Layout.chunked(a.shape, mesh.shape, [Shard(0)] * mesh.ndim)
    first, last = rows.section(mesh.coords)[0]
    wanted = (first, last) if layout is not None else (0, 0)
    values, block = tridiagonal_eigen(form.diagonal, form.below, wanted, mesh)
    values = mesh.group.broadcast(values * scale, 0, "eigenvalues")
    if layout is None:
        return values, None
    vectors = mesh.asarray(form.phases[first:last])[:, None] * block.T
    return values, _restored(form, vectors, rows, layout, mesh)


def _both_triangles(a: DistArray, lower: bool, dealing: Dealing, dtype: DTypeLike) -> Array:
    """Return this rank's columns of the Hermitian matrix that one triangle of `a` determines."""
    mesh = a.mesh
    stored = dealt(a, dealing, dealing.empty(len(a), dtype))
    mirrored = np.conjugate(dealt(a.T, dealing, dealing.empty(len(a), dtype)))
    columns = dealing.indices(mesh.rank)
    down = np.arange(len(stored))[:, None] >= columns
    own: Array = np.where(mesh.asarray(down if lower else ~down), stored, mirrored)
    spots = (mesh.asarray(columns), mesh.asarray(np.arange(len(columns))))
    own[spots] = own[spots].real
    return own


def _scale(own: Array, dealing: Dealing) -> float:
    """Return the divisor that scales the matrix; raise LinAlgError on all ranks if not finite."""
    largest = np.zeros(1)
    if own.size:
        largest[0] = max(float(abs(own.real).max()), float(abs(own.imag).max()))
    size = float(dealing.mesh.group.allreduce(largest, Fold.MAX, "largest element")[0])
    if not np.isfinite(size):
        raise np.linalg.LinAlgError("Eigenvalues did not converge")
    return 1.0 if size == 0 or _SAFE[0] < size < _SAFE[1] else size


def _restored(
    form: Tridiagonal, vectors: Array, rows: Layout, layout: Layout, mesh: DeviceMesh
) -> DistArray:
    """Compute the matrix's eigenvectors from the tridiagonal matrix's, which are cut along rows."""
    columns = Layout.chunked(rows.shape, mesh.shape, [Shard(1)] * mesh.ndim)
    block = movement.moved(vectors, rows, columns, mesh)
    block = mesh.xp.array(block, order="C")
    form.restore(block)
    return wrap(movement.moved(block, columns, layout, mesh), layout, mesh)
