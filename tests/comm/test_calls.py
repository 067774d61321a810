"""The ring of a process's last calls, and where it is seen in its program."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest

import distarray
from distarray import Fold, Shard
from distarray.comm import calls
from distarray.comm import user_lines as lines
from distarray.comm.describing import described, named, ranks_in_words
from distarray.comm.waits import stacks

HERE = Path(__file__).name


def number_of(text: str) -> int:
    """The line of this file that has a text."""
    found = Path(__file__).read_text().splitlines()
    return next(n for n, line in enumerate(found, 1) if text in line and "number_of" not in line)


@pytest.mark.mpi
@pytest.mark.counts(lambda ranks: ranks > 1)
def test_conversations_are_remembered_with_their_lines(world, ranks):
    def program(group):
        x = distarray.distribute(np.arange(60.0), distarray.default_mesh(), [Shard(0)], src=None)
        number = group.number
        np.sum(x)  # the first
        after = calls.recent()[-1]
        np.min(x)
        folded = calls.recent()[-1]
        (x[1:] + x[:-1]).to_local()  # the second
        exchanged = calls.recent()[-1]
        for _ in range(100):
            group.barrier()  # the third
        return number, after, folded, exchanged, calls.recent()

    if ranks != world.group.size:
        pytest.skip("the default mesh has all ranks, and this program runs on fewer")
    number, after, folded, exchanged, recent = world.run(ranks, program)[0]
    assert (after.number, after.name) == (number + 1, "np.sum")
    assert after.where.endswith(f"{HERE}:{number_of('# the first')}")
    assert (folded.kind, folded.number) == (after.kind, number + 2)
    assert folded.note != after.note  # ranks that do either are in different calls
    assert (exchanged.kind, exchanged.number) == ("exchange", number + 2)
    assert "of (59,)" in str(exchanged.note)
    assert exchanged.where.endswith(f"{HERE}:{number_of('# the second')}")
    assert len(recent) == calls.KEPT
    assert {call.name for call in recent} == {"group.barrier"}
    assert [call.number for call in recent] == list(range(number + 39, number + 103))


def summed(x):
    return np.sum(x)  # by a function


@pytest.mark.mpi
@pytest.mark.counts(lambda ranks: ranks > 1)
def test_lines_are_found_by_whichever_way_a_conversation_is_reached(world, ranks):
    """How far the user's line was the last time is where it is looked for first."""

    def program(group):
        x = distarray.distribute(np.arange(60.0), distarray.default_mesh(), [Shard(0)], src=None)
        found = []
        for _ in range(2):
            x.sum()  # by its method
            summed(x)
            np.apply_over_axes(lambda a, axis: np.sum(a, axis, keepdims=True), x, [0])  # by both
            found += [call.where.rpartition(":")[2] for call in calls.recent(3)]
        return found

    if ranks != world.group.size:
        pytest.skip("the default mesh has all ranks, and this program runs on fewer")
    lines = [str(number_of(f"# by {way}")) for way in ("its method", "a function", "both")]
    assert world.run(ranks, program)[0] == [*lines, *lines]


@pytest.mark.mpi
def test_nothing_is_remembered_where_nothing_is_sent(world, ranks):
    def program(group):
        x = distarray.distribute(np.ones((64, 64)), distarray.default_mesh(), [Shard(0)], src=None)
        before = calls.moves()
        for _ in range(10):
            y = x + x
            y *= 2.0
            np.sin(y)[1:].T.to_local()
        return calls.moves() - before

    if ranks != world.group.size:
        pytest.skip("the default mesh has all ranks, and this program runs on fewer")
    assert world.run(ranks, program)[0] == 0


def test_one_rank_remembers_nothing():
    mesh = distarray.DeviceMesh(distarray.default_mesh().group.subset((0,)), (1,))
    before = calls.moves()
    mesh.group.allreduce(np.ones(2), Fold.SUM)
    mesh.group.allgather_object(1)
    assert calls.moves() == before


def test_who_computes_is_seen_with_the_expression():
    seen = []

    def watch():
        time.sleep(0.05)
        seen.append(stacks.look())

    thread = threading.Thread(target=watch)
    thread.start()
    thread.join(timeout=20.0)  # where it is seen
    (look,) = seen
    assert (look.doing, look.begun) == ("computes", None)
    assert look.call == "thread.join(timeout=20.0)"
    assert look.path[0].endswith(f"{HERE}:{number_of('# where it is seen')}")


def test_expressions_are_named_by_what_they_call():
    assert lines.called("np.sum(x, axis=0)") == "np.sum"
    assert lines.called("a[0](3)") == "a[0](3)"
    assert lines.called("x + y") == "x + y"


def test_calls_in_words():
    x = distarray.distribute(np.ones((3, 2)), placements=[Shard(0)], src=None)
    assert described((x, 3, np.ones(2))).startswith("[float64 (3, 2) [Shard(0)")
    assert described([1] * 40).endswith(", 1, ...]")
    assert described(np.ones(2)) == "ndarray float64 (2,)"
    assert described(object()) == "object"
    assert (named(np.add), named(np.linalg.solve)) == ("np.add", "np.linalg.solve")
    assert ranks_in_words([3]) == "rank 3"
    assert ranks_in_words([5, 0, 1, 2]) == "ranks 0-2, 5"
    assert ranks_in_words([1, 2]) == "ranks 1-2"
