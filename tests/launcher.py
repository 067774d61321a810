"""Jobs of several processes that the tests start: the launcher, the environment, one run."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: Settings of a job of the tests: Open MPI asks whether root may start it; MPICH's ranks, of which
#: there are more than cores, leave the core to another one when they wait.
SETTINGS = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1",
}
#: How pytest runs tests once more in a launch; a test that hangs ends it.
ONCE_MORE = [
    "-q",
    "-p",
    "no:cacheprovider",
    "--tb=short",
    "-o",
    "faulthandler_timeout=120",
]


@functools.cache
def find_mpiexec() -> tuple[str, ...]:
    """The launcher beside this interpreter (the MPI wheel's) or on PATH; empty if there is none.

    Open MPI's comes with the option that there may be more ranks than cores.
    """
    beside = Path(sys.executable).with_name("mpiexec")
    path = str(beside) if beside.exists() else shutil.which("mpiexec")
    if path is None:
        return ()
    version = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60)
    said = version.stdout + version.stderr
    return (path, "--oversubscribe") if "Open MPI" in said or "OpenRTE" in said else (path,)


def environment(**more: str) -> dict[str, str]:
    """The environment of a job, in which programs in any directory find this distarray.

    Lines are written whole, or those of several ranks would mix.
    """
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return {**kept, "PYTHONPATH": paths, **SETTINGS, **more}


def once_more(*places: str, **more: str) -> dict[str, str]:
    """The environment of a launch that runs every third row of the tests, or of those in places."""
    found = environment(**more)
    found.setdefault("DISTARRAY_TEST_SHARE", " ".join(["3", *places]))
    return found


def run_job(
    argv: Sequence[str],
    *,
    timeout: float,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
    stop: signal.Signals = signal.SIGTERM,
) -> tuple[int | None, str]:
    """Run a job in a process group of its own; its status and what it has written.

    The status is None if the job has not ended in time: then it gets the signal `stop`, by which
    the launcher ends its ranks, and is killed if that does not help.
    """
    job = subprocess.Popen(
        argv,
        cwd=cwd,
        env=environment() if env is None else env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    in_time, output = True, b""
    for seconds, number in ((timeout, stop), (20.0, signal.SIGKILL), (20.0, signal.SIGKILL)):
        try:
            output, _ = job.communicate(timeout=seconds)
            break
        except subprocess.TimeoutExpired as late:
            in_time, output = False, late.output or b""
            with contextlib.suppress(ProcessLookupError):
                os.killpg(job.pid, number)
    return (job.returncode if in_time else None), output.decode(errors="replace")
