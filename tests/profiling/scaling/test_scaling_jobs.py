"""``python -m distarray --scaling``: whole studies, programs that fail, and what is refused."""

import json
import os
import re
import subprocess
import sys

import pytest

from distarray.profiling.scaling.main import options
from tests.launcher import environment, run_job

HEAT = """
import sys
import numpy as np
u = np.zeros((1200, 500))
u[0] = 1.0
for step in range(int(sys.argv[1])):
    u[1:-1] += 0.1 * (u[:-2] - 2 * u[1:-1] + u[2:])  # step
print(float(u.sum()))
"""


def study(cwd, *arguments, env=None):
    argv = [sys.executable, "-m", "distarray", *arguments]
    return run_job(argv, timeout=240, cwd=cwd, env=env or environment())


def test_a_study_of_a_program(mpiexec, tmp_path):
    (tmp_path / "heat.py").write_text(HEAT)
    launcher = " ".join(mpiexec)
    code, said = study(
        tmp_path, "--scaling", "1,2,4", "--cores=4", "--mpiexec", launcher, "heat.py", "40"
    )
    assert code == 0, said
    assert re.search(r"P\^.* +heat\.py:7 +u\[1:-1\] \+= ", said), said
    assert "Scaling of heat.py 40" in said
    found = json.loads((tmp_path / "scaling.json").read_text())
    assert [run["ranks"] for run in found["measured"]] == [1, 2, 4]
    step = next(line for line in found["lines"] if line["line"] == 7)
    assert step["all_messages"] == [0, 80, 240]
    assert step["all_bytes"] == [0, 80 * 4000, 240 * 4000]
    assert found["machine"] == found["here"]
    assert min(found["machine"].values()) > 0
    assert "Scaling of heat.py 40" in (tmp_path / "scaling.html").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("heat.py", "scaling.html", "scaling.json")
    ]


def test_a_program_that_fails_on_one_count_and_runs_shortly(mpiexec, tmp_path):
    (tmp_path / "fails.py").write_text(
        "import numpy as np\nimport distarray\n"
        "if distarray.default_mesh().size() == 2:\n    raise ValueError('not two')\n"
        "print(np.arange(10).sum())\n"
    )
    code, said = study(tmp_path, "--scaling=1,2", "--machine", "1us,1GB,1GB", "fails.py")
    assert code == 1, said
    assert re.search(r" 2 failed: exit status 1", said)
    assert "| ValueError: not two" in said
    assert "One number of ranks says nothing about growth" in said


def test_a_count_that_the_machine_refuses(own_processes, tmp_path):
    """A launcher of one slot; what it starts is a job without MPI's launcher."""
    (tmp_path / "run").write_text(
        "#!/bin/sh\n[ $2 = 1 ] || { echo 'not enough slots' >&2; exit 3; }\nshift 2\nexec \"$@\"\n"
    )
    (tmp_path / "run").chmod(0o755)
    (tmp_path / "short.py").write_text("import numpy as np\nprint(np.arange(10).sum())\n")
    options = ["--scaling=1,64", "--mpiexec", str(tmp_path / "run")]
    code, said = study(tmp_path, *options, "short.py")
    assert code == 1, said
    assert "64 failed: exit status 3" in said
    assert said.count("not enough slots") == 2, "and the machine is not measured"
    assert "EXTRAPOLATED" not in said
    code, said = study(tmp_path, *options, "missing.py")
    assert code == 1
    assert "not come to its end on any" in said
    assert "  distarray: can't open file" in said


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--scaling"], "argument expected for --scaling"),
        (["--scaling=1,2"], "no program after --scaling"),
        (["--scaling", "0,2", "x.py"], "numbers of ranks, such as 1,2,4,8, not '0,2'"),
        (["--scaling=2", "--machine=fast", "x.py"], "a machine is latency"),
        (["--scaling=2", "--memory=big", "x.py"], "no quantity above 0"),
        (["--scaling=2", "--cores=0", "x.py"], "--cores wants"),
        (["--scaling=2", "--profile", "x.py"], "is of one run"),
        (["--scaling=2", "--output=x.json", "x.py"], "the figures lie beside it"),
        (["--scaling=2", "--output=/no/such/x.html", "x.py"], "there is no directory"),
    ],
)
def test_what_is_wrong_with_the_command_line(arguments, told):
    with pytest.raises(ValueError, match=re.escape(told)):
        options(arguments)


def test_a_study_is_not_started_by_mpiexec(own_processes, tmp_path):
    said = subprocess.run(
        [sys.executable, "-m", "distarray", "--scaling=1,2", "x.py"],
        env=environment(PMI_RANK="0"),
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
    )
    assert said.returncode == 2
    assert "call it without" in said.stderr


def test_options_are_the_studys_and_the_rest_each_runs(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2}, raising=False)
    found = options(
        ["--scaling=4,1,2,2", "--mpiexec=srun -l", "--include", "mine", "x.py", "--cores", "3"]
    )
    assert found.counts == (1, 2, 4)
    assert found.launcher == ("srun", "-l")
    assert found.program == ("--include", "mine", "x.py", "--cores", "3")
    assert found.cores == 3
    assert found.limit > 0
