"""Replicated read caches of cut arrays, for loops that read and write single elements and rows.

Element by element, each read of a cut array would cost a message. After a few such reads the ranks
gather the whole array once. That replica, the mirror, serves further reads until another call
writes to a cut array. The loop's own assignments go to the mirror as well as to the block.

All ranks decide alike. No message is needed to check whether a mirror is still valid:

- `ladder.passed` counts the calls that may have written to any cut array, and each such call
  invalidates all mirrors. Assignments through a mirror do not count. They cannot change elements of
  another mirror: before an array is fetched, the ranks agree that no array with a mirror shares its
  memory.
- Exposing a block (`to_local`, DLPack) invalidates all mirrors, too. But a single rank may do this
  without the other ranks' knowledge. Therefore no mirrors are made if the program's code contains a
  name that exposes blocks.
- No decision depends on state that may differ between ranks. Reference counts only matter where the
  ranks agree on the outcome, and the time when an object is freed makes no difference.
"""

import operator
from threading import local
from typing import Any
from weakref import ref

import numpy as np

from distarray.array import stale_copies
from distarray.array.base import Base, mirror_of, storage_of
from distarray.array.excerpts import NUMBERS, excerpt, given, is_of
from distarray.array.floaterrors import error_state
from distarray.array.handed_out import names_blocks
from distarray.array.ladder import passed, usual
from distarray.array.leaves import beside, memory_of
from distarray.array.memory import is_shared
from distarray.array.mirrors import KINDS, SMALL, Mirror, is_plain, is_writeable, write_through
from distarray.array.sharing import derived
from distarray.comm.user_lines import warn_program
from distarray.config import in_force
from distarray.errors import PerformanceWarning
from distarray.layout import Fold, Layout
from distarray.typing import ArrayLike, Key

__all__ = ["noted", "read", "write"]

#: An array is fetched after `FEW` accesses, plus one for each `PER` bytes of it.
FEW, PER = 9, 1 << 19
#: Weight of an access to a single element. A row has weight 1: it may be used where it is, without
#: a message.
ELEMENT = 3
#: Minimum number of accesses served: a mirror below it is fetched again only after more accesses.
WORTH = 8
#: Number of accesses to an array without a mirror after which a warning is given.
MANY = 2000
#: Maximum number of mirrors with elements.
MOST = 64


class _Kept(local):
    """Mirrors of a rank (a process or a thread).

    Attributes
    ----------
    mirrors : list of (reference to Mirror, int)
        Mirrors with elements, and their bytes, the oldest first. Mirrors of arrays that have been
        freed stay in the list, as other ranks may free theirs later.
    """

    def __init__(self) -> None:
        self.mirrors: list[tuple[ref[Mirror], int]] = []


_kept = _Kept()


# -- reading and writing -------------------------------------------------------------------------


def read(x: Base, key: Key) -> Any:
    """Read the elements that a basic key selects of a cut array from its mirror.

    Return NotImplemented if the array has no valid mirror.

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
    Equal to that of :func:`read`.
    """
    mirror: Any = mirror_of(x)
    if mirror is None or not is_plain(key):
        return False
    block: Any = value if type(value) in NUMBERS else given(value, x)
    if block is None or not _usable(mirror, x):
        return False
    if isinstance(value, Base) and is_of(value, mirror, key):
        return True  # the last step of `x[key] += y`
    if not is_writeable(x):
        return False
    if passed.watched:
        stale_copies.tell(x)
    write_through(mirror, x, key, operator.setitem, mirror.elements, key, block)
    return True


# -- fetching ------------------------------------------------------------------------------------


def noted(x: Base, part: Layout) -> None:
    """Count an access to a section of a cut array if the section is small and at one coordinate."""
    if not part.ats or x.layout.ats or part.size * x.dtype.itemsize > SMALL or is_shared(x):
        return
    mirror = mirror_of(x)
    if mirror is None or mirror.layout is not x.layout:
        if not _can_be_kept(x):
            return
        mirror = x._mirror = Mirror(x, _first(x.layout.size * x.dtype.itemsize))
    mirror.slow += 1 if part.shape else ELEMENT
    mirror.total += 1
    if mirror.total == MANY:
        _tell()


def _can_be_kept(x: Base) -> bool:
    layout, mesh = x.layout, x.mesh
    return (
        layout.is_plain
        and x.dtype.kind in KINDS
        and x.dtype.isnative
        and mesh.size() > 1
        and mesh.device_type == "cpu"
        and mesh.coords is not None
    )


def _usable(mirror: Mirror, x: Base) -> bool:
    """Return True if the mirror has valid elements; fetch them first if it is time for that."""
    if error_state() is not usual[0] and not mirror.is_free:
        return False
    if mirror.layout is not x.layout:
        return False
    now = passed.__dict__  # of this thread; access is faster than by `passed`
    if mirror.seen == now["number"] - now["harmless"]:  # no block was exposed either
        return True
    return mirror.slow >= mirror.needed and _fetched(mirror, x)


def _fetched(mirror: Mirror, x: Base) -> bool:
    """Fetch the elements if all ranks may cache them; return True if that was done."""
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
            storage.base = None  # otherwise the array and its mirror would never be freed
    mirror.elements = x.full()
    mirror.seen = passed.number - passed.harmless
    _keep(mirror, nbytes, limit)
    return True


def _first(nbytes: int) -> int:
    """Return the number of accesses after which an array of this size is fetched."""
    return FEW + nbytes // PER


def _keep(mirror: Mirror, nbytes: int, limit: int) -> None:
    """Register a mirror that has just been fetched, and drop the oldest ones beyond the limits."""
    mirrors = _kept.mirrors
    mirrors[:] = [pair for pair in mirrors if pair[0]() is not mirror]
    mirrors.append((ref(mirror), nbytes))
    while len(mirrors) > MOST or sum([size for _, size in mirrors]) > limit:
        oldest = mirrors.pop(0)[0]()
        if oldest is not None:
            oldest.drop()


def _agreed(x: Base) -> bool:
    """Return True if, on all ranks, only known arrays can write to this array's memory.

    Cost
    ----
    One allreduce of an integer.
    """
    x.block  # noqa: B018 (runs the operations that compute or read it)
    vote = np.array(int(not names_blocks() and _is_alone(x)))
    return bool(x.mesh.group.allreduce(vote, Fold.MIN, "whether to keep an array"))


def _is_alone(x: Base) -> bool:
    if memory_of(x) is None:
        return False
    others = [mirror_of(other) for other in beside(x) if other is not x]
    return all(other is None or other.origin is None for other in others)


def _tell() -> None:
    """Warn, at the program's line, of a loop that keeps sending messages."""
    warn_program(
        f"elements or rows of one cut array have been read or written {MANY} times, each time by "
        "messages or a look at where they are, and lastly by this line. Read many at once (a "
        "slice, x.full()), work on whole arrays, or make the array whole "
        "(x.redistribute(placements=Replicate())); arrays of up to half of config.keep bytes are "
        "fetched and kept if nothing else of the loop writes to cut arrays, and the program's code "
        "does not ask for blocks",
        PerformanceWarning,
    )
