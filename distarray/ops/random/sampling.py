"""Methods that draw samples, made from the table of NumPy's methods."""

from collections.abc import Callable, Iterable
from inspect import Parameter
from math import prod
from typing import Any

import numpy as np

from distarray.comm import DeviceMesh, default_mesh
from distarray.comm.chance import verify_home
from distarray.config import config
from distarray.engines.drawing.methods import Row, parsed_by
from distarray.engines.drawing.outputs import of_whole
from distarray.engines.drawing.sampling import Place, sample

__all__ = ["Drawing", "Place", "add_methods", "is_small", "replicated"]

#: Types of arguments that are numbers, shapes, data types and names.
_PLAIN = frozenset(
    {int, float, bool, type(None), tuple, type, str, np.float64, np.float32, np.int64}
)
#: Maximum number of bytes of a number.
_WIDEST = 8


class Drawing:
    """Generator of NumPy's, and the mesh of the arrays that it makes."""

    _source: Any
    _mesh: DeviceMesh | None
    _home: object | None

    @property
    def _plain(self) -> Any:
        """NumPy's generator; raises outside of the context in which this generator was made."""
        verify_home(self._home)
        return self._source

    @property
    def mesh(self) -> DeviceMesh | None:
        """Mesh of the arrays that the generator makes; None for the default mesh."""
        return self._mesh


def add_methods(ours: type[Drawing], theirs: type[Any], rows: dict[str, Row]) -> None:
    """Add the methods of NumPy's class to a class."""
    for name, row in rows.items():
        setattr(ours, name, _method(theirs, name, row))


def _method(theirs: type[Any], name: str, row: Row) -> Callable[..., Any]:
    own = parsed_by(theirs.__name__, name)
    at = list(own.parameters).index("size")
    draw = getattr(theirs, name)

    def call(self: Any, *args: Any, mesh: Any = None, placements: Any = None, **kwargs: Any) -> Any:
        size = kwargs["size"] if "size" in kwargs else args[at] if len(args) > at else None
        if mesh is None and placements is None and is_small(size, args, kwargs.values()):
            return replicated(self, draw(self._plain, *args, **kwargs))
        place = Place(mesh, placements)
        return sample(self._plain, name, row, (args, kwargs), place, self._mesh)

    more = [Parameter(key, Parameter.KEYWORD_ONLY, default=None) for key in ("mesh", "placements")]
    itself = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
    signature = own.replace(parameters=[itself, *own.parameters.values(), *more])
    call.__signature__ = signature  # type: ignore[attr-defined]
    call.__name__, call.__qualname__ = name, f"{theirs.__name__}.{name}"
    call.__doc__ = f"See :meth:`numpy.random.{theirs.__name__}.{name}`."
    return call


def is_small(size: Any, *arguments: Iterable[Any]) -> bool:
    """Return True if arguments are numbers, and an array of this size is certainly replicated."""
    for values in arguments:
        for value in values:
            if type(value) not in _PLAIN:
                return False
    count = 0
    if type(size) is int:
        count = size
    elif type(size) is tuple:
        if not all(type(extent) is int for extent in size):
            return False
        count = prod(size)
    settings = config.settings
    return bool(count * _WIDEST < settings.replicate_below and not settings.check)


def replicated(self: Drawing, drawn: Any) -> Any:
    """Return the numbers that NumPy has drawn on every rank as an array, or as a number."""
    if type(drawn) is not np.ndarray:
        return drawn
    return of_whole(drawn, self._mesh or default_mesh())
