"""Functions that look each element up in a small table that every rank has.

A distributed table (bins, coefficients) is gathered on every rank, within `config.gather_limit`,
since each element may need any entry of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from distarray.array import DistArray, as_distarray, common_mesh, implements
from distarray.array.portable import beside
from distarray.engines.blockwise import apply_blockwise
from distarray.typing import ArrayLike

__all__ = ["digitize", "piecewise", "polyval"]


@implements(np.digitize)
def digitize(x: ArrayLike, bins: ArrayLike, right: bool = False) -> Any:
    """Find the bin that each element belongs to; see :func:`numpy.digitize`.

    Cost
    ----
    The cost of gathering `bins` if they are distributed; `x` stays in place.
    """
    edges = np.asarray(bins)
    x = as_distarray(x, common_mesh(x))
    if x.dtype.kind == "c":
        raise TypeError("x may not be complex")
    np.digitize(np.empty(0, x.dtype), edges, right)  # NumPy's errors
    return apply_blockwise(lambda block: np.digitize(block, beside(edges, block), right), [x])


@implements(np.polyval)
def polyval(p: ArrayLike, x: ArrayLike) -> Any:
    """Evaluate a polynomial; see :func:`numpy.polyval`.

    Cost
    ----
    The cost of gathering the coefficients `p` if they are distributed; `x` stays in place.
    """
    mesh = common_mesh(p, x)
    coefficients = np.asarray(p)
    if isinstance(x, np.poly1d):
        return np.polyval(coefficients, x)
    return apply_blockwise(
        lambda block: np.polyval(beside(coefficients, block), block), [as_distarray(x, mesh)]
    )


@implements(np.piecewise)
def piecewise(
    x: ArrayLike,
    condlist: ArrayLike | Sequence[ArrayLike],
    funclist: Sequence[Callable[..., Any] | complex],
    *args: Any,
    **kw: Any,
) -> Any:
    """Apply different functions where different conditions hold; see :func:`numpy.piecewise`.

    Cost
    ----
    The cost of indexing `x` with each condition, for reading and for assignment.
    """
    mesh = common_mesh(x, *condlist) if isinstance(condlist, (list, tuple)) else common_mesh(x)
    x = as_distarray(x, mesh)
    conditions = _conditions(x, condlist)
    if len(conditions) == len(funclist) - 1:
        otherwise = conditions[0]
        for condition in conditions[1:]:
            otherwise = otherwise | condition
        conditions.append(~otherwise)
    elif len(conditions) != len(funclist):
        n = len(conditions)
        raise ValueError(f"with {n} condition(s), either {n} or {n + 1} functions are expected")
    result = np.zeros_like(x)
    for condition, function in zip(conditions, funclist, strict=True):
        if not callable(function):
            result[condition] = function
            continue
        values = x[condition]
        if values.size:
            result[condition] = function(values, *args, **kw)
    return result


def _conditions(x: DistArray, condlist: ArrayLike | Sequence[ArrayLike]) -> list[Any]:
    """Return the conditions as arrays; a single condition need not be in a list."""
    given: Any = condlist
    several = isinstance(given, (list, tuple)) or np.ndim(given) > 0
    if several and x.ndim:
        several = np.ndim(given[0]) > 0
    listed = list(given) if several else [given]
    return [as_distarray(condition, x.mesh).astype(bool) for condition in listed]
