"""Checks that all ranks save, or load, the same state, before files are accessed."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from distarray.array import DistArray
from distarray.checkpoint.chunk_checksums import checksum
from distarray.checkpoint.chunk_files import as_bytes
from distarray.checkpoint.tree import Flat, Leaf, Node
from distarray.comm.group import Group
from distarray.comm.same_call import Argument, same_call
from distarray.typing import Array

__all__ = ["check_same_state", "check_same_text"]

_CURE = (
    "Values that are not distributed are saved once, so they must be equal on all ranks; make them "
    "a DistArray where each rank has its own"
)


def check_same_state(
    group: Group, options: Mapping[str, Any], flat: Flat, error: Exception | None
) -> None:
    """Raise on all ranks if the ranks save different states or pass different options.

    NumPy's arrays must have equal values, since one rank writes each of them. The entries of dicts
    may be in different orders.

    Parameters
    ----------
    group : Group
    options : mapping of str
        The other arguments, by name.
    flat : Flat
        The state.
    error : Exception or None
        An error that this rank has already found.

    Cost
    ----
    One allreduce of a few integers.
    """
    if group.size == 1:
        if error is not None:
            raise error
        return
    said = [
        Argument(f"{name} on rank {{rank}} differs from that on rank 0", repr(value))
        for name, value in options.items()
    ]
    state = (
        "the structure, numbers or layouts of the state on rank {rank} differ from those on rank 0"
    )
    about = [json.dumps(_canonical(flat.node)) if error is None else ""]
    about += [f"{name} {value.layout} on {value.mesh.ranks}" for name, _, value in flat.items]
    said.append(Argument(state, "\n".join(about), _CURE))
    arrays = {leaf.name: _described(leaf) for leaf in flat.leaves}
    same_call(group, "checkpoint.save", said, arrays, error)


def _canonical(node: Node) -> Node:
    """Return a description with the entries of dicts in a canonical order."""
    kind, value = next(iter(node.items()))
    if kind == "dict":
        ordered = sorted(value, key=lambda entry: (str(type(entry[0])), str(entry[0])))
        return {kind: [[key, _canonical(item)] for key, item in ordered]}
    if kind in ("list", "tuple"):
        return {kind: [_canonical(item) for item in value]}
    if kind == "adapter":
        return {kind: value, "state": _canonical(node["state"])}
    return node


def check_same_text(group: Group, text: str, what: str) -> None:
    """Raise on all ranks if a text differs between ranks."""
    said = Argument(f"{what} on rank {{rank}} differs from that on rank 0", text)
    same_call(group, "checkpoint.load", [said])


def _described(leaf: Leaf) -> str:
    value = leaf.value
    if isinstance(value, DistArray):
        return f"{value.dtype} {value.shape} {value.layout} on {value.mesh.ranks}"
    return f"{value.dtype} {value.shape} of NumPy's{_sum(value)}"


def _sum(value: Array) -> str:
    """Return the text of a checksum of the values; empty for types with padding."""
    if not value.nbytes or value.dtype.names is not None or value.dtype.char in "gG":
        return ""
    return f", CRC32C {checksum(as_bytes(np.ascontiguousarray(value))):08x}"
