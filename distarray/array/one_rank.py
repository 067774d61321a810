"""Where a job has one rank, NumPy's function does it at once.

The functions that are decorated so are made of several array operations, of which each costs some
microseconds, or of message-saving formulas that take more arithmetic. On one rank there is nothing
to save.
"""

import sys
from collections.abc import Callable, Iterable
from functools import lru_cache, wraps
from inspect import signature
from typing import Any, TypeVar, cast

import numpy as np

from distarray.array import DistArray, default_layout, wrap
from distarray.comm import DeviceMesh
from distarray.config import config
from distarray.layout import Layout, Placement, Replicate, Shard

__all__ = ["as_numpy_on_one_rank", "is_alone", "names_scalar"]

Function = TypeVar("Function", bound=Callable[..., Any])


def as_numpy_on_one_rank(
    numpy_function: Callable[..., Any],
    unless: Callable[..., bool] | None = None,
    by_size: bool = False,
) -> Callable[[Function], Function]:
    """Let NumPy's function take the place of the decorated one where one rank has everything.

    Parameters
    ----------
    numpy_function : callable
        It gives an array, a tuple of them, or something that is no array; or it writes into an
        operand and gives nothing.
    unless : callable, optional
        Of the same arguments, by the same names; where it is true, the decorated function is
        called after all.
    by_size : bool
        Whether the result is placed by its size alone, or as what is cut among the operands after
        the first.

    Notes
    -----
    Not under `config.reproducible`, where sums have an order of their own, not on a device, and
    not with ``out``. The result is placed as the first distributed operand is, as far as it has its
    dimensions; if that is small and replicated, by the size of the result.
    """

    def decorate(function: Function) -> Function:
        given = signature(function).parameters.values()
        names = [p.name for p in given if p.kind is p.POSITIONAL_OR_KEYWORD]
        most = names.index("out") if "out" in names else sys.maxsize

        @wraps(function)
        def either(*args: Any, **kwargs: Any) -> Any:
            into = len(args) > most or (kwargs and kwargs.get("out") is not None)
            x = None if into else _lone([*args, *kwargs.values()] if kwargs else list(args))
            if x is None or (unless is not None and unless(*args, **kwargs)):
                return function(*args, **kwargs)
            named = {name: _bare(value) for name, value in kwargs.items()} if kwargs else kwargs
            value = numpy_function(*[_bare(value) for value in args], **named)
            sized = by_size
            if by_size and len(args) > 1:
                x, sized = _model(args[1:], x)
            if isinstance(value, tuple):
                return tuple([_placed(part, x, sized) for part in value])
            return _placed(value, x, sized)

        return cast(Function, either)

    return decorate


def is_alone(mesh: DeviceMesh) -> bool:
    """Whether a mesh lies on the only rank that there is, and on a host."""
    root = mesh._root
    return root is not None and root.size == 1 and mesh.device_type == "cpu"


def _lone(values: list[Any]) -> DistArray | None:
    """The first distributed operand if it is on the only rank that there is, with all others."""
    found: DistArray | None = None
    for value in values:
        if isinstance(value, DistArray):
            if found is None:
                if not is_alone(value.mesh):
                    return None
                found = value
            elif found.mesh is not value.mesh:
                return None
        elif isinstance(value, (tuple, list)) and not _PLAIN.issuperset(map(type, value)):
            if type(value) not in _SEQUENCES:
                return None
            values.extend(value)
    return None if config.settings.reproducible else found


def _model(values: Iterable[Any], otherwise: DistArray) -> tuple[DistArray, bool]:
    """The first cut operand, where the result goes; if there is none its size decides."""
    for value in values:
        if isinstance(value, DistArray) and not value.layout.is_replicated:
            return value, False
        if type(value) is tuple:
            found, sized = _model(value, otherwise)
            if not sized:
                return found, False
    return otherwise, True


def names_scalar(into: Any) -> bool:
    """Whether what is to be written to is a scalar, which NumPy's functions refuse."""
    return isinstance(into, DistArray) and isinstance(into.block, np.generic)


#: What is in long lists of numbers.
_PLAIN = frozenset({bool, int, float, complex, str})
_SEQUENCES = frozenset({tuple, list})


def _bare(value: Any) -> Any:
    if isinstance(value, DistArray):
        return value.block
    if type(value) in _SEQUENCES and not _PLAIN.issuperset(map(type, value)):
        return type(value)([_bare(item) for item in value])
    return value


def _placed(value: Any, x: DistArray, by_size: bool) -> Any:
    if not isinstance(value, (np.ndarray, np.generic)):
        return value
    mesh, layout = x.mesh, x.layout
    if by_size or (layout.is_replicated and x.nbytes < config.replicate_below):
        return wrap(value, default_layout(value.shape, value.itemsize, mesh), mesh)
    return wrap(value, _like(value.shape, layout.mesh_shape, layout.placements), mesh)


@lru_cache(maxsize=1024)
def _like(
    shape: tuple[int, ...], mesh_shape: tuple[int, ...], placements: tuple[Placement, ...]
) -> Layout:
    placed = [p if isinstance(p, Shard) and p.dim < len(shape) else Replicate() for p in placements]
    return Layout.chunked(shape, mesh_shape, placed)
