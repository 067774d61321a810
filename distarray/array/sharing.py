"""Views and aliases of arrays: the memory that they share, and write access to it."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from distarray.array import stale_copies, temporaries
from distarray.array import storage as memory_order
from distarray.array.ancestry import shorten
from distarray.array.base import Base, natural_of, operands_in, storage_of
from distarray.array.blocks_out import live_arrays, unshare
from distarray.array.leaves import is_perhaps_out
from distarray.array.memory import (
    Link,
    Maker,
    Materialization,
    Storage,
    Transfer,
    entered,
    is_shared,
    is_writeable,
)
from distarray.array.passed import passed
from distarray.array.speedups import used

__all__ = ["ancestor", "begun", "derived", "link", "noted", "to_be_written", "writing"]

_new = object.__new__
#: Depths at which a chain of views of views is checked for removable views.
_DEEP = frozenset([1 << power for power in range(6, 32)])
_Array = TypeVar("_Array", bound=Base)


def derived(x: _Array, make: Callable[[_Array], Any]) -> _Array:
    """Make a view of an array by a function of it, and register the view.

    Parameters
    ----------
    x : DistArray
        The array.
    make : callable
        Takes the array, or one of the same shape in another cut, and returns the view. It writes to
        no array and does not communicate.
    """
    view: _Array
    layout = x.layout
    if layout.is_whole and layout.size < temporaries.LARGE:
        view = make(x)
        return view
    storage = storage_of(x) or entered(x)
    if storage.late is not None or storage.block is not None:
        return cast("_Array", _of_block(x, storage, make))
    view = make(x)
    known = storage_of(view)
    if view is not x and (known is None or known.source is not storage.source):
        _enter(x, view, make)
    return view


def _of_block(x: Base, storage: Storage, make: Maker) -> Any:
    """Make a view as :func:`derived`, of an array whose block is not in its slot."""
    late = storage.late
    bare = storage.bare() if late is None else late.bare(x)
    if bare is None:
        x.block  # noqa: B018 (runs the operation that computes it)
        return derived(x, make)
    view = make(bare)
    if view is bare:
        return x
    own = _enter(x, view, make)
    if late is None:
        own.hold(view)
    else:
        late.share(x, view)
    return view


def _enter(x: Base, view: Base, make: Maker) -> Storage:
    """Register a view of an array, and copy the array's properties that hold for the view."""
    own = _noted(x, view, make)
    if own.depth in _DEEP:
        shorten(view)
    if natural_of(x) is False:
        view._natural = False
    return own


def _of_view(x: Base, view: Base, make: Maker | None) -> Storage:
    """Register a view of an array."""
    above = x._storage
    own: Storage = _new(Storage)  # skips __init__, which takes longer
    own.source, own.parent, own.make = above.source, above, make
    own.block = own.kind = own.late = None
    own.base = x if above.base is None else above.base
    own.depth = above.depth + 1
    view._storage = own
    above.source.enter(view)
    return own


def _quickest() -> Callable[[Base, Base, Maker | None], Storage]:
    """Return :func:`_of_view`, in C if it was compiled: every slice of a cut array calls it."""
    if not hasattr(used, "noting"):
        return _of_view
    slots = {name: vars(kind)[name] for kind, names in _SLOTS.items() for name in names}
    quick: Callable[[Base, Base, Maker | None], Storage] = used.noting(slots)
    return quick


_SLOTS = {
    Base: ("_storage",),
    Storage: ("source", "parent", "make", "block", "kind", "late", "base", "depth"),
    Materialization: ("arrays", "_most"),
}
_noted = _quickest()


def noted(x: Base, view: Base, make: Maker | None) -> None:
    """Register a view that has already been made, as :func:`derived` does."""
    entered(x)
    _noted(x, view, make)


def begun(x: Base) -> None:
    """Prepare the memory of an array for one more materialization; collective."""
    source = entered(x).source
    source.is_out = is_perhaps_out(source)
    source.memory.uses.begin(source, x.mesh.group)


def link(x: Base, top: Base, transfer: Transfer, make: Maker) -> None:
    """Make an array with a buffer of its own share the memory of another array.

    Parameters
    ----------
    x : DistArray
        The cut array whose memory is shared, without pending folds.
    top : DistArray
        The new array, with the elements of `x` in another shape or cut.
    transfer : Transfer
        Copies elements between the two.
    make : callable
        Makes the same view of a replicated array.
    """
    storage = entered(x)
    memory = storage.source.memory
    if not memory.uses.begun:
        begun(x)
    for source in list(memory.materializations):
        for y in live_arrays(source):
            y._storage.hold(y)
    storage.hold(x)
    memory.uses.begun = False
    made = Materialization(memory, Link(storage, top, transfer, make))
    own = top._storage = Storage(made, None, None)
    own.kind = top.layout.shape, top.dtype  # needed if the other materializations are dropped
    own.base = x if storage.base is None else storage.base
    made.enter(top)
    own.hold(top)
    if not is_writeable(storage.block):
        own.block = own.block[...]  # a view: the program may allow writes to the alias again
        own.block.flags.writeable = False


def ancestor(x: Base) -> Any:
    """Return the live array nearest to the root of the chain of views of `x`, or `x` itself."""
    storage = entered(x)
    living = {id(y._storage): y for y in live_arrays(storage.source)}
    found, above = x, storage.parent
    while above is not None:
        found, above = living.get(id(above), found), above.parent
    return found


def to_be_written(values: Iterable[Any]) -> list[Base]:
    """Return the arrays among arguments that must only be written to within :func:`writing`."""
    watched = passed.watched
    return [x for x in operands_in(values) if watched or is_shared(x)]


def _note(x: Base, storage: Storage, whole: bool) -> None:
    link = storage.source.link
    if link is not None and link.transfer.overlaps:
        place = memory_order.in_whole(x)
        strides = storage.block.strides if place is None else place.strides
        transfer: Any = link.transfer
        transfer.note(x, storage.block, strides, whole)


@contextmanager
def writing(*arrays: Any, whole: bool = False) -> Iterator[None]:
    """Allow writes to arrays in a context; afterwards their materialization is the newest.

    `whole` says that all elements are written, as far as the caller knows.
    """
    if passed.watched:
        stale_copies.tell(*arrays)
    shared = [x for x in arrays if isinstance(x, Base) and is_shared(x)]
    found = [x for x in shared if is_writeable(x._storage.block)]
    opened: list[Storage] = []
    try:
        for x in found:
            storage = x._storage
            storage.read()
            opened.append(storage)
            storage.source.writers += 1
            storage.source.memory.uses.opened += 1
        yield
    finally:
        for storage in opened:
            storage.source.writers -= 1
            storage.source.memory.uses.opened -= 1
        for x, storage in zip(found, opened, strict=False):
            _note(x, storage, whole)
        for storage in opened:
            storage.source.written()
            unshare(storage)
