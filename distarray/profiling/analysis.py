"""Analysis of a profile: from the ranks' measurements to the figures of each line."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from html import escape

from distarray.profiling.measured import Line, Part, Totals
from distarray.profiling.statements import text_of

__all__ = ["Report", "Row"]

#: Function that formats a report as a table; set by :mod:`distarray.profiling.table`.
table: list[Callable[["Report"], str]] = [object.__repr__]
#: Seconds by which a rank must arrive after the others to count as late.
_LATE = 5e-5
_NOTHING = Totals()


class Row:
    """One line of the program on all ranks.

    Attributes
    ----------
    line : Line
    ranks : list of Totals
        One entry per measured rank, in the order of the ranks.
    late : Counter
        Number of times the other ranks waited for each rank.
    """

    def __init__(self, line: Line, ranks: list[Totals]) -> None:
        self.line, self.ranks = line, ranks
        self.late: Counter[int] = Counter()

    @cached_property
    def text(self) -> str:
        """Text of the line, with the numbers of the lines whose deferred operations ran here."""
        if not self.line.number:
            return "(outside of the program's lines)"
        text, runs = text_of(self.line), ", ".join(map(str, self.runs))
        return f"{text}  [and what was put off at {runs}]" if runs else text

    @property
    def calls(self) -> int:
        """Number of times the line was begun, on the rank with the most."""
        return max(totals.calls for totals in self.ranks)

    @property
    def computing(self) -> list[float]:
        """Seconds of each rank outside of communication."""
        return [totals.computing for totals in self.ranks]

    @property
    def waiting(self) -> list[float]:
        """Seconds of each rank in communication, before the other ranks arrived."""
        return [_share(t.waited, t.matched) * t.talking for t in self.ranks]

    @property
    def sending(self) -> list[float]:
        """Seconds of each rank in communication, after all ranks had arrived."""
        return [t.talking - w for t, w in zip(self.ranks, self.waiting, strict=True)]

    @property
    def spent(self) -> float:
        """Seconds at the line, of all ranks together."""
        return sum([totals.seconds for totals in self.ranks])

    @property
    def seconds(self) -> float:
        """Seconds at the line, mean over the ranks."""
        return self.spent / len(self.ranks)

    @property
    def imbalance(self) -> float:
        """Load imbalance: maximum compute time divided by mean compute time; 1 if balanced."""
        mean = sum(self.computing) / len(self.ranks)
        return max(self.computing) / mean if mean > 0 else 1.0

    @property
    def busiest(self) -> int:
        """Index of the rank that computes longest."""
        return self.computing.index(max(self.computing))

    def total(self, what: str) -> int:
        """Sum one of the counts of :class:`Totals` over the ranks."""
        return sum([getattr(totals, what) for totals in self.ranks])

    def most(self, what: str) -> int:
        """Return the largest value over the ranks."""
        return int(max([getattr(totals, what) for totals in self.ranks]))

    @cached_property
    def notes(self) -> list[tuple[str, int, int]]:
        """Purposes of the communication: text, most calls on one rank, bytes received by all."""
        often: Counter[str] = Counter()
        nbytes: Counter[str] = Counter()
        for totals in self.ranks:
            for text, (count, received) in totals.notes.items():
                often[text] = max(often[text], count)
                nbytes[text] += received
        return sorted([(t, often[t], nbytes[t]) for t in often], key=lambda n: (-n[2], -n[1]))

    @property
    def runs(self) -> list[int]:
        """Lines of the same file whose deferred operations ran here."""
        found = {line for totals in self.ranks for line in list(totals.runs)}
        return sorted([line.number for line in found if line.path == self.line.path])

    @property
    def gathers(self) -> list[tuple[str, int, int]]:
        """Notes in which a sharded array became whole, or was gathered for a library."""
        return [note for note in self.notes if is_gather(note[0])]


class Report:
    """Figures of a profile; ``print`` shows them as a table.

    Parameters
    ----------
    parts : mapping of int to Part
        The parts of the ranks, by rank; some may be missing.

    Attributes
    ----------
    parts : list of Part
        Sorted by rank.
    rows : list of Row
        Sorted by seconds, the longest first.
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
        """Number of ranks of the program."""
        return self.parts[0].size

    @property
    def missing(self) -> list[int]:
        """Ranks whose part is missing."""
        known = {part.rank for part in self.parts}
        return [rank for rank in range(self.size) if rank not in known]

    @property
    def counted(self) -> bool:
        """True if every line was followed; False if lines were sampled."""
        return all(part.counted for part in self.parts)

    @property
    def seconds(self) -> float:
        """Duration of the profile on the slowest rank, in seconds."""
        return max(part.seconds for part in self.parts)

    @property
    def begun(self) -> float:
        """Time at which the first rank began, by rank 0's clock."""
        return min(part.begun + part.offset for part in self.parts)

    @property
    def lines(self) -> list[Row]:
        """Rows of the program's own lines."""
        return [row for row in self.rows if row.line.number]

    def total(self, what: str) -> int:
        """Sum one of the counts of :class:`Totals` over ranks and lines."""
        return sum([row.total(what) for row in self.rows])


def is_gather(note: str) -> bool:
    """Return True if a note of the ledger describes a sharded array becoming whole."""
    src, arrow, dst = note.partition(" -> ")
    if not arrow:
        return " gathers " in note
    dst = dst.partition("]")[0]
    whole = "Shard" not in dst and "Partial" not in dst
    return whole and "Shard" in src


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0


# -- which rank waited for which -------------------------------------------------------------------


def _compare(parts: Iterable[Part], rows: dict[Line, Row]) -> None:
    """Compute each line's waiting seconds from the times at which communication calls began."""
    for part in parts:
        for totals in part.lines.values():
            totals.matched = totals.waited = 0.0
    _compare_meetings(parts, rows)
    _compare_messages(parts, rows)


def _compare_meetings(parts: Iterable[Part], rows: dict[Line, Row]) -> None:
    """Compare collectives: every rank waits for the rank that arrived last."""
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
    """Compare messages: the receiver waits until the last message it needs has been sent."""
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
