"""Adapters: how objects other than arrays, containers and numbers are saved, a table by type.

An adapter turns an object into a state of these (:attr:`Adapter.state`) and, after the arrays of
that state have been filled in place, gives the object the rest (:attr:`Adapter.restore`). A
checkpoint holds no code, and loading runs none that it names: the adapter's name in a checkpoint is
only compared with that of the object it is loaded into.
"""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from distarray.array import DistArray
    from distarray.typing import Array

__all__ = ["Adapter", "AsSaved", "Exact", "Filled", "adapted_in", "adapter_of", "register"]


class Exact(dict[Any, Any]):
    """A dict of an adapter's state that has the keys that were saved, and no others."""


class AsSaved(dict[Any, Any]):
    """A dict of an adapter's state that gets the keys that were saved.

    Arrays that it has are loaded in place, others are made, and keys that were not saved go.
    """


class Filled(NamedTuple):
    """An array of an adapter's state that gets its values when all ranks have agreed to save.

    Attributes
    ----------
    array : DistArray or numpy.ndarray
    fill : callable
        Fills the array; may communicate.
    """

    array: "DistArray | Array"
    fill: Callable[[], None]


class Adapter(NamedTuple):
    """How objects of one type are saved.

    Attributes
    ----------
    name : str
        Stored in the checkpoint, such as "torch.module".
    state : callable
        ``state(object)``: nested dicts, lists and tuples of DistArrays, NumPy arrays, numbers,
        strings. Arrays that share memory with the object are loaded in place. No communication.
    restore : callable
        ``restore(object, state)`` after loading, with the same state filled.
    """

    name: str
    state: Callable[[Any], Any]
    restore: Callable[[Any, Any], None]


_adapters: dict[type, Adapter] = {}
#: For some packages the module that registers adapters for their types.
_homes: dict[str, str] = {}


def adapted_in(package: str, home: str) -> None:
    """Name the module that registers adapters for a package's types; imported on first use."""
    _homes[package] = home


def register(
    kind: type,
    name: str,
    state: Callable[[Any], Any],
    restore: Callable[[Any, Any], None],
) -> None:
    """Register how objects of a type, and of types derived from it, are saved and loaded.

    Parameters
    ----------
    kind : type
    name : str
        Stored in the checkpoint; loading into an object of another name is refused.
    state : callable
        ``state(object)`` gives nested dicts, lists and tuples of DistArrays, NumPy arrays, numbers
        and strings. Those arrays that share memory with the object are loaded in place. Called on
        every rank; must not communicate, nor depend on the rank.
    restore : callable
        ``restore(object, state)`` is called after loading, with the same state filled from the
        checkpoint; it sets everything that is not in arrays.

    Examples
    --------
    >>> import tempfile, distarray
    >>> class Clock:
    ...     def __init__(self, time):
    ...         self.time = time
    >>> register(Clock, "clock", lambda c: vars(c), lambda c, state: vars(c).update(state))
    >>> clock = Clock(0.0)
    >>> with tempfile.TemporaryDirectory() as mine:  # of which all ranks take rank 0's
    ...     path = distarray.default_mesh().group.broadcast_object(mine + "/run")
    ...     saving = distarray.checkpoint.save(path, {"clock": Clock(2.5)})
    ...     state = distarray.checkpoint.load(path, into={"clock": clock})
    >>> clock.time
    2.5
    """
    _adapters[kind] = Adapter(name, state, restore)


def adapter_of(value: object) -> Adapter | None:
    """The adapter of an object's type, or of the nearest type that it is derived from."""
    for known in type(value).__mro__:
        found = _adapters.get(known)
        if found is not None:
            return found
    for known in type(value).__mro__:
        home = _homes.get(known.__module__.partition(".")[0])
        if home is not None:
            import_module(home)
            return next((_adapters[k] for k in type(value).__mro__ if k in _adapters), None)
    return None
