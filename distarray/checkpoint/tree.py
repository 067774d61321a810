"""Conversion of a program's state to a tree of JSON nodes and a list of arrays, and back.

A node is a JSON object whose first key defines its kind::

    {"dict": [[key, node], ...]}   {"list": [node, ...]}   {"tuple": [node, ...]}
    {"value": null, true, 5, "text" or 0.25}    {"integer": "hexadecimal"}    {"float": "inf"}
    {"complex": [re, im]}    {"bytes": "base64"}
    {"item": "hexadecimal", "dtype": "<f8", "kind": "scalar"}
    {"array": "model/weight", "kind": "DistArray", "placements": ["Shard(0)"]}
    {"adapter": "torch.module", "state": node}

Arrays without dimensions are items of the tree: a directory for each would be too expensive.
"""

import base64
import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from distarray.array import DistArray
from distarray.checkpoint.adapters import Filled, adapter_of
from distarray.checkpoint.zarr_metadata import Json, dtype_from, dtype_name
from distarray.errors import CheckpointError
from distarray.layout import Placement, Shard
from distarray.typing import Array, DType

__all__ = ["Flat", "Leaf", "Node", "entries_of", "flatten", "item_of", "unflatten"]

#: Description of a value.
Node: TypeAlias = dict[str, Any]

_DEEPEST = 200
_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
_LONGEST = 120
#: Bits above which integers are hexadecimal: Python limits the number of decimal digits it parses.
_LONG = 1 << 10


class Leaf(NamedTuple):
    """Array of the state.

    Attributes
    ----------
    name : str
        The array's name in the checkpoint: the keys of its path, joined with slashes.
    value : DistArray or numpy.ndarray
    """

    name: str
    value: DistArray | Array


class Flat(NamedTuple):
    """State as a description and a list of arrays.

    Attributes
    ----------
    node : dict
        The description, complete after :meth:`complete` has been called.
    leaves : list of Leaf
    items : list of (str, dict, DistArray)
        Names and nodes of distributed arrays without dimensions, and the arrays.
    fills : list of (str, callable)
        Names of adapters' arrays, and functions that fill them.
    """

    node: Node
    leaves: list[Leaf]
    items: list[tuple[str, Node, DistArray]]
    fills: list[tuple[str, Callable[[], None]]]

    def complete(self) -> None:
        """Add the missing values; communicate if ranks do not have them."""
        for _, fill in self.fills:
            fill()
        for _, node, value in self.items:
            node["item"] = value.full().tobytes().hex()


def flatten(state: Any) -> tuple[Flat, Exception | None]:
    """Describe a state; return the description, as far as possible, and the error.

    No communication.
    """
    walk, node, error = _Walk(), {}, None
    try:
        node = walk.node(state, (), "state")
    except Exception as caught:
        error = caught
    # Sorted by name, since dicts may be in different orders on the ranks.
    leaves = sorted(walk.leaves, key=lambda leaf: leaf.name)
    items = sorted(walk.items, key=lambda item: item[0])
    return Flat(node, leaves, items, sorted(walk.fills, key=lambda fill: fill[0])), error


class _Walk:
    """Recursive traversal of a state."""

    def __init__(self) -> None:
        self.leaves: list[Leaf] = []
        self.items: list[tuple[str, Node, DistArray]] = []
        self.fills: list[tuple[str, Callable[[], None]]] = []
        #: Arrays with their nodes, by id; an array is kept so that no other object gets its id.
        self._seen: dict[int, tuple[Any, Node]] = {}
        self._open: set[int] = set()

    def node(self, value: Any, names: tuple[str, ...], words: str) -> Node:
        """Return the node of a value; `names`: keys of its path, `words`: path in error texts."""
        plain = _plain_node(value, words)
        if plain is not None:
            return plain
        if isinstance(value, Filled):
            self.fills.append(("/".join(names), value.fill))
            value = value.array
        if id(value) in self._seen:
            return self._seen[id(value)][1]
        if id(value) in self._open or len(names) > _DEEPEST:
            raise ValueError(f"{words} contains itself, or is nested too deeply to be saved")
        self._open.add(id(value))
        if isinstance(value, DistArray) or type(value) in (np.ndarray, np.memmap):
            node = self._array(value, names, words)
        elif isinstance(value, dict):
            keys = list(value)
            node = {"dict": [self._entry(k, value[k], keys, names, words) for k in keys]}
        elif isinstance(value, (list, tuple)):
            kind = "list" if isinstance(value, list) else "tuple"
            entries = enumerate(value)
            node = {kind: [self.node(v, (*names, str(i)), f"{words}[{i}]") for i, v in entries]}
        else:
            node = self._adapted(value, names, words)
        self._open.discard(id(value))
        return node

    def _entry(
        self, key: Any, value: Any, keys: list[Any], names: tuple[str, ...], words: str
    ) -> list[Any]:
        if type(key) not in (str, int):
            raise TypeError(f"{words} has the key {key!r}; keys of what is saved are str or int")
        name = _quoted(str(key))
        if type(key) is int and str(key) in keys:
            name += "~int"  # the dict also has the same digits as a string key
        return [key, self.node(value, (*names, name), f"{words}[{key!r}]")]

    def _adapted(self, value: Any, names: tuple[str, ...], words: str) -> Node:
        adapter = adapter_of(value)
        if adapter is None:
            raise TypeError(
                f"{words} is of type {type(value).__qualname__}, which cannot be saved: make it an "
                "array, number, string, dict, list or tuple, or say how with "
                "distarray.checkpoint.register"
            )
        return {"adapter": adapter.name, "state": self.node(adapter.state(value), names, words)}

    def _array(self, value: DistArray | Array, names: tuple[str, ...], words: str) -> Node:
        _check_dtype(value.dtype, words)
        kind = "DistArray" if isinstance(value, DistArray) else "ndarray"
        if not value.shape:
            if not isinstance(value, DistArray):
                return _item(value, kind)
            node: Node = {"item": "", "dtype": dtype_name(value.dtype), "kind": kind}
            self.items.append(("/".join(names), node, value))
            return node
        node = {"array": "/".join(names) or "array", "kind": kind}
        if isinstance(value, DistArray):
            node["placements"] = [_placement(p) for p in value.placements]
        self.leaves.append(Leaf(node["array"], value))
        self._seen[id(value)] = (value, node)
        return node


def _placement(placement: Placement) -> str:
    """Return the text of a placement; placements other than Shard are saved as Replicate."""
    return str(placement) if isinstance(placement, Shard) else "Replicate()"


def _plain_node(value: Any, words: str) -> Node | None:
    """Return the node of a number, string or similar value; None for other values."""
    if isinstance(value, np.generic):
        _check_dtype(value.dtype, words)
        return _item(np.asarray(value), "scalar")
    if value is None or isinstance(value, bool):
        return {"value": value}
    if isinstance(value, int):
        long = value.bit_length() > _LONG
        return {"integer": hex(value)} if long else {"value": int(value)}
    if isinstance(value, str):
        return {"value": str(value)}
    if isinstance(value, float):
        finite = math.isfinite(value)
        return {"value": float(value)} if finite else {"float": repr(float(value))}
    if isinstance(value, complex):
        return {"complex": [value.real.hex(), value.imag.hex()]}
    if isinstance(value, (bytes, bytearray)):
        return {"bytes": base64.b64encode(value).decode()}
    return None


def _item(whole: Array, kind: str) -> Node:
    return {"item": whole.tobytes().hex(), "dtype": dtype_name(whole.dtype), "kind": kind}


def _check_dtype(dtype: DType, words: str) -> None:
    if not _has_form(dtype):
        raise TypeError(
            f"{words} has dtype {dtype}, which has no form in a checkpoint; convert it with "
            ".astype(...)"
        )


@lru_cache(64)
def _has_form(dtype: DType) -> bool:
    """Return True if a data type can be described."""
    try:
        return not dtype.hasobject and bool(dtype_from(dtype_name(dtype)) == dtype)
    except CheckpointError:
        return False


@lru_cache(1024)
def _quoted(key: str) -> str:
    """Convert a key to a name that is safe on any file system, and in Zarr."""
    data = key.encode("utf-8", "surrogatepass")
    text = "".join([chr(byte) if chr(byte) in _PLAIN else f"%{byte:02X}" for byte in data])
    if text.startswith("."):
        text = "%2E" + text[1:]  # names with a leading dot are reserved for unfinished files
    text = text or "%"
    if text.startswith("__"):
        text = "%5F" + text[1:]
    if text == "zarr.json":
        text = "zarr%2Ejson"
    if len(text) > _LONGEST:
        text = f"{text[:80]}~{sha256(text.encode()).hexdigest()[:16]}"
    return text


def unflatten(node: Json, array: Callable[[Node], Any], item: Callable[[Array, str], Any]) -> Any:
    """Build the state that a node describes.

    Parameters
    ----------
    node : dict
    array : callable
        ``array(node)`` returns the array of an array node.
    item : callable
        ``item(whole, kind)`` converts an array without dimensions to an object.

    Raises
    ------
    CheckpointError
        If the node does not describe a state.
    """
    try:
        return _state(node, array, item)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"the description of the state is malformed ({error!r})") from None


def _state(node: Any, array: Callable[[Node], Any], item: Callable[[Array, str], Any]) -> Any:
    if "array" in node:
        return array(node)
    if "dict" in node:
        entries = entries_of(node["dict"])
        return {key: _state(value, array, item) for key, value in entries.items()}
    if "list" in node:
        return [_state(value, array, item) for value in node["list"]]
    if "tuple" in node:
        return tuple([_state(value, array, item) for value in node["tuple"]])
    if "adapter" in node:
        return _state(node["state"], array, item)
    if "item" in node:
        return item(item_of(node), node["kind"])
    return _plain_value(node)


def entries_of(pairs: Any) -> dict[Any, Any]:
    """Return the nodes of a dict by key; raise if the entries are malformed."""
    try:
        entries = {key: value for key, value in pairs}  # noqa: C416 (must be pairs)
        if all(type(key) in (str, int) for key in entries):
            return entries
    except (TypeError, ValueError):
        pass
    raise CheckpointError(f"{str(pairs)[:80]} are not the entries of a dict")


def item_of(node: Mapping[str, Any]) -> Array:
    """Return the array without dimensions of an item node."""
    dtype = dtype_from(node["dtype"])
    data = bytes.fromhex(node["item"])
    if len(data) != dtype.itemsize:
        raise CheckpointError(f"{len(data)} bytes are not an element of {dtype}")
    whole: Array = np.empty((), dtype)
    if data:
        whole.reshape(1).view(np.uint8)[:] = np.frombuffer(data, np.uint8)
    return whole


def _plain_value(node: Mapping[str, Any]) -> Any:
    """Return the number, string or similar value of a node."""
    if "value" in node:
        value = node["value"]
        if not isinstance(value, (bool, int, float, str, type(None))):
            raise CheckpointError("a value is a number, a string or null")
        return value
    if "integer" in node:
        return int(node["integer"], 16)
    if "float" in node:
        return float(node["float"])
    if "complex" in node:
        return complex(*[float.fromhex(part) for part in node["complex"]])
    if "bytes" in node:
        return base64.b64decode(node["bytes"], validate=True)
    raise CheckpointError(f"{str(node)[:80]} describes nothing that is saved")
