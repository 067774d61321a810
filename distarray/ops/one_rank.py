"""Where a job has one rank, NumPy's function does it at once.

The functions that are decorated so are made of several array operations, of which each costs some
microseconds, or of message-saving formulas that take more arithmetic. On one rank there is nothing
to save.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np

from distarray.array import DistArray, default_layout, wrap
from distarray.config import config
from distarray.layout import Layout, Replicate, Shard

__all__ = ["as_numpy_on_one_rank"]

Function = TypeVar("Function", bound=Callable[..., Any])


def as_numpy_on_one_rank(numpy_function: Callable[..., Any]) -> Callable[[Function], Function]:
    """Let NumPy's function take the place of the decorated one where one rank has everything.

    Parameters
    ----------
    numpy_function : callable
        It gives a new array, or something that is no array, and has no ``out``.

    Notes
    -----
    Not under `config.reproducible`, where sums have an order of their own, and not on a device.
    The result is placed as the first distributed operand is, as far as it has its dimensions; if
    that is small and replicated, by the size of the result.
    """

    def decorate(function: Function) -> Function:
        @wraps(function)
        def either(*args: Any, **kwargs: Any) -> Any:
            x = _lone([*args, *kwargs.values()])
            if x is None:
                return function(*args, **kwargs)
            named = {name: _bare(value) for name, value in kwargs.items()}
            return _placed(numpy_function(*[_bare(value) for value in args], **named), x)

        return cast(Function, either)

    return decorate


def _lone(values: list[Any]) -> DistArray | None:
    """The first distributed operand if it is on the only rank that there is, with all others."""
    found: DistArray | None = None
    for value in values:
        if isinstance(value, (tuple, list)) and any(isinstance(v, DistArray) for v in value):
            return None
        if isinstance(value, DistArray):
            mesh = value._mesh
            root = mesh._root
            if root is None or root.size > 1 or mesh.device_type != "cpu":
                return None
            if found is not None and found._mesh is not mesh:
                return None
            found = value if found is None else found
    return None if config.reproducible else found


def _bare(value: Any) -> Any:
    return value.to_local() if isinstance(value, DistArray) else value


def _placed(value: Any, x: DistArray) -> Any:
    if not isinstance(value, (np.ndarray, np.generic)):
        return value
    if x._layout.is_replicated and x.nbytes < config.replicate_below:
        return wrap(value, default_layout(value.shape, value.itemsize, x._mesh), x._mesh)
    placements = [
        p if isinstance(p, Shard) and p.dim < value.ndim else Replicate() for p in x.placements
    ]
    return wrap(value, Layout.chunked(value.shape, x._layout.mesh_shape, placements), x._mesh)
