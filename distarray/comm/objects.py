"""Arrays of Python objects in messages: their elements are references, so they travel pickled.

Convenient for a few of them, and slow for many. What cannot be pickled is an error on the ranks
that send it and on those that should have got it.
"""

import pickle
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from distarray.comm.ledger import forbid_communication
from distarray.typing import Array

if TYPE_CHECKING:
    from distarray.comm.group import Group, Pair

__all__ = ["allgather", "broadcast", "exchange", "packed", "unpacked"]


def packed(view: Array) -> bytes:
    """The elements as bytes; what keeps them from being pickled, if something does."""
    try:
        with forbid_communication():  # the other ranks need not have this element
            return pickle.dumps(np.array(view, order="C"))
    except Exception as error:
        return pickle.dumps(TypeError(f"an element cannot be sent to another rank: {error}"))


def unpacked(data: Any) -> Array:
    """The elements again.

    Raises
    ------
    TypeError
        If they could not be pickled.
    """
    value = pickle.loads(data)
    if isinstance(value, TypeError):
        raise value
    return value


def exchange(group: "Group", sends: Sequence["Pair"], receives: Sequence["Pair"]) -> None:
    """`Group._exchange` of objects: lengths first, then the bytes."""
    parcels = [(peer, np.frombuffer(packed(view), np.uint8)) for peer, view in sends]
    lengths = [(peer, np.empty(1, np.int64)) for peer, _ in receives]
    group._exchange([(peer, np.array([len(p)], np.int64)) for peer, p in parcels], lengths)
    landing = [(peer, np.empty(int(length[0]), np.uint8)) for peer, length in lengths]
    group._exchange(parcels, landing)
    for (_, view), (_, data) in zip(receives, landing, strict=True):
        view[...] = unpacked(data).reshape(view.shape)
    for _, parcel in parcels:
        unpacked(parcel)  # raises what the receivers raise


def broadcast(group: "Group", block: Array, root: int) -> None:
    """`Group._broadcast` of objects."""
    data = group._broadcast_object(packed(block) if group.rank == root else None, root)
    values = unpacked(data)
    if group.rank != root:
        block[...] = values


def allgather(group: "Group", block: Array) -> list[Array]:
    """Every rank's block of objects, in rank order."""
    return [unpacked(data) for data in group._allgather_object(packed(block))]
