"""Covariance and correlation: deviations from the means, contracted over the observations."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from distarray.array import DistArray, as_distarray, common_mesh, implements
from distarray.array.portable import conjugated
from distarray.comm import DeviceMesh
from distarray.typing import ArrayLike, DTypeLike

__all__ = ["corrcoef", "cov"]

#: Operands with fewer bytes in total are gathered on every rank for NumPy's own function.
REPLICATED_BELOW = 1 << 17


@implements(np.cov, small=False)
def cov(
    m: ArrayLike,
    y: ArrayLike | None = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    fweights: ArrayLike | None = None,
    aweights: ArrayLike | None = None,
    *,
    dtype: DTypeLike = None,
) -> Any:
    """Compute the covariance matrix of variables; see :func:`numpy.cov`.

    Parameters
    ----------
    m, y : array_like
        Variables and observations. A cut along the observations costs least.
    rowvar, bias, ddof, dtype
        As in :func:`numpy.cov`.
    fweights, aweights : array_like
        One weight per observation, sent to the ranks that hold the observations.

    Returns
    -------
    DistArray
        A pending sum if the matrix is large.

    Cost
    ----
    Small operands are gathered. Cut along the observations: one allreduce of the means and one of
    the matrix; with weights, also the allreduces of :func:`numpy.average` and a few of one number
    each. Cut along the variables: the cost of the product of a matrix with its transpose. Memory
    for at most two copies of the block.
    """
    if ddof is not None and ddof != int(ddof):
        raise ValueError("ddof must be integer")
    mesh = common_mesh(m, y, fweights, aweights)
    if _size(m, y, fweights, aweights) < REPLICATED_BELOW:
        few = [_gathered(part) for part in (m, y, rowvar, bias, ddof, fweights, aweights)]
        return as_distarray(np.cov(*few, dtype=dtype), mesh)
    x = _variables(m, y, rowvar, dtype, mesh)
    if not x.shape[0]:
        return as_distarray(np.empty((0, 0)), mesh)
    if ddof is None:
        ddof = 1 if bias == 0 else 0
    frequencies = _weights("fweights", fweights, x)
    analytic = _weights("aweights", aweights, x)
    weights = analytic if frequencies is None else frequencies
    if frequencies is not None and analytic is not None:
        weights = frequencies * analytic
    mean, factor = _moments(x, weights, analytic, ddof)
    if factor <= 0:
        warnings.warn("Degrees of freedom <= 0 for slice", RuntimeWarning, stacklevel=1)
        factor = 0.0
    x = x - mean[:, None]
    other = x if weights is None else x * weights
    # BLAS computes one half of the product of an array with its own transpose, not with a copy.
    product = np.dot(x, conjugated(other.T))
    return np.squeeze(product * np.true_divide(1, factor))


def _size(*operands: ArrayLike | None) -> int:
    """Return the bytes of the distributed operands."""
    return sum([x.nbytes for x in operands if isinstance(x, DistArray)])


def _gathered(x: ArrayLike | None) -> Any:
    return x.full() if isinstance(x, DistArray) else x


def _variables(
    m: ArrayLike, y: ArrayLike | None, rowvar: bool, dtype: DTypeLike, mesh: DeviceMesh
) -> Any:
    """Return all variables as rows, in the data type of the computation."""
    first = _matrix("m", m, mesh)
    second = None if y is None else _matrix("y", y, mesh)
    if dtype is None:
        dtypes = [] if second is None else [second.dtype]
        dtype = np.result_type(first.dtype, np.float64, *dtypes)
    x: Any = np.atleast_2d(first.astype(dtype, copy=False))
    if not rowvar and first.ndim != 1:
        x = x.T
    if second is None or not x.shape[0]:
        return x
    more = np.atleast_2d(second.astype(dtype, copy=False))
    return np.concatenate((x, more.T if not rowvar and more.shape[0] != 1 else more), axis=0)


def _matrix(name: str, given: ArrayLike, mesh: DeviceMesh) -> DistArray:
    x = as_distarray(given, mesh)
    if x.ndim > 2:
        raise ValueError(f"{name} has more than 2 dimensions")
    return x


def _weights(name: str, given: ArrayLike | None, x: DistArray) -> Any:
    """Return the weights of the observations as floats; raise NumPy's errors on every rank."""
    if given is None:
        return None
    weights: Any = as_distarray(given, x.mesh).astype(float)
    if name == "fweights" and not bool(np.all(weights == np.around(weights))):
        raise TypeError("fweights must be integer")
    if weights.ndim > 1:
        raise RuntimeError(f"cannot handle multidimensional {name}")
    if weights.shape[0] != x.shape[1]:
        raise RuntimeError(f"incompatible numbers of samples and {name}")
    if bool(np.any(weights < 0)):
        raise ValueError(f"{name} cannot be negative")
    return weights


def _moments(
    x: DistArray, weights: DistArray | None, analytic: DistArray | None, ddof: int
) -> tuple[Any, float]:
    """Return the means of the variables, and the divisor of the sums of products."""
    if weights is None:
        return np.mean(x, axis=1), x.shape[1] - ddof
    mean, total = np.average(x, axis=1, weights=weights, returned=True)
    whole = float(total[0])
    if ddof == 0:
        return mean, whole
    if analytic is None:
        return mean, whole - ddof
    return mean, whole - ddof * float(np.sum(weights * analytic)) / whole


@implements(np.corrcoef, small=False)
def corrcoef(
    x: ArrayLike, y: ArrayLike | None = None, rowvar: bool = True, *, dtype: DTypeLike = None
) -> Any:
    """Compute the correlation coefficients of variables; see :func:`numpy.corrcoef`.

    Cost
    ----
    The cost of :func:`cov`; every rank also gets the diagonal of the matrix.
    """
    matrix = cov(x, y, rowvar, dtype=dtype)
    if not matrix.ndim:
        return matrix / matrix
    deviations = np.sqrt(np.diagonal(matrix).real)
    matrix = matrix / deviations[:, None] / deviations[None, :]
    if matrix.dtype.kind != "c":
        return np.clip(matrix, -1, 1)
    clipped = np.clip(matrix.real, -1, 1) + 1j * np.clip(matrix.imag, -1, 1)
    return clipped.astype(matrix.dtype, copy=False)
