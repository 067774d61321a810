"""The last conversations of this process, each with the line of the program that led to it.

Whoever begins one with other processes calls :func:`note`, which has to cost next to nothing: what
it keeps is put into words only when somebody asks, which is when ranks wait for one another.
"""

import sys
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from distarray.comm.user_lines import called, known, passage, place, said

if TYPE_CHECKING:
    from distarray.comm.mpi import MPIGroup

__all__ = ["KEPT", "Call", "latest", "moves", "note", "recent", "waiting"]

#: Conversations that are kept; a power of two.
KEPT = 64

_MASK = KEPT - 1
_getframe = sys._getframe
_ring: list[Any] = [None] * KEPT
_begun = 0
_waits = 0
_latest: Any = None
#: How many frames lie between the user's line and a conversation that a function of the house
#: begins: where to look first, since looking costs more than anything else here.
_depths: dict[int, int] = {}


class Call(NamedTuple):
    """One conversation.

    Attributes
    ----------
    group : MPIGroup
    number : int
        How many conversations of all its ranks the group has had, this one included.
    kind : str
        The method of the group.
    note : object
        What it was for.
    code, instruction : CodeType, int
        The user's line.
    function : CodeType
        What was called there.
    """

    group: "MPIGroup"
    number: int
    kind: str
    note: object
    code: CodeType
    instruction: int
    function: CodeType

    @property
    def where(self) -> str:
        """``file:line``."""
        return place(self.code, self.instruction)

    @property
    def name(self) -> str:
        """What the user has called, as the program has it."""
        text = said(self.code, self.instruction)
        return called(text) if text else self.function.co_qualname


def note(group: Any, kind: str, what: object, together: int = 1) -> None:
    """Keep a conversation that begins.

    Parameters
    ----------
    group : MPIGroup
    kind : str
        The method of the group.
    what : object
        What it is for; not an array, which it would keep alive.
    together : int
        1 for what all ranks of the group do, and count alike; otherwise 0.
    """
    global _begun, _latest
    caller = id(_getframe(2).f_code)
    try:
        inner = _getframe(_depths[caller])
        frame: Any = inner.f_back
        if known[frame.f_globals["__name__"]] or not known[inner.f_globals["__name__"]]:
            inner, frame = _entry(caller)  # it was called by another way this time
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
    """The outermost frame of the house, and the user's that has called it; remembers how far."""
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
    """Say that this process begins to wait for something that was begun before."""
    global _waits
    _waits += 1


def moves() -> int:
    """A number that changes whenever this process begins to talk or to wait."""
    return _begun + _waits


def latest() -> Any:
    """The conversation that was begun last."""
    return _latest


def recent(most: int = KEPT) -> list[Call]:
    """The last conversations, the oldest first."""
    found = [_ring[number % KEPT] for number in range(max(0, _begun - most), _begun)]
    return [Call(*entry) for entry in found if entry is not None]
