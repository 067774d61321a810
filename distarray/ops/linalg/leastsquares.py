"""lstsq and pinv: least squares and pseudo-inverses."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from distarray.array import DistArray, call, implements, movement
from distarray.comm.agree import agreed
from distarray.engines.factoring import small
from distarray.engines.factoring.householder import factored
from distarray.engines.factoring.repeatable import repeatable
from distarray.engines.factoring.tsqr import TallQR
from distarray.layout import Cut
from distarray.ops.linalg.qr import is_tall, rows_of, triangle_of
from distarray.ops.linalg.svd import SQUARE_BYTES, adjoint, svd
from distarray.ops.ufuncs import call_ufunc
from distarray.typing import ArrayLike

__all__ = ["lstsq", "pinv"]

LinAlgError = np.linalg.LinAlgError

_NO_VALUE: Any = np._NoValue


@implements(np.linalg.lstsq)
@repeatable(np.linalg.lstsq, 2)
def lstsq(a: ArrayLike, b: ArrayLike, rcond: float | None = None) -> Any:
    """Solve least squares, rank-deficient matrices included, as :func:`numpy.linalg.lstsq`.

    Parameters
    ----------
    a : array_like, shape (M, N)
        Any placement.
    b : array_like, shape (M,) or (M, K)
        Any placement.
    rcond : float, optional
        As in NumPy.

    Returns
    -------
    x, residuals, rank, s
        All are replicated if `a` has more rows than columns.

    Raises
    ------
    LinAlgError
        If shapes do not fit, or the singular values do not converge; on all ranks.

    Cost
    ----
    More rows than columns: one QR factorization, without Q, of `a` and `b` side by side; every
    rank solves the small remaining problem. Other matrices, and triangles above 32 MiB: the cost
    of the singular value decomposition.
    """
    x, y = small.read(a, b)
    vector = y.ndim == 1
    right = y[:, None] if vector else y
    small.check_2d(x, right)
    if x.shape[0] != right.shape[0]:
        raise LinAlgError("Incompatible dimensions")
    small.common_type(x.dtype, right.dtype)
    m, n = x.shape
    if rcond is None:
        rcond = np.finfo(np.float64).eps * max(n, m)
    function = partial(np.linalg.lstsq, rcond=rcond)
    if not right.shape[1] or not min(m, n):
        return small.at_once(function, x, y)
    tall = x.mesh.coords is not None and is_tall(x, extra=right.shape[1])
    if not tall and small.is_small(x, right, limit=SMALL_BYTES):
        return small.at_once(function, x, y)
    solution, residuals, rank, s = _solved(x, right, rcond, tall)
    return (solution[:, 0] if vector else solution), residuals, rank, s


#: Problems with fewer bytes are gathered.
SMALL_BYTES = 1 << 16


def _solved(a: DistArray, b: DistArray, rcond: float, tall: bool) -> Any:
    """Return the solution, residuals, rank and singular values of a large problem."""
    if a.mesh.coords is None:
        return _outside(a, b)
    width = a.shape[1] + b.shape[1]
    if tall or (a.shape[0] >= width and width**2 * 16 <= SQUARE_BYTES):
        return _by_triangle(a, b, rcond)
    return _by_values(a, b, rcond)


def _by_triangle(a: DistArray, b: DistArray, rcond: float) -> Any:
    """Solve with the triangle of [a b]: R of a, Q^H b, and below it b outside the range of a."""
    n, mesh = a.shape[1], a.mesh
    work, dtype = small.common_type(a.dtype, b.dtype)
    block, layout = rows_of(a)
    wanted = layout.with_cuts([layout.cuts[0], Cut.whole(b.shape[1])])
    side = movement.moved(b.block, b.layout, wanted, mesh)
    both = np.concatenate([block.astype(work, copy=False), side.astype(work, copy=False)], axis=1)
    if is_tall(a, extra=b.shape[1]):
        start = layout.section(mesh.coords)[0][0]
        group = mesh.subgroup(layout.cuts[0].mesh_dims)
        r = mesh.to_host(TallQR(both, start, a.shape[0], group, with_q=False).r)
    else:
        whole = layout.with_cuts([layout.cuts[0], Cut.whole(both.shape[1])])
        r = triangle_of(factored(both, whole, mesh), work).full()
    found = agreed(mesh.group, lambda: np.linalg.lstsq(r[:n, :n], r[:n, n:], rcond))
    x, _, rank, s = found
    outside = np.sum(np.abs(r[n:, n:]) ** 2, axis=0) if rank == n else np.empty(0)
    real = small.real_type(dtype)
    parts = x.astype(dtype), outside.astype(real), rank, s.astype(real)
    return tuple([small.replicated(part, mesh) for part in parts])


def _outside(a: DistArray, b: DistArray) -> Any:
    """Return shapes and dtypes on a rank outside of the mesh, as if the rank of `a` were full."""
    (m, n), k = a.shape, b.shape[1]
    _, dtype = small.common_type(a.dtype, b.dtype)
    real = small.real_type(dtype)
    parts = (
        np.empty((n, k), dtype),
        np.empty(k if m > n else 0, real),
        np.int32(n),
        np.empty(min(m, n), real),
    )
    return tuple([small.replicated(part, a.mesh) for part in parts])


def _by_values(a: DistArray, b: DistArray, rcond: float) -> Any:
    """Solve with the singular value decomposition, as in LAPACK's gelsd."""
    m, n = a.shape
    work, dtype = small.common_type(a.dtype, b.dtype)
    a, b = a.astype(work, copy=False), b.astype(work, copy=False)
    u, s, vh = svd(a, full_matrices=False)
    values = s.full()
    large = values > rcond * values[0]
    rank = np.int32(np.count_nonzero(large))
    weights = np.where(large, 1 / np.where(large, values, 1), 0)
    c = call(np.matmul, adjoint(u), b)
    x = call(np.matmul, adjoint(vh), call_ufunc(np.multiply, weights[:, None], c))
    residuals: Any = small.replicated(np.empty(0, small.real_type(dtype)), a.mesh)
    if rank == n and m > n:
        outside = call_ufunc(np.subtract, b, call(np.matmul, u, c))
        residuals = call(np.sum, call_ufunc(np.square, call_ufunc(np.absolute, outside)), axis=0)
        residuals = residuals.astype(small.real_type(dtype))
    s = s.astype(small.real_type(dtype), copy=False)
    return x.astype(dtype, copy=False), residuals, small.replicated(rank, a.mesh), s


@implements(np.linalg.pinv)
def pinv(
    a: ArrayLike,
    rcond: ArrayLike | None = None,
    hermitian: bool = False,
    *,
    rtol: ArrayLike | None = _NO_VALUE,
) -> Any:
    """Compute the pseudo-inverse from the SVD, as :func:`numpy.linalg.pinv`.

    Returns
    -------
    DistArray
        Cut along its columns if `a` is tall and cut along its rows.

    Cost
    ----
    The cost of :func:`numpy.linalg.svd` without full matrices, and of one product.
    """
    (x,) = small.read(a)
    if rcond is None:
        if rtol is _NO_VALUE:
            rcond = 1e-15
        elif rtol is None:
            rcond = max(x.shape[-2:]) * np.finfo(x.dtype).eps
        else:
            rcond = rtol
    elif rtol is not _NO_VALUE:
        raise ValueError("`rtol` and `rcond` can't be both set.")
    if isinstance(rcond, DistArray):
        rcond = rcond.full()
    rcond = np.asarray(rcond)
    if x.size == 0 and x.ndim >= 2 and 0 in x.shape[-2:]:
        m, n = x.shape[-2:]
        return call(np.empty, (*x.shape[:-2], n, m), x.dtype, like=x)
    u, s, vt = svd(x, full_matrices=False, hermitian=hermitian)
    cutoff = call_ufunc(np.multiply, rcond[..., None], call(np.max, s, axis=-1, keepdims=True))
    large = call_ufunc(np.greater, s, cutoff)
    inverse = call(np.where, large, call_ufunc(np.divide, 1, call(np.where, large, s, 1)), 0)
    inverse = inverse.astype(s.dtype, copy=False)
    left = call_ufunc(np.multiply, inverse[..., None], adjoint(u))
    return call(np.matmul, adjoint(vt), left)
