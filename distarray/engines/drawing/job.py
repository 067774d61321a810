"""Call of a random method, of which each rank draws a part with NumPy's method and state."""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from distarray.comm import Group
from distarray.comm.agree import agree
from distarray.engines.drawing.methods import Row
from distarray.engines.drawing.places import Source, State, Walker, copied, put, state_of
from distarray.errors import DivergenceError
from distarray.typing import Array, Shape

__all__ = ["Job", "Request", "Share", "compare", "fingerprint", "raise_alike", "same_places"]


class Share(NamedTuple):
    """Division of the elements, in C order, among the ranks of a group.

    Attributes
    ----------
    group : Group or None
        The ranks that share the elements; None for a rank outside of the mesh.
    bounds : list of (int, int)
        For each rank, its first element, and the element after its last one.
    active : list of int
        The ranks that have at least one element.
    """

    group: Group | None
    bounds: list[tuple[int, int]]
    active: list[int]

    @property
    def own(self) -> tuple[int, int]:
        """The elements of this rank."""
        return (0, 0) if self.group is None else self.bounds[self.group.rank]

    @property
    def total(self) -> int:
        """The number of elements."""
        return self.bounds[-1][1]


class Request(NamedTuple):
    """Parsed call of a method.

    Attributes
    ----------
    source : Generator or RandomState
        The NumPy generator, in its state before the call.
    name : str
        The name of the method.
    row : Row
        The table's row: how the method takes words from the stream.
    values : sequence
        The parameters: scalars, NumPy arrays, distributed arrays. In a job, only this rank's part.
    others : dict
        Other keywords of NumPy's method, without `size` and `out`.
    lanes, tail : tuple of int
        The shape of all elements, and of one element.
    dtype : dtype
        The data type of the numbers.
    """

    source: Source
    name: str
    row: Row
    values: Sequence[Any]
    others: dict[str, Any]
    lanes: Shape
    tail: Shape
    dtype: Any

    def at_once(self, values: Sequence[Any], size: Shape | None) -> Any:
        """Call NumPy's method for all elements."""
        return getattr(self.source, self.name)(*values, size=size, **self.others)


class Job:
    """This rank's part of a call.

    Parameters
    ----------
    call : Request
        The call, with the parameters of this rank's part.
    varies : bool
        True if a parameter is an array, so that elements differ.
    """

    def __init__(self, call: Request, varies: bool) -> None:
        source = self.source = call.source
        self.name, self.row = call.name, call.row
        self.values, self.others = call.values, call.others
        self.tail, self.dtype = call.tail, call.dtype
        self.twin = copied(source)
        self.walker = None if self.twin is None else Walker(self.twin)
        self.start: State = state_of(source)
        self.varies = varies

    @property
    def width(self) -> int:
        """The number of numbers in one element."""
        return prod(self.tail)

    def empty(self, lanes: Shape) -> Array:
        """Allocate an array for elements of shape `lanes`."""
        return np.empty((*lanes, *self.tail), self.dtype)

    def method(self, source: Source | None = None) -> Callable[..., Any]:
        """Return NumPy's method of this job's generator, or of another one."""
        found: Callable[..., Any] = getattr(self.source if source is None else source, self.name)
        return found

    def draw(self, size: Any, source: Source | None = None) -> Array:
        """Draw the next elements."""
        drawn: Array = self.method(source)(*self.values, size=size, **self.others)
        return drawn

    def draw_standing_in(self, size: int, source: Source | None = None) -> Array:
        """Draw the next elements with substitute parameters that take the same words."""
        drawn: Array = self.method(source)(*(self.row.steady or ()), size=size, **self.others)
        return drawn

    def fill(self, target: Array) -> None:
        """Draw the next elements into an array, in pieces that fit into a cache."""
        if self.row.out:
            if target.size:
                self.method()(*self.values, out=target, **self.others)
            return
        step = max(1, _PIECE // max(1, self.width))
        for first in range(0, len(target), step):
            part = target[first : first + step]
            part[...] = self.draw(len(part))

    def draw_with_room(self, count: int, room: int) -> Array:
        """Draw the next elements into the beginning of an array with room for more.

        Many elements are drawn by one call, whose array is then resized: they are not copied.
        """
        if self.row.out or count * self.width < _PIECE:
            line = self.empty((room,))
            self.fill(line[:count])
            return line
        line = self.draw(count)
        line.resize((room, *self.tail), refcheck=False)
        return line

    def reset(self) -> None:
        """Reset the generator to its state before the call."""
        put(self.source, self.start)


#: Numbers that are drawn at once, to be copied from a cache.
_PIECE = 1 << 15


def fingerprint(state: State) -> int:
    """Return a checksum of a state."""
    return crc32(repr(_plain(state)).encode())


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return [(name, _plain(item)) for name, item in sorted(value.items())]
    return value.tolist() if isinstance(value, np.ndarray) else value


def raise_alike(group: Group | None, job: Job, error: Exception | None) -> None:
    """Raise a NumPy error on all ranks of a group, if any rank has an error.

    All ranks then reset their generators.
    """
    try:
        if job.varies and group is not None:
            agree(group, error)
        elif error is not None:
            raise error
    except Exception:
        job.reset()
        raise


def same_places(group: Group, job: Job) -> None:
    """Raise on every rank of a group if their generators' initial states differ."""
    if group.size > 1:
        compare(group.allgather_object(fingerprint(job.start), "places"), job)


def compare(marks: Sequence[int], job: Job) -> None:
    """Raise if the fingerprints of the ranks' states differ."""
    if len(set(marks)) > 1:
        groups = [f"rank {rank}: {mark:08x}" for rank, mark in enumerate(marks)]
        raise DivergenceError(
            f"the generators of the ranks stand at different places before {job.name}; seed them "
            f"alike on all ranks ({', '.join(groups[:8])})"
        )
