"""Requests to stop: one answer on all ranks, whichever rank got the signal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

import distarray
from distarray import job, trace


@pytest.fixture(autouse=True)
def no_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISTARRAY_JOB_END", "SLURM_JOB_END_TIME", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)


def test_all_ranks_stop_at_the_same_step(world: Any, ranks: int) -> None:
    def program(group: Any) -> tuple[int, int]:
        with job.preemption(group=group) as p:
            for step in range(10):
                if step == 3 and group.rank == group.size - 1:
                    p.request()
                if p.requested:
                    break
            with trace() as t:
                assert p.requested  # stays so, without asking again
        return step, len(t)

    assert set(world.run(ranks, program)) == {(3, 0)}


@pytest.mark.mpi
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_to_one_rank_stops_all(world: Any, number: signal.Signals) -> None:
    def program(group: Any) -> None:
        before = signal.getsignal(number)
        with job.preemption(group=group) as p:
            assert not p.requested
            group.barrier()
            if group.rank == group.size - 1:
                os.kill(os.getpid(), number)
                time.sleep(0.01)
            assert p.requested
            assert p.signal == number
        os.kill(os.getpid(), number)  # schedulers repeat themselves: it does no harm any more
        signal.signal(number, before)

    world.run(world.group.size, program)


def test_the_signals_of_a_forked_child_are_its_own(own_processes: None) -> None:
    """Pools end their processes by SIGTERM, and waited for ever: the children only took note."""
    code = """
import os, signal, time, distarray
with distarray.job.preemption() as outer, distarray.job.preemption(signal.SIGTERM) as inner:
    child = os.fork()
    if not child:
        time.sleep(50)
        os._exit(0)
    os.kill(child, signal.SIGTERM)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), inner.requested, outer.requested)
"""
    argv = [sys.executable, "-c", code]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=40)
    assert done.stdout == f"{-signal.SIGTERM} False False\n", done.stderr


def test_a_block_within_another_one() -> None:
    before = signal.getsignal(signal.SIGUSR1)
    try:
        with job.preemption() as outer:
            with job.preemption() as inner:
                os.kill(os.getpid(), signal.SIGUSR1)
                time.sleep(0.01)
            assert outer.requested
            assert inner.requested
    finally:
        signal.signal(signal.SIGUSR1, before)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def test_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGUSR1)
    mine = [0]

    def handler(number: int, frame: Any) -> None:
        mine[0] += 1

    signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(KeyError), job.preemption(signal.SIGUSR1):
            raise KeyError("an error of the program's")
        os.kill(os.getpid(), signal.SIGUSR1)
        time.sleep(0.01)
        assert mine == [1]
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_the_time_is_up(world: Any, ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTARRAY_JOB_END", str(time.time() + 60))

    def program(group: Any) -> None:
        left = job.time_left(group)
        assert left is not None
        assert 30 < left <= 60
        assert len(set(group.allgather_object(left))) == 1
        if group.rank == 0:  # by itself: the others need not be asked
            alone = job.time_left()
            assert alone is not None
            assert left - 20 < alone <= left
        with job.preemption(margin=300, group=group) as late:
            assert late.requested
            assert late.signal is None
        with job.preemption(margin=1, group=group) as early:
            assert not early.requested

    world.run(ranks, program)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1-02:03:04", 93784.0), ("5:06", 306.0), ("59", 59.0), ("UNLIMITED", None), ("", None)],
)
def test_slurm_is_asked(monkeypatch: pytest.MonkeyPatch, text: str, seconds: Any) -> None:
    asked: list[Any] = []

    def run(command: Any, **options: Any) -> Any:
        asked.append(command)
        return subprocess.CompletedProcess(command, 0, text + "\n", "")

    monkeypatch.setenv("SLURM_JOB_ID", "77")
    monkeypatch.setattr(subprocess, "run", run)
    assert job._left() == seconds
    assert asked[0][:4] == ["squeue", "--noheader", "--jobs", "77"]


def test_nobody_knows_of_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    assert job.time_left() is None
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    monkeypatch.setenv("PATH", "/nowhere")
    assert job._left() is None


def test_what_cannot_be_caught_is_refused() -> None:
    with pytest.raises(ValueError, match="SIGKILL cannot be caught"):
        job.preemption(signal.SIGKILL)
    with pytest.raises(ValueError):
        job.preemption(1234)
    assert distarray.job is job
