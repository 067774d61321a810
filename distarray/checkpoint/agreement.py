"""What the ranks must have in common before a checkpoint is touched."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from distarray.array import DistArray
from distarray.checkpoint.files import as_bytes, checksum
from distarray.checkpoint.tree import Flat, Leaf
from distarray.comm.group import Group
from distarray.errors import DivergenceError

__all__ = ["check_alike", "same_everywhere"]


def check_alike(group: Group, flat: Flat) -> None:
    """Raise on all ranks if they do not save the same state.

    The arrays of NumPy count, whole: each is written by one rank as if it were everybody's.
    """
    if group.size == 1:
        return
    said = [json.dumps(flat.node), *[_described(leaf) for leaf in flat.leaves]]
    what = "checkpoint.save: the {} of the state"
    same_everywhere(group, "\n".join(said), what.format("structure, numbers or layouts"))
    same_everywhere(group, _values(flat.leaves), what.format("NumPy arrays"))


def same_everywhere(group: Group, text: str, what: str) -> None:
    """Raise on all ranks if a text is not the same on all."""
    if group.size == 1:
        return
    found = group.allgather(np.array(checksum(text.encode())))
    differing = np.flatnonzero(found != found[0])
    if differing.size:
        raise DivergenceError(
            f"{what} on rank {int(differing[0])} differs from that on rank 0. What is not "
            "distributed is kept once, so it must be equal on all ranks; make it a DistArray "
            "where each rank has its own"
        )


def _described(leaf: Leaf) -> str:
    value = leaf.value
    where = f"{value.layout} on {value.mesh.ranks}" if isinstance(value, DistArray) else ""
    return f"{leaf.name} {value.dtype.str} {value.shape} {where}"


def _values(leaves: Sequence[Leaf]) -> str:
    """Checksums of NumPy's arrays; not of types with bytes that mean nothing, which may differ."""
    plain: list[Any] = [leaf.value for leaf in leaves if not isinstance(leaf.value, DistArray)]
    return " ".join(
        [
            str(checksum(as_bytes(np.ascontiguousarray(value))))
            for value in plain
            if value.nbytes and value.dtype.names is None and value.dtype.char not in "gG"
        ]
    )
