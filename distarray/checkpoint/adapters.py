"""Adapters, by type, for saving objects other than arrays, containers and numbers.

An adapter converts an object to a state of arrays, containers and numbers (:attr:`Adapter.state`).
When a checkpoint is loaded, the arrays of that state are filled in place, and the adapter then sets
the other values in the object (:attr:`Adapter.restore`). A checkpoint contains no code, and loading
runs no code that it names: the adapter's name in a checkpoint is only compared with the name of the
adapter of the destination object.
"""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from distarray.array import DistArray
    from distarray.typing import Array

__all__ = ["Adapter", "AsSaved", "Exact", "Filled", "adapted_in", "adapter_of", "register"]


class Exact(dict[Any, Any]):
    """Dict of an adapter's state, whose keys must be exactly the saved keys."""


class AsSaved(dict[Any, Any]):
    """Dict of an adapter's state that gets exactly the saved keys.

    Arrays that the dict already has are loaded in place. Other arrays are made, and keys that were
    not saved are removed.
    """


class Filled(NamedTuple):
    """Array of an adapter's state that is filled after all ranks have agreed to save.

    Attributes
    ----------
    array : DistArray or numpy.ndarray
    fill : callable
        Function that fills the array; it may communicate.
    """

    array: "DistArray | Array"
    fill: Callable[[], None]


class Adapter(NamedTuple):
    """Functions that save and restore objects of one type.

    Attributes
    ----------
    name : str
        Name of the adapter in the checkpoint, such as "torch.module".
    state : callable
        ``state(object)`` returns nested dicts, lists and tuples of DistArrays, NumPy arrays,
        numbers and strings, without communication. Arrays that share memory with the object are
        loaded in place.
    restore : callable
        ``restore(object, state)`` is called after loading, with the same state, now filled.
    """

    name: str
    state: Callable[[Any], Any]
    restore: Callable[[Any, Any], None]


_adapters: dict[type, Adapter] = {}
#: Modules that register adapters for the types of a package, by package.
_homes: dict[str, str] = {}


def adapted_in(package: str, home: str) -> None:
    """Set the module that registers adapters for a package's types; it is imported on first use."""
    _homes[package] = home


def register(
    kind: type,
    name: str,
    state: Callable[[Any], Any],
    restore: Callable[[Any, Any], None],
) -> None:
    """Register functions that save and restore objects of a type, and of types derived from it.

    Parameters
    ----------
    kind : type
    name : str
        Name of the adapter in the checkpoint. Loading into an object whose adapter has another name
        raises CheckpointError.
    state : callable
        ``state(object)`` returns nested dicts, lists and tuples of DistArrays, NumPy arrays,
        numbers and strings. Arrays that share memory with the object are loaded in place. The
        function is called on every rank; it must not communicate, nor depend on the rank.
    restore : callable
        ``restore(object, state)`` is called after loading, with the same state, filled from the
        checkpoint. It sets all values of the object that are not in arrays.

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
    """Return the adapter of an object's type, or of the nearest base class that has an adapter."""
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
