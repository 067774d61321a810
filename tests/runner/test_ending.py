"""However a program ends, the job ends once, soon, and with its exit status."""

import time

import pytest

from launching import on_ranks, write_script

PROGRAM = """
    import os, sys, threading, time
    from mpi4py import MPI

    def work(how, rank):
        if how == "all" or (how.startswith("one") and rank == 1):
            raise ValueError(f"went wrong: {how}")
        if how == "differ":
            raise ValueError(f"went wrong on {rank}")
        if how == "chain":
            try:
                open("no/such/place", "w")
            except OSError as error:
                raise RuntimeError("could not write") from error
        if how == "thread, one" and rank == 1:
            threading.Thread(target=lambda: int("no number")).start()
            time.sleep(1000)
        if how == "one, others wait":
            MPI.COMM_WORLD.Barrier()
        if how == "one, others compute":
            time.sleep(1000)
        if how == "exit 3":
            sys.exit(3)
        if how == "exit 3, one":
            sys.exit(3 if rank == 1 else 0)
        if how == "exit text":
            sys.exit("so it ends")
        if how == "killed":
            if rank == 1:
                os.kill(os.getpid(), 9)
            MPI.COMM_WORLD.Barrier()

    open("begun", "w").close()
    work(sys.argv[1], MPI.COMM_WORLD.rank)
    print("done")
"""
#: Seconds from the program's beginning to the job's end, on a busy machine.
SOON = 15


def end(tmp_path, how, ranks=4):
    """How the program ended, and after how many seconds, without what a job takes to start."""
    write_script(tmp_path, PROGRAM)
    done = on_ranks(ranks, "program.py", how, cwd=tmp_path)
    return done, time.time() - (tmp_path / "begun").stat().st_mtime


def test_well(tmp_path):
    done, _ = end(tmp_path, "well")
    assert (done.code, done.out, done.err) == (0, "done\n", "")


def test_alike_on_all_ranks(tmp_path):
    done, _ = end(tmp_path, "all")
    assert done.code == 1
    lines = done.err.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert "program.py" in lines[1]
    assert lines[-1] == "ValueError: went wrong: all"
    assert done.err.count("Traceback") == 1


@pytest.mark.parametrize("how", ["one", "one, others wait", "one, others compute"])
def test_on_one_rank(tmp_path, how):
    done, seconds = end(tmp_path, how)
    assert done.code != 0
    assert seconds < SOON
    assert done.err.count("Traceback") == 1
    assert "rank 1 of 4 raised" in done.err
    assert f"ValueError: went wrong: {how}" in done.err
    assert "distarray/runner" not in done.err


def test_in_a_thread_of_one_rank(tmp_path):
    done, seconds = end(tmp_path, "thread, one", ranks=2)
    assert done.code != 0
    assert seconds < SOON
    assert "invalid literal for int() with base 10: 'no number'" in done.err


def test_otherwise_on_each_rank(tmp_path):
    done, _ = end(tmp_path, "differ", ranks=2)
    assert done.code == 1
    assert [f"went wrong on {rank}" in done.err for rank in range(2)] == [True, True]


def test_chained(tmp_path):
    done, _ = end(tmp_path, "chain")
    assert done.code == 1
    assert done.err.count("Traceback") == 2
    assert "distarray/runner" not in done.err
    assert done.err.endswith("RuntimeError: could not write\n")


@pytest.mark.parametrize(
    ("how", "code", "text"),
    [("exit 3", 3, ""), ("exit 3, one", 3, ""), ("exit text", 1, "so it ends\n")],
)
def test_exit_status(tmp_path, how, code, text):
    done, _ = end(tmp_path, how)
    assert (done.code, done.err) == (code, text)


def test_killed(tmp_path):
    done, seconds = end(tmp_path, "killed")
    assert done.code != 0
    assert seconds < SOON


def test_where_ranks_met_in_a_file_the_way_out_is_told(tmp_path):
    """What goes past Python's open() is not kept to one rank: its errors do not tell why."""
    source = """
        import sqlite3
        base = sqlite3.connect("base.db", timeout=0)
        base.execute("create table a (b)")
    """
    write_script(tmp_path, source)
    done = on_ranks(3, "program.py", cwd=tmp_path)
    assert done.code == 1
    assert "sqlite3.OperationalError" in done.err
    assert done.err.count("files that sqlite3 writes are written by every rank") == 1
    assert "if distarray.default_mesh().rank == 0" in done.err


@pytest.mark.parametrize("source", ["x = (", "raise SystemExit", "import nosuch"])
def test_before_the_first_line(tmp_path, source):
    path = write_script(tmp_path, source)
    done = on_ranks(2, str(path), cwd=tmp_path)
    assert done.code == (0 if source == "raise SystemExit" else 1)
    assert done.err.count("Error") <= 1


def test_no_such_program(tmp_path):
    done = on_ranks(2, "missing.py", cwd=tmp_path)
    assert done.code == 1
    assert done.err.count("can't open file") == 1


TIMED = """
    import os, signal, time
    import numpy as np

    a = np.ones(100_000)
    rounds = []

    def ring(*_):
        rounds.append(len(rounds))

    print(signal.signal(signal.SIGALRM, ring), signal.getsignal(signal.SIGALRM) is ring)
    signal.alarm(100)
    print(signal.alarm(0) > 0, float(a.sum()), flush=True)  # it has not gone off
    if not (child := os.fork()):
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        while not rounds:
            time.sleep(0.01)
        os._exit(7)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    while not rounds:
        a *= 1.5
    print(float(a.sum()))
"""


FLAGGED = """
    import signal
    import numpy as np
    from distarray import default_mesh

    a = np.ones(100_000)
    stopped = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    print(callable(signal.getsignal(signal.SIGTERM)), flush=True)
    for number in range(9):
        if number == 5 and default_mesh().rank == 1:
            signal.raise_signal(signal.SIGTERM)  # here
        if stopped:
            print(np.sort(a)[0])
            break
        a *= float(a.sum())
"""


def test_a_flag_that_a_signal_sets_on_one_rank(tmp_path, monkeypatch):
    """The ranks part where one sees it a round earlier; the report says why."""
    monkeypatch.setenv("DISTARRAY_WAIT_LIMIT", "2")
    path = write_script(tmp_path, FLAGGED)
    done = on_ranks(3, "program.py", cwd=tmp_path)
    assert done.code != 0
    assert done.out == "True\n"
    number = 1 + [line.endswith("# here") for line in path.read_text().splitlines()].index(True)
    assert "The program has handled signals" in done.err, done.err
    assert f"rank 1: SIGTERM at program.py:{number}" in done.err, done.err
    assert "distarray.job.preemption()" in done.err


def test_a_timer_that_goes_off(tmp_path):
    """Each rank went round another number of times, and the sum was wrong."""
    write_script(tmp_path, TIMED)
    done = on_ranks(3, "program.py", cwd=tmp_path)
    assert done.code != 0
    assert done.out == "0 True\nTrue 100000.0\n7\n", done.err
    assert "handles SIGALRM, which comes at another place of it on each rank" in done.err
    alone = on_ranks(1, "program.py", cwd=tmp_path)
    assert alone.code == 0, alone.err
