"""svd and svdvals: of small, tall, wide and large square matrices, and of stacks."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.linalg import _linalg

from distarray.array import DistArray, call, implements, wrap
from distarray.array.portable import conjugated
from distarray.comm.agree import agreed
from distarray.engines.factoring import small
from distarray.engines.factoring.householder import by_rows
from distarray.engines.factoring.jacobi import values_and_vectors
from distarray.engines.factoring.repeatable import repeatable
from distarray.layout import Layout
from distarray.ops.linalg.qr import is_tall, orthogonal, tall_qr, triangle_of
from distarray.ops.ufuncs import call_ufunc
from distarray.typing import Array, ArrayLike

__all__ = ["svd", "svdvals"]

SVDResult: Any = _linalg.SVDResult

#: Maximum bytes of matrices of similar sides, and of triangles, that are gathered: LAPACK takes
#: much longer than the gather; the iteration for larger ones costs several times the arithmetic.
SQUARE_BYTES = 1 << 25


@implements(np.linalg.svd)
@repeatable(np.linalg.svd)
def svd(
    a: ArrayLike, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False
) -> Any:
    """Compute the singular value decomposition, as :func:`numpy.linalg.svd`.

    Parameters
    ----------
    a : array_like, shape (..., M, N)
        Any placement.
    full_matrices, compute_uv, hermitian
        As in NumPy. With `full_matrices`, which is NumPy's default, the larger of U and Vh is a
        square matrix of the longer side; programs with large data rarely need it.

    Returns
    -------
    SVDResult, or the singular values alone
        For a tall matrix U is cut along its rows as `a` is; singular values and Vh are replicated.
        For a wide one Vh is cut along its columns. Signs are LAPACK's if one side is at least twice
        as long as the other.

    Raises
    ------
    LinAlgError
        If `a` has fewer than two dimensions, or the iteration does not converge; on all ranks.

    Cost
    ----
    Tall and wide: the cost of the QR factorization, and the decomposition of the triangle on every
    rank. Square: one gather up to 32 MiB, where a distributed iteration cannot win. Above this
    size, the QR factorization of the matrix and of its triangle's adjoint, then some six to ten
    sweeps of block Jacobi rotations; in each sweep every rank's block of columns visits every other
    rank once. Stacks of at least as many matrices as ranks: nothing if the stack is cut.
    """
    (x,) = small.read(a)
    if hermitian:
        return _hermitian(x, compute_uv)
    small.check_stacked(x)
    small.common_type(x.dtype)
    function = partial(np.linalg.svd, full_matrices=full_matrices, compute_uv=compute_uv)
    if x.ndim > 2:
        if not x.size or x.layout.is_replicated or small.is_stack(x):
            return small.stackwise(function, x)
        return small.one_by_one(partial(_matrix, full=full_matrices, vectors=compute_uv), x)
    return _matrix(x, full_matrices, compute_uv)


@implements(np.linalg.svdvals)
def svdvals(x: ArrayLike, /) -> Any:
    """Compute the singular values, as :func:`numpy.linalg.svdvals`; see :func:`svd`."""
    return svd(x, compute_uv=False)


def _hermitian(x: DistArray, vectors: bool) -> Any:
    """Decompose by eigenvalues and eigenvectors, in the order of descending magnitude."""
    if not vectors:
        values = call_ufunc(np.abs, call(np.linalg.eigvalsh, x))
        return call(np.sort, values)[..., ::-1]
    values, u = call(np.linalg.eigh, x)
    signs = call_ufunc(np.copysign, 1.0, values)
    values = call_ufunc(np.abs, values)
    order = call(np.argsort, values)[..., ::-1]
    signs = call(np.take_along_axis, signs, order, axis=-1)
    values = call(np.take_along_axis, values, order, axis=-1)
    u = call(np.take_along_axis, u, order[..., None, :], axis=-1)
    vt = call_ufunc(np.conjugate, call(np.swapaxes, u * signs[..., None, :], -1, -2))
    return SVDResult(u, values, vt)


def _matrix(x: DistArray, full: bool, vectors: bool) -> Any:
    wide = x.shape[0] < x.shape[1]
    tall = _transposed(x) if wide else x
    m, n = tall.shape
    limit = SQUARE_BYTES if m < 2 * n else small.SMALL_BYTES
    if is_tall(tall):
        found = _tall(adjoint(x) if wide else x, full, vectors, wide)
    elif small.is_small(x, limit=limit):
        function = partial(np.linalg.svd, full_matrices=full, compute_uv=vectors)
        return small.at_once(function, x)
    elif x.mesh.coords is None:
        found = _outside(tall, full, vectors)
    else:
        found = _large(adjoint(x) if wide else x, full, vectors)
    if not wide or not vectors:
        return found
    return SVDResult(adjoint(found[2]), found[1], adjoint(found[0]))


def _transposed(x: DistArray) -> DistArray:
    """Return the transpose of each matrix, a view."""
    axes = (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2)
    return wrap(x.block.transpose(axes), x.layout.transpose(axes), x.mesh)


def adjoint(x: DistArray) -> DistArray:
    """Return the conjugate transpose of each matrix; a view if the matrix is real."""
    return conjugated(_transposed(x))


def _tall(x: DistArray, full: bool, vectors: bool, flipped: bool) -> Any:
    """Decompose the triangle on every rank; its left vectors are multiplied by Q."""
    m, n = x.shape
    mesh = x.mesh
    if full and vectors and m > n:
        return _completed(x)
    _, dtype = small.common_type(x.dtype)
    layout = by_rows(x.layout)
    if mesh.coords is None:
        value: Any = _of_triangle(np.eye(n, dtype=dtype), vectors, False)
        block = mesh.xp.empty(layout.local_shape(None), dtype)
    else:
        tall, layout = tall_qr(x, with_q=vectors)
        value = agreed(mesh.group, lambda: _of_triangle(tall.r, vectors, flipped))
        block = tall.times(mesh.asarray(value[0])) if vectors else None
    s = (value[1] if vectors else value).astype(small.real_type(dtype), copy=False)
    s = small.replicated(s, mesh)
    if not vectors:
        return s
    u = wrap(block.astype(dtype, copy=False), layout, mesh)
    return SVDResult(u, s, small.replicated(value[2].astype(dtype, copy=False), mesh))


def _of_triangle(r: Array, vectors: bool, flipped: bool) -> Any:
    """Decompose R; for a wide matrix decompose R's adjoint, as LAPACK does."""
    function = partial(np.linalg.svd, compute_uv=vectors)
    if not (flipped and vectors):
        return small.call_linalg(function, r)
    u, s, vh = small.call_linalg(function, r.conj().T)
    return vh.conj().T, s, u.conj().T


def _completed(x: DistArray) -> Any:
    """Return all left vectors of a tall matrix: the triangle's, and a basis of the complement."""
    n = x.shape[1]
    q, r = call(np.linalg.qr, x, mode="complete")
    u, s, vh = small.at_once(np.linalg.svd, r[:n])
    q[:, :n] = call(np.matmul, q[:, :n], u)
    return SVDResult(q, s, vh)


# -- large, neither tall nor wide ------------------------------------------------------------------


def _large(x: DistArray, full: bool, vectors: bool) -> Any:
    """Decompose like :func:`_tall`; all ranks decompose a large triangle by Jacobi's iteration."""
    work, dtype = small.common_type(x.dtype)
    form = orthogonal(x)
    r = triangle_of(form, work)
    if small.is_small(r, limit=SQUARE_BYTES):
        found = small.at_once(partial(np.linalg.svd, compute_uv=vectors), r)
        u, s, vh = found if vectors else (None, found, None)
    elif vectors:
        u, s, v = values_and_vectors(r)
        vh = adjoint(v)
    else:
        u, s, vh = None, values_and_vectors(r, vectors=False), None
    s = s.astype(small.real_type(dtype), copy=False)
    if u is None or vh is None:
        return s
    m, n = x.shape
    result = form.spread(u, m if full else n)
    return SVDResult(result.astype(dtype, copy=False), s, vh.astype(dtype, copy=False))


def _outside(x: DistArray, full: bool, vectors: bool) -> Any:
    """Return arrays without elements on a rank outside of the mesh."""
    (m, n), mesh = x.shape, x.mesh
    _, dtype = small.common_type(x.dtype)
    s = small.replicated(np.empty(n, small.real_type(dtype)), mesh)
    if not vectors:
        return s
    layout = by_rows(x.layout)
    made = []
    for shape in ((m, m if full else n), (n, n)):
        placed = Layout.chunked(shape, mesh.shape, layout.placements)
        made.append(wrap(mesh.xp.empty(placed.local_shape(None), dtype), placed, mesh))
    return SVDResult(made[0], s, made[1])
