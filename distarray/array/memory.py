"""The memory that arrays share: a property of the global array, as in NumPy.

The blocks of an array and of its views are NumPy views of one buffer on each rank, a
:class:`Materialization` of their :class:`Memory`. Most views never need more than that. But NumPy
also makes a view where no cut of the buffer serves both arrays, such as a reshape of which a row
lies on two ranks. Then there are two ways:

* *The cut moves.* The base's borders move to where rows end, which sends less than a row to a
  neighbour; the base and all that views it follow (:mod:`~distarray.array.recutting`). From then
  on there is nothing to do.
* *A second materialization.* The result has a buffer of its own, and a :class:`Link` to the array
  that it was made of. A memory knows which of its materializations have its newest elements. An
  array over an old one is brought up to date when its block is read, by one exchange; writing to an
  array makes the other materializations old.

Everything is decided by calls that all ranks make, so that it costs no message by itself.

The block of an array whose memory has several materializations is not in its slot: it is asked for
by :meth:`Storage.read`, read-only, or written to within :func:`~distarray.array.sharing.writing`.
So a function that writes without saying so raises NumPy's ValueError.
"""

from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from typing import Any, Protocol
from weakref import ref

import numpy as np

from distarray.array.base import Base, mirror_of, storage_of
from distarray.array.blocks_out import Uses, prune, refreshed
from distarray.typing import Array, DType

__all__ = [
    "Link",
    "Maker",
    "Materialization",
    "Memory",
    "Storage",
    "Transfer",
    "entered",
    "is_shared",
    "is_writeable",
]

_block_slot: Any = Base.__dict__["block"]
_empty: Callable[[Any], None] = _block_slot.__delete__
_new = object.__new__
#: So many arrays may be gone before they are struck off.
_FEW = 16

#: Makes a view of an array; it is called again with another array of the same shape when the cut
#: has moved, and gives None if that one cannot be viewed so.
Maker = Callable[[Any], Any]


class Transfer(Protocol):
    """Copies elements between two arrays that hold the same in different cuts; collective.

    Attributes
    ----------
    overlaps : bool
        Whether ranks hold the same elements of the second array. What one of them has written is
        then brought to the others at once.
    """

    overlaps: bool

    def down(self, source: Base, target: Base) -> None:
        """Copy all elements of the first array to the second, which was made of it."""

    def up(self, source: Base, target: Base) -> None:
        """Copy all elements of the second array, the first argument, back."""


class Memory:
    """The elements that some arrays share.

    Attributes
    ----------
    materializations : list of Materialization
        In the order in which they were made.
    newest : list of Materialization
        Those that have the newest elements, the one that was written to last first.
    uses : Uses
        Who uses it from outside.
    made : int
        How many materializations have been made.
    copies : list of Copy
        Gathered copies that others may have; see :mod:`~distarray.array.stale_copies`.
    """

    __slots__ = ("copies", "made", "materializations", "newest", "uses")

    def __init__(self) -> None:
        self.materializations: list[Materialization] = []
        self.newest: list[Materialization] = []
        self.made = 0
        self.uses = Uses()
        self.copies: list[Any] = []

    def give_out(self, source: "Materialization") -> None:
        """Let the program write to a materialization, which is up to date, until it is taken back.

        One at a time: another one is taken back.
        """
        self.newest[:] = [source]
        self.uses.pinned = source

    def take_back(self, source: "Materialization") -> None:
        """The program does not write to a materialization any more, of what was given out."""
        if self.uses.pinned is source:
            self.uses.pinned = self.uses.lasting
            if self.uses.pinned is not None:
                self.uses.pinned.refresh()


class Link:
    """How a materialization was made of another one.

    Attributes
    ----------
    storage : Storage
        Of the array that it was made of.
    origin : DistArray
        That array; this one and the next can be written to whatever becomes of the program's.
    top : DistArray
        All of the materialization's elements.
    transfer : Transfer
        Copies between the two.
    make : callable
        Makes the same of an array that a rank has whole; see :mod:`distarray.array.geometry`.
    """

    __slots__ = ("make", "origin", "storage", "top", "transfer")

    def __init__(self, storage: "Storage", top: Base, transfer: Transfer, make: Maker) -> None:
        self.storage, self.transfer, self.make = storage, transfer, make
        self.origin, self.top = _twin(storage.bare()), _twin(top)


def _twin(x: Base) -> Any:
    """Another array over the same block, which is not known to share memory."""
    found = _new(Base.plain_type)
    found.block = block = x.block[...]
    if not is_writeable(block):
        with suppress(ValueError):  # where the program can do so later as well
            block.flags.writeable = True
    found.layout, found.mesh = x.layout, x.mesh
    return found


def is_writeable(block: Array) -> bool:
    """Whether the program may write to a block; nothing says so of a device's."""
    return bool(getattr(block.flags, "writeable", True))


class Materialization:
    """A buffer on each rank with the elements of a memory, or with some of them.

    Attributes
    ----------
    memory : Memory
    link : Link or None
        Where it comes from; None if it is the memory's first.
    arrays : list
        Weak references to the arrays over it, of which some may be gone.
    grain : int
        Elements of which the borders between ranks are multiples, since rows have been made to end
        there; 1 if they have not.
    writers : int
        How many functions that may write to it, also through views that they make, run now.
    number : int
        Its own among the memory's, the same on all ranks.
    is_out : bool
        Whether the program has this rank's block.
    leaves : WeakSet of Leaf
        What operations that are put off have yet to read, besides the arrays' blocks.
    nbytes : int
        Of what they read; 0 if they never have.
    """

    __slots__ = (
        "_most",
        "arrays",
        "grain",
        "is_out",
        "leaves",
        "link",
        "memory",
        "nbytes",
        "number",
        "writers",
    )

    def __init__(self, memory: Memory, link: Link | None = None) -> None:
        self.memory, self.link = memory, link
        self.arrays: list[ref[Any]] = []
        self.writers, self.grain, self._most = 0, 1, _FEW
        self.number, self.is_out = memory.made, False
        self.leaves: Any = ()
        self.nbytes = 0
        memory.made += 1
        memory.materializations.append(self)
        memory.newest.append(self)

    def enter(self, x: Base) -> None:
        """Note an array over the buffer."""
        self.arrays.append(ref(x))
        if len(self.arrays) > self._most:
            self.strike_off()

    def strike_off(self) -> None:
        """Forget the arrays that are gone."""
        arrays = self.arrays
        arrays[:] = [known for known in tuple(arrays) if known() is not None]
        self._most = 2 * len(arrays) + _FEW

    def refresh(self) -> None:
        """Bring the buffer up to date; collective if it is old."""
        newest = self.memory.newest
        if self in newest:
            return
        path = self._path_from(newest)
        for source, target in pairwise(path):
            if target in newest:
                continue
            refreshed(source, target)
            _copy(source, target)
            newest.append(target)
            if source.link is not None and source.link.storage.source is target:
                target._even_out()
        prune(self.memory)

    def _path_from(self, newest: "list[Materialization]") -> "list[Materialization]":
        """The materializations from one of the newest to this one, by links."""
        before: dict[int, Any] = {id(self): None}
        ahead = [self]
        for found in ahead:
            if found in newest:
                path = [found]
                while before[id(path[-1])] is not None:
                    path.append(before[id(path[-1])])
                return path
            for other in found.neighbours():
                if id(other) not in before:
                    before[id(other)] = found
                    ahead.append(other)
        raise AssertionError("a memory without its newest elements")

    def neighbours(self) -> "list[Materialization]":
        """The materializations that it is linked with."""
        found = [] if self.link is None else [self.link.storage.source]
        others = self.memory.materializations
        return found + [m for m in others if m.link is not None and m.link.storage.source is self]

    def written(self) -> None:
        """Note that an array over the buffer has been written to; collective if a block is out."""
        self.memory.newest[:] = [self]
        self._even_out()
        if self.memory.uses.pinned is not None:
            self.memory.uses.pinned.refresh()

    def _even_out(self) -> None:
        """Bring what a rank has written to the others that hold the same elements; collective."""
        link = self.link
        if link is not None and link.transfer.overlaps:
            above = link.storage.source
            _copy(self, above)
            _copy(above, self)
            self.memory.newest.append(above)


def _copy(source: Materialization, target: Materialization) -> None:
    """Copy what a materialization has to one that it is linked with; collective."""
    if target.link is not None and target.link.storage.source is source:
        target.link.transfer.down(target.link.origin, target.link.top)
    elif source.link is not None:
        source.link.transfer.up(source.link.top, source.link.origin)


class Storage:
    """An array's place in its memory: the buffers, and the view of them that the array is.

    The block of an array is in its own slot, and read without asking the storage. If it is not
    there, the storage has it: one of several materializations (`block`), or what stands for it
    while operations are put off (`late`). An :class:`~distarray.array.excerpts.Excerpt` is the
    storage of an array whose elements a rank has in a copy.

    Attributes
    ----------
    source : Materialization
        The buffers that its blocks are views of.
    parent : Storage or None
        Of the array that it is a view of.
    make : callable or None
        Makes the view of that array.
    block : array or None
        This rank's block, if the memory has several materializations; otherwise it is in the
        array's own slot.
    layout : Layout
    mesh : DeviceMesh
    kind : tuple of (tuple of int, dtype) or None
        Shape and data type of the first array over the buffers.
    late : Late or None
        What is in the place of the block while operations are put off that give it, or that have
        yet to read it; see :mod:`distarray.array.waiting`.
    base : DistArray or None
        The array that is a view of none, and that this one is a view of, as in NumPy. It lives as
        long as its views, which can be made anew of it.
    depth : int
        How many arrays of the same buffers it is below the first of them.
    """

    __slots__ = (
        "base",
        "block",
        "depth",
        "kind",
        "late",
        "layout",
        "make",
        "mesh",
        "parent",
        "source",
    )

    def __init__(
        self, source: Materialization, parent: "Storage | None", make: Maker | None
    ) -> None:
        self.source, self.parent, self.make = source, parent, make
        self.block: Any = None
        self.kind: Any = None
        self.late: Any = None
        self.base: Any = None
        self.depth: int = 0 if parent is None else parent.depth + 1

    def hold(self, x: Base) -> None:
        """Take the block out of an array's slot."""
        if self.block is None:
            kept = mirror_of(x)
            if kept is not None:
                kept.drop()
                x._mirror = None
            self.block, self.layout, self.mesh = x.block, x.layout, x.mesh
            _empty(x)

    @property
    def dtype(self) -> DType:
        """Data type of a block that is not in the array's own slot."""
        dtype: DType = (self.block if self.late is None else self.late.kept).dtype
        return dtype

    def block_of(self, x: Base) -> Any:
        """The block of an array that is not in its slot; collective if it is old."""
        late = self.late
        if late is not None:
            return late.block_of(x)
        return _block_slot.__get__(x) if self.block is None else self.read()

    def read(self) -> Array:
        """This rank's block with the newest elements; collective if they are elsewhere."""
        self.source.memory.uses.agree(self.source.memory, self.mesh.group)
        self.source.refresh()
        block: Array = self.block
        if self.source.writers or not isinstance(block, np.ndarray):
            return block
        view = block[...]
        view.flags.writeable = False
        return view

    def bare(self) -> Any:
        """An array of the block as it is, which is not known to share memory."""
        found = _new(Base.plain_type)
        found.block, found.layout, found.mesh = self.block, self.layout, self.mesh
        return found


def is_shared(x: Base) -> bool:
    """Whether the memory of an array has several materializations."""
    storage = storage_of(x)
    return storage is not None and storage.block is not None


def entered(x: Base, late: Any = None) -> Storage:
    """The storage of an array, which is made if it has none yet.

    `late` is what is then in the place of a block, if there is none.
    """
    storage: Any = storage_of(x)
    if storage is not None and storage.source is None:
        x.layout  # noqa: B018 (an excerpt becomes a view)
        storage = storage_of(x)
    found: Storage | None = storage
    if found is None:
        found = x._storage = Storage(Materialization(Memory()), None, None)
        found.late = late
        found.kind = x.layout.shape, x.dtype
        found.source.enter(x)
    return found
