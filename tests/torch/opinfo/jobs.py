"""Jobs of MPI processes that judge units, begun anew where one hung, died or parted the ranks."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.launcher import ROOT, environment, find_mpiexec
from tests.torch.opinfo.variants import Unit
from tests.torch.opinfo.worker import NOTE, RECORD, STACKS, TODO

__all__ = ["run"]

#: Seconds for a whole job, whose watchdogs end it much earlier, and for its end.
LIMIT, ENDING = 7200.0, 20.0
#: A file for what the processes print.
SAID = "said"

Entry = dict[str, Any]


def run_on_all(
    units: Sequence[Unit],
    counts: str,
    out: Path | None,
    worker: str = "tests.torch.opinfo.worker",
    **settings: Any,
) -> list[Entry]:
    """Judge units on several numbers of ranks ("2,4"), and write the entries to a file, if any."""
    if out is not None:
        out = out.resolve()
        out.write_text("")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
    found: list[Entry] = []
    for ranks in map(int, counts.split(",")):
        found += run(units, ranks, worker, out=out and str(out), **settings)
    if out is not None:  # with those of units that ended a job
        out.write_text("".join(json.dumps(entry) + "\n" for entry in found))
    return found


def run(
    units: Sequence[Unit], ranks: int, worker: str = "tests.torch.opinfo.worker", **settings: Any
) -> list[Entry]:
    """Judge units on a number of ranks, by as many jobs as it takes; one entry for each.

    The settings are those of `worker.Rank`, and `worker` is the module that ranks run.
    """
    place = Path(tempfile.mkdtemp(prefix="opinfo-"))
    try:
        found: list[Entry] = []
        while left := _left(units, found):
            (place / TODO).write_text(json.dumps({"units": left, **settings}))
            found += _job(place, left, ranks, worker)
        return found
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _left(units: Sequence[Unit], found: list[Entry]) -> list[Unit]:
    done = {(entry["variant"], entry["form"]) for entry in found}
    return [unit for unit in units if unit not in done]


def _job(place: Path, units: list[Unit], ranks: int, worker: str) -> list[Entry]:
    """What one job says, and what is to be said of the unit that ended it."""
    for name in (RECORD, *[file.format(r) for r in range(ranks) for file in (NOTE, STACKS)]):
        (place / name).write_text("")
    argv = [*find_mpiexec(), "-n", str(ranks), sys.executable, "-m", worker]
    # Who waits for whom is found out by the watchdogs of the ranks alone.
    env = environment(DISTARRAY_WAIT_LIMIT="0", OMP_NUM_THREADS="1")
    status = _launch([*argv, str(place)], env, place / SAID)
    said = (place / SAID).read_text(errors="replace")
    found = [json.loads(line) for line in (place / RECORD).read_text().splitlines()]
    if status != 0:
        culprit = _culprit(place, units, ranks)
        if culprit is None:
            raise RuntimeError(f"no unit has begun, exit status {status}:\n{said[-4000:]}")
        ended = _ended(place, culprit, ranks, status, said)
        found = [entry for entry in found if _unit(entry) != culprit] + [ended]
    elif not found:
        raise RuntimeError(f"a job has judged nothing:\n{said[-4000:]}")
    return found


def _launch(argv: list[str], env: dict[str, str], said: Path) -> int:
    """The exit status of a job, which ends with this process, however that ends."""
    with said.open("wb") as output:
        job = subprocess.Popen(
            argv,
            cwd=ROOT,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        return job.wait(LIMIT)
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                if job.poll() is None:
                    os.killpg(job.pid, number)
                    job.wait(ENDING)


def _unit(entry: Entry) -> Unit:
    return Unit(entry["variant"], entry["form"])


def _notes(place: Path, ranks: int) -> list[Entry]:
    texts = [(place / NOTE.format(rank)).read_text() for rank in range(ranks)]
    return [json.loads(text) if text else {} for text in texts]


def _culprit(place: Path, units: list[Unit], ranks: int) -> Unit | None:
    """The last unit that a rank has begun."""
    begun = [Unit(*note["unit"]) for note in _notes(place, ranks) if note]
    return max(begun, key=units.index, default=None)


def _ended(place: Path, unit: Unit, ranks: int, status: int, said: str) -> Entry:
    """The entry of a unit that ended a job."""
    notes = [note for note in _notes(place, ranks) if note and Unit(*note["unit"]) == unit]
    refused = [note["refused"][-1] if note["refused"] else None for note in notes]
    late = [_frame(place / STACKS.format(rank)) for rank in range(ranks)]
    entry = {"variant": unit.name, "form": unit.form, "ranks": ranks}
    entry |= {"where": " | ".join(note["where"] for note in notes)}
    if len({case and case[2] for case in refused}) > 1:
        words = next(case[1] for case in refused if case)
        return entry | {"verdict": "parted", "reason": f"not on all ranks: {words}"}
    if any(late):
        return entry | {"verdict": "hang", "reason": " | ".join(late)}
    lines = [line for line in said.splitlines() if line.strip(" =|")]
    return entry | {"verdict": "died", "reason": f"exit status {status}: {' '.join(lines)[:200]}"}


def _frame(stacks: Path) -> str:
    """Where a rank was when its watchdog ended it: the innermost line of its stack."""
    lines = [line.strip() for line in stacks.read_text().splitlines()]
    frames = [line for line in lines if line.startswith("File ")]
    ours = [frame for frame in frames if "/distarray/" in frame]
    return (ours or frames or [""])[0]
