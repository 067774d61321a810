"""Measurements of one rank: plain values, which can be pickled and sent to rank 0."""

from dataclasses import dataclass, field
from typing import NamedTuple

from distarray.layout import Layout
from distarray.plan import Route

__all__ = ["Line", "Moves", "Part", "Seen", "Totals"]

#: Maximum number of distinct purposes kept for one line; the rest are counted together.
MOST_NOTES = 24


class Line(NamedTuple):
    """Statement of the program: its file and first line."""

    path: str
    number: int


@dataclass(slots=True)
class Totals:
    """Totals of one rank at one line.

    Attributes
    ----------
    calls : int
        Number of times the line was begun; 0 if its seconds are sampled.
    computing, talking : float
        Seconds outside of communication with other ranks, and in communication.
    out, into : int
        Bytes sent and received.
    messages_out, messages_in : int
        Messages sent and received; a collective counts as one of each.
    collectives, collective_out : int
        Messages and bytes sent in collectives; also included in the totals above.
    gathers, gathered : int
        Number of times an array became whole on every rank, and bytes of this rank's parts, each
        counted once.
    temporary : int
        Maximum memory in bytes that one run of the line took beyond the memory before it.
    peak : int
        Maximum memory of the process in bytes, as seen after the line ran.
    notes : dict
        Number of communication calls, and bytes received in them, by purpose.
    runs : set
        Lines whose deferred operations ran here.
    matched, waited : float
        Of the communication calls that are compared between ranks: their seconds, and the seconds
        before the last rank arrived. Set by the analysis.
    """

    calls: int = 0
    computing: float = 0.0
    talking: float = 0.0
    out: int = 0
    into: int = 0
    messages_out: int = 0
    messages_in: int = 0
    collectives: int = 0
    collective_out: int = 0
    gathers: int = 0
    gathered: int = 0
    temporary: int = 0
    peak: int = 0
    notes: dict[str, list[int]] = field(default_factory=dict)
    runs: set[Line] = field(default_factory=set)
    matched: float = 0.0
    waited: float = 0.0

    @property
    def seconds(self) -> float:
        """All seconds spent at the line itself."""
        return self.computing + self.talking

    def note(self, text: str, nbytes: int) -> None:
        """Count a communication call of some purpose."""
        if text not in self.notes and len(self.notes) >= MOST_NOTES:
            text = "others"
        entry = self.notes.setdefault(text, [0, 0])
        entry[0] += 1
        entry[1] += nbytes


class Seen(NamedTuple):
    """Array that was bound to a name of the program at the end."""

    name: str
    dtype: str
    nbytes: int
    layout: Layout


@dataclass(slots=True)
class Moves:
    """Number of moves of arrays from one layout to another, and the line of the first move."""

    line: Line
    count: int = 0


@dataclass
class Part:
    """Part of a profile that one rank measured.

    Attributes
    ----------
    rank, size : int
        In the world of the measured ranks.
    counted : bool
        True if every line was followed; False if the seconds of lines are sampled.
    begun, seconds, offset : float
        Start of the profile by the rank's clock, its duration, and the offset to add to the clock
        to get rank 0's.
    ended : str
        Reason for an early end; empty if the profile ended normally.
    peak : int
        Maximum memory of the process, in bytes.
    lines : dict
        Totals by line.
    to : dict
        Messages and bytes sent point-to-point to each rank.
    everyone : list
        Messages and bytes of collectives.
    spans : list
        Timeline: (start, stop, line or None, kind, seconds of communication).
    talks : list
        Communication calls on the timeline, in the same format.
    meetings : list
        Collectives to compare: (key, line, start, stop).
    arrivals : list
        Receives to compare: (line, start, stop, messages waited for).
    sent : dict
        Times at which messages were sent that other ranks may have waited for.
    arrays : list of Seen
        The program's arrays.
    routes : dict
        Pairs of layouts between which arrays were moved, with the count and the first line.
    """

    rank: int
    size: int
    counted: bool = True
    begun: float = 0.0
    seconds: float = 0.0
    offset: float = 0.0
    ended: str = ""
    peak: int = 0
    lines: dict[Line, Totals] = field(default_factory=dict)
    to: dict[int, list[int]] = field(default_factory=dict)
    everyone: list[int] = field(default_factory=lambda: [0, 0])
    spans: list[tuple[float, float, Line | None, str, float]] = field(default_factory=list)
    talks: list[tuple[float, float, Line | None, str, float]] = field(default_factory=list)
    meetings: list[tuple[tuple[int, int], Line, float, float]] = field(default_factory=list)
    arrivals: list[tuple[Line, float, float, tuple[tuple[int, int, int], ...]]] = field(
        default_factory=list
    )
    sent: dict[tuple[int, int, int], float] = field(default_factory=dict)
    arrays: list[Seen] = field(default_factory=list)
    routes: dict[Route, Moves] = field(default_factory=dict)
