"""numpy.polynomial at many points: the values of several series at each point of an array.

These functions of NumPy's are no operations of arrays that others can take over. They look whether
the points are an array of NumPy's own, and only then evaluate every series at every point. Where
that is a distributed one, the coefficients are given the shape here that NumPy gives them there.
"""

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any

import numpy as np
from numpy.polynomial import chebyshev, hermite, hermite_e, laguerre, legendre, polynomial

from distarray.array import DistArray
from distarray.typing import ArrayLike

__all__: list[str] = []

_VALUES: dict[Any, tuple[str, ...]] = {
    chebyshev: ("chebval",),
    hermite: ("hermval",),
    hermite_e: ("hermeval",),
    laguerre: ("lagval",),
    legendre: ("legval",),
    polynomial: ("polyval", "polyvalfromroots"),
}


def _at_points(evaluate: Callable[..., Any]) -> Callable[..., Any]:
    """A function of NumPy's that takes distributed points, too."""
    series = [*signature(evaluate).parameters][1]

    @wraps(evaluate)
    def value(x: ArrayLike, *args: object, **kwargs: object) -> Any:
        if not isinstance(x, DistArray):
            return evaluate(x, *args, **kwargs)
        call = signature(evaluate).bind(x, *args, **kwargs)
        call.apply_defaults()
        if call.arguments["tensor"]:
            c = np.array(call.arguments[series], ndmin=1)
            call.arguments[series] = c.reshape(c.shape + (1,) * x.ndim)
        return evaluate(*call.args)

    return value


for _module, _names in _VALUES.items():
    for _name in _names:
        setattr(_module, _name, _at_points(getattr(_module, _name)))
