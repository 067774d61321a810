"""What one rank has measured: plain values, which can be pickled and sent to rank 0."""

from dataclasses import dataclass, field
from typing import NamedTuple

from distarray.layout import Layout
from distarray.plan import Route

__all__ = ["Line", "Moves", "Part", "Seen", "Totals"]

#: Different purposes that are kept for one line; the rest is counted together.
MOST_NOTES = 24


class Line(NamedTuple):
    """A statement of the program: its file and first line."""

    path: str
    number: int


@dataclass(slots=True)
class Totals:
    """What a rank did at one line.

    Attributes
    ----------
    calls : int
        How often the line was begun; 0 if only its seconds are sampled.
    computing, talking : float
        Seconds outside of conversations with other ranks, and in them.
    out, into : int
        Bytes sent and received.
    messages_out, messages_in : int
        Messages; a collective counts as one of each.
    collectives, collective_out : int
        Of the messages and bytes sent, those in collectives.
    gathers, gathered : int
        How often an array became whole on every rank, and what this rank has given, once.
    temporary : int
        The most memory that one run of the line took beyond what there was before.
    peak : int
        The most memory of the process that was seen when the line had run.
    notes : dict
        How many conversations there were, and bytes received in them, by their purpose.
    runs : set
        The lines whose operations were put off, and have run here.
    matched, waited : float
        Of those conversations that are compared with the other ranks': seconds, and of these the
        ones before the last rank came. Filled by the analysis.
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
        """Count a conversation of some purpose."""
        if text not in self.notes and len(self.notes) >= MOST_NOTES:
            text = "others"
        entry = self.notes.setdefault(text, [0, 0])
        entry[0] += 1
        entry[1] += nbytes


class Seen(NamedTuple):
    """An array that the program had a name for at the end."""

    name: str
    dtype: str
    nbytes: int
    layout: Layout


@dataclass(slots=True)
class Moves:
    """How often arrays were moved from one layout to another, and at which line first."""

    line: Line
    count: int = 0


@dataclass
class Part:
    """One rank's part of a profile.

    Attributes
    ----------
    rank, size : int
        In the world of the ranks that were measured.
    counted : bool
        Whether every line was followed; otherwise its seconds are sampled.
    begun, seconds, offset : float
        When the profile began, by the rank's clock; how long it took; and what has to be added to
        the clock to get rank 0's.
    ended : str
        Why it ended early; empty if it did not.
    peak : int
        The most memory of the process, in bytes.
    lines : dict
        Totals by line.
    to : dict
        Messages and bytes sent to each rank, one by one.
    everyone : list
        Messages and bytes of collectives.
    spans : list
        The timeline: (start, stop, line or None, what, seconds in conversations).
    talks : list
        The conversations on it, likewise.
    meetings : list
        Collectives to be compared: (key, line, start, stop).
    arrivals : list
        Messages to be compared: (line, start, stop, the messages that it needed).
    sent : dict
        When the messages were sent that other ranks may have waited for.
    arrays : list of Seen
        The program's arrays.
    routes : dict
        The layouts between which arrays were moved; how often, and where first.
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
