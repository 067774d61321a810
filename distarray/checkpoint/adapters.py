"""How objects that are no arrays, containers or numbers are saved: a table by type.

An adapter turns an object into a state of these (:attr:`Adapter.state`) and, after the arrays of
that state have been filled in place, gives the object what is left (:attr:`Adapter.restore`).
No code is stored, and loading runs none that a checkpoint names: what a checkpoint says of an
adapter is only compared with that of the object it is loaded into.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

__all__ = ["Adapter", "AsSaved", "Exact", "Filled", "adapter_of", "register"]


class Exact(dict[Any, Any]):
    """A dict of an adapter's state, all of which is loaded: what was saved has the same keys."""


class AsSaved(dict[Any, Any]):
    """A dict of an adapter's state that becomes what was saved, whatever keys that has.

    What it has of them is loaded in place, the rest is made, and what was not saved goes.
    """


class Filled(NamedTuple):
    """An array of an adapter's state that gets its values when all ranks have agreed to save.

    Attributes
    ----------
    array : DistArray or numpy.ndarray
    fill : callable
        Gives it its values; may communicate.
    """

    array: Any
    fill: Callable[[], None]


class Adapter(NamedTuple):
    """How objects of one kind are saved.

    Attributes
    ----------
    name : str
        Kept in the checkpoint, such as "torch.module".
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
#: Packages whose types get their adapters from a module of this library, imported when one is met.
_HOMES = {"torch": "distarray.torch.checkpointing"}


def register(
    kind: type,
    name: str,
    state: Callable[[Any], Any],
    restore: Callable[[Any, Any], None],
) -> None:
    """Say how objects of a type, and of types derived from it, are saved and loaded.

    Parameters
    ----------
    kind : type
    name : str
        Kept in the checkpoint; loading into an object of another name is refused.
    state : callable
        ``state(object)`` gives nested dicts, lists and tuples of DistArrays, NumPy arrays, numbers
        and strings. Those arrays that share memory with the object are loaded in place. Called on
        every rank; must not communicate, nor depend on the rank.
    restore : callable
        ``restore(object, state)`` is called after loading, with the same state filled from the
        checkpoint; it sets what is not in arrays.

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


def adapter_of(value: Any) -> Adapter | None:
    """The adapter of an object's type or of the nearest type it is derived from."""
    for known in type(value).__mro__:
        found = _adapters.get(known)
        if found is not None:
            return found
    for known in type(value).__mro__:
        home = _HOMES.get(known.__module__.partition(".")[0])
        if home is not None:
            import_module(home)
            return next((_adapters[k] for k in type(value).__mro__ if k in _adapters), None)
    return None
