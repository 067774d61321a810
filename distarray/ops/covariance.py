"""Covariance and correlation: deviations from the means, contracted over the observations."""

import warnings
from typing import Any

import numpy as np

from distarray.array import DistArray, as_distarray, common_mesh, implements
from distarray.array.portable import conjugated

__all__ = ["corrcoef", "cov"]

#: Operands of fewer bytes together are gathered on every rank, where NumPy is done at once.
REPLICATED_BELOW = 1 << 17


@implements(np.cov)
def cov(
    m: Any,
    y: Any = None,
    rowvar: Any = True,
    bias: Any = False,
    ddof: Any = None,
    fweights: Any = None,
    aweights: Any = None,
    *,
    dtype: Any = None,
) -> Any:
    """Covariance matrix of variables; see :func:`numpy.cov`.

    Parameters
    ----------
    m, y : array_like
        Variables and observations; best cut along the observations.
    rowvar, bias, ddof, dtype
        As in :func:`numpy.cov`.
    fweights, aweights : array_like
        One an observation; brought to where the observations lie.

    Returns
    -------
    DistArray
        Pending if it is large.

    Cost
    ----
    Small operands are gathered. Cut along the observations: one allreduce of the means and one of
    the matrix; with weights those of :func:`numpy.average`, and a few of one number each. Cut
    along the variables: that of the product of a matrix with its transpose. Two copies of the
    block at the most.
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
    if weights is None:
        mean, total = np.mean(x, axis=1), None
    else:
        mean, total = np.average(x, axis=1, weights=weights, returned=True)
    factor = _freedom(x, weights, analytic, total, ddof)
    if factor <= 0:
        warnings.warn("Degrees of freedom <= 0 for slice", RuntimeWarning, stacklevel=3)
        factor = 0.0
    x = x - mean[:, None]
    other = x if weights is None else x * weights
    # Of an array with its own transpose, not a copy of it, BLAS computes one half.
    product = np.dot(x, conjugated(other.T))
    return np.squeeze(product * np.true_divide(1, factor))


def _size(*operands: Any) -> int:
    """Bytes of the distributed operands."""
    return sum([x.nbytes for x in operands if isinstance(x, DistArray)])


def _gathered(x: Any) -> Any:
    return x.full() if isinstance(x, DistArray) else x


def _variables(m: Any, y: Any, rowvar: Any, dtype: Any, mesh: Any) -> Any:
    """All variables as rows, in the data type that is computed in."""
    m = as_distarray(m, mesh)
    if m.ndim > 2:
        raise ValueError("m has more than 2 dimensions")
    if y is not None:
        y = as_distarray(y, mesh)
        if y.ndim > 2:
            raise ValueError("y has more than 2 dimensions")
    if dtype is None:
        dtype = np.result_type(m.dtype, np.float64, *([] if y is None else [y.dtype]))
    x: Any = np.atleast_2d(m.astype(dtype, copy=False))
    if not rowvar and m.ndim != 1:
        x = x.T
    if y is None or not x.shape[0]:
        return x
    y = np.atleast_2d(y.astype(dtype, copy=False))
    return np.concatenate((x, y.T if not rowvar and y.shape[0] != 1 else y), axis=0)


def _weights(name: str, given: Any, x: DistArray) -> Any:
    """Weights of the observations as numbers, or NumPy's complaint about them on every rank."""
    if given is None:
        return None
    weights = as_distarray(given, x.mesh).astype(float)
    if name == "fweights" and not bool(np.all(weights == np.around(weights))):
        raise TypeError("fweights must be integer")
    if weights.ndim > 1:
        raise RuntimeError(f"cannot handle multidimensional {name}")
    if weights.shape[0] != x.shape[1]:
        raise RuntimeError(f"incompatible numbers of samples and {name}")
    if bool(np.any(weights < 0)):
        raise ValueError(f"{name} cannot be negative")
    return weights


def _freedom(x: DistArray, weights: Any, analytic: Any, total: Any, ddof: Any) -> Any:
    """What the sums of products are divided by."""
    if weights is None:
        return x.shape[1] - ddof
    whole = float(total[0])
    if ddof == 0:
        return whole
    if analytic is None:
        return whole - ddof
    return whole - ddof * float(np.sum(weights * analytic)) / whole


@implements(np.corrcoef)
def corrcoef(x: Any, y: Any = None, rowvar: Any = True, *, dtype: Any = None) -> Any:
    """Correlation coefficients of variables; see :func:`numpy.corrcoef`.

    Cost
    ----
    As :func:`cov`, and the diagonal of the matrix on every rank.
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
