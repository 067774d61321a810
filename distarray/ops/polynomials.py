"""Polynomials by their coefficients, the highest power first: polyadd, polymul, polyfit, roots.

Arithmetic works on distributed coefficients. `polydiv`, `roots` and `poly`, which NumPy computes
coefficient by coefficient in a fixed order, are computed on every rank. Their coefficients are
gathered within `config.gather_limit`.
"""

from __future__ import annotations

import warnings
from typing import Any, cast

import numpy as np

from distarray.array import DistArray, as_distarray, call, common_mesh, implements
from distarray.comm import DeviceMesh
from distarray.ops.grids import vander
from distarray.typing import ArrayLike

__all__ = [
    "poly",
    "polyadd",
    "polyder",
    "polydiv",
    "polyfit",
    "polyint",
    "polymul",
    "polysub",
    "roots",
]

# Untyped here: NumPy's stubs have overloads that our arguments do not match.
_convolve: Any = np.convolve
_lstsq: Any = np.linalg.lstsq


def _coefficients(p: ArrayLike, mesh: DeviceMesh) -> DistArray:
    x = as_distarray(np.asarray(p) if isinstance(p, np.poly1d) else p, mesh)
    return np.atleast_1d(x)  # type: ignore[return-value]


def _result(value: DistArray, *operands: ArrayLike) -> Any:
    """Return the coefficients; a polynomial if an operand is a polynomial."""
    if any(isinstance(operand, np.poly1d) for operand in operands):
        return np.poly1d(value)
    return value


def _padded(p: DistArray, length: int) -> DistArray:
    """Return the coefficients, with zeros for higher powers."""
    missing = length - len(p)
    if missing <= 0:
        return p
    return np.concatenate((np.zeros(missing, p.dtype), p))  # type: ignore[return-value]


def _combined(operation: np.ufunc, a1: ArrayLike, a2: ArrayLike) -> Any:
    mesh = common_mesh(a1, a2)
    first, second = _coefficients(a1, mesh), _coefficients(a2, mesh)
    length = max(len(first), len(second))
    return _result(operation(_padded(first, length), _padded(second, length)), a1, a2)


@implements(np.polyadd)
def polyadd(a1: ArrayLike, a2: ArrayLike) -> Any:
    """Add two polynomials; see :func:`numpy.polyadd`.

    Cost
    ----
    The cost of aligning the coefficients of the polynomial of lower degree with the other's.
    """
    return _combined(np.add, a1, a2)


@implements(np.polysub)
def polysub(a1: ArrayLike, a2: ArrayLike) -> Any:
    """Subtract two polynomials; see :func:`numpy.polysub`.

    Cost
    ----
    The cost of :func:`polyadd`.
    """
    return _combined(np.subtract, a1, a2)


@implements(np.polymul)
def polymul(a1: ArrayLike, a2: ArrayLike) -> Any:
    """Multiply two polynomials; see :func:`numpy.polymul`.

    Cost
    ----
    The cost of :func:`numpy.convolve`, and of finding the leading zeros.
    """
    mesh = common_mesh(a1, a2)
    factors = [_trimmed(_coefficients(p, mesh)) for p in (a1, a2)]
    return _result(_convolve(*factors), a1, a2)


def _trimmed(p: DistArray) -> DistArray:
    """Return the coefficients without leading zeros; one zero if there is no other."""
    if p.ndim > 1:
        raise ValueError("Polynomial must be 1d only.")
    first = int(np.argmax(p != 0)) if len(p) else 0
    if not len(p) or not bool(np.any(p != 0)):
        return as_distarray(np.zeros(1, p.dtype), p.mesh)
    return p[first:]


@implements(np.polyder, at=True)
def polyder(p: ArrayLike, m: int = 1) -> Any:
    """Differentiate a polynomial; see :func:`numpy.polyder`.

    Cost
    ----
    None.
    """
    order = int(m)
    if order < 0:
        raise ValueError("Order of derivative must be positive (see polyint)")
    value = _coefficients(p, common_mesh(p))
    for _ in range(order):
        value = value[:-1] * np.arange(len(value) - 1, 0, -1)
    return _result(value, p)


@implements(np.polyint, at=True)
def polyint(p: ArrayLike, m: int = 1, k: ArrayLike | None = None) -> Any:
    """Integrate a polynomial; see :func:`numpy.polyint`.

    Cost
    ----
    For each order, the cost of appending a coefficient.
    """
    order = int(m)
    if order < 0:
        raise ValueError("Order of integral must be positive (see polyder)")
    constants = np.atleast_1d(np.zeros(order) if k is None else np.asarray(k))
    if len(constants) == 1 and order > 1:
        constants = constants[0] * np.ones(order, float)
    if len(constants) < order:
        raise ValueError("k must be a scalar or a rank-1 array of length 1 or >m.")
    value: Any = _coefficients(p, common_mesh(p))
    for constant in constants[:order]:
        value = np.concatenate((value / np.arange(len(value), 0, -1), [constant]))
    return _result(value, p)


@implements(np.polydiv)
def polydiv(u: ArrayLike, v: ArrayLike) -> Any:
    """Divide two polynomials into quotient and remainder; see :func:`numpy.polydiv`.

    Each coefficient of the quotient needs the preceding one.

    Cost
    ----
    The cost of gathering both polynomials, within `config.gather_limit`.
    """
    mesh = common_mesh(u, v)
    operands = [p if isinstance(p, np.poly1d) else np.asarray(p) for p in (u, v)]
    return _replicated(np.polydiv(*operands), mesh)


def _replicated(value: Any, mesh: DeviceMesh) -> Any:
    """Return NumPy's results, which every rank has computed, as replicated arrays."""
    if isinstance(value, tuple):
        return tuple([_replicated(part, mesh) for part in value])
    known = isinstance(value, (np.ndarray, np.generic))
    return as_distarray(value, mesh) if known else value


# To find overrides of these two functions, NumPy checks the elements of the argument, not the
# argument, and finds only numbers. So programs get the functions below.


def roots(p: ArrayLike) -> Any:
    """Find the roots of a polynomial; see :func:`numpy.roots`.

    They are the eigenvalues of a matrix with a row for each coefficient, which fits on every rank.

    Cost
    ----
    The cost of gathering the coefficients, within `config.gather_limit`.
    """
    return call(np.roots, p) if isinstance(p, DistArray) else np.roots(cast("Any", p))


def poly(seq_of_zeros: ArrayLike) -> Any:
    """Compute the coefficients of the polynomial with given roots; see :func:`numpy.poly`.

    Each root multiplies the product of the preceding ones.

    Cost
    ----
    The cost of gathering the roots, within `config.gather_limit`; for a matrix, also the cost of
    :func:`numpy.linalg.eigvals`.
    """
    zeros: Any = seq_of_zeros
    return call(np.poly, zeros) if isinstance(zeros, DistArray) else np.poly(zeros)


@implements(np.roots)
def _roots(p: ArrayLike) -> Any:
    return _replicated(np.roots(np.asarray(p)), common_mesh(p))


@implements(np.poly)
def _poly(seq_of_zeros: ArrayLike) -> Any:
    mesh = common_mesh(seq_of_zeros)
    zeros = np.atleast_1d(as_distarray(seq_of_zeros, mesh))
    if zeros.ndim == 2 and zeros.shape[0] == zeros.shape[1] != 0:
        zeros = np.linalg.eigvals(zeros)
    elif zeros.ndim != 1:
        raise ValueError("input must be 1d or non-empty square 2d array.")
    return _replicated(np.poly(np.asarray(zeros)), mesh)


# -- least squares -------------------------------------------------------------------------------


@implements(np.polyfit)
def polyfit(
    x: ArrayLike,
    y: ArrayLike,
    deg: int,
    rcond: float | None = None,
    full: bool = False,
    w: ArrayLike | None = None,
    cov: bool | str = False,
) -> Any:
    """Fit a polynomial by least squares; see :func:`numpy.polyfit`.

    Parameters
    ----------
    x, y, w : array_like
        Points, values (one line, or a column for each fit), and weights; cut along the points.
    deg, rcond, full, cov
        As in :func:`numpy.polyfit`.

    Returns
    -------
    DistArray, or a tuple of them
        Replicated.

    Cost
    ----
    The cost of :func:`numpy.linalg.lstsq` for a tall matrix with ``deg + 1`` columns, one small
    allreduce, and an exchange of `y` and `w` if their layouts differ from that of `x`.
    """
    mesh = common_mesh(x, y, w)
    points, fitted = as_distarray(x, mesh) + 0.0, as_distarray(y, mesh) + 0.0
    _check_points(points, fitted, deg)
    order = int(deg) + 1
    if rcond is None:
        rcond = len(points) * np.finfo(points.dtype).eps
    left: Any = vander(points, order)
    if w is not None:
        left, fitted = _weighted(left, fitted, as_distarray(w, mesh) + 0.0)
    scale = np.sqrt((left * left).sum(axis=0))
    left = left / scale
    found, residuals, rank, values = _lstsq(left, fitted, rcond)
    found = (found.T / scale).T
    if int(rank) != order and not full:
        text = "Polyfit may be poorly conditioned"
        warnings.warn(text, np.exceptions.RankWarning, stacklevel=1)
    if full:
        return found, residuals, rank, values, rcond
    return (found, _covariance(left, scale, residuals, fitted, cov)) if cov else found


def _check_points(x: DistArray, y: DistArray, deg: int) -> None:
    """Raise NumPy's exceptions, in NumPy's order."""
    if deg < 0:
        raise ValueError("expected deg >= 0")
    if x.ndim != 1:
        raise TypeError("expected 1D vector for x")
    if x.size == 0:
        raise TypeError("expected non-empty vector for x")
    if y.ndim < 1 or y.ndim > 2:
        raise TypeError("expected 1D or 2D array for y")
    if x.shape[0] != y.shape[0]:
        raise TypeError("expected x and y to have same length")


def _weighted(left: DistArray, y: DistArray, weights: DistArray) -> tuple[Any, Any]:
    """Multiply both sides of the equations by the weights of their rows."""
    if weights.ndim != 1:
        raise TypeError("expected a 1-d array for weights")
    if weights.shape[0] != y.shape[0]:
        raise TypeError("expected w and y to have the same length")
    column = weights[:, None]
    return left * column, y * (column if y.ndim == 2 else weights)


def _covariance(
    left: DistArray, scale: DistArray, residuals: DistArray, y: DistArray, cov: bool | str
) -> Any:
    """Return the covariance matrix of the coefficients, one matrix for each fit."""
    points, order = left.shape
    base = np.linalg.inv(np.dot(left.T, left)) / np.outer(scale, scale)
    factor: Any = 1
    if cov != "unscaled":
        if points <= order:
            raise ValueError(
                "the number of data points must exceed order to scale the covariance matrix"
            )
        factor = residuals / (points - order)
    return base * factor if y.ndim == 1 else base[:, :, None] * factor
