"""Matching of the description of a saved state with the state into which it is loaded."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from distarray.array import DistArray
from distarray.array.base import raw_block
from distarray.array.creation import as_distarray
from distarray.checkpoint.adapters import AsSaved, Exact, Filled, adapter_of
from distarray.checkpoint.tree import Node, entries_of, item_of, unflatten
from distarray.checkpoint.zarr_metadata import Json, Stored, many
from distarray.errors import CheckpointError
from distarray.typing import Array, DType, Shape

__all__ = ["Fresh", "Match", "Target"]

#: Function that returns a value after all arrays have been loaded.
Later: TypeAlias = Callable[[], Any]


class Target(NamedTuple):
    """Saved array that is loaded into an existing array."""

    name: str
    value: DistArray | Array


class Fresh(NamedTuple):
    """Saved array for which a new array is made.

    Attributes
    ----------
    name : str
    kind : str
        "DistArray" or "ndarray".
    placements : tuple of str
        The array's placements when it was saved, as texts.
    """

    name: str
    kind: str
    placements: tuple[str, ...]


class Match:
    """Match of a saved state with its destination: the arrays to load, and the resulting state.

    Parameters
    ----------
    arrays : dict of str to Stored
        The arrays of the checkpoint.
    item : callable
        ``item(whole, kind)`` converts an array without dimensions to an object.

    Attributes
    ----------
    targets : list of Target
        Arrays of the program that are filled.
    fresh : dict of str to Fresh
        Arrays for which new arrays are made, by name.
    made : dict of str to DistArray or numpy.ndarray
        The new arrays; the caller adds them before it requests the state.
    """

    def __init__(self, arrays: dict[str, Stored], item: Callable[[Array, str], Any]) -> None:
        self.targets: list[Target] = []
        self.fresh: dict[str, Fresh] = {}
        self.made: dict[str, DistArray | Array] = {}
        self._arrays, self._item = arrays, item

    def value(self, node: Json, into: Any, words: str) -> Later:
        """Match a saved value with its destination `into`; None: a new object is made.

        Raises
        ------
        CheckpointError
            If the saved value does not fit the destination.
        """
        into = into.array if isinstance(into, Filled) else into
        if isinstance(into, dict):
            return self._dict(node, into, words)
        if isinstance(into, (list, tuple)):
            return self._sequence(node, into, words)
        if isinstance(into, (DistArray, np.ndarray)):
            return self._array(node, into, words)
        adapter = None if _is_plain(into) else adapter_of(into)
        if adapter is None:
            return self._new(node)
        saved = _of(node, "adapter", words)
        if saved != adapter.name:
            raise CheckpointError(
                f"{words} is of kind {adapter.name!r}, but {saved!r} was saved there"
            )
        state = adapter.state(into)
        inner, restore = self.value(_of(node, "state", words), state, words), adapter.restore

        def restored() -> Any:
            restore(into, inner())
            return into

        return restored

    def _dict(self, node: Json, into: dict[Any, Any], words: str) -> Later:
        entries = entries_of(_of(node, "dict", words))
        if isinstance(into, AsSaved):
            return self._as_saved(entries, into, words)
        missing = [str(key) for key in into if key not in entries]
        if missing:
            raise CheckpointError(
                f"{words}: the checkpoint has no {many(missing)} there; it has "
                f"{many([str(key) for key in entries], 10) or 'nothing'}"
            )
        surplus = [str(key) for key in entries if key not in into]
        if surplus and isinstance(into, Exact):
            raise CheckpointError(f"{words} has no {many(surplus)}, which were saved there")
        values = {k: self.value(entries[k], into[k], f"{words}[{k!r}]") for k in into}

        def updated() -> Any:
            for key, value in values.items():
                into[key] = value()  # not by `update`, which adds for a Counter
            return into

        return updated

    def _as_saved(self, entries: dict[Any, Any], into: AsSaved, words: str) -> Later:
        values = {k: self.value(entries[k], into.get(k), f"{words}[{k!r}]") for k in entries}

        def replaced() -> Any:
            found = {key: value() for key, value in values.items()}
            into.clear()
            into.update(found)
            return into

        return replaced

    def _sequence(self, node: Json, into: list[Any] | tuple[Any, ...], words: str) -> Later:
        kind = "list" if isinstance(into, list) else "tuple"
        nodes = _of(node, kind, words)
        if len(nodes) != len(into):
            raise CheckpointError(
                f"{words} has {len(into)} entries, but {len(nodes)} were saved there"
            )
        values = [self.value(n, v, f"{words}[{i}]") for i, (n, v) in enumerate(zip(nodes, into))]

        def updated() -> Any:
            found = [value() for value in values]
            if isinstance(into, tuple):
                return into._make(found) if hasattr(into, "_make") else tuple(found)
            into[:] = found
            return into

        return updated

    def _array(self, node: Json, into: DistArray | Array, words: str) -> Later:
        if isinstance(node, dict) and "item" in node:
            return self._filled(item_of(node), into, words)
        name = _of(node, "array", words)
        stored = self._stored(name)
        _check_fit(stored.shape, stored.dtype, into, words)
        if isinstance(into, DistArray) and into.layout.partials:
            raise CheckpointError(
                f"{words} has a pending fold; load into an array that is placed with Shard and "
                "Replicate, or let load make one"
            )
        block: Any = into
        if isinstance(into, DistArray):
            block = into.mesh.asarray(raw_block(into))
        if not getattr(block.flags, "writeable", True):
            raise CheckpointError(f"{words} is read-only")
        if not any(target.value is into for target in self.targets):
            self.targets.append(Target(name, into))
        return lambda: into

    def _filled(self, whole: Array, into: DistArray | Array, words: str) -> Later:
        _check_fit((), whole.dtype, into, words)

        def filled() -> Any:
            target: Any = into
            target[...] = as_distarray(whole, into.mesh) if isinstance(into, DistArray) else whole
            return into

        return filled

    def _new(self, node: Json) -> Later:
        self._collect(node)
        return lambda: unflatten(node, lambda n: self.made[n["array"]], self._item)

    def _collect(self, node: Json) -> None:
        """Collect the arrays below a node; raise if the node is malformed."""

        def array(found: Node) -> None:
            name, kind = found["array"], found["kind"]
            self._stored(name)
            if kind not in ("DistArray", "ndarray"):
                raise CheckpointError(f"array {name!r} claims to be of kind {str(kind)[:40]!r}")
            self.fresh[name] = Fresh(name, kind, tuple(found.get("placements", ())))

        unflatten(node, array, lambda whole, kind: None)

    def _stored(self, name: Json) -> Stored:
        if not isinstance(name, str) or name not in self._arrays:
            raise CheckpointError(f"the state names an array {str(name)[:80]!r} that is not there")
        return self._arrays[name]


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, (bool, int, float, complex, str, bytes, np.generic))


def _of(node: Json, kind: str, words: str) -> Any:
    """Return the content of a node; raise if the node is not of kind `kind`."""
    if not isinstance(node, dict) or kind not in node:
        found = next(iter(node), "nothing") if isinstance(node, dict) else "nothing"
        raise CheckpointError(f"{words} is of kind {kind!r}, but {found!r} was saved there")
    return node[kind]


def _check_fit(shape: Shape, dtype: DType, into: DistArray | Array, words: str) -> None:
    if tuple(into.shape) != shape or into.dtype != dtype:
        raise CheckpointError(
            f"{words} is {into.dtype} {tuple(into.shape)}, but {dtype} {shape} was saved there; "
            "load without into= and convert, or make it as it was saved"
        )
