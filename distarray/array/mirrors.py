"""Mirrors: whole copies of cut arrays, for loops that read and write single elements and rows.

Read element by element, a cut array would cost a message for each. After a few such reads the ranks
fetch the whole array once. That copy, the mirror, serves further reads as long as nobody else
writes to the array. What the loop itself assigns goes into the mirror as well as into the block.

All ranks decide alike, and no message is needed to find out whether a mirror is still valid:

- `ladder.passed` counts the calls that may have written to any cut array, and each such call ends
  all mirrors. Assignments through a mirror are not among them. They can change nothing that another
  mirror has: before an array is fetched, the ranks agree that no array with a mirror shares its
  memory.
- Handing out a block (`to_local`, DLPack) ends all mirrors, too. But a single rank may do this
  without the others' knowing. Therefore no mirrors are made if the program's code contains a name
  by which blocks are handed out.
- Nothing that may differ between ranks decides: reference counts only count where the ranks agree
  on the outcome, and it makes no difference when an object is freed.
"""

import operator
from collections.abc import Callable
from threading import local
from typing import Any
from weakref import ref

import numpy as np

from distarray.array import stale_copies
from distarray.array.base import Base, mirror_of, storage_of
from distarray.array.floaterrors import error_state
from distarray.array.handed_out import names_blocks
from distarray.array.keys import basic_entries
from distarray.array.ladder import ENTRIES, is_free, passed, usual
from distarray.array.leaves import beside, memory_of
from distarray.array.memory import is_shared
from distarray.array.sharing import derived
from distarray.comm.user_lines import warn_program
from distarray.config import in_force
from distarray.errors import PerformanceWarning
from distarray.layout import Coords, Fold, Layout, local_key, view_layout
from distarray.typing import Array, ArrayLike, Key

__all__ = [
    "Mirror",
    "elements_at_hand",
    "given",
    "is_plain",
    "is_writeable",
    "noted",
    "put",
    "read",
    "write",
    "write_through",
]

#: The most bytes that are read from a mirror, or written to it, at a time.
SMALL = 1 << 16
#: An array is fetched after `FEW` accesses, and one more for each `PER` bytes of it.
FEW, PER = 9, 1 << 19
#: How many accesses a single element counts as. A row counts as one: it may be used where it is,
#: without a message.
ELEMENT = 3
#: A mirror that served fewer accesses than this is fetched again only after more of them.
WORTH = 8
#: After so many accesses to an array without a mirror a warning is given.
MANY = 2000
#: The most mirrors with elements.
MOST = 64
#: Kinds of elements that are numbers, and so always NumPy's scalars.
_KINDS = "biufc"
_NUMBERS = frozenset({int, float, complex, bool, np.float64, np.int64})

#: Makes the excerpt that a key selects; set by :mod:`distarray.array.excerpts`.
excerpt: Callable[["Mirror", Any, Any, Array], Any] = lambda *_: NotImplemented  # noqa: E731
#: The elements of a valid excerpt, and whether a key selects this very excerpt; set there, too.
elements_of: Callable[[Base], Any] = lambda x: None  # noqa: E731
is_of: Callable[[Base, "Mirror", Key], bool] = lambda *_: False  # noqa: E731


class _Kept(local):
    """The mirrors of a rank (a process or a thread).

    Attributes
    ----------
    mirrors : list of (reference to Mirror, int)
        Mirrors with elements, and their bytes, the oldest first. Mirrors of arrays that have been
        freed stay in the list, as other ranks may free theirs later.
    """

    def __init__(self) -> None:
        self.mirrors: list[tuple[ref[Mirror], int]] = []


_kept = _Kept()


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

    def __init__(self, x: Base) -> None:
        self.layout = layout = x.layout
        self.dtype = dtype = x.dtype
        self.replicas: Any = Layout.replicated((), layout.mesh_shape).replicas
        pairs = zip(layout.section(x.mesh.coords), layout.shape, strict=True)
        self.places = [(start, stop, extent) for (start, stop), extent in pairs]
        parts = [stop - start < extent for start, stop, extent in self.places]
        self.cut = len(parts) - parts[::-1].index(True) if any(parts) else 0
        self.elements: Any = None
        self.origin: Any = None
        self.seen = self.exports = -1
        self.slow = self.used = self.total = 0
        self.needed = _first(layout.size * dtype.itemsize)

    @property
    def holds(self) -> bool:
        """Whether the elements are those of the array now."""
        now = passed.__dict__
        return bool(self.seen == now["number"] - now["harmless"])

    def drop(self) -> None:
        """Free the elements; excerpts of them become plain views when they are used."""
        self.elements, self.seen = None, -1


# -- reading and writing -------------------------------------------------------------------------


def read(x: Base, key: Key) -> Any:
    """Read the elements that a basic key selects of a cut array from its mirror.

    NotImplemented if the array has no mirror that is valid.

    Cost
    ----
    None, except when the array is fetched: one allreduce of an integer, and a gather.
    """
    mirror: Any = mirror_of(x)
    if mirror is None or not _usable(mirror, x) or not is_plain(key):
        return NotImplemented
    part = mirror.elements[key]
    if type(part) is np.ndarray:
        if part.nbytes > SMALL:
            return NotImplemented
        part = excerpt(mirror, mirror.origin, key, part)
    mirror.used += 1
    return part


def write(x: Base, key: Key, value: ArrayLike | Base) -> bool:
    """Assign a value that all ranks have to elements of an array, and of its mirror.

    Returns
    -------
    bool
        False if nothing was assigned: there is no mirror, or not every rank has the value.

    Cost
    ----
    As :func:`read`.
    """
    mirror: Any = mirror_of(x)
    if mirror is None or not is_plain(key):
        return False
    block: Any = value if type(value) in _NUMBERS else given(value, x)
    if block is None or not _usable(mirror, x):
        return False
    if isinstance(value, Base) and is_of(value, mirror, key):
        return True  # `x[key] += y` ends so
    return put(mirror, x, key, block)


def put(mirror: Mirror, x: Base, key: Key, value: ArrayLike) -> bool:
    """Assign a value of NumPy's to elements of an array and of its mirror; False if read-only."""
    if not is_writeable(x):
        return False
    if passed.watched:
        stale_copies.tell(x)
    write_through(mirror, x, key, operator.setitem, mirror.elements, key, value)
    return True


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


def elements_at_hand(value: Base) -> Any:
    """The elements of an excerpt, if they are valid; any other array unchanged."""
    found = elements_of(value)
    return value if found is None else found


def is_writeable(x: Base) -> bool:
    """Whether an array's block can be written to, on one rank as on all."""
    block = x.block
    return type(block) is np.ndarray and bool(block.flags.writeable)


def given(value: ArrayLike | Base, x: Base) -> Any:
    """A small value that all ranks have, as NumPy takes it; None for any other value."""
    if type(value) in _NUMBERS:
        return value
    if isinstance(value, Base):
        if value.mesh is not x.mesh:
            return None
        found = elements_of(value)
        if found is not None:
            return found
        if not value.layout.is_whole or value.layout.size * value.dtype.itemsize > SMALL:
            return None
        value = value.block
    elif type(value) is not np.ndarray and not isinstance(value, np.generic):
        return None
    block: Any = value
    return block if block.dtype.kind in _KINDS and block.nbytes <= SMALL else None


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


# -- fetching ------------------------------------------------------------------------------------


def noted(x: Base, part: Layout) -> None:
    """Count an access to a part of a cut array, if the part is small and at one coordinate."""
    if not part.ats or x.layout.ats or part.size * x.dtype.itemsize > SMALL or is_shared(x):
        return
    mirror = mirror_of(x)
    if mirror is None or mirror.layout is not x.layout:
        if not _can_be_kept(x):
            return
        mirror = x._mirror = Mirror(x)
    mirror.slow += 1 if part.shape else ELEMENT
    mirror.total += 1
    if mirror.total == MANY:
        _tell()


def _can_be_kept(x: Base) -> bool:
    layout, mesh = x.layout, x.mesh
    return (
        layout.is_plain
        and x.dtype.kind in _KINDS
        and x.dtype.isnative
        and mesh.size() > 1
        and mesh.device_type == "cpu"
        and mesh.coords is not None
    )


def _usable(mirror: Mirror, x: Base) -> bool:
    """Whether the mirror has the array's elements, which are fetched if it is time for that."""
    if error_state() is not usual[0] and not is_free(operator.getitem, mirror.layout):
        return False
    if mirror.layout is not x.layout:
        return False
    now = passed.__dict__  # this thread's; what is read of it costs less than of `passed`
    if mirror.seen == now["number"] - now["harmless"]:  # nor was a block handed out
        return True
    return mirror.slow >= mirror.needed and _fetched(mirror, x)


def _fetched(mirror: Mirror, x: Base) -> bool:
    """Fetch the elements if they may be kept on all ranks; whether that was done."""
    limit, nbytes = in_force().keep, mirror.layout.size * mirror.dtype.itemsize
    if 2 * nbytes > limit:
        return False
    again = mirror.exports == passed.exports
    mirror.drop()
    rare = mirror.exports >= 0 and mirror.used < WORTH
    mirror.needed = 2 * mirror.needed if rare else _first(nbytes)
    mirror.slow = mirror.used = 0
    if not again:
        mirror.origin = None
        if not _agreed(x):
            mirror.needed *= WORTH
            return False
        mirror.origin, mirror.exports = derived(x, lambda y: y.like(y.block)), passed.exports
        storage: Any = storage_of(mirror.origin)
        if storage is not None:
            storage.base = None  # else it and its mirror would live for ever
    mirror.elements = x.full()
    mirror.seen = passed.number - passed.harmless
    _keep(mirror, nbytes, limit)
    return True


def _first(nbytes: int) -> int:
    """The accesses after which an array of so many bytes is fetched."""
    return FEW + nbytes // PER


def _keep(mirror: Mirror, nbytes: int, limit: int) -> None:
    """Enter a mirror that has just been fetched, and drop the oldest while there are too many."""
    mirrors = _kept.mirrors
    mirrors[:] = [pair for pair in mirrors if pair[0]() is not mirror]
    mirrors.append((ref(mirror), nbytes))
    while len(mirrors) > MOST or sum([size for _, size in mirrors]) > limit:
        oldest = mirrors.pop(0)[0]()
        if oldest is not None:
            oldest.drop()


def _agreed(x: Base) -> bool:
    """Whether, on all ranks, only known arrays can write to this array's memory.

    Cost
    ----
    One allreduce of an integer.
    """
    x.block  # noqa: B018 (what waits for it, or it waits for, is done)
    vote = np.array(int(not names_blocks() and _is_alone(x)))
    return bool(x.mesh.group.allreduce(vote, Fold.MIN, "whether to keep an array"))


def _is_alone(x: Base) -> bool:
    if memory_of(x) is None:
        return False
    others = [mirror_of(other) for other in beside(x) if other is not x]
    return all(other is None or other.origin is None for other in others)


def _tell() -> None:
    """Warn, at the program's line, of a loop that goes on sending messages."""
    warn_program(
        f"elements or rows of one cut array have been read or written {MANY} times, each time by "
        "messages or a look at where they are, and lastly by this line. Read many at once (a "
        "slice, x.full()), work on whole arrays, or make the array whole "
        "(x.redistribute(placements=Replicate())); arrays of up to half of config.keep bytes are "
        "fetched and kept if nothing else of the loop writes to cut arrays, and the program's code "
        "does not ask for blocks",
        PerformanceWarning,
    )
