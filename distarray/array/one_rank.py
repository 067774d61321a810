"""Calls of NumPy's own functions in jobs of one rank.

Implementations consist of several array operations, each of which costs some microseconds, or of
formulas that save messages and take more arithmetic. On one rank there are no messages to save: for
rows with the trait ``alone=Alone()`` NumPy's function is called on the blocks.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from distarray.array.core import DistArray, wrap
from distarray.array.creation import default_layout, given_by
from distarray.array.registry import Row
from distarray.comm import DeviceMesh
from distarray.config import in_force
from distarray.layout import Layout, Placement, Replicate, Shard

__all__ = ["Alone", "is_alone"]


@dataclass(frozen=True, slots=True)
class Alone:
    """Trait of a row: NumPy's function carries out the call if one rank has everything.

    Parameters
    ----------
    unless : callable, optional
        Predicate with the same arguments, by the same names; if it returns True, the
        implementation is called after all.
    by_size : bool
        True if the result is placed like the first cut operand after the first operand, and by
        the result's size alone if there is no such operand.
    function : callable, optional
        Function to call instead of the row's NumPy function. It returns an array, a tuple of
        arrays, or another value; or it writes into an operand and returns None.

    Notes
    -----
    Not used under `config.reproducible`, where the order of sums is fixed, on a device, or with
    ``out``. The result is placed like the first distributed operand, along the dimensions that the
    result has; if that operand is small and replicated, by the size of the result.
    """

    unless: Callable[..., bool] | None = None
    by_size: bool = False
    function: Callable[..., Any] | None = None

    def answer(self, row: Row, key: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the result of a call, or NotImplemented if the implementation must be called."""
        if 0 <= row.out < len(args) or (kwargs and kwargs.get("out") is not None):
            return NotImplemented
        x = _lone([*args, *kwargs.values()])
        if x is None or (self.unless is not None and self.unless(*args, **kwargs)):
            return NotImplemented
        named = {name: _bare(value) for name, value in kwargs.items()}
        value = (self.function or key)(*[_bare(value) for value in args], **named)
        return self._laid_out(value, args, x)

    def _laid_out(self, value: Any, args: tuple[Any, ...], x: DistArray) -> Any:
        """Wrap NumPy's result as distributed arrays."""
        sized = self.by_size
        if sized and len(args) > 1:
            x, sized = _model(args[1:], x)
        if isinstance(value, tuple):
            return tuple([_placed(part, x, sized) for part in value])
        return _placed(value, x, sized)


def is_alone(mesh: DeviceMesh) -> bool:
    """Return True if a mesh is on the only rank of the job, and on the host."""
    root = mesh._root
    return root is not None and root.size == 1 and mesh.device_type == "cpu"


def _lone(values: list[Any]) -> DistArray | None:
    """Return the first distributed operand, if all are on the only rank of the job; else None."""
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
    return None if in_force().reproducible else found


def _model(values: Iterable[Any], otherwise: DistArray) -> tuple[DistArray, bool]:
    """Return the first cut operand as model of the result, or True if the result's size decides."""
    for value in values:
        if isinstance(value, DistArray) and not value.layout.is_replicated:
            return value, False
        if type(value) is tuple:
            found, sized = _model(value, otherwise)
            if not sized:
                return found, False
    return otherwise, True


#: Types of the items of long lists of numbers.
_PLAIN = frozenset({bool, int, float, complex, str})
_SEQUENCES = frozenset({tuple, list})


def _bare(value: Any) -> Any:
    if isinstance(value, DistArray):
        return value.block
    if type(value) in _SEQUENCES and not _PLAIN.issuperset(map(type, value)):
        return type(value)([_bare(item) for item in value])
    given = given_by(value)
    return value if given is None else given.block


def _placed(value: Any, x: DistArray, by_size: bool) -> Any:
    if not isinstance(value, (np.ndarray, np.generic)):
        return value
    mesh, layout = x.mesh, x.layout
    if by_size or (layout.is_replicated and x.nbytes < in_force().replicate_below):
        return wrap(value, default_layout(value.shape, value.itemsize, mesh), mesh)
    return wrap(value, _like(value.shape, layout.mesh_shape, layout.placements), mesh)


@lru_cache(maxsize=1024)
def _like(
    shape: tuple[int, ...], mesh_shape: tuple[int, ...], placements: tuple[Placement, ...]
) -> Layout:
    placed = [p if isinstance(p, Shard) and p.dim < len(shape) else Replicate() for p in placements]
    return Layout.chunked(shape, mesh_shape, placed)
