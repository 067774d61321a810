"""Names of the cells on the ranks: compared after a failure, sent to the kernel, saved."""

import pickle
from hashlib import blake2b
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from distarray.array import DistArray
from distarray.checkpoint.tree import flatten
from distarray.notebook.shapes import Shell
from distarray.runner.talk import Line

__all__ = [
    "Kept",
    "Settled",
    "cut_over_ranks",
    "differing",
    "find",
    "keep",
    "local",
    "settle",
    "variables",
]

#: Types of values that rank 0 can send to the others.
_PLAIN = (bool, int, float, complex, str, bytes, tuple, list, dict, set, frozenset, type(None))
_MISSING = "missing"
_SHELLS = ("In", "Out", "exit", "quit", "get_ipython", "open")


class Settled(NamedTuple):
    """Names that differed between ranks.

    Attributes
    ----------
    common : tuple of str
        Names that now have rank 0's value.
    removed : tuple of str
        Names that were removed on all ranks.
    """

    common: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


def variables(shell: Shell) -> dict[str, Any]:
    """Return the names that cells have bound, with their values."""
    hidden = shell.user_ns_hidden
    return {
        name: value
        for name, value in shell.user_ns.items()
        if not name.startswith("_") and name not in _SHELLS
        if hidden.get(name, _MISSING) is not value
    }


def settle(line: Line, shell: Shell, among: tuple[str, ...]) -> Settled:
    """Make the names equal on all ranks that an unequally executed statement binds; collective.

    A name that differs gets rank 0's value if that is plain data; otherwise it is removed.
    """
    names = {name: shell.user_ns[name] for name in among if name in shell.user_ns}
    differ = differing(line, names)
    plain = {name: names[name] for name in differ if name in names and _is_plain(names[name])}
    plain = line.broadcast_object(plain, 0)
    for name in differ:
        shell.user_ns.pop(name, None)
    shell.user_ns.update(plain)
    return Settled(tuple(plain), tuple([name for name in differ if name not in plain]))


def differing(line: Line, names: dict[str, Any]) -> list[str]:
    """Return the names whose values differ between the ranks, as far as can be detected.

    Collective.
    """
    marks = line.allgather_object({name: _mark(value) for name, value in names.items()})
    return sorted(
        name
        for name in {name for found in marks for name in found}
        if len({found.get(name, _MISSING) for found in marks}) > 1
    )


def _mark(value: Any) -> str:
    """Return text that is equal on all ranks if the value is, as far as can be detected."""
    if isinstance(value, DistArray):
        whole = value.layout.shape == value.to_local().shape
        return f"{value.layout!r} {value.dtype} {_digest(value.to_local()) if whole else ''}"
    if isinstance(value, _PLAIN) or type(value) is np.ndarray:
        return f"{type(value).__name__} {_digest(value)}"
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _digest(value: Any) -> str:
    try:
        return blake2b(pickle.dumps(np.asarray(value) if _is_block(value) else value)).hexdigest()
    except Exception:
        return "unknown"


def _is_block(value: Any) -> bool:
    return hasattr(value, "__array_interface__")


def _is_plain(value: Any) -> bool:
    """Return True if a value is plain data, which other ranks can use unchanged."""
    if type(value) is np.ndarray:
        return not value.dtype.hasobject
    if isinstance(value, dict):
        return all(_is_plain(part) for pair in value.items() for part in pair)
    if isinstance(value, (tuple, list, set, frozenset)):
        return all(_is_plain(part) for part in value)
    return isinstance(value, (*_PLAIN, np.generic))


def cut_over_ranks(shell: Shell, among: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names in `among` whose arrays are sharded over the ranks."""
    found = {name: shell.user_ns.get(name) for name in among}
    return tuple(
        [
            name
            for name, value in found.items()
            if isinstance(value, DistArray) and value.layout.shape != value.to_local().shape
        ]
    )


def local(value: Any) -> Any:
    """Return a value independent of the ranks: arrays as whole NumPy arrays; collective."""
    if isinstance(value, DistArray):
        return np.asarray(value.full())
    if isinstance(value, dict):
        return {key: local(part) for key, part in value.items()}
    if type(value) in (list, tuple):
        return type(value)([local(part) for part in value])
    return value


class Kept(NamedTuple):
    """Names sorted by how they can be saved when the ranks end.

    Attributes
    ----------
    state : dict
        Values that a checkpoint can store.
    found : dict of str to (str, str)
        Modules, functions and classes of libraries: the module, and the name in it.
    lost : tuple of str
        The other names.
    """

    state: dict[str, Any]
    found: dict[str, tuple[str, str]]
    lost: tuple[str, ...]


def keep(names: dict[str, Any]) -> Kept:
    """Sort names by how they can be saved when the ranks end; no communication."""
    state: dict[str, Any] = {}
    found: dict[str, tuple[str, str]] = {}
    lost: list[str] = []
    for name, value in names.items():
        home = _home(value)
        if home is not None:
            found[name] = home
        elif flatten({name: value})[1] is None:
            state[name] = value
        else:
            lost.append(name)
    return Kept(state, found, tuple(lost))


def find(home: tuple[str, str]) -> Any:
    """Return a module, or the member of it that `keep` has found."""
    value: Any = import_module(home[0])
    for part in home[1].split(".") if home[1] else ():
        value = getattr(value, part)
    return value


def _home(value: Any) -> tuple[str, str] | None:
    """Return the module and the name of a library's value; None if no library defines it."""
    if isinstance(value, ModuleType):
        home = value.__name__, ""
    else:
        home = getattr(value, "__module__", None) or "", getattr(value, "__qualname__", None) or ""
        if not home[1]:
            return None
    try:
        return home if home[0] != "__main__" and find(home) is value else None
    except (ImportError, AttributeError, ValueError):
        return None
