"""Reporter of a process, which writes the activity of the process and reports overlong waits."""

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
#: Number of checks within the limit, and the least and most seconds between checks.
_LOOKS, _LEAST, _MOST = 8, 0.02, 0.5
#: Number of pauses between checks after which every rank has written its activity; ranks that are
#: asked write for twice as many.
_ROUND = 2.5
#: Number of pauses, plus seconds, after which a process without a heartbeat counts as silent.
_STALE, _BUSY = 4, 1.0
#: Seconds in which other ranks can report their activity.
_PATIENCE = 3.0
#: Seconds: the limit under `config.check` for ranks that certainly wait in vain, and the shortest
#: time between two requests to the other ranks.
_AT_ONCE, _SELDOM = 1.0, 10.0


class Exit(NamedTuple):
    """End of this process's program: the call that ended it, and the lines."""

    call: str = ""
    path: tuple[str, ...] = ()


class State(NamedTuple):
    """Progress of this process.

    Attributes
    ----------
    moves : int
        Number of communication calls and waits that it has begun.
    since : float
        Time at which the last of them began.
    """

    moves: int
    since: float


class Speaker:
    """Reporter of this process within a scope.

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
        """Write a heartbeat, and the activity of this process if it takes long or is asked.

        Returns
        -------
        Look or None
            The activity, if it was written.
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
        """Send the final report; return descriptor, bytes and offset to write it on this node."""
        with self._lock:
            words = self._words(Look("left", end.call, path=end.path), state)
            recent = words["recent"]
            self.scope.take_leave(end.call, end.path, recent[-1] if recent else None)
            return self.scope.channel.last_words(state.moves, words)

    def attend(self, state: State, rest: Callable[[float], bool]) -> None:
        """Write this process's activity; if it has to report and ranks wait too long, report.

        Parameters
        ----------
        state : State
        rest : callable
            Waits for some seconds; returns False if the thread has to end.
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
        """Return the other ranks' reports, once all have responded or some seconds have passed."""
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
        """Return the report of this process, for other ranks to read."""
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

    # -- all processes ---------------------------------------------------------------------------

    def _is_late(self) -> bool:
        """Return True if a rank waits too long, and this rank is the node's lowest that waits."""
        waiting = [r for r in self.scope.here(_stale()).values() if r.doing == "waits"]
        if self.scope.rank != min([report.rank for report in waiting], default=-1):
            return False
        overdue = _now() - self.scope.channel.asked()[1] < 2 * _ROUND * pause()
        return overdue or max([report.age for report in waiting]) >= _limit()

    def _all(self, state: State, rest: Callable[[float], bool]) -> dict[int, Report] | None:
        """Return the reports of all ranks, asked twice: a rank that moved in between does not wait.

        Return None if this thread has to end before the second request.
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
        """Report overlong waits, unless already reported; end the job if they are in vain."""
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
    """Return the seconds between two checks."""
    return min(_MOST, max(_LEAST, _limit() / _LOOKS)) if config.wait_limit > 0 else _MOST


def _limit() -> float:
    """Return the seconds after which a wait is too long."""
    limit: float = config.wait_limit
    return min(limit, _AT_ONCE) if config.check else limit


def _stale() -> float:
    """Return the seconds without a heartbeat after which a process counts as silent."""
    return _STALE * pause() + _BUSY
