"""Profile as a table for the terminal."""

from distarray.comm.ledger import size_text
from distarray.comm.user_lines import place_of
from distarray.profiling.advice import advice, time_text
from distarray.profiling.analysis import Report, Row
from distarray.profiling.analysis import table as printed

__all__ = ["headline", "table"]

#: Maximum number of lines in the table.
_ROWS = 25
_HEAD = (
    f"{'seconds':>8} {'%':>5}  {'compute':>8} {'send':>8} {'wait':>8} {'uneven':>6} {'calls':>8} "
    f"{'msgs out':>8} {'in':>8} {'sent':>10} {'received':>10} {'taken':>9} {'peak':>9}  line"
)


def headline(report: Report) -> list[str]:
    """Summarize the profile in sentences."""
    peak = max(report.parts, key=lambda part: part.peak)
    ranks = f"{report.size} rank{'s' * (report.size != 1)}"
    found = [
        f"Profile of {ranks}, {time_text(report.seconds)}; "
        f"{size_text(report.total('out'))} sent in {report.total('messages_out'):,} messages; "
        f"most memory {size_text(peak.peak)}, on rank {peak.rank}"
    ]
    ended: dict[str, list[int]] = {}
    for part in report.parts:
        ended.setdefault(part.ended, []).append(part.rank)
    found += [f"{_ranks(who)} ended early: {text}" for text, who in ended.items() if text]
    if report.missing:
        found.append(f"{_ranks(report.missing)} did not come to the end, and is not counted")
    if not report.counted:
        found.append("Seconds by line are sampled; runs are counted from Python 3.12 on")
    return found


def _ranks(numbers: list[int]) -> str:
    """Format rank numbers, such as ``Rank 3``, or ``Each of ranks 0, 1, 2, ...``."""
    some = ", ".join(map(str, numbers[:8])) + (", ..." if len(numbers) > 8 else "")
    return f"Rank {some}" if len(numbers) == 1 else f"Each of ranks {some}"


def table(report: Report) -> str:
    """Format the lines that took longest, and the advice on the most expensive ones."""
    lines = [*headline(report), "", _HEAD]
    rows = report.rows[:_ROWS]
    lines += [_row(row, report) for row in rows]
    rest = report.rows[_ROWS:]
    if rest:
        seconds = sum([row.seconds for row in rest])
        lines.append(f"{_seconds(seconds)} {_percent(seconds, report)}  {len(rest)} other lines")
    told = advice(report)
    if told:
        lines += ["", "What to do"]
    for number, (row, sentence) in enumerate(told, 1):
        lines += [f"{number:2}. {place_of(*row.line)}  {row.text[:70]}", f"    {sentence}"]
    return "\n".join(lines)


def _row(row: Row, report: Report) -> str:
    count = len(row.ranks)
    calls = f"{row.calls:,}" if row.calls else "-"
    where = place_of(*row.line) if row.line.number else ""
    means = " ".join([_seconds(sum(x) / count) for x in (row.computing, row.sending, row.waiting)])
    return (
        f"{_seconds(row.seconds)} {_percent(row.seconds, report)}  {means} {row.imbalance:6.2f} "
        f"{calls:>8} {row.total('messages_out'):8,} {row.total('messages_in'):8,} "
        f"{size_text(row.total('out')):>10} {size_text(row.total('into')):>10} "
        f"{size_text(row.most('temporary')):>9} {size_text(row.most('peak')):>9}  "
        f"{where}  {row.text[:60]}"
    ).rstrip()


def _seconds(seconds: float) -> str:
    return f"{seconds:8.3f}" if seconds >= 5e-4 or not seconds else f"{seconds:8.1e}"


def _percent(seconds: float, report: Report) -> str:
    return f"{100 * seconds / report.seconds:5.1f}"


printed[0] = table
