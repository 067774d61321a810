"""Mirrors: replicated read caches of cut arrays, and write-through to the arrays.

:mod:`~distarray.array.mirroring` decides when an array gets a mirror.
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

#: Kinds of numeric elements, which are always NumPy scalars.
KINDS = "biufc"
#: Maximum bytes read from or written to a mirror per access.
SMALL = 1 << 16


class Mirror:
    """Access counts of a cut array's elements and rows, and the cached elements once fetched.

    Attributes
    ----------
    layout : Layout
        The layout of the array.
    dtype : numpy.dtype
        The data type of the array.
    places : list of (int, int, int)
        For each dimension, the start and stop of this rank's block, and the extent of the array.
    replicas : dict
        Replicated layouts on the mesh, by shape.
    cut : int
        Number of dimensions up to the last one of which this rank lacks indices; 0 if none.
    elements : array or None
        All elements of the array, once fetched.
    origin : DistArray or None
        Another array over the same block. Views are made from it even if the program gives the
        array itself another shape or block.
    seen : int
        The write counter (`passed.number - passed.harmless`) when the elements were fetched. The
        elements are valid as long as the counter has not changed.
    exports : int
        The counter `passed.exports` of exposed blocks at that time; -1 if the array was never
        fetched.
    slow, total : int
        Accesses without the mirror: since the last fetch, and in all.
    needed : int
        Number of slow accesses after which the array is fetched.
    used : int
        Accesses that the mirror has served since the last fetch.
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
        """True if the cached elements are valid."""
        now = passed.__dict__
        return bool(self.seen == now["number"] - now["harmless"])

    @property
    def is_free(self) -> bool:
        """True if elements can be read without comparing the call with other ranks."""
        return is_free(operator.getitem, self.layout)

    def drop(self) -> None:
        """Free the elements; excerpts of them become plain views when they are used."""
        self.elements, self.seen = None, -1


def write_through(mirror: Mirror, x: Base, key: Key, act: Callable[..., Any], *args: Key) -> None:
    """Let NumPy write to the elements of a mirror that a key selects, then copy them to the block.

    A warning that is raised as an error is raised after NumPy has written. So the block is written
    in that case, too.
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
    """Return True if an array's block is writeable; the same on all ranks."""
    block = x.block
    return type(block) is np.ndarray and bool(block.flags.writeable)


def is_plain(key: Key) -> bool:
    """Return True if a key has only integers, slices, None and Ellipsis, of the usual types."""
    if type(key) is not tuple:
        return type(key) in ENTRIES
    if len(key) == 2:  # by far the most frequent length
        return type(key[0]) in ENTRIES and type(key[1]) in ENTRIES
    return ENTRIES.issuperset(map(type, key))


def _own_key(mirror: Mirror, key: Key, x: Base) -> tuple[Any, Any] | None:
    """Return the section of this rank's block that a key selects, and its place in the selection.

    The result is None if the key selects nothing of the block. Integers, and slices of dimensions
    that are not cut, are handled here. The result is not cached, since hardly any two keys in a
    loop are equal.
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
    """Return the result of :func:`_own_key` for any basic key."""
    entries: Any = basic_entries(key, layout.shape)
    own = local_key(layout, entries, coords)
    if own is None:
        return None
    section = view_layout(layout, entries).section(coords)
    return own, tuple([slice(start, stop) for start, stop in section])
