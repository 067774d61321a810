"""numpy.polynomial at many points: the values of several series at each point of an array.

Other array types cannot override these functions of NumPy's, which evaluate every series at every
point only if the points are NumPy's own array. If the points are distributed, the coefficients get
here the shape that NumPy would give them.
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
    """A function of NumPy's, which also takes distributed points."""
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
