"""The mpiexec that the tests start jobs with."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
from pathlib import Path

#: What a job of the tests is told besides the environment: Open MPI asks whether root may start it;
#: MPICH's ranks, of which there are more than cores, leave the core to another one when they wait.
SETTINGS = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1",
}


@functools.cache
def find_mpiexec() -> tuple[str, ...]:
    """The launcher beside this interpreter (the MPI wheel's) or on PATH; empty if there is none.

    With what Open MPI wants to be told: that there may be more ranks than cores.
    """
    beside = Path(sys.executable).with_name("mpiexec")
    path = str(beside) if beside.exists() else shutil.which("mpiexec")
    if path is None:
        return ()
    version = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60)
    said = version.stdout + version.stderr
    return (path, "--oversubscribe") if "Open MPI" in said or "OpenRTE" in said else (path,)
