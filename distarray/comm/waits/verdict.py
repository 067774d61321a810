"""Who waits for whom, and whether that can end: decided from what each rank has said.

Ranks may wait for long and rightly so: for one that computes, reads, is stopped in a debugger, or
for much data on a slow network. It is certain that a rank waits in vain where one that it waits for
has gone past this conversation without taking part in it; or where it has not come to it, and has
left, or waits in vain itself.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

__all__ = ["LONG", "SLOWEST", "Entry", "Report", "Span", "alike", "hopeless", "parting", "spans"]

#: Bytes a second that a slow network may take: what carries more for its time may still be coming.
SLOWEST = 1 << 22
#: Conversations in which a rank may be busy with a file system.
ON_DISK = frozenset({"opened", "_write_all", "_close"})
#: How much longer than the limit nothing has to happen, on any rank, where nothing else is certain.
LONG = 3.0


#: First, behind the last, step.
Span = tuple[int, int, int]


def spans(ranks: Iterable[int]) -> tuple[Span, ...]:
    """Ranks as a few arithmetic progressions: those of a mesh are one or two, however many."""
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
    """A conversation, as a rank remembers it.

    Attributes
    ----------
    group : str
        Whose; equal on all its ranks.
    number : int
        How many conversations of all its ranks the group has had, this one included.
    together : bool
        Whether this is one of those.
    kind, call, line : str
        The method of the group; the function that the user has called, and the user's line.
    what : str
        What has to be equal on all ranks, if something has: the shape, or the layouts.
    """

    group: str
    number: int
    together: bool
    kind: str
    call: str
    line: str
    what: str = ""


class Report(NamedTuple):
    """What a rank does.

    Attributes
    ----------
    rank : int
    doing : str
        "waits", "computes", "left" (the program has ended), "gone" (the process has), "silent"
        (it does not answer), "goes on" (it talks with other ranks).
    age : float
        Seconds since it began to.
    call, arguments, path
        The function that the user has called, its arguments, and the user's lines, the innermost
        first; where a rank computes, `call` is the expression there.
    entry : Entry or None
        The conversation that it waits in.
    needs : tuple of (int, int, int)
        The ranks that take part in it, as :func:`spans` has them.
    size : int
        Bytes it carries.
    aside : bool
        Whether only a thread waits, and not the program's main one.
    counts : mapping of str to int
        How many conversations its groups have had.
    recent : tuple of Entry
        Its last conversations, the oldest first.
    whole : bool
        Whether those are all that it had.
    moves : int
        Changes whenever the rank begins to talk.
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

    @property
    def place(self) -> Any:
        """What ranks have in common that wait in the same call."""
        entry = self.entry
        at = None if entry is None else (entry.group, entry.number, entry.kind, entry.what)
        return self.doing, at, self.call, self.path


Reports = Mapping[int, Report]


def hopeless(reports: Reports, limit: float, rest: float | None = None) -> bool:
    """Whether some ranks wait for ever.

    Parameters
    ----------
    reports : mapping of int to Report
        Of all ranks, by rank; none of those that wait has moved in a while.
    limit : float
        Seconds after which a rank waits for long.
    rest : float, optional
        The same where nothing is certain but that no rank moves; `limit` by default.
    """
    waiting = [r for r in reports.values() if r.doing == "waits" and not r.aside]
    if max([report.age for report in waiting], default=0.0) < limit:
        return False
    over = {rank for rank, report in reports.items() if report.doing in ("left", "gone")}
    return bool(_in_vain(waiting, reports, over)) or _at_rest(
        waiting, reports, over, limit if rest is None else rest
    )


def _in_vain(waiting: list[Report], reports: Reports, over: set[int]) -> set[int]:
    """The ranks that wait for one that will not come: the largest set that is so of itself."""
    numbers: dict[Any, int] = {}
    kinds = {  # of thousands of ranks most have done the same
        rank: numbers.setdefault((r.entry, tuple(r.counts.items()), r.recent), len(numbers))
        for rank, r in reports.items()
    }
    held = {report.rank for report in waiting if report.entry is not None}
    while True:
        hoping = _hoping(held, over | held, kinds, reports)
        if not hoping:
            return held
        held -= hoping


def _hoping(
    held: set[int], standing: set[int], kinds: Mapping[int, int], reports: Reports
) -> set[int]:
    """Those that wait for nobody of whom it is certain that he does not come."""
    answers: dict[Any, bool] = {}
    for rank in held:
        key = kinds[rank], reports[rank].needs
        if key not in answers:
            others = {(kinds[q], q in standing): q for q in _ranks(reports[rank].needs)}
            answers[key] = any(
                _never(reports[rank], reports[q], stands) for (_, stands), q in others.items()
            )
    return {rank for rank in held if not answers[kinds[rank], reports[rank].needs]}


def _never(report: Report, other: Report, stands: bool) -> bool:
    """Whether a rank will not take part in another's conversation.

    `stands`: it comes nowhere any more. What it may have forgotten it has done.
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
    """As `_never`, for what not all ranks of a group do: such are counted by what they are about.

    One more of the same, between the same two conversations of all, is one that another lacks.
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
    """What a rank remembers of the time at which another one's conversation was begun."""
    return [e for e in report.recent if (e.group, e.number) == (entry.group, entry.number)]


def _at_rest(waiting: list[Report], reports: Reports, over: set[int], limit: float) -> bool:
    """Whether nothing moves any more, and ranks are in different calls.

    All that such ranks wait for, directly or not, waits elsewhere or has left. Even so their data
    may be on its way: only after a longer time that cannot be.
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
    """The ranks in conversations where all are there that take part: these only take their time."""
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


def alike(reports: Reports) -> list[list[Report]]:
    """The ranks that do the same, those that wait first, and the most of them first."""
    groups: dict[Any, list[Report]] = {}
    for _, report in sorted(reports.items()):
        entry = report.entry
        number = entry.number if entry is not None and entry.together else 0
        key = (report.doing, report.call, report.path, number)
        groups.setdefault(key, []).append(report)
    return sorted(groups.values(), key=lambda g: (g[0].doing != "waits", -len(g), g[0].rank))


def parting(reports: Reports) -> tuple[int, dict[str, list[int]]] | None:
    """The first conversation that ranks remember differently: its number, and who was where.

    Only those count that all ranks of a group make. Where ranks have parted is often long before
    they wait.
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
