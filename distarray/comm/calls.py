"""Last communication calls of this process, each with the line of the program that caused it.

A communication call is a collective or an exchange of messages. Functions that begin one call
:func:`note`, which must cost next to nothing: its records become text only when ranks wait for each
other.
"""

import sys
from collections.abc import Hashable
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from distarray.comm.user_lines import called, expression, known, passage, place

if TYPE_CHECKING:
    from distarray.comm.mpi import MPIGroup

__all__ = ["KEPT", "Call", "latest", "moves", "note", "recent", "waiting"]

#: Number of communication calls that are kept; a power of two.
KEPT = 64

_MASK = KEPT - 1
_getframe = sys._getframe
_ring: list[Any] = [None] * KEPT
_begun = 0
_waits = 0
_latest: Any = None
#: For each function that begins communication calls: the number of frames between that function and
#: the user's line at the last call. That frame is tried first, because the search costs more than
#: all other work here.
_depths: dict[int, int] = {}


class Numbered(Protocol):
    """Group of ranks, or another set of processes, that counts its communication calls."""

    number: int


class Call(NamedTuple):
    """One communication call.

    Attributes
    ----------
    group : MPIGroup
    number : int
        Number of communication calls of the whole group so far, including this call.
    kind : str
        The method of the group.
    note : str or other hashable
        Purpose of the call.
    code, instruction : CodeType, int
        Code object and instruction of the user's line.
    function : CodeType
        Code of the function that the user's line called.
    """

    group: "MPIGroup"
    number: int
    kind: str
    note: Hashable
    code: CodeType
    instruction: int
    function: CodeType

    @property
    def where(self) -> str:
        """The user's line as ``file:line``."""
        return place(self.code, self.instruction)

    @property
    def name(self) -> str:
        """Name of the function that the user called, as the program writes it."""
        text = expression(self.code, self.instruction)
        return called(text) if text else self.function.co_qualname


def note(group: Numbered, kind: str, what: Hashable, together: int = 1) -> None:
    """Record a communication call that begins.

    Parameters
    ----------
    group : MPIGroup
        A group, or another set of processes that has a `number`.
    kind : str
        The method of the group.
    what : str or other hashable
        Purpose of the call; never an array, which the record would keep alive.
    together : int
        1 for a call of the whole group, which every rank counts; otherwise 0.
    """
    global _begun, _latest
    caller = id(_getframe(2).f_code)
    try:
        inner = _getframe(_depths[caller])
        frame: Any = inner.f_back
        if known[frame.f_globals["__name__"]] or not known[inner.f_globals["__name__"]]:
            inner, frame = _entry(caller)  # reached by another path this time
    except (AttributeError, KeyError, ValueError):
        inner, frame = _entry(caller)
    number = group.number = group.number + together
    _latest = _ring[_begun & _MASK] = (
        group,
        number,
        kind,
        what,
        frame.f_code,
        frame.f_lasti,
        inner.f_code,
    )
    _begun += 1


def _entry(caller: int) -> tuple[FrameType, FrameType]:
    """Return the library's outermost frame and the user's frame that called it."""
    inner, depth = _getframe(2), 1
    frame = inner.f_back
    while frame is not None:
        name = frame.f_globals.get("__name__")
        if not (known[name] if name in known else passage(name)):
            _depths[caller] = depth
            return inner, frame
        inner, frame, depth = frame, frame.f_back, depth + 1
    return inner, inner


def waiting() -> None:
    """Record that this process begins to wait for an earlier communication call."""
    global _waits
    _waits += 1


def moves() -> int:
    """Return a counter that changes when a communication call or a wait of this process begins."""
    return _begun + _waits


def latest() -> Any:
    """Return the communication call that was begun last."""
    return _latest


def recent(most: int = KEPT) -> list[Call]:
    """Return the last communication calls, the oldest first."""
    found = [_ring[number % KEPT] for number in range(max(0, _begun - most), _begun)]
    return [Call(*entry) for entry in found if entry is not None]
