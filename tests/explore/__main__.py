"""Draw programs and run them until the time is up: ``python -m tests.explore --seconds 600``.

With ``--ranks`` the ranks are MPI processes, one number of them after the other; without, threads
of this process, and each program draws how many. A program that goes wrong is made as small as it
can be, shown, and written to build/explore as a script; the exit status is then 1.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.explore.jobs import Job
from tests.explore.program import THRESHOLDS, Failure, Program, draw_program, on_threads
from tests.explore.script import script
from tests.explore.shrinking import shrunk

FOUND = Path("build/explore")
Runner = Callable[[Program], Failure | None]


@dataclass
class Search:
    """What is looked for and what has been found.

    Attributes
    ----------
    seed : int
        Of the first program; the next ones have the numbers after it.
    until : float
        The time (`time.monotonic`) to end at.
    limits : tuple of int
        How many programs and how many failures end it as well.
    below : int or None
        `config.replicate_below`, if programs are not to draw it.
    aliases : bool
        Whether programs see one memory in several ways; else they are of all of NumPy's statements.
    """

    seed: int
    until: float
    limits: tuple[int, int]
    below: int | None
    aliases: bool = False
    programs: int = 0
    lines: int = 0
    failures: int = 0

    def draw(self, ranks: int | None) -> Program:
        """The next program."""
        program = draw_program(
            self.seed + self.programs, ranks=ranks, below=self.below, aliases=self.aliases
        )
        self.programs += 1
        self.lines += len(program.lines)
        return program

    @property
    def is_over(self) -> bool:
        """Whether the time is up or enough has been found."""
        enough = self.programs >= self.limits[0] or self.failures >= self.limits[1]
        return enough or time.monotonic() > self.until

    def report(
        self, program: Program, failure: Failure, run: Runner, steps: int, options: str
    ) -> None:
        """Make a program that fails small, show it and write it down."""
        self.failures += 1
        print(f"seed {program.seed} goes wrong ({failure.kind}); making it small", flush=True)
        again = f"python -m tests.explore --seed {program.seed} --programs 1{options}"
        again += " --aliases" if self.aliases else ""
        program, failure = shrunk(program, failure, run, steps)
        FOUND.mkdir(parents=True, exist_ok=True)
        path = FOUND / f"seed_{program.seed}_on_{program.ranks}.py"
        path.write_text(script(program, failure))
        print(f"on {program.ranks} ranks, a mesh of shape {program.mesh}:")
        print("\n".join([f"    {line}" for line in program.lines]))
        print(f"{failure.kind}: {failure.text}\nwritten to {path}; all of it: {again}", flush=True)


def on_thread_ranks(search: Search) -> None:
    """Run programs on thread ranks."""
    while not search.is_over:
        program = search.draw(None)
        failure = on_threads(program)
        if failure is not None:
            search.report(program, failure, on_threads, 1500, "")


def on_processes(search: Search, ranks: int) -> None:
    """Run programs on MPI processes, started once and again after each failure."""
    job = Job(ranks)
    try:
        while not search.is_over:
            program = search.draw(ranks)
            failure = job.run(program)
            if failure is not None:
                threads = on_threads(program)
                again, steps = (on_threads, 1500) if threads is not None else (job.run, 150)
                search.report(program, threads or failure, again, steps, f" --ranks {ranks}")
    finally:
        job.close()


def _chosen(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.explore", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to look")
    parser.add_argument("--ranks", default="", help="numbers of MPI processes, as 1,2,3")
    parser.add_argument("--seed", type=int, help="of the first program; the clock's if not given")
    parser.add_argument("--programs", type=int, default=1 << 40, help="how many to run at most")
    parser.add_argument("--failures", type=int, default=5, help="how many to show at most")
    parser.add_argument(
        "--below", type=int, choices=THRESHOLDS, help="config.replicate_below; drawn if not given"
    )
    parser.add_argument(
        "--aliases", action="store_true", help="programs that see one memory in several ways"
    )
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; the exit status."""
    chosen = _chosen(arguments)
    warnings.simplefilter("ignore")
    seed = random.SystemRandom().randrange(1 << 40) if chosen.seed is None else chosen.seed
    counts = [int(n) for n in chosen.ranks.split(",") if n]
    print(f"seeds from {seed} on", flush=True)
    status = 0
    for ranks in counts or [0]:
        until = time.monotonic() + chosen.seconds / max(1, len(counts))
        search = Search(
            seed, until, (chosen.programs, chosen.failures), chosen.below, chosen.aliases
        )
        if ranks:
            on_processes(search, ranks)
        else:
            on_thread_ranks(search)
        seed += search.programs
        kind = f"{ranks} processes" if ranks else "threads"
        print(
            f"{kind}: {search.lines} statements in {search.programs} programs, "
            f"differences: {search.failures}",
            flush=True,
        )
        status = status or int(search.failures > 0)
    return status


if __name__ == "__main__":
    os.chdir(Path(__file__).resolve().parents[2])
    sys.exit(main())
