"""Mirrors: whole copies of cut arrays, which every rank keeps, and writing to them.

When an array has one, :mod:`~distarray.array.mirroring` decides.
"""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from distarray.array.base import Base
from distarray.array.keys import basic_entries
from distarray.array.ladder import ENTRIES, is_free, passed
from distarray.layout import Coords, Layout, local_key, view_layout
from distarray.typing import Key

__all__ = ["KINDS", "SMALL", "Mirror", "is_plain", "is_writeable", "write_through"]

#: Kinds of elements that are numbers, and so always NumPy's scalars.
KINDS = "biufc"
#: The most bytes that are read from a mirror, or written to it, at a time.
SMALL = 1 << 16


class Mirror:
    """How often a cut array's elements and rows were accessed, and its elements once fetched.

    Attributes
    ----------
    layout : Layout
        The array's.
    dtype : numpy.dtype
        The array's.
    places : list of (int, int, int)
        For each dimension where this rank's block starts and stops, and the array's extent.
    replicas : dict
        The layouts of arrays that every rank of the mesh has whole, by shape.
    cut : int
        The number of dimensions up to the last one of which this rank has only a part.
    elements : array or None
        All elements, once they have been fetched.
    origin : DistArray or None
        Another array over the same block, from which views are made even if the program gives the
        array itself another shape or block.
    seen : int
        The number of calls that might have written (`passed.number - passed.harmless`) when the
        elements were fetched. They are the array's as long as it has not changed.
    exports : int
        The same for blocks that were handed out; -1 if the array was never fetched.
    slow, total : int
        Accesses without the mirror: since the array was fetched last, and in all.
    needed : int
        The array is fetched after so many of them.
    used : int
        Accesses that the mirror served.
    """

    __slots__ = (
        "__weakref__",
        "cut",
        "dtype",
        "elements",
        "exports",
        "layout",
        "needed",
        "origin",
        "places",
        "replicas",
        "seen",
        "slow",
        "total",
        "used",
    )

    def __init__(self, x: Base, needed: int) -> None:
        self.layout = layout = x.layout
        self.dtype = x.dtype
        self.replicas: Any = Layout.replicated((), layout.mesh_shape).replicas
        pairs = zip(layout.section(x.mesh.coords), layout.shape, strict=True)
        self.places = [(start, stop, extent) for (start, stop), extent in pairs]
        parts = [stop - start < extent for start, stop, extent in self.places]
        self.cut = len(parts) - parts[::-1].index(True) if any(parts) else 0
        self.elements: Any = None
        self.origin: Any = None
        self.seen = self.exports = -1
        self.slow = self.used = self.total = 0
        self.needed = needed

    @property
    def holds(self) -> bool:
        """Whether the elements are those of the array now."""
        now = passed.__dict__
        return bool(self.seen == now["number"] - now["harmless"])

    @property
    def is_free(self) -> bool:
        """Whether elements can be read without comparing the call with other ranks'."""
        return is_free(operator.getitem, self.layout)

    def drop(self) -> None:
        """Free the elements; excerpts of them become plain views when they are used."""
        self.elements, self.seen = None, -1


def write_through(mirror: Mirror, x: Base, key: Key, act: Callable[..., Any], *args: Key) -> None:
    """Let NumPy write to the elements of a mirror that a key selects, and then to the array's own.

    A warning that is raised as an error comes after NumPy has written.
    """
    try:
        act(*args)
    except Warning:
        _written(mirror, x, key)
        raise
    _written(mirror, x, key)


def _written(mirror: Mirror, x: Base, key: Key) -> None:
    """Copy elements of a mirror to the array's own block."""
    own = _own_key(mirror, key, x)
    if own is not None:
        of_block, of_part = own
        found = mirror.elements[key]
        x.block[of_block] = found[of_part] if type(found) is np.ndarray else found
    mirror.used += 1
    now = passed.__dict__
    now["number"] += 1
    now["harmless"] += 1


def is_writeable(x: Base) -> bool:
    """Whether an array's block can be written to, on one rank as on all."""
    block = x.block
    return type(block) is np.ndarray and bool(block.flags.writeable)


def is_plain(key: Key) -> bool:
    """Whether a key has only integers, slices, None and Ellipsis, of the types that are common."""
    if type(key) is not tuple:
        return type(key) in ENTRIES
    if len(key) == 2:  # by far the most
        return type(key[0]) in ENTRIES and type(key[1]) in ENTRIES
    return ENTRIES.issuperset(map(type, key))


def _own_key(mirror: Mirror, key: Key, x: Base) -> tuple[Any, Any] | None:
    """The part of this rank's block that a key selects, and which part of the selection that is.

    None if the key selects nothing of the block. Integers, and slices of dimensions that are not
    cut, are read here. In a loop hardly two keys are alike, so that it would not help to remember
    what was found for one.
    """
    parts = key if type(key) is tuple else (key,)
    places = mirror.places
    if len(parts) > len(places) or not mirror.cut <= len(parts):
        return _own_slices(mirror.layout, key, x.mesh.coords)
    own: list[Any] = []
    for entry, (start, stop, extent) in zip(parts, places):  # a key may be shorter
        if type(entry) is int or type(entry) is np.int64:
            place = entry + extent if entry < 0 else entry
            if not start <= place < stop:
                return None
            own.append(place - start)
        elif type(entry) is slice and stop - start == extent:
            own.append(entry)
        else:
            return _own_slices(mirror.layout, key, x.mesh.coords)
    return tuple(own), ...


def _own_slices(layout: Layout, key: Key, coords: Coords | None) -> tuple[Any, Any] | None:
    """As :func:`_own_key`, for any basic key."""
    entries: Any = basic_entries(key, layout.shape)
    own = local_key(layout, entries, coords)
    if own is None:
        return None
    section = view_layout(layout, entries).section(coords)
    return own, tuple([slice(start, stop) for start, stop in section])
