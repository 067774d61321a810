"""matrix_rank and cond, from singular values."""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import numpy as np

from distarray.array import DistArray, call, implements
from distarray.engines.factoring import small
from distarray.engines.factoring.repeatable import repeatable
from distarray.ops.linalg.norms import NormOrder, norm
from distarray.ops.linalg.svd import svd
from distarray.ops.ufuncs import call_ufunc
from distarray.typing import ArrayLike

__all__ = ["cond", "matrix_rank"]

LinAlgError = np.linalg.LinAlgError


@implements(np.linalg.matrix_rank)
@repeatable(np.linalg.matrix_rank)
def matrix_rank(
    A: ArrayLike,
    tol: ArrayLike | None = None,
    hermitian: bool = False,
    *,
    rtol: ArrayLike | None = None,
) -> Any:
    """Count the singular values above a tolerance, as :func:`numpy.linalg.matrix_rank`.

    Cost
    ----
    The cost of the singular values.
    """
    if rtol is not None and tol is not None:
        raise ValueError("`tol` and `rtol` can't be both set.")
    (x,) = small.read(A)
    if x.ndim < 2:
        return int(not bool(call(np.all, call_ufunc(np.equal, x, 0))))
    s = svd(x, compute_uv=False, hermitian=hermitian)
    if tol is None:
        ratio = max(x.shape[-2:]) * np.finfo(s.dtype).eps if rtol is None else _column(rtol)
        largest = call(np.max, s, axis=-1, keepdims=True, initial=0)
        limit = call_ufunc(np.multiply, largest, ratio)
    else:
        limit = _column(tol)
    return call(np.count_nonzero, call_ufunc(np.greater, s, limit), axis=-1)


def _column(tol: ArrayLike) -> Any:
    return tol[..., None] if isinstance(tol, DistArray) else np.asarray(tol)[..., None]


@implements(np.linalg.cond)
@repeatable(np.linalg.cond, stacks=False)
def cond(x: ArrayLike, p: NormOrder = None) -> Any:
    """Compute the condition number for every `p`, as :func:`numpy.linalg.cond`.

    Cost
    ----
    The cost of the singular values for `p` None, 2 and -2; else of the inverse and of two norms.
    """
    (a,) = small.read(x)
    if a.size == 0 and 0 in a.shape[-2:]:
        raise LinAlgError("cond is not defined on empty arrays")
    if p is None or p in {2, -2}:
        small.check_stacked(a)
        s = svd(a, compute_uv=False)
        first, last = s[..., 0], s[..., -1]
        pair = (last, first) if p == -2 else (first, last)
        with np.errstate(all="ignore"):
            found = call_ufunc(np.divide, *pair)
    else:
        small.check_square(a)
        found = _by_inverse(a, p)
        _, dtype = small.common_type(a.dtype)
        found = found.astype(small.real_type(dtype), copy=False)
    return _finished(found, a)


def _by_inverse(a: DistArray, p: NormOrder) -> Any:
    """Multiply the norms of a matrix and of its inverse; NaN if the matrix is singular."""
    if a.ndim > 2 or small.is_small(a):
        return _at_once(a, p)
    with np.errstate(all="ignore"):
        size = norm(a, p, axis=(-2, -1))
        try:
            inverse = call(np.linalg.inv, a)
        except LinAlgError:
            return call_ufunc(np.multiply, size, np.nan)
        return call_ufunc(np.multiply, size, norm(inverse, p, axis=(-2, -1)))


def _at_once(a: DistArray, p: NormOrder) -> Any:
    function: Any = partial(cast("Any", np.linalg.cond), p=p)
    stacked = a.ndim > 2 and (a.layout.is_replicated or small.is_stack(a))
    return small.stackwise(function, a) if stacked else small.at_once(function, a)


def _finished(found: DistArray, a: DistArray) -> Any:
    """Set infinity where the condition number is undefined though all elements are numbers."""
    undefined = call_ufunc(np.isnan, found)
    if not bool(call(np.any, undefined)):
        return found
    odd = call(np.any, call_ufunc(np.isnan, a), axis=(-2, -1))
    infinite = call_ufunc(np.logical_and, undefined, call_ufunc(np.logical_not, odd))
    result = call(np.where, infinite, found.dtype.type(np.inf), found)
    return result if result.ndim else result.like(result.mesh.scalar(result.block))
