"""The last conversations of this process, each with the line of the program that led to it.

A conversation is a collective or an exchange of messages. Functions that begin one call
:func:`note`, which must cost next to nothing: its records become text only when ranks wait for one
another.
"""

import sys
from collections.abc import Hashable
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from distarray.comm.user_lines import called, expression, known, passage, place

if TYPE_CHECKING:
    from distarray.comm.mpi import MPIGroup

__all__ = ["KEPT", "Call", "latest", "moves", "note", "recent", "waiting"]

#: How many conversations are kept; a power of two.
KEPT = 64

_MASK = KEPT - 1
_getframe = sys._getframe
_ring: list[Any] = [None] * KEPT
_begun = 0
_waits = 0
_latest: Any = None
#: For each function that begins conversations, how many frames lay between it and the user's line
#: last time: that frame is tried first, since the search costs more than anything else here.
_depths: dict[int, int] = {}


class Numbered(Protocol):
    """A group of ranks, or another set of processes, that counts its conversations."""

    number: int


class Call(NamedTuple):
    """One conversation.

    Attributes
    ----------
    group : MPIGroup
    number : int
        How many conversations the whole group has had, this one included.
    kind : str
        The method of the group.
    note : str or other hashable
        What it was for.
    code, instruction : CodeType, int
        The user's line.
    function : CodeType
        What was called there.
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
        """``file:line``."""
        return place(self.code, self.instruction)

    @property
    def name(self) -> str:
        """The name of the user's call, in the program's words."""
        text = expression(self.code, self.instruction)
        return called(text) if text else self.function.co_qualname


def note(group: Numbered, kind: str, what: Hashable, together: int = 1) -> None:
    """Keep a conversation that begins.

    Parameters
    ----------
    group : MPIGroup
        Or another set of processes that has a `number`.
    kind : str
        The method of the group.
    what : str or other hashable
        What it is for; never an array, which would be kept alive.
    together : int
        1 for a conversation of the whole group, which every rank counts; otherwise 0.
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
    """The library's outermost frame and the user's frame that called it."""
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
    """Note that this process begins to wait for a conversation begun earlier."""
    global _waits
    _waits += 1


def moves() -> int:
    """A number that changes whenever this process begins a conversation or a wait."""
    return _begun + _waits


def latest() -> Any:
    """The conversation that was begun last."""
    return _latest


def recent(most: int = KEPT) -> list[Call]:
    """The last conversations, the oldest first."""
    found = [_ring[number % KEPT] for number in range(max(0, _begun - most), _begun)]
    return [Call(*entry) for entry in found if entry is not None]
