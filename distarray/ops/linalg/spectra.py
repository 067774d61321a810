"""eigh, eigvalsh, eig and eigvals: eigenvalues and eigenvectors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from distarray.array import DistArray, implements, wrap
from distarray.engines.factoring.hermitian import eigen
from distarray.engines.factoring.repeatable import repeatable
from distarray.engines.factoring.small import (
    at_once,
    check_square,
    common_type,
    is_small,
    is_stack,
    read,
    real_type,
    stackwise,
)
from distarray.layout import Fold, Layout
from distarray.ops.linalg.square import each_matrix
from distarray.typing import Array, ArrayLike

__all__ = ["HERMITIAN_FROM", "eig", "eigh", "eigvals", "eigvalsh"]


#: Number of rows from which on all ranks together solve a Hermitian matrix.
HERMITIAN_FROM = 2048


def _triangle(UPLO: str) -> str:
    chosen: str = UPLO.upper()
    if chosen not in ("L", "U"):
        raise ValueError("UPLO argument must be 'L' or 'U'")
    return chosen


@implements(np.linalg.eigh)
@repeatable(np.linalg.eigh)
def eigh(a: ArrayLike, UPLO: str = "L") -> Any:
    """Compute eigenvalues and eigenvectors of Hermitian matrices. See :func:`numpy.linalg.eigh`.

    Parameters
    ----------
    a : DistArray, shape (..., n, n)
        Any placement; one triangle is read.
    UPLO : {"L", "U"}
        The triangle that is read.

    Returns
    -------
    EighResult
        Eigenvalues in ascending order, on every rank, and eigenvectors in the layout of `a`;
        replicated if a single matrix has fewer than `HERMITIAN_FROM` rows. For a stack, both are
        cut as the stack is.

    Raises
    ------
    LinAlgError
        On all ranks, if a matrix is not square, or the iteration does not converge; also if a
        large matrix has an infinite element or a NaN.

    Cost
    ----
    A stack costs no messages except those that make its matrices whole. A small matrix is gathered
    (n**2 elements to each rank) and solved by every rank. A large one is reduced to tridiagonal
    form, in n gathers of n elements, and takes up to 16/3 n**3 operations over all ranks.

    Notes
    -----
    Eigenvectors are determined up to a factor of magnitude 1, and not at all within the space of
    eigenvalues that agree up to rounding: they may differ from NumPy's.
    """
    lower = _triangle(UPLO) == "L"
    (a,) = read(a)
    check_square(a)
    work, made = common_type(a.dtype)
    kind: Any = type(np.linalg.eigh(np.eye(1)))

    def large(matrix: DistArray) -> Any:
        values, vectors = eigen(matrix, lower, work, matrix.layout)
        assert vectors is not None
        return kind(_values(values, made, matrix), vectors.astype(made, copy=False))

    function = partial(np.linalg.eigh, UPLO="L" if lower else "U")
    return each_matrix(function, large, a, HERMITIAN_FROM)


@implements(np.linalg.eigvalsh)
@repeatable(np.linalg.eigvalsh)
def eigvalsh(a: ArrayLike, UPLO: str = "L") -> Any:
    """Compute the eigenvalues of Hermitian matrices. See :func:`numpy.linalg.eigvalsh`.

    Parameters, errors and cost are those of :func:`eigh`, without the vectors.
    """
    lower = _triangle(UPLO) == "L"
    (a,) = read(a)
    check_square(a)
    work, made = common_type(a.dtype)

    def large(matrix: DistArray) -> DistArray:
        return _values(eigen(matrix, lower, work, None)[0], made, matrix)

    function = partial(np.linalg.eigvalsh, UPLO="L" if lower else "U")
    return each_matrix(function, large, a, HERMITIAN_FROM)


def _values(values: Array, made: np.dtype[Any], a: DistArray) -> DistArray:
    """Return replicated eigenvalues as a distributed array."""
    layout = Layout.replicated(a.shape[-1:], a.mesh.shape)
    return wrap(a.mesh.asarray(values.astype(real_type(made), copy=False)), layout, a.mesh)


@implements(np.linalg.eig)
@repeatable(np.linalg.eig, stacks=False)
def eig(a: ArrayLike) -> Any:
    """Compute eigenvalues and eigenvectors of square matrices. See :func:`numpy.linalg.eig`.

    Parameters
    ----------
    a : DistArray, shape (..., n, n)
        Any placement.

    Returns
    -------
    EigResult
        Replicated for a single matrix; cut as the stack is for a stack. Before NumPy 2.5, real if
        all eigenvalues are real.

    Raises
    ------
    LinAlgError
        On all ranks, if a matrix is not square, has an infinite element or a NaN, or the
        iteration does not converge.

    Cost
    ----
    A single matrix is gathered (n**2 elements to each rank) and every rank computes the same
    result: after the reduction to Hessenberg form LAPACK chases bulges down the diagonal, one after
    another. This gains little from more ranks, and no other known method is exact up to rounding.
    In a stack each rank takes some whole matrices; one small allreduce determines whether all
    eigenvalues are real.
    """
    (a,) = read(a)
    check_square(a)
    common_type(a.dtype)
    if a.ndim == 2 or (is_small(a) and not is_stack(a)):
        return at_once(np.linalg.eig, a)
    values, vectors = stackwise(_complex_eig, a)
    kind: Any = type(np.linalg.eig(np.eye(1)))
    if _stays_complex(np.linalg.eig, a, values):
        return kind(values, vectors)
    return kind(_real(values), _real(vectors))


@implements(np.linalg.eigvals)
@repeatable(np.linalg.eigvals, stacks=False)
def eigvals(a: ArrayLike) -> Any:
    """Compute the eigenvalues of square matrices. See :func:`numpy.linalg.eigvals`.

    A single matrix is gathered, as by :func:`eig`.
    """
    (a,) = read(a)
    check_square(a)
    common_type(a.dtype)
    if a.ndim == 2 or (is_small(a) and not is_stack(a)):
        return at_once(np.linalg.eigvals, a)
    values = stackwise(_complex_eigvals, a)
    return values if _stays_complex(np.linalg.eigvals, a, values) else _real(values)


def _as_complex(values: Array) -> Array:
    return values.astype(np.result_type(values.dtype, np.complex64), copy=False)


def _complex_eig(a: Array) -> tuple[Array, Array]:
    values, vectors = np.linalg.eig(a)
    return _as_complex(values), _as_complex(vectors)


def _complex_eigvals(a: Array) -> Array:
    return _as_complex(np.linalg.eigvals(a))


def _stays_complex(function: Callable[..., Any], a: DistArray, values: DistArray) -> bool:
    """Return True if the eigenvalues are returned as complex numbers: since NumPy 2.5 always."""
    if a.dtype.kind == "c" or np.asarray(function(np.eye(1))[0]).dtype.kind == "c":
        return True
    return _any_imaginary(values)


def _any_imaginary(values: DistArray) -> bool:
    """Return True if any value on any rank is not real; one allreduce."""
    mesh = values.mesh
    if mesh.coords is None:
        return False
    here = np.asarray(bool((values.block.imag != 0).any()))
    return bool(mesh.group.allreduce(here, Fold.ANY, "whether all eigenvalues are real"))


def _real(x: DistArray) -> DistArray:
    return wrap(x.block.real, x.layout, x.mesh)
