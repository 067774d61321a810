"""The speaker of a process, which writes what the process does and reports overlong waits."""

import time
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any, NamedTuple

from distarray.comm import calls, hooks, signals
from distarray.comm.waits import stacks
from distarray.comm.waits.report_text import activities, full_report
from distarray.comm.waits.scope import Scope, entry_of
from distarray.comm.waits.stacks import Look
from distarray.comm.waits.verdict import Report, hopeless, spans
from distarray.config import config

__all__ = ["Exit", "Speaker", "State", "pause"]

_now = time.monotonic
#: How often a rank looks within the limit, and the fewest and most seconds between looks.
_LOOKS, _LEAST, _MOST = 8, 0.02, 0.5
#: After this many looks every rank has written what it does; it goes on for twice as many.
_ROUND = 2.5
#: Looks, plus seconds, after which a process without a sign of life counts as silent.
_STALE, _BUSY = 4, 1.0
#: Seconds in which others can answer what they do.
_PATIENCE = 3.0
#: Seconds: the limit under `config.check` for ranks that certainly wait in vain, and the shortest
#: time between two questions to the others.
_AT_ONCE, _SELDOM = 1.0, 10.0


class Exit(NamedTuple):
    """The end of this process's program: the call that ended it, and the lines."""

    call: str = ""
    path: tuple[str, ...] = ()


class State(NamedTuple):
    """The progress of this process.

    Attributes
    ----------
    moves : int
        How often it has begun a conversation or a wait.
    since : float
        When it did so last.
    """

    moves: int
    since: float


class Speaker:
    """This process among those of a scope.

    Parameters
    ----------
    scope : Scope
    """

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self._lock = Lock()
        self._told: Any = None
        self._patience = 0.0
        self._next = 0.0

    def tell(self, state: State) -> Look | None:
        """Write that this process is alive, and also what it does if it takes long or is asked.

        Returns
        -------
        Look or None
            What it does, if that was written.
        """
        with self._lock:
            asked = _now() - self.scope.channel.asked()[0] < 2 * _ROUND * pause()
            if not (asked or _now() - state.since >= _limit() / 2):
                self.scope.channel.write(state.moves, None)
                return None
            look = stacks.look()
            self.scope.channel.write(state.moves, self._words(look, state))
            return look

    def last_words(self, state: State, end: Exit) -> tuple[int, bytes, int]:
        """The words to write when the program has ended: descriptor, bytes and place."""
        with self._lock:
            words = self._words(Look("left", end.call, path=end.path), state)
            recent = words["recent"]
            self.scope.take_leave(end.call, end.path, recent[-1] if recent else None)
            return self.scope.channel.last_words(state.moves, words)

    def attend(self, state: State, rest: Callable[[float], bool]) -> None:
        """Write what this process does; if it is the one to report and ranks wait too long, report.

        Parameters
        ----------
        state : State
        rest : callable
            Lets seconds pass; returns False if the thread is to end.
        """
        look = self.tell(state)
        if look is None or look.doing != "waits" or _now() < self._next:
            return
        if not self._is_late():
            return
        self._next = _now() + min(_SELDOM, _limit() / 2)
        if self.scope.lower_waits(_stale()) or not self.scope.channel.claim():
            return
        try:
            reports = self._all(state, rest)
            if reports is not None and calls.moves() == state.moves:
                self._conclude(reports)
        finally:
            self.scope.channel.release()

    def others(self) -> str:
        """The reports of the other ranks, once all have answered or some seconds have passed."""
        until = _now() + _PATIENCE
        while True:
            self.scope.ask()
            time.sleep(pause())
            reports = self.scope.reports(_stale())
            del reports[self.scope.rank]
            unknown = [r for r in reports.values() if r.doing in ("goes on", "silent")]
            if not unknown or _now() > until:
                return activities(reports, self._name)

    # -- this process ----------------------------------------------------------------------------

    def _words(self, look: Look, state: State) -> dict[str, Any]:
        """The report of this process, for the others to read."""
        entry, needs = None, None
        doing = look.doing
        among = None if look.begun is None else look.begun.group.among
        if look.begun is not None and among is not None and among.scope is self.scope:
            entry = entry_of(look.begun, self.scope)
            peers = range(len(among.members)) if look.peers is None else look.peers
            needs = spans([among.members[peer] for peer in peers])
        elif look.begun is not None:
            doing = "computes"  # it waits for ranks outside of this scope
        recent = calls.recent()
        groups = [call.group for call in reversed(recent)]
        if look.begun is not None:
            groups.insert(0, look.begun.group)
        groups += self.scope.roots()
        counts = {g.among.key: g.number for g in groups if g.among is not None}
        entries = [entry_of(call, self.scope) for call in recent]
        return {
            "doing": doing,
            "since": state.since,
            "call": look.call,
            "arguments": look.arguments,
            "path": look.path,
            "entry": entry,
            "needs": needs,
            "size": look.size,
            "aside": look.aside,
            "counts": counts,
            "recent": [entry for entry in entries if entry is not None],
            "whole": len(recent) < calls.KEPT,
            "moves": state.moves,
            "handled": signals.in_words(),
        }

    # -- all of them -----------------------------------------------------------------------------

    def _is_late(self) -> bool:
        """Whether some rank has waited too long, and this one is the lowest of its node to wait."""
        waiting = [r for r in self.scope.here(_stale()).values() if r.doing == "waits"]
        if self.scope.rank != min([report.rank for report in waiting], default=-1):
            return False
        overdue = _now() - self.scope.channel.asked()[1] < 2 * _ROUND * pause()
        return overdue or max([report.age for report in waiting]) >= _limit()

    def _all(self, state: State, rest: Callable[[float], bool]) -> dict[int, Report] | None:
        """The reports of all ranks, asked twice: a rank that moved in between does not wait.

        None if this thread has to end before the second question.
        """
        self.scope.ask(late=True)
        before = self.scope.reports(_stale())
        until = _now() + _ROUND * pause()
        while _now() < until:
            if not rest(pause() / 2):
                return None
            self.tell(state)
        found = self.scope.reports(_stale())
        for rank, report in found.items():
            if report.doing == "waits" and before[rank].moves != report.moves:
                found[rank] = report._replace(doing="goes on")
        return found

    def _conclude(self, reports: Mapping[int, Report]) -> None:
        """Report waits that are too long, unless reported already; end the job if in vain."""
        certain = hopeless(reports, _limit(), config.wait_limit)
        waiting = [report for report in reports.values() if report.doing == "waits"]
        what = certain, tuple([(report.rank, report.moves) for report in waiting])
        age = max([report.age for report in waiting], default=0.0)
        if what == self._told or not (certain or age >= max(self._patience, config.wait_limit)):
            return
        self._told = what
        text = full_report(reports, config.end_waits if certain else None, self._name)
        if certain and config.end_waits:
            hooks.end_all(text)
        hooks.say(text)
        if not certain:
            self._patience = 2 * age

    def _name(self, report: Report) -> int:
        return self.scope.labels[report.rank]


def pause() -> float:
    """Seconds between two looks."""
    return min(_MOST, max(_LEAST, _limit() / _LOOKS)) if config.wait_limit > 0 else _MOST


def _limit() -> float:
    """Seconds after which a wait is too long."""
    limit: float = config.wait_limit
    return min(limit, _AT_ONCE) if config.check else limit


def _stale() -> float:
    """Seconds without a sign of life after which a process counts as silent."""
    return _STALE * pause() + _BUSY
