"""The ranks of a notebook in a job of a real Slurm: as many as it has tasks."""

import os
import stat
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.job.cluster import Cluster, Unavailable, missing
from tests.notebook.kernels import settings

pytest.importorskip("ipyparallel")

PROGRAM = """\
from distarray.notebook import engines, stopping

ranks = engines.start(engines.default_ranks())
source = "import distarray\\nsize = distarray.default_mesh().size()\\nif size == 1: size = 1 / 0"
print(ranks.size, [told.name for told in ranks.call("run", source, 1).get()])
pending = ranks.call("run", "step = 0\\nwhile True: step += 1", 2)
pending.wait(1)
ranks.interrupt(stopping.SIGNAL)
print([told.name for told in pending.get(60)])
ranks.stop()
"""


@pytest.mark.skipif(bool(missing()), reason=f"no Slurm on this machine: no {missing()}")
def test_ranks_in_a_slurm_job(mpiexec: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    script = tmp_path / "job.sh"
    script.write_text(f"#!/bin/sh\nexec {sys.executable} {tmp_path}/program.py\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    search = f"{Path(mpiexec[0]).parent}:{os.environ['PATH']}"
    with ExitStack() as stack:
        try:
            slurm = stack.enter_context(Cluster(tmp_path / "slurm"))
        except Unavailable as why:
            pytest.skip(f"Slurm's daemons do not start here: {why}")
        log = tmp_path / "log"
        home = {name: value for name, value in settings(tmp_path).items() if "SLURM" not in name}
        job = slurm.submit(
            tmp_path, "-n2", f"--output={log}", str(script), **home | {"PATH": search}
        )
        slurm.finish(job, log)
        assert log.read_text() == "2 ['', '']\n['KeyboardInterrupt', 'KeyboardInterrupt']\n"
