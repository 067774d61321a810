"""Text of a report on ranks that wait for each other."""

from collections.abc import Callable, Mapping, Sequence

from distarray.comm.describing import ranks_in_words
from distarray.comm.waits.verdict import (
    AFTER_STATEMENT,
    Entry,
    Report,
    first_difference,
    grouped,
)

__all__ = ["activities", "full_report", "summary"]

#: Largest number of groups of ranks, and of their last communication calls, that are listed.
_MOST, _LAST = 8, 4
#: Activities of one rank, or of several, that cannot report themselves.
_MUTE = {
    "silent": ("does not answer", "do not answer"),
    "stopped": tuple(
        [f"{be} stopped (by a signal or a debugger; SIGCONT lets it go on)" for be in ("is", "are")]
    ),
}
Names = Callable[[Report], int]


def summary(reports: Mapping[int, Report], name: Names = lambda report: report.rank) -> str:
    """Summarize in one line: "3 of 4 ranks wait in np.sum at solver.py:40; rank 2 is in ...".

    Parameters
    ----------
    reports : mapping of int to Report
        Reports of all ranks.
    name : callable
        Returns the number that the text uses for a rank.
    """
    groups = grouped(reports)
    twice = _twins(groups)
    parts: list[str] = []
    for group in groups[:_MOST]:
        count, first = len(group), group[0]
        where = _where(first, in_full=_head(first) in twice)
        if not parts and first.doing == "waits":
            verb = "waits" if count == 1 else "wait"
            parts.append(f"{count} of {len(reports)} ranks {verb} in {where}")
            continue
        parts.append(f"{ranks_in_words(map(name, group))} {_does(first, count, where)}")
    more = "; and others" if len(groups) > _MOST else ""
    return "; ".join(parts) + more


def activities(reports: Mapping[int, Report], name: Names = lambda report: report.rank) -> str:
    """Return the activities of some ranks, in one line."""
    groups = grouped(reports)[:_MOST]
    return "; ".join(
        [f"{ranks_in_words(map(name, g))} {_does(g[0], len(g), _where(g[0]))}" for g in groups]
    )


def full_report(
    reports: Mapping[int, Report], ends: bool | None, name: Names = lambda report: report.rank
) -> str:
    """Return the summary, each group of ranks, their first difference, and the consequence.

    Parameters
    ----------
    reports, name
        As for :func:`summary`.
    ends : bool or None
        True if the job is ended; None if it is not certain that ranks wait in vain.
    """
    lines = [summary(reports, name)]
    groups = grouped(reports)
    for group in groups[:_MOST]:
        lines += _details(group, name)
    found = first_difference(reports)
    if found is not None:
        number, calls = found
        lines.append(f"  As far as recorded, they first differ in conversation {number}:")
        for call, ranks in list(calls.items())[:_MOST]:
            who = ranks_in_words([name(reports[rank]) for rank in ranks])
            lines.append(f"    {who}: {call}")
    lines += _signals(reports, name)
    return "\n".join([*lines, f"  {_ENDS[ends]}"])


_ENDS = {
    True: "They wait in vain, and the job is ended (config.end_waits).",
    False: "They wait in vain, and go on waiting, since config.end_waits is off.",
    None: "The wait may still end: the job goes on. (config.wait_limit sets the time until this "
    "message.)",
}


def _signals(reports: Mapping[int, Report], name: Names) -> list[str]:
    """Return lines for the signals that the program has handled, at other lines on each rank."""
    by_text: dict[str, list[int]] = {}
    for report in reports.values():
        if report.handled:
            by_text.setdefault(report.handled, []).append(name(report))
    if not by_text:
        return []
    lines = [f"    {ranks_in_words(who)}: {text}" for text, who in list(by_text.items())[:_MOST]]
    return [
        "  The program has handled signals. A flag that its handler sets is not seen at the same "
        "place on all ranks; distarray.job.preemption() is:",
        *lines,
    ]


def _does(report: Report, count: int, where: str) -> str:
    """Return the activity of `count` ranks, as a verb and its complement."""
    be, have = ("is", "has") if count == 1 else ("are", "have")
    if report.doing == "waits":
        return f"{be} in {where}"
    if report.doing == "computes":
        return f"{'computes' if count == 1 else 'compute'} at {where}"
    if report.doing in ("left", "gone"):
        verb = "left" if report.doing == "left" else "ended"
        return f"{have} {verb}{f' by {report.call}' if report.call else ''}{_at_line(report)}"
    if report.doing in _MUTE:
        return _MUTE[report.doing][count > 1]
    return f"{'goes' if count == 1 else 'go'} on{f', now at {where}' if report.path else ''}"


def _at_line(report: Report) -> str:
    if report.path:
        return f" at {report.path[0]}"
    last = report.recent[-1] if report.recent else None
    return f" after {last.call} at {last.line}" if last is not None else ""


def _where(report: Report, in_full: bool = False) -> str:
    line = report.path[0] if report.path else "no line of the program"
    if report.doing != "waits":
        return f"{line}, in {report.call}" if report.call else line
    if not in_full:
        return f"{report.call} at {line}{' (in a thread)' if report.aside else ''}"
    arguments = f"({report.arguments})" if report.arguments else ""
    way = "".join([f", from {line}" for line in report.path[1:]])
    entry = report.entry
    number = f" (conversation {entry.number})" if entry is not None and entry.together else ""
    return f"{report.call}{arguments} at {line}{way}{number}"


def _head(report: Report) -> tuple[str, str]:
    return report.call, report.path[0] if report.path else ""


def _twins(groups: Sequence[Sequence[Report]]) -> set[tuple[str, str]]:
    """Return call and line of groups that wait in the same place, which need more detail."""
    heads = [_head(group[0]) for group in groups if group[0].doing == "waits"]
    return {head for head in heads if heads.count(head) > 1}


def _details(group: Sequence[Report], name: Names) -> list[str]:
    first = group[0]
    age = max([report.age for report in group])
    where = _where(first, in_full=True)
    since = f", for {age:.0f} s" if first.doing in ("waits", "computes") else ""
    lines = [f"  {ranks_in_words(map(name, group))} {_does(first, len(group), where)}{since}"]
    before = [entry for entry in first.recent if entry.kind != AFTER_STATEMENT]
    if first.entry is not None and before and before[-1] == first.entry:
        before.pop()
    if before:
        lines.append(f"    before: {'; '.join(_steps(before))}")
    return lines


def _steps(entries: Sequence[Entry]) -> list[str]:
    """Return the last calls, the latest first; repeated calls once, with a count."""
    found: list[tuple[str, int]] = []
    for entry in reversed(entries):
        text = f"{entry.call} at {entry.line}"
        if found and found[-1][0] == text:
            found[-1] = text, found[-1][1] + 1
        elif len(found) == _LAST:
            break
        else:
            found.append((text, 1))
    return [text if count == 1 else f"{text} ({count} times)" for text, count in found]
