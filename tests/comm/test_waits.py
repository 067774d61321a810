"""Ranks that wait for one another for ever are told who is where; the others are left in peace."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.launcher import environment, run_job

HERE = Path(__file__).parent
LIMIT = 2.0
#: Seconds a job may take: one that waits for ever takes as many.
TIMEOUT = 150.0
#: What most ranks call, and the others; None: these have ended, after what is said to be the line.
ENDED = {
    "different_reductions": ("np.sum", "np.argmax"),
    "branch_on_local_values": ("np.min", "np.sum"),
    "redistribute_on_one_rank": ("np.sum", "DistArray.redistribute"),
    "full_on_one_rank": ("np.sum", "DistArray.full"),
    "full_before_others_come": ("np.sum", "DistArray.full"),
    "method_without_arguments": ("DistArray.sum", "DistArray.full"),
    "only_rank_0": (None, "np.mean"),
    "exit_on_one_rank": ("np.sum", None),
    "left_early": ("np.min", None),
    "caught_on_one_rank": ("np.sum", "np.sort"),
    "one_more_in_a_loop": ("np.sort", "np.sum"),
    "parts_of_the_mesh": ("np.sum", "np.sum"),
    "writing_on_some": ("distarray.io.write", "np.sort"),
    "saving_on_some": ("distarray.checkpoint.save", "np.cumsum"),
    "forked": ("np.max", "np.sort"),
    "checked": ("np.max", None),
    "branching": ("np.sort", None),
    "nodes": ("np.max", "np.sort"),
    "one_of_two_nodes_leaves": ("np.max", None),
}
TORCH = {
    "forward_on_one_rank": ("np.sum", "Linear.forward"),
    "backward_on_one_rank": ("np.sum", "Tensor.backward"),
    "one_more_batch": ("np.sum", "Tensor.backward"),
}
#: Messages that do not fit one another, which MPI may see first.
MIXED = ("different_shapes", "one_less_of_exchanges")
TOLD = ("ways_of_their_own", "computing", "waiting_on", "first_alone")
#: Where ranks wait for what this library knows nothing of: the mark, and the expression.
OWN = {
    0: ("thread", "worker.join()"),
    1: ("message", "MPI.COMM_WORLD.recv(source=0, tag=5)"),
    3: ("barrier", "MPI.COMM_WORLD.Barrier()"),
}


def programs() -> list[str]:
    torch = TORCH if importlib.util.find_spec("torch") else ()
    return [*ENDED, *torch, *MIXED, *TOLD]


@pytest.fixture(scope="module")
def jobs(tmp_path_factory, mpiexec):
    """How each program ends on 4 ranks, status and output: futures.

    Some run at the same time: they wait more than they compute. Of several workers of pytest each
    starts those that its tests ask for.
    """
    with ThreadPoolExecutor(3) as pool:

        def begin(name):
            return pool.submit(run, name, tmp_path_factory.mktemp(name), mpiexec)

        started = Jobs(begin)
        if "PYTEST_XDIST_WORKER" not in os.environ:
            started |= {name: begin(name) for name in programs()}
        yield started
        assert not left_in_shared_memory(started)


class Jobs(dict):
    """Jobs by the names of their programs, each started when it is first asked for."""

    def __init__(self, begin):
        super().__init__()
        self.begin = begin

    def __missing__(self, name):
        self[name] = self.begin(name)
        return self[name]


def run(name: str, place: Path, mpiexec: tuple[str, ...]) -> tuple[int | None, str]:
    arguments = [str(HERE / "parting.py"), name]
    if name == "branching":
        arguments = ["-m", "distarray", str(HERE / "branching.py")]
    return run_job(
        [*mpiexec, "-n", "4", sys.executable, *arguments],
        timeout=TIMEOUT,
        cwd=place,
        env=environment(DISTARRAY_WAIT_LIMIT=str(LIMIT)),
    )


def line(name: str, mark: str) -> str:
    """The line of a program that has a mark."""
    path = HERE / ("branching.py" if name == "branching" else "parting.py")
    lines = path.read_text().splitlines()
    first = 0 if name == "branching" else lines.index(f"def {name}():")
    number = next(n for n in range(first, len(lines)) if lines[n].endswith(f"# {mark}"))
    return f"{path.name}:{number + 1}"


def summary(output: str) -> str:
    """The last line that says who is where."""
    return re.findall(r"^distarray: (\d of 4 ranks? waits? in .*)$", output, re.MULTILINE)[-1]


@pytest.mark.parametrize("name", [*ENDED, *TORCH])
def test_who_is_where_and_the_job_ends(jobs, name):
    """It waited for ever, without a word."""
    if name not in programs():
        pytest.skip("the extra torch is not installed")
    status, output = jobs[name].result()
    assert status not in (0, None), output
    said = summary(output)
    for call, mark in zip((ENDED | TORCH)[name], ("many", "few"), strict=True):
        if call is not None:
            assert call in said, output
            assert line(name, mark) in output
    if None in (ENDED | TORCH)[name]:
        assert " left" in said or " ended" in said
    assert "They wait in vain, and the job is ended" in output
    assert output.count("in vain") == 1
    waited = [int(seconds) for seconds in re.findall(r", for (\d+) s$", output, re.MULTILINE)]
    assert min(waited) <= 3 * LIMIT


@pytest.mark.parametrize("name", MIXED)
def test_what_mpi_finds_wrong_is_told_with_the_lines_of_others(jobs, name):
    status, output = jobs[name].result()
    assert status not in (0, None), output
    assert line(name, "many") in output or f", line {line(name, 'many').split(':')[1]}," in output
    assert line(name, "few") in output or f", line {line(name, 'few').split(':')[1]}," in output


def test_a_rank_that_exits_is_named_with_its_line(jobs):
    for name in ("exit_on_one_rank", "checked"):
        words = rf"rank 2 has left by sys.exit\(0\) at \S*{line(name, 'few')}"
        assert re.search(words, summary(jobs[name].result()[1])), jobs[name].result()[1]
    _, output = jobs["one_of_two_nodes_leaves"].result()  # nobody is there to be asked
    words = rf"ranks 0-1 have ended by sys.exit\(0\) at \S*{line('one_of_two_nodes_leaves', 'few')}"
    assert re.search(words, summary(output)), output


def test_where_ranks_have_parted_is_told(jobs):
    """They waited one call later."""
    output = jobs["checked"].result()[1]
    assert "they first differ in conversation" in output


def test_who_computes_is_told_and_not_ended(jobs):
    status, output = jobs["computing"].result()
    assert status == 0, output
    assert output.count("130816.0") == 4
    assert f"rank 1 computes at {summary(output).split('computes at ')[1]}" in output
    assert f"{line('computing', 'few')}, in time.sleep(5)" in summary(output)
    assert "the job goes on" in output


def test_who_waits_in_the_programs_own_way_is_told_and_not_ended(jobs):
    status, output = jobs["ways_of_their_own"].result()
    assert status != 0  # its own end
    assert summary(output).startswith("1 of 4 ranks waits in np.sum at ")
    for rank, (mark, expression) in OWN.items():
        at = f"{line('ways_of_their_own', mark)}, in {expression}"
        assert re.search(rf"rank {rank} computes at \S*{re.escape(at)}", summary(output)), output
    assert "in vain" not in output


def test_who_is_first_alone_is_told(jobs):
    _, output = jobs["first_alone"].result()
    words = rf"rank 0 of 4 waits in distarray.default_mesh at \S*{line('first_alone', 'few')}, for"
    assert re.search(words, output), output


def test_a_job_waits_on_if_it_is_set_to(jobs):
    status, output = jobs["waiting_on"].result()
    assert status != 0  # its own end
    assert output.count("They wait in vain, and go on waiting") == 1


def left_in_shared_memory(jobs: Jobs) -> set[Path]:
    """What is still there when the jobs that have been started have ended."""
    for job in jobs.values():
        job.result()
    shared = Path("/dev/shm")
    left = set(shared.glob("distarray-node-*"))
    for _ in range(20):  # a job that starts just now has a name there for a moment
        time.sleep(0.1 if left else 0)
        left &= set(shared.glob("distarray-node-*"))
    return left


def test_nothing_is_left_in_shared_memory(jobs):
    """Of several workers of pytest each looks once more when it has run its jobs."""
    if not Path("/dev/shm").is_dir():
        pytest.skip("no /dev/shm: files are in the directory for temporary ones")
    assert jobs["different_reductions"].result()[0] != 0
    assert not left_in_shared_memory(jobs)
