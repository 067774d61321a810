"""Eigenvalues and eigenvectors: eigh, eigvalsh, eig, eigvals."""

from functools import partial
from typing import Any

import numpy as np

from distarray.array import DistArray, implements, wrap
from distarray.layout import Fold
from distarray.ops.linalg.small import at_once, check_square, common_type, is_stack, read, stackwise

__all__ = ["eig", "eigh", "eigvals", "eigvalsh"]

Array = Any


def _triangle(UPLO: Any) -> str:
    chosen: str = UPLO.upper()
    if chosen not in ("L", "U"):
        raise ValueError("UPLO argument must be 'L' or 'U'")
    return chosen


@implements(np.linalg.eigh)
def eigh(a: Any, UPLO: str = "L") -> Any:
    """Eigenvalues and eigenvectors of Hermitian matrices. See :func:`numpy.linalg.eigh`."""
    triangle = _triangle(UPLO)
    (a,) = read(a)
    check_square(a)
    common_type(a.dtype)
    function = partial(np.linalg.eigh, UPLO=triangle)
    return stackwise(function, a) if a.ndim > 2 and is_stack(a) else at_once(function, a)


@implements(np.linalg.eigvalsh)
def eigvalsh(a: Any, UPLO: str = "L") -> Any:
    """Eigenvalues of Hermitian matrices. See :func:`numpy.linalg.eigvalsh`."""
    triangle = _triangle(UPLO)
    (a,) = read(a)
    check_square(a)
    common_type(a.dtype)
    function = partial(np.linalg.eigvalsh, UPLO=triangle)
    return stackwise(function, a) if a.ndim > 2 and is_stack(a) else at_once(function, a)


@implements(np.linalg.eig)
def eig(a: Any) -> Any:
    """Eigenvalues and eigenvectors of square matrices. See :func:`numpy.linalg.eig`.

    Parameters
    ----------
    a : DistArray, shape (..., n, n)
        Placed as it may be.

    Returns
    -------
    EigResult
        Of a single matrix replicated, of a stack cut as the stack is. Real if all eigenvalues are.

    Raises
    ------
    LinAlgError
        On all ranks, if a matrix is not square, has an infinite element or a NaN, or the
        iteration does not converge.

    Cost
    ----
    A single matrix is gathered (n**2 elements to each rank) and every rank computes the same:
    what LAPACK does after the reduction to Hessenberg form is a chase of bulges over a matrix of a
    few diagonals, one after the other, which gains little from more ranks, and no program whose
    results must be exact to rounding does it otherwise. In a stack each rank takes some matrices
    whole; one small allreduce tells whether all eigenvalues are real.
    """
    (a,) = read(a)
    check_square(a)
    common_type(a.dtype)
    if a.ndim == 2 or not is_stack(a):
        return at_once(np.linalg.eig, a)
    values, vectors = stackwise(_complex_eig, a)
    kind: Any = type(np.linalg.eig(np.eye(1)))
    if a.dtype.kind == "c" or _any_imaginary(values):
        return kind(values, vectors)
    return kind(_real(values), _real(vectors))


@implements(np.linalg.eigvals)
def eigvals(a: Any) -> Any:
    """Eigenvalues of square matrices. See :func:`numpy.linalg.eigvals`; gathers as :func:`eig`."""
    (a,) = read(a)
    check_square(a)
    common_type(a.dtype)
    if a.ndim == 2 or not is_stack(a):
        return at_once(np.linalg.eigvals, a)
    values = stackwise(_complex_eigvals, a)
    return values if a.dtype.kind == "c" or _any_imaginary(values) else _real(values)


def _as_complex(values: Array) -> Array:
    return values.astype(np.result_type(values.dtype, np.complex64), copy=False)


def _complex_eig(a: Array) -> tuple[Array, Array]:
    values, vectors = np.linalg.eig(a)
    return _as_complex(values), _as_complex(vectors)


def _complex_eigvals(a: Array) -> Array:
    return _as_complex(np.linalg.eigvals(a))


def _any_imaginary(values: DistArray) -> bool:
    """Whether a value anywhere is not real; one allreduce."""
    mesh = values._mesh
    if mesh.coords is None:
        return False
    here = np.asarray(bool((values._block.imag != 0).any()))
    return bool(mesh.group.allreduce(here, Fold.ANY, "whether all eigenvalues are real"))


def _real(x: DistArray) -> DistArray:
    return wrap(x._block.real, x._layout, x._mesh)
