"""Profiles of whole jobs: under the runner, killed, forked, failing, and short."""

import json
import re
import signal
import subprocess
import sys
import time

import pytest

from tests.launcher import environment, run_job

HEAT = """
import os
import numpy as np
u = np.zeros((1200, 300))
u[0] = 1.0
for step in range(30):
    u[1:-1] += 0.1 * (u[:-2] - 2 * u[1:-1] + u[2:])  # step
total = float(u.sum())
print(f"{total:.6f}")
"""


def job(mpiexec, cwd, *arguments, ranks=3, **more):
    argv = [*mpiexec, "-n", str(ranks), sys.executable, *arguments]
    return run_job(argv, timeout=120, cwd=cwd, env=environment(), **more)


def test_the_runner_profiles_a_program(mpiexec, tmp_path):
    (tmp_path / "heat.py").write_text(HEAT)
    _, plain = job(mpiexec, tmp_path, "-m", "distarray", "heat.py")
    code, said = job(mpiexec, tmp_path, "-m", "distarray", "--profile", "heat.py")
    assert code == 0, said
    assert plain.strip() in said
    assert said.count("Profile of 3 ranks") == 1
    assert re.search(r"heat\.py:7 +u\[1:-1\] \+= ", said), said
    page = (tmp_path / "profile.html").read_text()
    assert "What to do" in page
    assert "<code>u (float64)</code>" in page
    assert [p.name for p in sorted(tmp_path.iterdir())] == ["heat.py", "profile.html"]


def test_the_figures_of_a_profile(mpiexec, tmp_path):
    (tmp_path / "heat.py").write_text(HEAT)
    code, said = job(mpiexec, tmp_path, "-m", "distarray", "--profile=p.json", "heat.py", ranks=2)
    assert code == 0, said
    assert "The figures are" in said
    assert "What to do" not in said
    found = json.loads((tmp_path / "p.json").read_text())
    assert (found["ranks"], found["missing"], found["ended"]) == (2, [], [])
    step = next(line for line in found["lines"] if line["line"] == 7)
    assert step["text"].startswith("u[1:-1] += ")
    assert step["out"] == step["into"] == [30 * 2400] * 2
    assert step["messages_out"] == [30, 30]
    assert step["collectives"] == [0, 0]
    assert sum(sum(line["collectives"]) for line in found["lines"]) >= 2


def test_a_program_of_a_few_milliseconds(mpiexec, tmp_path):
    (tmp_path / "short.py").write_text("import numpy as np\nprint(np.arange(10).sum())\n")
    code, said = job(mpiexec, tmp_path, "-m", "distarray", "--profile=p.html", "short.py", ranks=2)
    assert code == 0, said
    assert "Profile of 2 ranks" in said
    assert (tmp_path / "p.html").exists()


@pytest.mark.parametrize(("text", "error"), [(None, "can't open file"), ("f(", "SyntaxError")])
def test_what_is_no_program_leaves_the_last_page(mpiexec, tmp_path, text, error):
    (tmp_path / "profile.html").write_text("the last one")
    if text is not None:
        (tmp_path / "program.py").write_text(text)
    code, said = job(mpiexec, tmp_path, "-m", "distarray", "--profile", "program.py", ranks=2)
    assert code == 1, said
    assert said.count(error) == 1
    assert "Profile of" not in said
    assert (tmp_path / "profile.html").read_text() == "the last one"


def test_a_rank_that_raises_alone_leaves_its_page(mpiexec, tmp_path):
    text = HEAT.replace(
        "total =",
        "import distarray\nif distarray.default_mesh().rank == 1:\n"
        "    raise ValueError('mine')\ntotal =",
    )
    (tmp_path / "alone.py").write_text(text)
    code, said = job(mpiexec, tmp_path, "-m", "distarray", "--profile=p.html", "alone.py")
    assert code in (1, 6, 9), said  # MPICH under load: a rank that it has killed, UCX at its end
    assert "ValueError: mine" in said
    assert f"what rank 1 alone has measured is in {tmp_path / 'p.rank1.html'}" in said
    page = (tmp_path / "p.rank1.html").read_text()
    assert "Rank 1 ended early: ValueError: mine" in page
    assert "u[1:-1] += " in page


def test_an_error_of_all_ranks_is_one_page(mpiexec, tmp_path):
    (tmp_path / "fails.py").write_text(HEAT + "\nu.reshape(7)\n")
    code, said = job(mpiexec, tmp_path, "-m", "distarray", "--profile=p.html", "fails.py")
    assert code == 1, said
    assert "cannot reshape" in said
    assert "Each of ranks 0, 1, 2 ended early: ValueError" in (tmp_path / "p.html").read_text()
    assert not list(tmp_path.glob("p.rank*"))


def test_a_page_that_cannot_be_written_is_said_once(mpiexec, tmp_path):
    (tmp_path / "heat.py").write_text(HEAT)
    (tmp_path / "p.html").mkdir()
    code, said = job(mpiexec, tmp_path, "-m", "distarray", "--profile=p.html", "heat.py")
    assert code == 0, said
    assert said.count("the profile will not be written") == 1
    assert "Profile of 3 ranks" in said, "the table is there all the same"


@pytest.mark.parametrize("option", ["--profile=", "--profile"])
def test_what_the_option_needs_is_said(option):
    run = subprocess.run(
        [sys.executable, "-m", "distarray", option],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=60,
    )
    assert run.returncode == 2
    assert "argument expected" in run.stderr or "no program after --profile" in run.stderr


KILLED = """
import sys, time
import numpy
import distarray
group = distarray.default_mesh().group
with distarray.profile("p.html"):
    group.barrier()
    time.sleep(0.1)
    if group.rank == 0:
        open("begun", "w").close()
        time.sleep(100)
    group.allreduce(numpy.ones(3), distarray.Fold.SUM)
"""


def test_ranks_that_are_killed_keep_what_they_have(mpiexec, tmp_path):
    """The other ranks wait inside of MPI, where no handler of Python's runs."""
    (tmp_path / "killed.py").write_text(KILLED + "print('never')\n")
    argv = [*mpiexec, "-n", "2", sys.executable, "killed.py"]
    started = subprocess.Popen(
        argv, cwd=tmp_path, env=environment(), stderr=subprocess.DEVNULL, stdout=subprocess.PIPE
    )
    try:
        until = time.monotonic() + 60
        while not (tmp_path / "begun").exists() and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(0.5)
        started.send_signal(signal.SIGTERM)
        out, _ = started.communicate(timeout=60)
    finally:
        started.kill()
    assert started.returncode != 0
    assert b"never" not in out
    pages = ["p.rank0.html", "p.rank1.html"]
    until = time.monotonic() + 30  # ranks may outlive the launcher by a moment
    while time.monotonic() < until and not all((tmp_path / page).exists() for page in pages):
        time.sleep(0.05)
    assert sorted(path.name for path in tmp_path.glob("p*.html")) == pages
    for page in pages:
        assert "ended early: killed by SIGTERM" in (tmp_path / page).read_text()


def test_a_lone_process_that_is_killed_keeps_its_page(own_processes, tmp_path):
    text = KILLED.replace("group.allreduce", "print")
    run = subprocess.Popen([sys.executable, "-c", text], cwd=tmp_path, env=environment())
    try:
        until = time.monotonic() + 60
        while not (tmp_path / "begun").exists() and time.monotonic() < until:
            time.sleep(0.05)
        run.terminate()
        assert run.wait(30) == -signal.SIGTERM
    finally:
        run.kill()
    assert "killed by SIGTERM" in (tmp_path / "p.html").read_text()


FORKS = """
import os, sys, time
import distarray
import distarray.numpy as np
with distarray.profile("p.html") as p:
    x = float(np.ones(1000).sum())
    child = os.fork()
    if child == 0:
        for _ in range(1000):
            x += 1.0
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    time.sleep(0.02)
assert not p.report.parts[0].ended, p.report.parts[0].ended
p.to_chrome_trace("trace.json")
"""


#: For as long as it has handlers, asyncio is told of signals where the profile's guard was.
LISTENS = """
import asyncio
async def listen():
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, print)
    loop.remove_signal_handler(signal.SIGUSR1)
asyncio.run(listen())
"""


@pytest.mark.parametrize("before", ["", LISTENS])
def test_a_signal_at_the_programs_end_still_ends_it(own_processes, tmp_path, before):
    text = f"import os, signal\n{before}\nos.kill(os.getpid(), signal.SIGTERM)\n"
    (tmp_path / "last.py").write_text(text)
    argv = [sys.executable, "-m", "distarray", "--profile", "last.py"]
    done = subprocess.run(
        argv, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=100
    )
    assert done.returncode == -signal.SIGTERM, done.stderr
    assert "cannot be written" not in done.stderr
    assert "ended early: killed by SIGTERM" in (tmp_path / "profile.html").read_text()


def test_a_child_leaves_the_profile_to_its_parent(own_processes, tmp_path):
    run = subprocess.run(
        [sys.executable, "-c", FORKS],
        cwd=tmp_path,
        env=environment(),
        timeout=60,
        text=True,
        capture_output=True,
    )
    assert run.returncode == 0, run.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["p.html", "trace.json"]
    assert "ended early" not in (tmp_path / "p.html").read_text()
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]


def test_a_signal_that_the_program_wants_is_the_programs(own_processes, tmp_path):
    text = """
import os, signal
import distarray
signal.signal(signal.SIGTERM, lambda *_: print("mine"))
with distarray.profile("p.html"):
    os.kill(os.getpid(), signal.SIGTERM)
with distarray.profile("q.html"):
    with distarray.job.preemption() as p:
        os.kill(os.getpid(), signal.SIGTERM)
        print(p.requested)
"""
    run = subprocess.run(
        [sys.executable, "-c", text],
        cwd=tmp_path,
        env=environment(),
        timeout=60,
        text=True,
        capture_output=True,
    )
    assert (run.returncode, run.stdout) == (0, "mine\nTrue\n"), run.stderr
    assert "killed" not in (tmp_path / "q.html").read_text()
