"""What the ranks must have in common before a checkpoint is touched."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from distarray.array import DistArray
from distarray.checkpoint.chunk_files import as_bytes, checksum
from distarray.checkpoint.tree import Flat, Leaf, Node
from distarray.comm.alike import Said, same_call
from distarray.comm.group import Group

__all__ = ["check_alike", "same_everywhere"]

_CURE = (
    "What is not distributed is kept once, so it must be equal on all ranks; make it a DistArray "
    "where each rank has its own"
)


def check_alike(
    group: Group, options: Mapping[str, Any], flat: Flat, error: Exception | None
) -> None:
    """Raise on all ranks if they do not save the same state in the same way.

    The arrays of NumPy count, whole: each is written by one rank as if it were everybody's. The
    entries of dicts may have other orders.

    Parameters
    ----------
    group : Group
    options : mapping of str
        Arguments other than the state, by name.
    flat : Flat
        The state.
    error : Exception or None
        What this rank has found wrong already.

    Cost
    ----
    One allreduce of a few integers.
    """
    if group.size == 1:
        if error is not None:
            raise error
        return
    said = [
        Said(f"{name} on rank {{rank}} differs from that on rank 0", repr(value))
        for name, value in options.items()
    ]
    state = (
        "the structure, numbers or layouts of the state on rank {rank} differ from those on rank 0"
    )
    about = [json.dumps(_canonical(flat.node)) if error is None else ""]
    about += [f"{name} {value.layout} on {value.mesh.ranks}" for name, _, value in flat.items]
    said.append(Said(state, "\n".join(about), _CURE))
    arrays = {leaf.name: _described(leaf) for leaf in flat.leaves}
    same_call(group, "checkpoint.save", said, arrays, error)


def _canonical(node: Node) -> Node:
    """A description with the entries of dicts in one order."""
    kind, value = next(iter(node.items()))
    if kind == "dict":
        ordered = sorted(value, key=lambda entry: (str(type(entry[0])), str(entry[0])))
        return {kind: [[key, _canonical(item)] for key, item in ordered]}
    if kind in ("list", "tuple"):
        return {kind: [_canonical(item) for item in value]}
    if kind == "adapter":
        return {kind: value, "state": _canonical(node["state"])}
    return node


def same_everywhere(group: Group, text: str, what: str) -> None:
    """Raise on all ranks if a text is not the same on all."""
    said = Said(f"{what} on rank {{rank}} differs from that on rank 0", text)
    same_call(group, "checkpoint.load", [said])


def _described(leaf: Leaf) -> str:
    value = leaf.value
    about = f"{value.dtype} {value.shape}"
    if isinstance(value, DistArray):
        return f"{about} {value.layout} on {value.mesh.ranks}"
    return f"{about} of NumPy's{_sum(value)}"


def _sum(value: Any) -> str:
    """A checksum; not of types with bytes that mean nothing, which may differ."""
    if not value.nbytes or value.dtype.names is not None or value.dtype.char in "gG":
        return ""
    return f", CRC32C {checksum(as_bytes(np.ascontiguousarray(value))):08x}"
