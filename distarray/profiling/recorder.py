"""Recorder of one rank's measurements while its program runs: by line, in bounded memory."""

import sys
from collections.abc import Iterable
from threading import get_ident
from time import perf_counter
from types import FrameType
from zlib import crc32

from distarray.array.movement import FEW
from distarray.comm import Group, ledger
from distarray.comm.ledger import Event
from distarray.comm.stopwatch import Talk, talking_since
from distarray.comm.user_lines import is_library, is_ours, known, passage
from distarray.profiling import memory
from distarray.profiling.measured import Line, Moves, Part, Totals
from distarray.profiling.spans import Spans
from distarray.profiling.statements import line_of

__all__ = ["ELSEWHERE", "Recorder", "program_line"]

#: Pseudo-line for work outside of the program's own lines.
ELSEWHERE = Line("", 0)
#: Minimum seconds at a line for its memory use to be read.
_LONG = 1e-3
#: Maximum spans and communication calls to compare: of all ranks together and of one rank; and the
#: minimum of one rank.
_ALL, _MOST, _LEAST = 1 << 18, 1 << 14, 1 << 9
#: Maximum pairs of layouts kept, and lines whose deferred operations ran together.
_ROUTES, _RUNS = 48, 16
#: Multiplier that spreads call numbers, so that neighboring ones are kept or dropped independently.
_SPREAD = 0x9E3779B1


def program_line(frame: FrameType | None) -> Line:
    """Return the program's line on whose behalf a frame runs."""
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        ours = known.get(name)  # `is_house` inlined: a call would take most of the time
        if not (passage(name) if ours is None else ours):
            path = frame.f_code.co_filename
            if not (is_library(frame) or is_ours(path)):
                return line_of(path, frame.f_lineno)
        frame = frame.f_back
    return ELSEWHERE


class _Ear:
    """Event list of a ledger trace that forwards events instead of keeping them."""

    def __init__(self, recorder: "Recorder") -> None:
        self._recorder = recorder

    def append(self, event: Event) -> None:
        """Forward an event to the recorder."""
        self._recorder.said(event)


class Recorder(ledger.Trace):
    """Ledger trace that counts events instead of keeping them, and times the lines.

    The tracer of the program calls `charge` and `moved`; the stopwatch calls `talked`.

    Parameters
    ----------
    group : Group
        The measured ranks.
    counted : bool
        True if every line is followed.
    line : Line
        The program's current line.
    """

    asks_where = False

    def __init__(self, group: Group, counted: bool, line: Line) -> None:
        super().__init__()
        self.events = _Ear(self)  # type: ignore[assignment]
        self.thread = get_ident()
        most = max(_LEAST, min(_MOST, _ALL // group.size))
        self._line_spans, self._talk_spans, self._most = Spans(most // 2), Spans(most // 2), most
        self.part = Part(group.rank, group.size, counted)
        self.current = line
        #: The communication call that has begun, and its line.
        self._event: Event | None = None
        self._where = line
        self._mask = 0
        self._groups: dict[int, tuple[Group, int, tuple[int, ...]]] = {}
        self._numbers: dict[int, int] = {}
        self._counts: dict[tuple[int, int], int] = {}
        self._resident = self._peak = 0
        self._talked = self._settled = 0.0
        self.part.begun = self._last = perf_counter()
        self._look(self.of(line))

    def of(self, line: Line) -> Totals:
        """Return the totals of a line; creates them at first."""
        found = self.part.lines.get(line)
        return self.part.lines.setdefault(line, Totals()) if found is None else found

    # -- time ------------------------------------------------------------------------------------

    def charge(self, line: Line, now: float) -> None:
        """Charge the time since the previous call of this method to a line."""
        since = talking_since(self.thread)
        talked = self._talked + (0.0 if since is None else now - since)
        talking = max(0.0, talked - self._settled)
        elapsed, start = now - self._last, self._last
        self._last, self._settled = now, talked
        totals = self.of(line)
        totals.computing += max(0.0, elapsed - talking)
        if elapsed > _LONG:
            self._look(totals)
        self._line_spans.add(start, now, line, "", min(talking, elapsed))

    def moved(self, line: Line, now: float, begins: bool) -> None:
        """Record that the program continues at another line, which it begins or returns to."""
        self.charge(self.current, now)
        if begins and line is not self.current:
            self.of(line).calls += 1
        self.current = line

    def _look(self, totals: Totals) -> None:
        """Read the memory use, and update the totals of a line."""
        now, most = memory.resident(), memory.peak()
        top = max(now, most) if most > self._peak else now
        totals.temporary = max(totals.temporary, top - (self._resident or top))
        totals.peak = max(totals.peak, top)
        self._resident, self._peak = now, most

    # -- communication ----------------------------------------------------------------------------

    def said(self, event: Event) -> None:
        """Record a communication call that begins, from its ledger event."""
        line = self._here()
        totals = self.of(line)
        totals.out += event.bytes
        totals.messages_out += event.messages
        if event.kind == "library":
            totals.note(event.note, 0)
        else:
            self._event, self._where = event, line
            collective = event.kind != "exchange"
            if collective:
                totals.collectives += event.messages
                totals.collective_out += event.bytes
            # Few ranks gather by point-to-point messages, more ranks by a collective.
            usual = collective is not (self.part.size <= FEW)
            if usual and event.route is not None and event.route.dst.is_replicated:
                copies = 1 if collective else event.messages
                if collective or copies == self.part.size - 1 > 0:
                    totals.gathers += 1
                    totals.gathered += event.bytes // copies
        if event.route is not None:
            routes = self.part.routes
            if event.route in routes or len(routes) < _ROUTES:
                routes.setdefault(event.route, Moves(line)).count += 1

    def ran(self, lines: Iterable[Line]) -> None:
        """Record that deferred operations, written at `lines`, run here."""
        line = self._here()
        self.of(line).runs.update([other for other in lines if other != line][:_RUNS])

    def talked(self, talk: Talk) -> None:
        """Record a communication call that has ended."""
        event, length = self._event, talk.stop - talk.start
        line = self._here() if event is None else self._where
        self._event = None
        totals = self.of(line)
        totals.talking += length
        self._talked += length
        totals.into += talk.received
        if talk.kind != "wait":
            totals.messages_in += len(talk.receives) if talk.kind == "exchange" else 1
            note = event.note if event is not None else ""
            if note or talk.kind != "exchange":
                totals.note(note or talk.kind, talk.received)
        self._talk_spans.add(talk.start, talk.stop, line, talk.kind, length)
        if talk.group is not None:
            self._compare(talk.group, talk, line, event)

    def _here(self) -> Line:
        if self.part.counted:
            return self.current
        return program_line(sys._getframe(1))

    def _compare(self, group: Group, talk: Talk, line: Line, event: Event | None) -> None:
        """Record the data from which the analysis finds which rank waited for which."""
        key, world = self._known(group)
        part = self.part
        if talk.kind != "exchange":
            number = self._numbers[key] = self._numbers.get(key, 0) + 1
            part.everyone[0] += 1
            part.everyone[1] += 0 if event is None else event.bytes
            if self._kept(number):
                part.meetings.append(((key, number), line, talk.start, talk.stop))
        else:
            mine = world[group.rank]
            for peer, nbytes in talk.sends:
                entry = part.to.setdefault(world[peer], [0, 0])
                entry[0] += 1
                entry[1] += nbytes
                number = self._next(mine, world[peer])
                if self._kept(number):
                    part.sent[mine, world[peer], number] = talk.start
            needed = [(world[p], mine, self._next(world[p], mine)) for p, _ in talk.receives]
            needed = [message for message in needed if self._kept(message[2])]
            if needed:
                part.arrivals.append((line, talk.start, talk.stop, tuple(needed)))
        if len(part.meetings) + len(part.sent) + len(part.arrivals) > self._most:
            self._drop()

    def _known(self, group: Group) -> tuple[int, tuple[int, ...]]:
        """Return a number for a group that is equal on all its ranks, and its world ranks."""
        found = self._groups.get(id(group))
        if found is None:
            world = group.world_ranks
            number = crc32(repr(world).encode())
            while any(number == other for _, other, _ in self._groups.values()):
                number += 1  # another group of the same ranks
            found = self._groups[id(group)] = group, number, world
        return found[1], found[2]

    def _next(self, sender: int, receiver: int) -> int:
        number = self._counts[sender, receiver] = self._counts.get((sender, receiver), 0) + 1
        return number

    def _kept(self, number: int) -> bool:
        """Return True if the call of this number is compared; all ranks use the same rule."""
        return not self._mask or not (number * _SPREAD & 0xFFFFFFFF) >> 12 & self._mask

    def _drop(self) -> None:
        """Keep only about half of the calls to compare, of those recorded and from now on."""
        self._mask = 2 * self._mask + 1
        part = self.part
        part.meetings = [entry for entry in part.meetings if self._kept(entry[0][1])]
        part.sent = {key: at for key, at in part.sent.items() if self._kept(key[2])}
        part.arrivals = [
            (line, start, stop, kept)
            for line, start, stop, needed in part.arrivals
            if (kept := tuple([message for message in needed if self._kept(message[2])]))
        ]

    # -- the end -----------------------------------------------------------------------------------

    def finished(self, ended: str = "") -> Part:
        """Complete and return the part measured so far."""
        now = perf_counter()
        self.charge(self.current, now)
        part = self.part
        part.seconds, part.ended, part.peak = now - part.begun, ended, memory.peak()
        part.spans = self._line_spans.listed()
        part.talks = self._talk_spans.listed()
        return part
