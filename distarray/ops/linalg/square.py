"""solve, inv, det, slogdet, cholesky, matrix_power, and inverses of tensors."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from distarray.array import DistArray, call, implements, wrap
from distarray.engines.factoring import cholesky as blocked_cholesky
from distarray.engines.factoring import lu
from distarray.engines.factoring.repeatable import repeatable
from distarray.engines.factoring.small import (
    at_once,
    check_square,
    common_type,
    is_small,
    is_stack,
    one_by_one,
    read,
    stackwise,
)
from distarray.engines.reshaping import in_line, refitted
from distarray.layout import Layout
from distarray.typing import ArrayLike

__all__ = [
    "BLOCKED_FROM",
    "cholesky",
    "det",
    "each_matrix",
    "inv",
    "matrix_power",
    "slogdet",
    "solve",
    "tensorinv",
    "tensorsolve",
]

#: Number of rows from which on all ranks together factor a matrix; every rank factors a smaller one
#: as a whole.
BLOCKED_FROM = 1024


def each_matrix(
    function: Callable[..., Any],
    large: Callable[[DistArray], Any],
    a: DistArray,
    blocked_from: int | None = None,
) -> Any:
    """Apply a function of square matrices on one rank or on all, as size and number require.

    Parameters
    ----------
    function : callable
        NumPy's function for whole matrices on one rank.
    large : callable
        Our function for one matrix that is distributed over all ranks.
    a : DistArray
        One matrix, or a stack of them.
    blocked_from : int, optional
        Number of rows from which on a matrix is large; `BLOCKED_FROM` by default.
    """
    limit = BLOCKED_FROM if blocked_from is None else blocked_from
    alone = a.mesh.size() == 1 or a.shape[-1] < limit
    if a.ndim > 2 and (is_stack(a) or (alone and not is_small(a))):
        return stackwise(function, a)
    if alone:
        return at_once(function, a)
    return large(a) if a.ndim == 2 else one_by_one(large, a)


def _scalar(value: np.generic, a: DistArray) -> DistArray:
    """Return a replicated number as the 0-d result of an operation."""
    return wrap(value, Layout.replicated((), a.mesh.shape), a.mesh)


@implements(np.linalg.cholesky)
@repeatable(np.linalg.cholesky)
def cholesky(a: ArrayLike, /, *, upper: bool = False) -> Any:
    """Compute the Cholesky factor of positive definite matrices. See :func:`numpy.linalg.cholesky`.

    Parameters
    ----------
    a : DistArray, shape (..., n, n)
        Its lower triangle is read; with `upper`, its upper triangle.
    upper : bool
        True if the factor is upper triangular.

    Returns
    -------
    DistArray
        In the layout of `a`; replicated if a single matrix has fewer than `BLOCKED_FROM` rows.

    Raises
    ------
    LinAlgError
        On all ranks, if a matrix is not square, or not positive definite.

    Cost
    ----
    A stack costs no messages except those that make its matrices whole. A small matrix is gathered
    (n**2 elements to each rank) and factored by every rank. A large one takes n**3 / 3 operations
    over all ranks, and each rank receives n**2 / 2 elements in n / 128 broadcasts.
    """
    (a,) = read(a)
    check_square(a)
    work, made = common_type(a.dtype)

    def large(matrix: DistArray) -> DistArray:
        source = matrix.T.conj() if upper else matrix
        layout = matrix.layout.transpose((1, 0)) if upper else matrix.layout
        factor = blocked_cholesky.factor(source, work, layout)
        return _as(factor.T.conj() if upper else factor, made)

    return each_matrix(partial(np.linalg.cholesky, upper=upper), large, a)


def _as(x: DistArray, dtype: np.dtype[Any]) -> DistArray:
    cast: DistArray = x.astype(dtype, copy=False)
    return cast


@implements(np.linalg.inv)
@repeatable(np.linalg.inv)
def inv(a: ArrayLike) -> Any:
    """Invert matrices. See :func:`numpy.linalg.inv`.

    Parameters
    ----------
    a : DistArray, shape (..., n, n)
        Any placement.

    Returns
    -------
    DistArray
        In the layout of `a`; replicated if a single matrix has fewer than `BLOCKED_FROM` rows.

    Raises
    ------
    LinAlgError
        On all ranks, if a matrix is not square, or singular.

    Cost
    ----
    The cost of :func:`solve` with n right-hand sides.
    """
    (a,) = read(a)
    check_square(a)
    work, made = common_type(a.dtype)
    return each_matrix(np.linalg.inv, lambda m: _as(lu.inverse(m, work, m.layout), made), a)


@implements(np.linalg.slogdet)
@repeatable(np.linalg.slogdet)
def slogdet(a: ArrayLike) -> Any:
    """Compute sign and logarithm of the determinant. See :func:`numpy.linalg.slogdet`.

    Parameters
    ----------
    a : DistArray, shape (..., n, n)
        Any placement.

    Returns
    -------
    SlogdetResult
        Two scalars on every rank; for a stack two arrays, cut as the stack is.

    Cost
    ----
    Large matrices: 2/3 n**3 operations over all ranks, and each rank receives n**2 / 2 elements in
    n / 128 broadcasts. Smaller matrices: the cost of :func:`cholesky`, with 2/3 n**3 operations.
    """
    (a,) = read(a)
    check_square(a)
    work, made = common_type(a.dtype)
    kind = type(np.linalg.slogdet(np.ones((1, 1))))

    def large(matrix: DistArray) -> Any:
        sign, size = lu.log_determinant(matrix, work)
        real = np.empty(0, made).real.dtype.type
        return kind(_scalar(made.type(sign), matrix), _scalar(real(size), matrix))

    return each_matrix(np.linalg.slogdet, large, a)


@implements(np.linalg.det)
@repeatable(np.linalg.det)
def det(a: ArrayLike) -> Any:
    """Compute determinants of matrices, as :func:`numpy.linalg.det`; costs as :func:`slogdet`."""
    (a,) = read(a)
    check_square(a)
    work, made = common_type(a.dtype)

    def large(matrix: DistArray) -> DistArray:
        sign, size = lu.log_determinant(matrix, work)
        return _scalar(made.type(sign * np.exp(size)), matrix)

    return each_matrix(np.linalg.det, large, a)


@implements(np.linalg.solve)
@repeatable(np.linalg.solve, 2)
def solve(a: ArrayLike, b: ArrayLike) -> Any:
    """Solve systems of linear equations. See :func:`numpy.linalg.solve`.

    Parameters
    ----------
    a : DistArray, shape (..., n, n)
        Any placement.
    b : DistArray, shape (n,) or (..., n, r)
        Right-hand sides; a single vector only if `b` has one dimension, as in NumPy 2.

    Returns
    -------
    DistArray
        In the layout of `b`; replicated if a single matrix has fewer than `BLOCKED_FROM` rows.

    Raises
    ------
    LinAlgError
        On all ranks, if a matrix is not square, or singular.

    Cost
    ----
    A stack costs no messages except those that make its matrices whole. A small matrix is gathered
    (n**2 elements to each rank) and solved by every rank. A large one takes 2/3 n**3 + 2 n**2 r
    operations over all ranks, and each rank receives n**2 / 2 elements in n / 128 broadcasts, or
    twice as many for many right-hand sides.
    """
    a, b = read(a, b)
    check_square(a)
    work, made = common_type(a.dtype, b.dtype)
    core = 1 if b.ndim == 1 else 2
    probe = [np.empty((0, *x.shape[x.ndim - c :]), x.dtype) for x, c in ((a, 2), (b, core))]
    if core == 1:
        probe[1] = np.broadcast_to(np.zeros((), b.dtype), b.shape)
    np.linalg.solve(*probe)  # raises NumPy's exception for wrong shapes
    if core == 1:
        return _solved(a, b[:, None], work, made)[..., 0]
    return _solved(a, b, work, made)


def _solved(a: DistArray, b: DistArray, work: np.dtype[Any], made: np.dtype[Any]) -> Any:
    """Solve for matrices of right-hand sides that are known to fit."""
    stack = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    many = prod(stack) >= a.mesh.size() or not prod(stack)
    alone = a.mesh.size() == 1 or a.shape[-1] < BLOCKED_FROM
    if stack and (many or (alone and not is_small(a, b))):
        return stackwise(np.linalg.solve, a, b)
    if alone:
        return at_once(np.linalg.solve, a, b)
    if not stack:
        return _as(lu.solution(a, b, work, b.layout), made)
    a, b = [call(np.broadcast_to, x, (*stack, *x.shape[-2:])) for x in (a, b)]
    parts = [_solved(a[place], b[place], work, made) for place in np.ndindex(*stack)]
    return call(np.reshape, call(np.stack, parts), b.shape)


@implements(np.linalg.matrix_power, at=True)
def matrix_power(a: ArrayLike, n: int) -> Any:
    """Raise matrices to an integer power. See :func:`numpy.linalg.matrix_power`.

    Parameters
    ----------
    a : DistArray, shape (..., m, m)
        Any placement.
    n : int
        The exponent; the inverse is taken first if it is negative.

    Returns
    -------
    DistArray
        `a` itself for the first power.

    Cost
    ----
    At most 2 log2(n) times the cost of :func:`numpy.matmul`.
    """
    (x,) = read(a)
    check_square(x)
    try:
        n = operator.index(n)
    except TypeError as error:
        raise TypeError("exponent must be an integer") from error
    if x.dtype == object and x.ndim > 2:
        raise NotImplementedError("matrix_power not supported for stacks of object arrays")
    if n == 0:
        result = call(np.zeros_like, x)
        result[...] = call(np.eye, x.shape[-1], dtype=x.dtype, like=x)
        return result
    if n < 0:
        x, n = call(np.linalg.inv, x), -n
    return _power(x, n, np.dot if x.dtype == object else np.matmul)


def _power(a: DistArray, n: int, product: Callable[..., Any]) -> Any:
    """Compute a positive power by multiplications in NumPy's order."""
    if n == 3:
        return product(product(a, a), a)
    power, result = a, None
    while True:
        n, bit = divmod(n, 2)
        if bit:
            result = power if result is None else product(result, power)
        if not n:
            return result
        power = product(power, power)


@implements(np.linalg.tensorinv)
def tensorinv(a: ArrayLike, ind: int = 2) -> Any:
    """Invert a tensor. See :func:`numpy.linalg.tensorinv`; costs as :func:`inv`."""
    (a,) = read(a)
    if ind <= 0:
        raise ValueError("Invalid ind argument.")
    shape = (*a.shape[ind:], *a.shape[:ind])
    square = call(np.reshape, a, (prod(a.shape[ind:]), -1))
    return call(np.reshape, inv(square), shape)


@implements(np.linalg.tensorsolve)
def tensorsolve(a: ArrayLike, b: ArrayLike, axes: Sequence[int] | None = None) -> Any:
    """Solve a tensor equation. See :func:`numpy.linalg.tensorsolve`.

    Costs as :func:`solve` with one right-hand side.
    """
    x, y = read(a, b)
    if axes is not None:
        order = list(range(x.ndim))
        for axis in axes:
            order.remove(axis)
            order.insert(x.ndim, axis)
        x = x.transpose(order)
    shape = x.shape[-(x.ndim - y.ndim) :]
    size = prod(shape)
    if x.size != size**2:
        raise np.linalg.LinAlgError(
            "Input arrays must satisfy the requirement \
            prod(a.shape[b.ndim:]) == prod(a.shape[:b.ndim])"
        )
    square = call(np.reshape, x, (size, size))
    return refitted(solve(square, in_line(y)), shape)
