"""Programs on MPI processes: a job that is handed one after the other, and ended when it hangs."""

from __future__ import annotations

import os
import pickle
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

from tests.explore.program import Failure, Program, follow
from tests.launcher import SETTINGS, find_mpiexec
from tests.waiting import everything_is_kept

__all__ = ["Job"]

ROOT = Path(__file__).resolve().parents[2]
#: Seconds that a program may take before it counts as hung; other work may keep the cores busy.
PATIENCE = 240.0


class Job:
    """Ranks that wait for programs: started when the first one comes, and anew after a failure.

    Programs go to rank 0 by a pipe, and it says by another one what became of them.
    """

    def __init__(self, ranks: int, patience: float = PATIENCE) -> None:
        self.ranks = ranks
        self.patience = patience
        self._process: subprocess.Popen[bytes] | None = None
        self._place = ""
        self._pipes: list[Any] = []

    def run(self, program: Program) -> Failure | None:
        """Run a program on all ranks; one for another number of ranks does not fail."""
        if program.ranks != self.ranks:
            return None
        if self._process is None:
            self._start()
        programs, answers = self._pipes
        pickle.dump(program, programs)
        programs.flush()
        failure = self._answer(answers, len(program.lines) - 1)
        if failure is not None:
            self.close()
        return failure

    def _start(self) -> None:
        self._place = tempfile.mkdtemp(prefix="explore-")
        paths = [os.path.join(self._place, name) for name in ("programs", "answers")]
        for path in paths:
            os.mkfifo(path)
        # Opened both ways, so that nobody waits for the other end.
        self._pipes = [
            os.fdopen(os.open(path, os.O_RDWR), mode) for path, mode in zip(paths, ("wb", "rb"))
        ]
        inner = [sys.executable, "-m", "tests.explore.jobs", *paths]
        self._process = subprocess.Popen(
            [*find_mpiexec(), "-n", str(self.ranks), *inner],
            cwd=ROOT,
            env=os.environ | SETTINGS,
            start_new_session=True,
        )

    def _answer(self, answers: Any, last: int) -> Failure | None:
        """What rank 0 says; where it says nothing, any line up to the `last` may be the one."""
        until = time.monotonic() + self.patience
        while time.monotonic() < until:
            if select.select([answers], [], [], 0.5)[0]:
                failure: Failure | None = pickle.load(answers)
                return failure
            if self._process is not None and self._process.poll() is not None:
                return Failure(last, "died", f"exit status {self._process.returncode}")
        return Failure(last, "hangs", f"no answer within {self.patience:.0f} s")

    def close(self) -> None:
        """End the ranks."""
        if self._process is None:
            return
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process = None
        for pipe in self._pipes:
            pipe.close()
        shutil.rmtree(self._place, ignore_errors=True)


def serve(programs: str, answers: str) -> None:
    """Be one rank of a job: run what comes until the job is ended."""
    from distarray.comm.mpi import group_of

    warnings.simplefilter("ignore")
    everything_is_kept()
    group = group_of()
    if group.rank == 0:
        with open(programs, "rb") as coming, open(answers, "wb") as going:
            while True:
                pickle.dump(_followed(group, pickle.load(coming)), going)
                going.flush()
    while True:
        _followed(group, None)


def _followed(group: Any, program: Program | None) -> Failure | None:
    """What becomes of a program that rank 0 brings; the others wait for it asleep."""
    if group.rank:
        here = group.comm.Ibarrier()
        while not here.Test():
            time.sleep(0.001)
    else:
        group.comm.Ibarrier().Wait()
    program = group.broadcast_object(program)
    assert program is not None
    at = [0]
    try:
        return follow(program, group, at)
    except Exception as error:  # in the comparison, where only ranks that have parted fail
        return Failure(at[0], "ranks part", f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    serve(*sys.argv[1:])
