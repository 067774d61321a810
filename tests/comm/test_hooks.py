"""One rank's death is the job's: within seconds, non-zero, its traceback once."""

import functools
import sys
import time

import pytest

from tests.launcher import run_job

PROGRAM = """
import io, os, signal, sys, threading, time
from distarray.comm.mpi import group_of
group, how, ranks = group_of(), sys.argv[1], [int(rank) for rank in sys.argv[2]]
print("started", flush=True)
group.barrier()
if group.rank in ranks:
    if how == "raise":
        raise ValueError("the reason")
    if how == "held back":  # as torch.distributed does
        ours = sys.excepthook
        def hook(*args):
            shown, held = sys.stderr, io.StringIO()
            sys.stderr = held
            ours(*args)
            shown.write(held.getvalue())
        sys.excepthook = hook
        raise ValueError("the reason")
    if how == "thread":
        thread = threading.Thread(target=lambda: 1 / 0)
        thread.start()
        thread.join()
    if how == "no thread":  # is left for ending the job
        from distarray.comm.hooks import end_all
        def refuse(thread):
            raise RuntimeError("can't start new thread")
        start, threading.Thread.start = threading.Thread.start, refuse
        start(threading.Thread(target=end_all, args=("the reason",)))
    if how == "exit":
        sys.exit(3)
    if how == "words":
        sys.exit("the reason")
    if how == "bare":
        raise SystemExit(3)
    if how == "bare words":
        raise SystemExit("the reason")
    if how == "interrupt":
        raise KeyboardInterrupt
    if how == "caught":
        try:
            sys.exit(4)
        except SystemExit as error:
            print("caught", error.code, flush=True)
        try:
            raise SystemExit(4)
        except SystemExit as error:
            assert (error.code, error.args) == (4, (4,))
    if how == "child":
        child = os.fork()
        if not child:  # as multiprocessing ends its children
            try:
                raise ValueError("the child's")
            except ValueError:
                sys.excepthook(*sys.exc_info())
            os._exit(1)
        print("child", os.waitpid(child, 0)[1] != 0, flush=True)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "kill the daemon":
        os.kill(os.getppid(), signal.SIGKILL)
if how == "zero":
    sys.exit(0)
if how == "bare zero":
    raise SystemExit
group.barrier()
"""


@pytest.fixture
def launch(tmp_path, mpiexec):
    """Status, output and seconds of a job in which some ranks do as told."""
    return functools.partial(start, tmp_path, mpiexec)


def start(tmp_path, mpiexec, how, ranks, n=4):
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    begun = time.monotonic()
    argv = [*mpiexec, "-n", str(n), sys.executable, str(script), how, ranks]
    status, output = run_job(argv, timeout=60)
    if status is None:
        pytest.fail(f"hung:\n{output}")
    return status, output, time.monotonic() - begun


def test_the_job_ends_without_a_thread(launch):
    """That the job is ended was said, and it went on."""
    status, output, _ = launch("no thread", "1")
    assert status != 0
    assert output.count("distarray: the reason") == 1, output
    assert "can't start" not in output


@pytest.mark.parametrize(
    ("how", "ranks", "teller", "words"),
    [
        ("raise", "2", 2, "ValueError: the reason"),
        ("raise", "0123", 0, "ValueError: the reason"),
        ("raise", "123", 1, "ValueError: the reason"),
        ("held back", "2", 2, "ValueError: the reason"),
        ("thread", "3", 3, "ZeroDivisionError: division by zero"),
        ("words", "1", 1, "ends the job: the reason"),
        ("exit", "1", 1, "ends the job: exit status 3"),
        ("bare", "1", 1, "ends the job: exit status 3"),
        ("bare words", "2", 2, "ends the job: the reason"),
        ("interrupt", "0123", 0, "ends the job: interrupted"),
    ],
)
def test_the_job_ends(launch, how, ranks, teller, words):
    status, output, seconds = launch(how, ranks)
    assert status != 0
    assert seconds < 15  # of which starting takes a few on a busy machine
    assert output.count(words) == 1, output
    assert output.count("ends the job") == 1, output
    assert f"rank {teller} of 4 ends the job" in output
    assert output.count("Traceback") == (how in ("raise", "held back", "thread"))


def test_a_killed_rank_ends_the_job(launch):
    status, _, seconds = launch("kill", "2")
    assert status != 0
    assert seconds < 15


def test_ranks_do_not_outlive_their_daemon(launch, mpiexec):
    """mpiexec itself may kill it, in the midst of ending a job: ranks were left without a parent
    that spun for ever, and kept its pipes open."""
    if "--oversubscribe" in mpiexec:
        pytest.skip("Open MPI's mpiexec is the parent of its ranks")
    status, _, seconds = launch("kill the daemon", "2")
    assert status != 0
    assert seconds < 15


def test_the_status_is_passed_on(launch):
    status, _, _ = launch("exit", "2")
    assert status == 3


@pytest.mark.parametrize("how", ["caught", "zero", "bare zero"])
def test_what_is_handled_ends_nothing(launch, how):
    status, output, _ = launch(how, "1")
    assert status == 0, output
    assert output.count("caught 4") == (how == "caught")


def test_a_forked_child_is_no_rank(launch):
    status, output, _ = launch("child", "1")
    assert status == 0, output
    assert "child True" in output
    assert "ends the job" not in output


def test_a_single_process_behaves_as_python_does(launch):
    status, output, _ = launch("raise", "0", n=1)
    assert status == 1
    assert "ends the job" not in output
    assert output.count("ValueError: the reason") == 1
