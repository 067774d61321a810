"""Study of scaling: from runs on some numbers of ranks to laws of growth and extrapolation."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import hypot
from typing import NamedTuple

from distarray.profiling.measured import Line
from distarray.profiling.scaling.laws import (
    Growth,
    Law,
    count_law,
    growth,
    memory_law,
    seconds_law,
)
from distarray.profiling.scaling.machine import Machine
from distarray.profiling.scaling.runs import Failure, Measured, Run, copies

__all__ = ["COUNTS", "Check", "End", "LineLaws", "Prediction", "Study"]

#: Numbers of ranks to which the study extrapolates.
COUNTS = tuple([1 << power for power in range(6, 15)])
#: Minimum seconds of the whole program for its seconds to be extrapolated.
SHORTEST = 0.1
#: Scaling ends where twice as many ranks take more than this share of the time.
_GAIN = 0.9
#: Minimum share of all bytes or messages for a line to be compared.
_COUNTS_AT_ALL = 0.01
_NOTHING = Measured()
#: Figures of collectives.
_TOGETHER = ("collectives", "collective_bytes", "gathers", "gathered")


class Check(NamedTuple):
    """Comparison of the run on the most ranks with the laws from fewer ranks.

    Attributes
    ----------
    ranks : int
    messages, nbytes : float
        Largest relative deviation of a line with a relevant share.
    """

    ranks: int
    messages: float
    nbytes: float


class Prediction(NamedTuple):
    """Extrapolated figures on a number of ranks.

    Attributes
    ----------
    ranks : int
    seconds, error : float
        Of the whole program, and the standard error as far as the fits determine it.
    sending : float
        Seconds of messages, included in `seconds`.
    memory : float
        Bytes per rank.
    worst : Line
        The line that takes longest.
    """

    ranks: int
    seconds: float
    error: float
    sending: float
    memory: float
    worst: Line


class End(NamedTuple):
    """Number of ranks from which on more ranks hardly help.

    Attributes
    ----------
    ranks : int
        From here on, twice as many ranks gain less than a tenth.
    line : Line
        The line responsible: its time is the farthest from halving.
    sends : bool
        True if its messages take longer than its computing.
    """

    ranks: int
    line: Line
    sends: bool


@dataclass(frozen=True)
class LineLaws:
    """Laws of one line: of the messages of all ranks, and of the work of one rank."""

    messages: Law
    nbytes: Law
    collectives: Law
    collective_bytes: Law
    gathers: Law
    gathered: Law
    busiest_messages: Law
    busiest_collectives: Law
    busiest_bytes: Law
    slowest: Law
    temporary: Law

    def all_messages(self, ranks: int) -> float:
        """Return the messages and collectives of all ranks, as the ledger counts them."""
        gathers = self.gathers(ranks) * copies(ranks)
        return self.messages(ranks) + self.collectives(ranks) + gathers

    def all_bytes(self, ranks: int) -> float:
        """Return the bytes that all ranks send, as the ledger counts them."""
        gathered = self.gathered(ranks) * copies(ranks)
        return self.nbytes(ranks) + self.collective_bytes(ranks) + gathered

    def one_rank(self, ranks: int) -> tuple[float, float, float]:
        """Return the messages, collectives and bytes of the rank with the most of them.

        In a gather each rank receives the parts of all others.
        """
        gathers = self.gathers(ranks) / ranks
        messages, collectives = self.busiest_messages(ranks), self.busiest_collectives(ranks)
        if copies(ranks) == 1:
            collectives += gathers
        else:
            messages += gathers * copies(ranks)
        nbytes = self.busiest_bytes(ranks) + self.gathered(ranks) * (1 - 1 / ranks)
        return messages, collectives, nbytes


@dataclass
class Study:
    """Study of a program's runs on several numbers of ranks.

    Parameters
    ----------
    program : str
        Command line of the program.
    runs : list of Run
        Completed runs, by the number of ranks.
    failures : list of Failure
    machine : Machine or None
        Machine to extrapolate to; None if nothing is extrapolated.
    here : Machine or None
        Machine on which the runs were measured.
    cores : int
        Number of ranks that have a core each; seconds of more ranks do not predict more cores.
    limit : float
        Maximum bytes of memory per rank.
    """

    program: str
    runs: Sequence[Run]
    failures: Sequence[Failure] = ()
    machine: Machine | None = None
    here: Machine | None = None
    cores: int = 1
    limit: float = 0.0
    _laws: dict[tuple[Line, tuple[int, ...]], LineLaws] = field(default_factory=dict, repr=False)

    @property
    def counts(self) -> list[int]:
        """Numbers of ranks that were measured."""
        return [run.ranks for run in self.runs]

    @cached_property
    def timed(self) -> list[Run]:
        """Runs whose seconds are fitted: those with a core for each rank, if at least two."""
        found = [run for run in self.runs if run.ranks <= self.cores]
        return found if len(found) > 1 else list(self.runs)

    @property
    def crowded(self) -> list[int]:
        """Numbers of ranks that had to share cores."""
        return [count for count in self.counts if count > self.cores]

    @property
    def too_short(self) -> bool:
        """True if the program runs too briefly for its seconds to be extrapolated."""
        return max(run.seconds for run in self.timed) < SHORTEST

    @cached_property
    def lines(self) -> list[Line]:
        """All lines, sorted by seconds in the last timed run, the longest first."""
        known = {line: None for run in self.runs for line in run.lines}
        last = self.timed[-1]
        return sorted(known, key=lambda line: -self.of(last, line).seconds)

    @property
    def own(self) -> list[Line]:
        """Lines of the program itself."""
        return [line for line in self.lines if line.number]

    @staticmethod
    def of(run: Run, line: Line) -> Measured:
        """Return the figures of a line in a run; zeros if the line did not run."""
        return run.lines.get(line, _NOTHING)

    def text(self, line: Line) -> str:
        """Return the text of a line."""
        return next((run.lines[line].text for run in self.runs if line in run.lines), "")

    def values(self, line: Line, what: str, runs: Sequence[Run] | None = None) -> list[float]:
        """Return one of the figures of a line, by run."""
        return [max(0, getattr(self.of(run, line), what)) for run in runs or self.runs]

    def growth(self, line: Line, what: str) -> Growth | None:
        """Fit the exponent of a figure of a line; for seconds, only from runs with enough cores.

        One rank sends no messages, so counts of communication are fitted from two ranks on.
        """
        runs = self.timed if what in ("seconds", "computing") else list(self.runs)
        if what not in ("seconds", "computing", "temporary"):
            runs = [run for run in runs if run.ranks > 1]
        return growth([run.ranks for run in runs], self.values(line, what, runs))

    # -- laws -------------------------------------------------------------------------------------

    def laws(self, line: Line, runs: Sequence[Run] | None = None) -> LineLaws:
        """Return the laws of a line, from all runs or from `runs`."""
        runs = self.runs if runs is None else runs
        key = line, tuple([run.ranks for run in runs])
        if key not in self._laws:
            self._laws[key] = self._fitted(line, runs)
        return self._laws[key]

    def _fitted(self, line: Line, runs: Sequence[Run]) -> LineLaws:
        ranks = [run.ranks for run in runs]
        timed = [run for run in self.timed if run in runs] or list(runs)
        several = [run for run in runs if run.ranks > 2]
        if len(several) < 3:  # with two ranks each has one neighbor, with more two
            several = list(runs)

        def counts(what: str, chosen: Sequence[Run] = runs) -> Law:
            together = what.removeprefix("busiest_") in _TOGETHER
            chosen_ranks = [run.ranks for run in chosen]
            return count_law(chosen_ranks, self.values(line, what, chosen), together)

        return LineLaws(
            counts("messages"),
            counts("nbytes"),
            counts("collectives"),
            counts("collective_bytes"),
            counts("gathers"),
            counts("gathered"),
            counts("busiest_messages", several),
            counts("busiest_collectives", several),
            counts("busiest_bytes", several),
            seconds_law([run.ranks for run in timed], self.values(line, "slowest", timed)),
            memory_law(ranks, self.values(line, "temporary", runs)),
        )

    @cached_property
    def memory(self) -> Law:
        """Law of the memory of the rank with the most."""
        return memory_law(self.counts, [run.peak for run in self.runs])

    @cached_property
    def check(self) -> Check | None:
        """Comparison of the last run with the laws from the others; None for under four runs."""
        if len(self.runs) < 4:
            return None
        *fewer, last = self.runs
        return Check(
            last.ranks,
            self.deviation(last, "all_messages", fewer),
            self.deviation(last, "all_bytes", fewer),
        )

    def deviation(self, run: Run, what: str, fewer: Sequence[Run] | None = None) -> float:
        """Return the largest relative error over lines when laws of `fewer` runs predict `run`."""
        total = sum(getattr(found, what) for found in run.lines.values())
        worst = 0.0
        for line in self.lines:
            real = getattr(self.of(run, line), what)
            told = getattr(self.laws(line, fewer), what)(run.ranks)
            if max(real, told) > _COUNTS_AT_ALL * total:
                worst = max(worst, abs(told - real) / max(real, 1))
        return worst

    # -- more ranks -------------------------------------------------------------------------------

    def line_seconds(self, line: Line, ranks: int) -> tuple[float, float]:
        """Return a line's seconds of computing and of sending on a number of ranks."""
        assert self.machine is not None
        laws = self.laws(line)
        sending = self.machine.seconds(*laws.one_rank(ranks), ranks)
        return self._slower() * laws.slowest(ranks), sending

    def _slower(self) -> float:
        """Return how many times longer the other machine computes, by its memory bandwidth."""
        if self.machine is None or self.here is None:
            return 1.0
        return self.here.memory / self.machine.memory

    def predicted(self, ranks: int) -> Prediction:
        """Extrapolate to a number of ranks."""
        each = {line: self.line_seconds(line, ranks) for line in self.lines}
        error = self._slower() * hypot(*[self.laws(line).slowest.error(ranks) for line in each])
        return Prediction(
            ranks,
            sum(sum(pair) for pair in each.values()),
            error,
            sum(sending for _, sending in each.values()),
            self.memory(ranks),
            max(self.own or each, key=lambda line: sum(each[line])),
        )

    @cached_property
    def predictions(self) -> list[Prediction]:
        """Extrapolations to `COUNTS`; empty without a machine, with one run, or if too short."""
        if self.machine is None or len(self.runs) < 2 or self.too_short:
            return []
        return [self.predicted(count) for count in COUNTS]

    @cached_property
    def end(self) -> End | None:
        """End of scaling of the program's lines; None if it is not before the last of `COUNTS`."""
        if not self.predictions or not self.own:
            return None
        ranks = self.timed[-1].ranks
        while ranks < COUNTS[-1]:
            now, then = [
                sum([sum(self.line_seconds(line, count)) for line in self.own])
                for count in (ranks, 2 * ranks)
            ]
            if then > _GAIN * now:
                return self._blamed(ranks)
            ranks *= 2
        return None

    def _blamed(self, ranks: int) -> End:
        def missed(line: Line) -> float:
            now, then = self.line_seconds(line, ranks), self.line_seconds(line, 2 * ranks)
            return sum(then) - sum(now) / 2

        line = max(self.own, key=missed)
        computing, sending = self.line_seconds(line, 2 * ranks)
        return End(ranks, line, sending > computing)

    @cached_property
    def full(self) -> tuple[int, Line] | None:
        """First number of ranks that exceeds the memory limit, and the line that takes most."""
        if not self.limit or len(self.runs) < 2:
            return None
        found = [count for count in (*self.counts, *COUNTS) if self.memory(count) > self.limit]
        if not found:
            return None
        taken = {line: self.laws(line).temporary(found[0]) for line in self.lines}
        return found[0], max(taken, key=lambda line: taken[line])
