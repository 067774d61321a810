"""Memory that arrays share: a property of the global array, as in NumPy.

The blocks of an array and of its views are NumPy views of one buffer on each rank. These buffers
are a :class:`Materialization` of a :class:`Memory`. Most views need nothing else. But NumPy also
makes a view where no cut of the buffer suits both arrays, for example a reshape with a row that is
on two ranks. There are two solutions:

* *Recutting.* The block boundaries of the base move to the ends of rows, which sends less than a
  row to a neighbor. The base and all its views follow (:mod:`~distarray.array.recutting`). No
  further work is needed.
* *A second materialization.* The result has a buffer of its own, and a :class:`Link` to the array
  that it was made from. A memory knows which of its materializations have its newest elements. An
  array over a stale materialization is brought up to date when its block is read, by one exchange.
  Writing to an array makes the other materializations stale.

All decisions follow from calls that all ranks make. So no decision costs a message by itself.

If a memory has several materializations, the blocks of its arrays are not in the arrays' slots.
They are read by :meth:`Storage.read`, as read-only views, or written to within
:func:`~distarray.array.sharing.writing`. A function that writes outside this context raises NumPy's
ValueError.
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
#: Number of dropped arrays after which their weak references are removed.
_FEW = 16

#: Function that makes a view of an array. After a change of the cut it is called again, with
#: another array of the same shape. It returns None if that array cannot be viewed so.
Maker = Callable[[Any], Any]


class Transfer(Protocol):
    """Copies of elements between two arrays that hold the same in different cuts; collective.

    Attributes
    ----------
    overlaps : bool
        True if several ranks hold the same elements of the second array. Writes of one rank are
        then sent to the others at once, after the method ``note`` was told of them.
    """

    overlaps: bool

    def down(self, source: Base, target: Base) -> None:
        """Copy all elements of the first array to the second, which was made from it."""

    def up(self, source: Base, target: Base) -> None:
        """Copy all elements of the second array, the first argument, back."""


class Memory:
    """Elements that some arrays share.

    Attributes
    ----------
    materializations : list of Materialization
        All materializations, in the order in which they were made.
    newest : list of Materialization
        The materializations with the newest elements; the last one written to comes first.
    uses : Uses
        Exposed blocks and counts of writes.
    made : int
        Number of materializations made so far.
    copies : list of Copy
        Gathered copies that libraries may have; see :mod:`~distarray.array.stale_copies`.
    """

    __slots__ = ("copies", "made", "materializations", "newest", "uses")

    def __init__(self) -> None:
        self.materializations: list[Materialization] = []
        self.newest: list[Materialization] = []
        self.made = 0
        self.uses = Uses()
        self.copies: list[Any] = []

    def give_out(self, source: "Materialization") -> None:
        """Let the program write to an up-to-date materialization until :meth:`take_back`.

        Only one materialization is writeable at a time: access to another one ends.
        """
        self.newest[:] = [source]
        self.uses.pinned = source

    def take_back(self, source: "Materialization") -> None:
        """End the program's write access to a materialization that :meth:`give_out` granted."""
        if self.uses.pinned is source:
            self.uses.pinned = self.uses.lasting
            if self.uses.pinned is not None:
                self.uses.pinned.refresh()


class Link:
    """Link from a materialization to the array of another one that it was made from.

    Attributes
    ----------
    storage : Storage
        The storage of the array that it was made from.
    origin : DistArray
        An array over the block of that array. The library can write to `origin` and `top` whatever
        the program does with its own arrays.
    top : DistArray
        An array of all elements of the materialization.
    transfer : Transfer
        Copies elements between the two.
    make : callable
        Makes the same view of a replicated array; see :mod:`distarray.array.geometry`.
    """

    __slots__ = ("make", "origin", "storage", "top", "transfer")

    def __init__(self, storage: "Storage", top: Base, transfer: Transfer, make: Maker) -> None:
        self.storage, self.transfer, self.make = storage, transfer, make
        self.origin, self.top = _twin(storage.bare()), _twin(top)


def _twin(x: Base) -> Any:
    """Return another array over the same block, without storage and so not marked as shared."""
    found = _new(Base.plain_type)
    found.block = block = x.block[...]
    if not is_writeable(block):
        with suppress(ValueError):  # the program may set the flag later, too
            block.flags.writeable = True
    found.layout, found.mesh = x.layout, x.mesh
    return found


def is_writeable(block: Array) -> bool:
    """Return True if the program may write to a block; always True on a device."""
    return bool(getattr(block.flags, "writeable", True))


class Materialization:
    """Buffer on each rank with all or some elements of a memory.

    Attributes
    ----------
    memory : Memory
        The memory that the buffer belongs to.
    link : Link or None
        The link to its origin; None for the first materialization of the memory.
    arrays : list
        Weak references to the arrays over it; some may be dead.
    grain : int
        Number of elements that divides every boundary between ranks, after a recut to the ends of
        rows; else 1.
    writers : int
        Number of running functions that may write to it, also through views that they make.
    number : int
        Its number within the memory, the same on all ranks.
    is_out : bool
        True if this rank's block is exposed to the program.
    leaves : WeakSet of Leaf
        Pending inputs of deferred operations, in addition to the arrays' blocks.
    nbytes : int
        Bytes that these operations read; 0 if there never were any.
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
        """Register an array over the buffer."""
        self.arrays.append(ref(x))
        if len(self.arrays) > self._most:
            self.strike_off()

    def strike_off(self) -> None:
        """Remove references to dead arrays."""
        arrays = self.arrays
        arrays[:] = [known for known in tuple(arrays) if known() is not None]
        self._most = 2 * len(arrays) + _FEW

    def refresh(self) -> None:
        """Bring the buffer up to date; collective if it is stale."""
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
        """Return the path of links from one of the newest materializations to this one."""
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
        """Return the materializations that this one is linked with."""
        found = [] if self.link is None else [self.link.storage.source]
        others = self.memory.materializations
        return found + [m for m in others if m.link is not None and m.link.storage.source is self]

    def written(self) -> None:
        """Note a write to an array over the buffer; collective if a block is exposed."""
        self.memory.newest[:] = [self]
        self._even_out()
        if self.memory.uses.pinned is not None:
            self.memory.uses.pinned.refresh()

    def _even_out(self) -> None:
        """Send the writes of a rank to other ranks that hold the same elements; collective."""
        link = self.link
        if link is not None and link.transfer.overlaps:
            above = link.storage.source
            _copy(self, above)
            _copy(above, self)
            self.memory.newest.append(above)


def _copy(source: Materialization, target: Materialization) -> None:
    """Copy the elements of a materialization to one that it is linked with; collective."""
    if target.link is not None and target.link.storage.source is source:
        target.link.transfer.down(target.link.origin, target.link.top)
    elif source.link is not None:
        source.link.transfer.up(source.link.top, source.link.origin)


class Storage:
    """Place of an array in its memory: the buffers, and the view of them that the array is.

    Usually the block of an array is in the array's own slot, and is read without the storage.
    Otherwise the storage has the block: either one of several materializations (`block`), or a
    placeholder while operations are deferred (`late`). An
    :class:`~distarray.array.excerpts.Excerpt` is the storage of an array whose elements are cached
    on every rank.

    Attributes
    ----------
    source : Materialization
        The buffers that its blocks are views of.
    parent : Storage or None
        The storage of the array that it is a view of.
    make : callable or None
        Makes the view of that array.
    block : array or None
        This rank's block, if the memory has several materializations; otherwise the block is in the
        array's own slot.
    layout : Layout
        The layout of the array, if `block` is set.
    mesh : DeviceMesh
        The mesh of the array, if `block` is set.
    kind : tuple of (tuple of int, dtype) or None
        Shape and data type of the first array over the buffers.
    late : Late or None
        The placeholder for the block while deferred operations have yet to compute or to read it;
        see :mod:`distarray.array.waiting`.
    base : DistArray or None
        As in NumPy, the array at the root of the chain of views; None for an array that is no view.
        The reference keeps the base alive as long as its views, since they may be made again from
        it.
    depth : int
        Number of views between the first array of the buffers and this one.
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
        """Move the block from an array's slot to its storage."""
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
        """Return the block of an array whose slot is empty; collective if the block is stale."""
        late = self.late
        if late is not None:
            return late.block_of(x)
        return _block_slot.__get__(x) if self.block is None else self.read()

    def read(self) -> Array:
        """Return this rank's block with the newest elements; collective if they are elsewhere."""
        self.source.memory.uses.agree(self.source.memory, self.mesh.group)
        self.source.refresh()
        block: Array = self.block
        if self.source.writers or not isinstance(block, np.ndarray):
            return block
        view = block[...]
        view.flags.writeable = False
        return view

    def bare(self) -> Any:
        """Return an array over the current block, without storage and so not marked as shared."""
        found = _new(Base.plain_type)
        found.block, found.layout, found.mesh = self.block, self.layout, self.mesh
        return found


def is_shared(x: Base) -> bool:
    """Return True if the memory of an array has several materializations."""
    storage = storage_of(x)
    return storage is not None and storage.block is not None


def entered(x: Base, late: Any = None) -> Storage:
    """Return the storage of an array; create it if there is none yet.

    `late` is then the placeholder for the block, if there is no block yet.
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
