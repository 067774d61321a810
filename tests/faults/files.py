"""Files: disks that are full or broken, and jobs that are killed while they save."""

from __future__ import annotations

import errno
import random
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from tests.faults import saving
from tests.faults.planting import Fault, Scene, Unavailable

HERE = Path(__file__).parent
PROGRAM = str(HERE / "saving.py")
#: Kills of jobs in the course of saves.
KILLS = 400
#: Formats that differ most in how they fail.
FEW = ("a.npy", "a.npz", "a.nc")


def _run(scene: Scene, ranks: int, *words: str, **variables: str) -> None:
    """Run the program, which ends well if the fault is held."""
    status, output = scene.run(ranks, PROGRAM, *words, timeout=240.0, **variables)
    assert status is not None, f"no end: {output[-2000:]}"
    assert (status, output.split()[-1:]) == (0, ["held"]), f"status {status}: {output[-2000:]}"


def full_disk(*formats: str) -> Callable[[Scene], None]:
    """Save on a tmpfs of 6 MB, which is mounted in a mount namespace of the job."""

    def plant(scene: Scene) -> None:
        disk = scene.directory / "disk"
        disk.mkdir()
        trial = ["unshare", "-m", "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
        if shutil.which("unshare") is None or subprocess.run(trial, capture_output=True).returncode:
            raise Unavailable("no file system can be mounted here (unshare -m)")
        script = 'mount -t tmpfs -o size=6m tmpfs "$0" && cd "$0" && exec "$@"'
        inside = ("unshare", "-m", "sh", "-c", script, str(disk))
        _run(Scene(scene.directory, (*inside, *scene.mpiexec)), 3, "full", *formats)

    return plant


def failing_calls(
    calls: str, number: int, *formats: str, rank: str = "", skip: int = 0
) -> Callable[[Scene], None]:
    """Save while calls on the new files fail with an error, on one rank or on all."""

    def plant(scene: Scene) -> None:
        library = scene.directory / "failing_calls.so"
        source = str(HERE / "failing_calls.c")
        if shutil.which("cc") is None:
            raise Unavailable("no C compiler")
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), source, "-ldl"], check=True
        )
        words = ("broken", calls, str(number), rank, str(skip), *formats)
        _run(scene, 3, *words, LD_PRELOAD=str(library))

    return plant


def kills(scene: Scene) -> str:
    """Kill jobs at random instants; each file is then a whole one, of the last save or the next."""
    rng, first, found = random.Random(7), 1, dict.fromkeys(saving.FORMATS, 0)
    whole = longer = 0
    for kill in range(KILLS):
        victim, seconds = rng.choice((-1, 0, 1)), rng.uniform(0.0, 1.5)
        status, output = scene.run(
            2, PROGRAM, "killed", str(victim), f"{seconds:.3f}", str(first), timeout=240.0
        )
        assert status, f"kill {kill}: status {status}: {output[-2000:]}"
        said = {name: int(last) for name, last in re.findall(r"saved (\S+) (\d+)", output)}
        for name, before in found.items():
            now = _after(scene.directory, name, before, time.monotonic() + 20)
            least = max(before, said.get(name, 0))
            assert now in (least, max(least, first), least + 1), f"kill {kill}: {name} {now}"
            longer += now > least
            whole += 1
            found[name] = now
        first = max(found.values()) + 1
    return f"{KILLS} jobs killed: {whole} files read, all whole, {longer} newer than was said"


def _after(directory: Path, name: str, before: int, until: float) -> int:
    """The number in a file, when what the job was still doing is over."""
    return saving.number_in(directory, name) or before


FAULTS = (
    Fault("files: full disk, some formats", full_disk(*FEW), quick=True),
    Fault("files: full disk, every format", full_disk()),
    Fault(
        "files: EIO on one rank's fsync",
        failing_calls("sync", errno.EIO, "a.npy", "a.npz", rank="1"),
        quick=True,
    ),
    *[
        Fault(f"files: {errno.errorcode[number]} in {calls}", failing_calls(calls, number))
        for calls, number in (
            ("write", errno.EIO),
            ("write", errno.EDQUOT),
            ("sync", errno.EIO),
            ("rename", errno.EROFS),
            ("rename", errno.EIO),
        )
    ],
    *[
        Fault(
            f"files: EIO in call {skip + 1} of HDF5 and NetCDF ({calls})",
            failing_calls(calls, errno.EIO, "a.h5", "a.nc", rank="0", skip=skip),
            quick=(calls, skip) == ("write", 6),
        )
        for calls in ("write", "close")
        for skip in range(8)
    ],
    Fault("files: kills in the course of saves", kills),
)
