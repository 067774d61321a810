"""Decision on ranks that wait for each other: whether they wait in vain, from their reports.

Ranks may wait long for a good reason: for a rank that computes, reads, or is stopped in a debugger,
or for much data on a slow network. A rank certainly waits in vain for a rank that has gone past the
communication call without taking part in it. It also waits in vain for a rank that has not reached
the call, and has left or waits in vain itself.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

__all__ = [
    "AFTER_STATEMENT",
    "LONG",
    "SLOWEST",
    "Entry",
    "Report",
    "Span",
    "first_difference",
    "grouped",
    "hopeless",
    "spans",
]

#: Bytes per second of a slow network: data that has had less time for its size may still arrive.
SLOWEST = 1 << 22
#: Communication call at the end of a notebook's statement, which the program does not make.
AFTER_STATEMENT = "any_failed"
#: Communication calls in which a rank may be busy with a file system.
ON_DISK = frozenset({"opened", "_write_all", "_close"})
#: Number of limits for which ranks must be at rest if nothing else shows that they wait in vain.
LONG = 3.0
#: Start, stop and step, as of a range.
Span = tuple[int, int, int]


def spans(ranks: Iterable[int]) -> tuple[Span, ...]:
    """Return ranks as a few arithmetic progressions; one or two suffice along mesh dimensions."""
    found: list[list[int]] = []
    for rank in sorted(set(ranks)):
        step = rank - (found[-1][1] - 1) if found else 0
        if found and found[-1][2] in (0, step):
            found[-1][1:] = [rank + 1, step]
        else:
            found.append([rank, rank + 1, 0])
    return tuple([(first, stop, step or 1) for first, stop, step in found])


@lru_cache(maxsize=256)
def _ranks(needs: tuple[Span, ...]) -> tuple[int, ...]:
    return tuple([rank for span in needs for rank in range(*span)])


class Entry(NamedTuple):
    """Communication call, as a rank remembers it.

    Attributes
    ----------
    group : str
        Key of the call's group; equal on all ranks.
    number : int
        Number of communication calls of the whole group so far, including this call.
    together : bool
        True if this call is of the whole group.
    kind, call, line : str
        The method of the group; the function that the user has called, and the user's line.
    what : str
        Shape or layouts, which must be equal on all ranks; empty if there is none.
    """

    group: str
    number: int
    together: bool
    kind: str
    call: str
    line: str
    what: str = ""


class Report(NamedTuple):
    """Report of a rank on its activity.

    Attributes
    ----------
    rank : int
    doing : str
        "waits", "computes", "left" (the program has ended), "gone" (the process has ended),
        "stopped" (by a signal or a debugger), "silent" (it does not respond), "goes on" (it
        communicates with other ranks).
    age : float
        Seconds since this activity began.
    call, arguments, path
        The function that the user called, its arguments, and the user's lines, the innermost first.
        If a rank computes, `call` is the expression on the line.
    entry : Entry or None
        The communication call in which the rank waits.
    needs : tuple of (int, int, int)
        The ranks that take part in that call, as :func:`spans`.
    size : int
        Bytes of that call.
    aside : bool
        True if a thread other than the main thread waits.
    counts : mapping of str to int
        Number of communication calls of the rank's groups, by their keys.
    recent : tuple of Entry
        The rank's last communication calls, the oldest first.
    whole : bool
        True if `recent` has all of the rank's communication calls.
    moves : int
        Counter that changes whenever the rank begins a communication call or a wait.
    handled : str
        The last signal that the program has handled, and the line at which it arrived.
    """

    rank: int
    doing: str
    age: float = 0.0
    call: str = ""
    arguments: str = ""
    path: tuple[str, ...] = ()
    entry: Entry | None = None
    needs: tuple[Span, ...] = ()
    size: int = 0
    aside: bool = False
    counts: Mapping[str, int] = {}
    recent: tuple[Entry, ...] = ()
    whole: bool = False
    moves: int = 0
    handled: str = ""

    @property
    def place(self) -> Any:
        """A value that is equal for ranks that wait in the same call."""
        entry = self.entry
        at = None if entry is None else (entry.group, entry.number, entry.kind, entry.what)
        return self.doing, at, self.call, self.path


Reports = Mapping[int, Report]


def hopeless(reports: Reports, limit: float, rest: float | None = None) -> bool:
    """Return True if some ranks wait for ever.

    Parameters
    ----------
    reports : mapping of int to Report
        Reports of all ranks, by rank. Ranks that wait have not moved between two checks.
    limit : float
        Seconds after which a wait is too long.
    rest : float, optional
        The same limit if no rank moves and nothing else is certain; `limit` by default.
    """
    waiting = [r for r in reports.values() if r.doing == "waits" and not r.aside]
    if max([report.age for report in waiting], default=0.0) < limit:
        return False
    over = {rank for rank, report in reports.items() if report.doing in ("left", "gone")}
    return bool(_in_vain(waiting, reports, over)) or _at_rest(
        waiting, reports, over, limit if rest is None else rest
    )


def _in_vain(waiting: list[Report], reports: Reports, over: set[int]) -> set[int]:
    """Return the ranks that wait for a rank that will not come.

    Ranks of the set count as ranks that will not come: the result is the largest such set.
    """
    numbers: dict[Any, int] = {}
    kinds = {  # most of thousands of ranks have done the same
        rank: numbers.setdefault((r.entry, tuple(r.counts.items()), r.recent), len(numbers))
        for rank, r in reports.items()
    }
    held = {report.rank for report in waiting if report.entry is not None}
    while True:
        others = _not_in_vain(held, over | held, kinds, reports)
        if not others:
            return held
        held -= others


def _not_in_vain(
    held: set[int], standing: set[int], kinds: Mapping[int, int], reports: Reports
) -> set[int]:
    """Return the ranks whose awaited ranks may all still come; `standing` ranks do not go on."""
    answers: dict[Any, bool] = {}
    for rank in held:
        key = kinds[rank], reports[rank].needs
        if key not in answers:
            others = {(kinds[q], q in standing): q for q in _ranks(reports[rank].needs)}
            answers[key] = any(
                _will_not_come(reports[rank], reports[q], stands)
                for (_, stands), q in others.items()
            )
    return {rank for rank in held if not answers[kinds[rank], reports[rank].needs]}


def _will_not_come(report: Report, other: Report, stands: bool) -> bool:
    """Return True if the other rank will certainly not take part in a rank's communication call.

    The last argument is True if the other rank does not go on. It counts as having taken part in
    communication calls that it no longer remembers.
    """
    entry = report.entry
    if entry is None or entry.group not in other.counts:
        return False
    behind = entry.number - other.counts[entry.group]
    if not entry.together:
        return _sends_nothing(report, entry, other, stands, behind)
    if behind > 0:
        return stands
    same = [e for e in _at(other, entry) if e.together]
    return any((e.kind, e.what) != (entry.kind, entry.what) for e in same)


def _sends_nothing(report: Report, entry: Entry, other: Report, stands: bool, behind: int) -> bool:
    """Return `_will_not_come` for a communication call of only some ranks of a group.

    Between two calls of the whole group, such calls are counted by kind and purpose: if the rank
    has begun more of them, the other rank has not taken part in the last.
    """
    if behind > 0:
        return stands
    mine = [e for e in _at(report, entry) if e.kind == entry.kind and e.what == entry.what]
    theirs = [e for e in _at(other, entry) if e.kind == entry.kind and e.what == entry.what]
    remembers = other.whole or any(
        e.group == entry.group and e.number < entry.number for e in other.recent
    )
    fewer = len(theirs) < len(mine) and entry.what != "" and remembers
    return fewer and (stands or behind < 0)


def _at(report: Report, entry: Entry) -> list[Entry]:
    """Return a rank's calls between the same two calls of the whole group as an entry."""
    return [e for e in report.recent if (e.group, e.number) == (entry.group, entry.number)]


def _at_rest(waiting: list[Report], reports: Reports, over: set[int], limit: float) -> bool:
    """Return True if some ranks have been at rest for long enough, in different calls.

    All ranks that they wait for, directly or not, wait in other calls or have left. Data may still
    be in transit at first, but not after a longer time.
    """
    held = {r.rank for r in waiting if r.entry is None or r.entry.kind not in ON_DISK}
    held -= _under_way(waiting, reports)
    while True:
        still = over | held
        closed = {n: still.issuperset(_ranks(n)) for n in {reports[r].needs for r in held}}
        moving = {rank for rank in held if not closed[reports[rank].needs]}
        if not moving:
            break
        held -= moving
    ages = [reports[rank].age for rank in held]
    return bool(ages) and min(ages) >= (limit if over else LONG * limit)


def _under_way(waiting: list[Report], reports: Reports) -> set[int]:
    """Return the ranks in calls that all their ranks have reached: these only take time."""
    found, answers = set(), {}
    for report in waiting:
        key = report.place, report.needs
        if key not in answers:
            needs = _ranks(report.needs)
            there = sum([reports[rank].place == report.place for rank in needs])
            answers[key] = there, there == len(needs)
        some, all_there = answers[key]
        if all_there or (some > 1 and report.size > SLOWEST * report.age):
            found.add(report.rank)
    return found


def grouped(reports: Reports) -> list[list[Report]]:
    """Group ranks with the same activity: groups that wait come first, then larger groups."""
    groups: dict[Any, list[Report]] = {}
    for _, report in sorted(reports.items()):
        entry = report.entry
        number = entry.number if entry is not None and entry.together else 0
        key = (report.doing, report.call, report.path, number)
        groups.setdefault(key, []).append(report)
    return sorted(groups.values(), key=lambda g: (g[0].doing != "waits", -len(g), g[0].rank))


def first_difference(reports: Reports) -> tuple[int, dict[str, list[int]]] | None:
    """Return the first communication call that differs between ranks: number, and ranks by call.

    Only calls of all ranks of a group count. Ranks often diverge long before they wait.
    """
    books: dict[tuple[str, int], dict[str, list[int]]] = {}
    for rank, report in sorted(reports.items()):
        for entry in report.recent:
            if entry.together:
                at = books.setdefault((entry.group, entry.number), {})
                at.setdefault(f"{entry.call} at {entry.line}", []).append(rank)
    first: dict[str, tuple[int, dict[str, list[int]]]] = {}
    for (group, number), found in sorted(books.items()):
        if len(found) > 1 and group not in first:
            first[group] = number, found
    return min(first.values(), default=None, key=lambda pair: pair[0])
