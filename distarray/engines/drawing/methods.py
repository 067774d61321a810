"""Table of NumPy's random methods: how each method takes words from the stream.

The table computes nothing: a row names the strategy by which the ranks share a call of a NumPy
method (one module per strategy).

* `FIXED`: an element takes a known number of words, so that its position is computed
  (:mod:`~distarray.engines.drawing.fixed`).
* `CUT`: an element takes a varying number of words, which does not depend on other elements
  (:mod:`~distarray.engines.drawing.cutting`).
* `TURNS`: the number of words depends on arrays of parameters, or the stream cannot be advanced
  (:mod:`~distarray.engines.drawing.turns`).
* `WHOLE`: no part can be drawn alone, so each rank draws all elements and keeps its own.
"""

from collections.abc import Mapping
from enum import Enum
from functools import lru_cache
from inspect import Signature, signature
from operator import index
from typing import Any, NamedTuple

import numpy as np

__all__ = ["GENERATOR", "LEGACY", "Row", "Way", "integer_way", "parsed_by"]


class Way(Enum):
    """Strategy by which the ranks share a call."""

    FIXED = "advance"
    CUT = "cut and join"
    TURNS = "in turns"
    WHOLE = "whole"


class Row(NamedTuple):
    """Properties of one NumPy method.

    Attributes
    ----------
    way : Way
        The strategy if all parameters are numbers.
    cores : tuple of int
        For each parameter, the number of dimensions that belong to one element; its other
        dimensions are broadcast.
    halves : float
        For `FIXED`: the half words (of 32 bits) of an element.
    steady : tuple or None
        Substitute numbers for the parameters, if the parameters do not change which words an
        element takes; arrays of parameters can then be cut as well.
    out : bool
        True if the method draws into `out`.
    gathers : bool
        True if distributed parameters are gathered, since they describe one element.
    """

    way: Way
    cores: tuple[int, ...] = ()
    halves: float = 0
    steady: tuple[float, ...] | None = None
    out: bool = False
    gathers: bool = False


_CUT = [Row(Way.CUT, (0,) * count) for count in range(4)]
_LOCATED = Row(Way.CUT, (0, 0), steady=(0.0, 1.0))
_SCALED = Row(Way.CUT, (0,), steady=(1.0,))
_VECTORS = Row(Way.CUT, (0, 1))

#: Methods of both classes.
_BOTH: dict[str, Row] = {
    "beta": _CUT[2],
    "binomial": _CUT[2],
    "chisquare": _CUT[1],
    "dirichlet": Row(Way.CUT, (1,), gathers=True),
    "exponential": _SCALED,
    "f": _CUT[2],
    "gamma": _CUT[2],
    "geometric": _CUT[1],
    "gumbel": _LOCATED,
    "hypergeometric": _CUT[3],
    "laplace": _LOCATED,
    "logistic": _LOCATED,
    "lognormal": _LOCATED,
    "logseries": _CUT[1],
    "multinomial": _VECTORS,
    # The bits of a matrix product depend on the shapes of its operands.
    "multivariate_normal": Row(Way.WHOLE, (1, 2), gathers=True),
    "negative_binomial": _CUT[2],
    "noncentral_chisquare": _CUT[2],
    "noncentral_f": _CUT[3],
    "normal": _LOCATED,
    "pareto": _SCALED,
    "poisson": _CUT[1],
    "power": _SCALED,
    "rayleigh": _SCALED,
    "standard_cauchy": _CUT[0],
    "standard_exponential": _CUT[0],
    "standard_gamma": _CUT[1],
    "standard_normal": _CUT[0],
    "standard_t": _CUT[1],
    "triangular": Row(Way.FIXED, (0, 0, 0), 2, (0.0, 0.5, 1.0)),
    "uniform": Row(Way.FIXED, (0, 0), 2, (0.0, 1.0)),
    "vonmises": _CUT[2],
    "wald": _CUT[2],
    "weibull": _CUT[1],
    "zipf": _CUT[1],
}

#: Methods of NumPy's Generator that draw samples.
GENERATOR: dict[str, Row] = _BOTH | {
    "integers": _CUT[2],
    "multivariate_hypergeometric": Row(Way.TURNS, (1, 0), gathers=True),
    "random": Row(Way.FIXED, halves=2, out=True),
    "standard_exponential": Row(Way.CUT, out=True),
    "standard_gamma": Row(Way.CUT, (0,), out=True),
    "standard_normal": Row(Way.CUT, out=True),
}

#: Methods of NumPy's RandomState that draw samples.
LEGACY: dict[str, Row] = _BOTH | {
    "randint": _CUT[2],
    "random_sample": Row(Way.FIXED, halves=2),
    "tomaxint": Row(Way.FIXED, halves=2),
}


@lru_cache(maxsize=256)
def parsed_by(kind: str, name: str) -> Signature:
    """Return the signature of a method of a NumPy class, without `self`."""
    own = signature(getattr(getattr(np.random, kind), name))
    return own.replace(parameters=list(own.parameters.values())[1:])


def integer_way(row: Row, low: Any, high: Any, named: Mapping[str, Any]) -> Row:
    """Return the row for integers within bounds that are numbers.

    Integers of 8 and 16 bits are parts of a half word. If NumPy rejects some of them, no part of
    the sequence can be drawn alone: NumPy discards the rest of the half word at the end of a call.
    """
    dtype = np.dtype(named["dtype"])
    if dtype.itemsize > 2:
        return row
    try:
        first, last = (0, index(low)) if high is None else (index(low), index(high))
    except TypeError:  # a float that is a whole number
        return row._replace(way=Way.WHOLE)
    count = last - first + bool(named.get("endpoint"))
    if count < 2 or count & (count - 1):
        return row._replace(way=Way.WHOLE)
    parts = 32 if dtype.kind == "b" else 4 // dtype.itemsize
    return row._replace(way=Way.FIXED, halves=1 / parts)
