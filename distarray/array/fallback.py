"""Fallback of functions without a distributed form: gather, compute, distribute."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from distarray.array.base import sequence_like
from distarray.array.core import DistArray, wrap
from distarray.array.creation import common_mesh, default_layout
from distarray.array.ladder import on_objects
from distarray.array.movement import moved
from distarray.array.registry import fallback
from distarray.comm import DeviceMesh
from distarray.comm.user_lines import warn_program
from distarray.config import config
from distarray.errors import NotDistributedError, PerformanceWarning
from distarray.layout import Layout

__all__ = ["NEAREST", "fall_back"]

#: NumPy function -> alternative to it, for the messages.
NEAREST: dict[Callable[..., Any], str] = {}
_warned: set[str] = set()


def _arrays(value: Any) -> Iterator[DistArray]:
    if isinstance(value, DistArray):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _arrays(item)
    elif isinstance(value, dict):
        yield from _arrays(list(value.values()))


#: NumPy functions that write to an argument: its position and name.
_WRITING = {
    "numpy.lib.recfunctions.assign_fields_by_name": (0, "dst"),
    "numpy.lib.recfunctions.recursive_fill_fields": (1, "output"),
}


def _name(function: Callable[..., Any]) -> str:
    module = getattr(function, "__module__", None) or "numpy"
    return f"{module}.{getattr(function, '__name__', function)}"


def fall_back(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Gather the operands on every rank, call NumPy there, and distribute the result again.

    A warning, once per function, states the number of gathered bytes. Arrays given as ``out=``
    receive the values that NumPy wrote into their copies.

    Raises
    ------
    NotDistributedError
        If `config.fallback` is "error", or the operands exceed `config.fallback_limit`.
    """
    arrays = list({id(x): x for x in _arrays([args, kwargs])}.values())  # each once, in order
    nbytes = sum([x.nbytes for x in arrays if not x.layout.is_replicated])
    _refuse_or_warn(function, arrays, nbytes)
    copies = {id(x): x.full() for x in arrays}
    return _called(function, args, kwargs, arrays, copies)


def _on_objects(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call NumPy on the blocks of whole arrays, some of Python objects: views remain views."""
    arrays = list({id(x): x for x in _arrays([args, kwargs])}.values())
    return _called(function, args, kwargs, arrays, {id(x): x.to_local() for x in arrays})


def _called(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    arrays: list[DistArray],
    copies: dict[int, Any],
) -> Any:
    """Call NumPy on the arrays' copies, and distribute the result again."""
    mesh = common_mesh(*arrays)
    result = function(*_replaced(args, copies), **_replaced(kwargs, copies))
    for out in _arrays([kwargs.get("out"), _written(function, args, kwargs)]):
        if copies[id(out)] is not out.block:
            out[...] = copies[id(out)]
    originals = {id(copies[id(x)]): x for x in arrays}
    return _distributed(result, mesh, originals)


def _written(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the argument that a function writes to, besides `out`; None if there is none."""
    position, name = _WRITING.get(_name(function), (0, ""))
    return kwargs.get(name) if len(args) <= position or not name else args[position]


def _refuse_or_warn(function: Callable[..., Any], arrays: list[DistArray], nbytes: int) -> None:
    name = _name(function)
    nearest = NEAREST.get(function)
    way_out = f"; {nearest}" if nearest else ""
    if config.fallback == "error" or nbytes > config.fallback_limit:
        reason = (
            "config.fallback is 'error'"
            if config.fallback == "error"
            else f"config.fallback_limit is {config.fallback_limit} bytes"
        )
        operands = ", ".join([x.summary() for x in arrays])
        raise NotDistributedError(
            f"{name} has no distributed form here. Gathering its operands ({operands}) would bring "
            f"{nbytes} bytes to every rank, and {reason}. {name}(x.full()) does so in any case, if "
            f"there is enough memory{way_out}"
        )
    if config.fallback == "warn" and nbytes and name not in _warned:
        _warned.add(name)
        warn_program(
            f"{name} has no distributed form: it gathers its operands ({nbytes} bytes on every "
            f"rank), computes there and distributes the result{way_out}",
            PerformanceWarning,
        )


def _replaced(value: Any, copies: dict[int, Any]) -> Any:
    if isinstance(value, DistArray):
        return (
            copies[id(value)]
            if value.ndim or not isinstance(value.block, np.generic)
            else value.block
        )
    if isinstance(value, (list, tuple)):
        items = [_replaced(item, copies) for item in value]
        return sequence_like(value, items)
    if isinstance(value, dict):
        return {key: _replaced(item, copies) for key, item in value.items()}
    return value


def _distributed(value: Any, mesh: DeviceMesh, originals: dict[int, DistArray]) -> Any:
    if id(value) in originals:
        return originals[id(value)]
    if isinstance(value, np.ndarray) and type(value) is not np.ndarray:
        return value  # a conversion would lose the mask of a masked array, for example
    if isinstance(value, (np.ndarray, np.generic)):
        layout = Layout.replicated(value.shape, mesh.shape)
        if value.dtype.hasobject:
            return wrap(value, layout, mesh) if mesh.device_type == "cpu" else value
        target = default_layout(value.shape, value.dtype.itemsize, mesh)
        block: Any = value if isinstance(value, np.generic) else mesh.asarray(value)
        part = moved(block, layout, target, mesh)
        return wrap(part if part is block else part.copy(), target, mesh)
    if isinstance(value, (list, tuple)):
        items = [_distributed(item, mesh, originals) for item in value]
        return sequence_like(value, items)
    return value


fallback[:], on_objects[:] = [fall_back], [_on_objects]
