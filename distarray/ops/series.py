"""numpy.polynomial at many points: the values of several series at each point of an array.

Other array types cannot override these functions of NumPy's, which evaluate every series at every
point only if the points are NumPy's own array. For distributed points, the functions of this file
give the coefficients the shape that NumPy would give them. They replace NumPy's functions when a
program imports the module.
"""

from collections.abc import Callable
from functools import wraps
from inspect import signature
from types import ModuleType
from typing import Any

import numpy as np

from distarray.array import DistArray
from distarray.lazy import after_import
from distarray.typing import ArrayLike

__all__: list[str] = []

_VALUES = {
    "chebyshev": ("chebval",),
    "hermite": ("hermval",),
    "hermite_e": ("hermeval",),
    "laguerre": ("lagval",),
    "legendre": ("legval",),
    "polynomial": ("polyval", "polyvalfromroots"),
}


def _at_points(evaluate: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of NumPy's that also takes distributed points."""
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


def _replace(package: ModuleType) -> None:
    for kind, names in _VALUES.items():
        module = getattr(package, kind)
        for name in names:
            setattr(module, name, _at_points(getattr(module, name)))


after_import("numpy.polynomial", _replace)
