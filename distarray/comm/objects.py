"""Arrays of Python objects in messages: elements are references, so they are sent pickled.

That is convenient for a few objects, and slow for many. An object that cannot be pickled raises an
error on the ranks that send it and on the ranks that would have received it.
"""

import pickle
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from distarray.comm.ledger import forbid_communication
from distarray.typing import Array

if TYPE_CHECKING:
    from distarray.comm.group import Group, Pair

__all__ = ["allgather", "broadcast", "exchange", "packed", "unpacked"]


def packed(view: Array) -> bytes:
    """Pickle the elements; if they cannot be pickled, pickle the error."""
    try:
        with forbid_communication():  # an array among them would be gathered, by this rank alone
            return pickle.dumps(np.array(view, order="C"))
    except Exception as error:
        return pickle.dumps(TypeError(f"an element cannot be sent to another rank: {error}"))


def unpacked(data: bytes | memoryview) -> Array:
    """Return the elements of :func:`packed` bytes.

    Raises
    ------
    TypeError
        If the elements could not be pickled.
    """
    value: Array | TypeError = pickle.loads(data)
    if isinstance(value, TypeError):
        raise value
    return value


def exchange(group: "Group", sends: Sequence["Pair"], receives: Sequence["Pair"]) -> None:
    """Exchange objects as `Group._exchange`: lengths first, then the bytes."""
    parcels = [(peer, np.frombuffer(packed(view), np.uint8)) for peer, view in sends]
    lengths = [(peer, np.empty(1, np.int64)) for peer, _ in receives]
    group._exchange([(peer, np.array([len(p)], np.int64)) for peer, p in parcels], lengths)
    landing = [(peer, np.empty(int(length[0]), np.uint8)) for peer, length in lengths]
    group._exchange(parcels, landing)
    for (_, view), (_, data) in zip(receives, landing, strict=True):
        view[...] = unpacked(data.data).reshape(view.shape)
    for _, parcel in parcels:
        unpacked(parcel.data)  # raises the receivers' error


def broadcast(group: "Group", block: Array, root: int) -> None:
    """Broadcast objects as `Group._broadcast`."""
    data = group._broadcast_object(packed(block) if group.rank == root else None, root)
    values = unpacked(data)
    if group.rank != root:
        block[...] = values


def allgather(group: "Group", block: Array) -> list[Array]:
    """Return every rank's block of objects, in rank order."""
    return [unpacked(data) for data in group._allgather_object(packed(block))]
