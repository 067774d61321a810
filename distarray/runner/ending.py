"""Termination of the whole job: one exit status, and each exception printed once."""

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

from distarray.comm.waits.watch import elsewhere
from distarray.runner.answers import Answers
from distarray.runner.talk import Line
from distarray.runner.tracebacks import written

__all__ = ["Outcome", "conclude", "meet", "summary"]

#: Seconds that a rank that has failed waits for the others to fail, too.
PATIENCE = 4.0
_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")
#: Libraries that write files without the runner's functions, as a traceback names them.
_WRITERS = re.compile(r"\b(h5py|netCDF4|sqlite3|zarr)\b")


#: Function in the place of ``sys.excepthook``.
Hook = Callable[[type[BaseException], BaseException, TracebackType | None], object]


def _told(hook: Hook, error: BaseException) -> str:
    """Call the program's hook for an error; if it raises, return the text that Python prints."""
    try:
        hook(type(error), error, error.__traceback__)
    except Exception as fault:
        return (
            f"Error in sys.excepthook:\n{written(fault)}\nOriginal exception was:\n{written(error)}"
        )
    return ""


@dataclass(frozen=True)
class Outcome:
    """Outcome of the program on one rank: its exit status, and the text for standard error.

    `warned` has this rank's warnings; only rank 0 has printed its own. `ends` is True if a
    statement at the prompt ends the job.
    """

    code: int = 0
    text: str = ""
    warned: tuple[str, ...] = ()
    ends: bool = False

    @classmethod
    def of(cls, error: BaseException | None, hook: Hook | None = None) -> "Outcome":
        """Return the outcome that Python gives to an uncaught exception.

        `hook` is the program's own ``sys.excepthook``, which prints the error.
        """
        if error is None:
            return cls()
        if not isinstance(error, SystemExit):
            code = 130 if isinstance(error, KeyboardInterrupt) else 1
            if hook is not None:
                return cls(code, _told(hook, error))
            return cls(code, written(error) + elsewhere(error))
        if error.code is None or isinstance(error.code, int):
            return cls((error.code or 0) & 0xFF)
        return cls(1, f"{error.code}\n")

    @property
    def likeness(self) -> tuple[int, str]:
        """Key by which outcomes are compared; addresses are masked."""
        return self.code, _ADDRESS.sub("0x", self.text)


def conclude(line: Line, answers: Answers, outcome: Outcome) -> int:
    """End the program on all ranks together, or abort the job.

    Returns
    -------
    int
        The exit status of the job.

    See Also
    --------
    meet : describes the parameters, and the case of a rank that fails alone.
    """
    outcomes = meet(line, answers, outcome)
    code = next((o.code for o in outcomes if o.code), 0)
    # Ranks that have different settings or imports may have computed different results.
    problem = line.differences() if code == 0 and line.size > 1 else ""
    if problem and line.rank == 0:
        _say(f"distarray: {problem}\n")
    line.barrier()  # a launcher may end the job as soon as one rank exits with a status
    return code or int(bool(problem))


def meet(line: Line, answers: Answers, outcome: Outcome) -> list[Outcome]:
    """Synchronize the ranks after the same piece of the program, and print their texts on rank 0.

    Parameters
    ----------
    line : Line
        Communicator that is used for nothing else.
    answers : Answers
        Results that this rank has not looked up are received.
    outcome : Outcome
        Outcome of this rank.

    Returns
    -------
    list of Outcome
        The outcomes of all ranks. If this rank failed and another does not arrive soon, this does
        not return: it prints the traceback and aborts the job.
    """
    failed = outcome.code != 0
    # The patience differs by rank, so that of several ranks with different errors only the first
    # prints.
    patience = PATIENCE + 0.25 * min(line.rank, 8) if failed else None
    if not line.all_arrive(patience, answers.poke):
        text = f"{outcome.text}{_way_out(outcome.text)}"
        _say(f"distarray: rank {line.rank} of {line.size} raised:\n{text}")
        line.abort(outcome.code)
    outcomes = line.allgather_object(outcome)
    answers.finish(line)
    if line.rank == 0:
        _say(_unheard(outcomes) + summary(outcomes))
    return outcomes


def _unheard(outcomes: list[Outcome]) -> str:
    """Return the warnings that rank 0 has not printed, equal ones once."""
    found = dict.fromkeys([text for outcome in outcomes for text in outcome.warned])
    return "".join([text for text in found if text not in outcomes[0].warned])


def summary(outcomes: list[Outcome]) -> str:
    """Return the texts of all ranks, equal ones once."""
    alike: dict[tuple[int, str], list[int]] = {}
    for rank, outcome in enumerate(outcomes):
        alike.setdefault(outcome.likeness, []).append(rank)
    if len(alike) == 1:
        return outcomes[0].text
    parts = []
    for ranks in alike.values():
        text = outcomes[ranks[0]].text
        who = f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))} of {len(outcomes)}"
        if text:
            parts.append(f"distarray: {who} raised:\n{text}")
    return "\n".join(parts) + _way_out("".join([outcome.text for outcome in outcomes]))


def _way_out(text: str) -> str:
    """Return advice for ranks that wrote the same file, if a traceback suggests that."""
    names = sorted(set(_WRITERS.findall(text)))
    if not names:
        return ""
    return (
        f"\ndistarray: files that {' or '.join(names)} writes are written by every rank at the "
        "same time, which may be the reason. Write them by distarray.io, or on one rank alone: "
        "if distarray.default_mesh().rank == 0\n"
    )


def _say(text: str) -> None:
    """Write a text to the real standard error, unbroken."""
    if sys.stdout is not None and not sys.stdout.closed:
        sys.stdout.flush()
    stream = sys.__stderr__
    if stream is not None and text:
        stream.write(text)
        stream.flush()
