"""From what the ranks have measured to the figures of a profile."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from html import escape

from distarray.profiling.measured import Line, Part, Totals
from distarray.profiling.statements import text_of

__all__ = ["Report", "Row"]

#: A report as a table; set by :mod:`distarray.profiling.table`.
table: list[Callable[["Report"], str]] = [object.__repr__]
#: Seconds by which a rank must come later than the others to count as late.
_LATE = 5e-5
_NOTHING = Totals()


class Row:
    """One line of the program on all ranks.

    Attributes
    ----------
    line : Line
    ranks : list of Totals
        In the order of the ranks that were measured.
    late : Counter
        How often each rank was the one that the others waited for.
    """

    def __init__(self, line: Line, ranks: list[Totals]) -> None:
        self.line, self.ranks = line, ranks
        self.late: Counter[int] = Counter()

    @cached_property
    def text(self) -> str:
        """The line itself, and the lines whose operations ran here."""
        if not self.line.number:
            return "(outside of the program's lines)"
        text, runs = text_of(self.line), ", ".join(map(str, self.runs))
        return f"{text}  [and what was put off at {runs}]" if runs else text

    @property
    def calls(self) -> int:
        """How often the line was begun, on the rank that did so most often."""
        return max(totals.calls for totals in self.ranks)

    @property
    def computing(self) -> list[float]:
        """Seconds of each rank outside of conversations."""
        return [totals.computing for totals in self.ranks]

    @property
    def waiting(self) -> list[float]:
        """Seconds of each rank in conversations, before the others had come to them."""
        return [_share(t.waited, t.matched) * t.talking for t in self.ranks]

    @property
    def sending(self) -> list[float]:
        """Seconds of each rank in conversations that all had come to."""
        return [t.talking - w for t, w in zip(self.ranks, self.waiting, strict=True)]

    @property
    def spent(self) -> float:
        """Seconds at the line, of all ranks together."""
        return sum([totals.seconds for totals in self.ranks])

    @property
    def seconds(self) -> float:
        """Seconds at the line, on the average rank."""
        return self.spent / len(self.ranks)

    @property
    def imbalance(self) -> float:
        """What the slowest rank computes, by what the average one does; 1 where all are alike."""
        mean = sum(self.computing) / len(self.ranks)
        return max(self.computing) / mean if mean > 0 else 1.0

    @property
    def busiest(self) -> int:
        """The place of the rank that computes longest."""
        return self.computing.index(max(self.computing))

    def total(self, what: str) -> int:
        """The sum over the ranks of one of the counts of :class:`Totals`."""
        return sum([getattr(totals, what) for totals in self.ranks])

    def most(self, what: str) -> int:
        """The largest of the ranks' values."""
        return int(max([getattr(totals, what) for totals in self.ranks]))

    @cached_property
    def notes(self) -> list[tuple[str, int, int]]:
        """What was said there: the purpose, how often a rank did so, bytes received by all."""
        often: Counter[str] = Counter()
        nbytes: Counter[str] = Counter()
        for totals in self.ranks:
            for text, (count, received) in totals.notes.items():
                often[text] = max(often[text], count)
                nbytes[text] += received
        return sorted([(t, often[t], nbytes[t]) for t in often], key=lambda n: (-n[2], -n[1]))

    @property
    def runs(self) -> list[int]:
        """The lines of the same file that put operations off which ran here."""
        found = {line for totals in self.ranks for line in list(totals.runs)}
        return sorted([line.number for line in found if line.path == self.line.path])

    @property
    def gathers(self) -> list[tuple[str, int, int]]:
        """Those of the notes by which a cut array became whole, or was gathered for a library."""
        return [note for note in self.notes if is_gather(note[0])]


class Report:
    """The figures of a profile; print them for a table.

    Parameters
    ----------
    parts : mapping of int to Part
        The ranks' parts, as far as there are any.

    Attributes
    ----------
    parts : list of Part
        By rank.
    rows : list of Row
        The lines that took longest first.
    """

    def __init__(self, parts: Mapping[int, Part]) -> None:
        self.parts = [parts[rank] for rank in sorted(parts)]
        found: dict[Line, None] = {}
        for part in self.parts:
            found.update(dict.fromkeys(list(part.lines)))
        self._rows = {
            line: Row(line, [part.lines.get(line, _NOTHING) for part in self.parts])
            for line in found
        }
        _compare(self.parts, self._rows)
        self.rows = sorted(self._rows.values(), key=lambda row: -row.seconds)

    def __str__(self) -> str:
        return table[0](self)

    def __repr__(self) -> str:
        ranks = f"{self.size} rank{'s' * (self.size != 1)}"
        return f"<Report of {ranks}, {self.seconds:.3g} s, {len(self.rows)} lines; print it>"

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    @property
    def size(self) -> int:
        """How many ranks the program had."""
        return self.parts[0].size

    @property
    def missing(self) -> list[int]:
        """The ranks of which nothing is known."""
        known = {part.rank for part in self.parts}
        return [rank for rank in range(self.size) if rank not in known]

    @property
    def counted(self) -> bool:
        """Whether the lines were followed one by one."""
        return all(part.counted for part in self.parts)

    @property
    def seconds(self) -> float:
        """How long the profile took on the slowest rank."""
        return max(part.seconds for part in self.parts)

    @property
    def begun(self) -> float:
        """When the first rank began, by rank 0's clock."""
        return min(part.begun + part.offset for part in self.parts)

    @property
    def lines(self) -> list[Row]:
        """The rows that stand for lines of the program."""
        return [row for row in self.rows if row.line.number]

    def total(self, what: str) -> int:
        """The sum over ranks and lines of one of the counts of :class:`Totals`."""
        return sum([row.total(what) for row in self.rows])


def is_gather(note: str) -> bool:
    """Whether a purpose, as the ledger says it, is that an array becomes whole."""
    src, arrow, dst = note.partition(" -> ")
    if not arrow:
        return " gathers " in note
    dst = dst.partition("]")[0]
    whole = "Shard" not in dst and "Partial" not in dst
    return whole and "Shard" in src


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0


# -- who has waited for whom -----------------------------------------------------------------------


def _compare(parts: Iterable[Part], rows: dict[Line, Row]) -> None:
    """Work out, from when the ranks came to conversations, how long they waited in them."""
    for part in parts:
        for totals in part.lines.values():
            totals.matched = totals.waited = 0.0
    _compare_meetings(parts, rows)
    _compare_messages(parts, rows)


def _compare_meetings(parts: Iterable[Part], rows: dict[Line, Row]) -> None:
    """Collectives: all wait for the rank that came last."""
    met: dict[tuple[int, int], list[tuple[float, Part, Line, float]]] = {}
    for part in parts:
        for key, line, start, stop in list(part.meetings):
            met.setdefault(key, []).append((start + part.offset, part, line, stop - start))
    for entries in met.values():
        if len(entries) < 2:
            continue
        entries.sort(key=lambda entry: entry[0])
        last, whom, line, _ = entries[-1]
        if last - entries[0][0] > _LATE and line in rows:
            rows[line].late[whom.rank] += 1
        for start, part, line, length in entries:
            _count(part.lines.get(line), length, last - start)


def _compare_messages(parts: Iterable[Part], rows: dict[Line, Row]) -> None:
    """Messages: the receiver waits until the last one is sent that it needs."""
    sent = {
        key: (at + part.offset, part.rank) for part in parts for key, at in dict(part.sent).items()
    }
    for part in parts:
        for line, start, stop, needed in list(part.arrivals):
            known = [sent[message] for message in needed if message in sent]
            if not known:
                continue
            last, whom = max(known)
            wait = last - (start + part.offset)
            if wait > _LATE and line in rows:
                rows[line].late[whom] += 1
            _count(part.lines.get(line), stop - start, wait)


def _count(totals: Totals | None, length: float, wait: float) -> None:
    if totals is not None:
        totals.matched += length
        totals.waited += min(max(wait, 0.0), length)
