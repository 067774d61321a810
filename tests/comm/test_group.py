"""Every conversation of a group but folds, in both worlds, against NumPy."""

import numpy as np
import pytest

from distarray.errors import DivergenceError
from distarray.layout.placement import Fold

from .samples import values

VIEWS = {
    "whole": lambda a: a,
    "rows": lambda a: a[1:3],
    "columns": lambda a: a[:, 1:3],
    "every other": lambda a: a[::2, 1::2],
    "backwards": lambda a: a[::-1, ::-2],
    "transposed": lambda a: a.T,
    "transposed backwards": lambda a: a.T[::-1, 1:],
    "one": lambda a: a[2:3, 3:4],
    "0-d": lambda a: a[2, 3],
    "broadcast": lambda a: np.broadcast_to(a[:, :1], (4, 3)),
}


def pytest_generate_tests(metafunc):
    """Small views are packed; under MPI they are sent by derived datatypes as well."""
    if "sent_as" in metafunc.fixturenames:
        ways = ["packed", "derived"] if metafunc.config.option.mpi else ["parcels"]
        metafunc.parametrize("sent_as", ways, indirect=True)


@pytest.fixture
def sent_as(request, monkeypatch):
    if request.param == "parcels":
        yield
        return
    from distarray.comm import datatypes

    if request.param == "derived":
        monkeypatch.setattr(datatypes, "PACK_BELOW", 0)
    datatypes.clear_datatypes()
    yield
    datatypes.clear_datatypes()


@pytest.mark.parametrize("dtype", ["f8", "f2", "?", "D", "g", "M8[s]", "S3", "i2,f8", ">i4"])
@pytest.mark.parametrize("how", VIEWS)
def test_exchange_views(world, ranks, how, dtype, sent_as):
    def mine(rank):
        if dtype == "i2,f8":
            pairs = [(i + rank, i / 2) for i in range(24)]
            return np.array(pairs, dtype=dtype).reshape(4, 6)
        return values(rank, "i8", (4, 6)).astype(dtype)

    def program(group):
        up, down = (group.rank + 1) % group.size, (group.rank - 1) % group.size
        source = mine(group.rank)
        view = VIEWS[how](source) if how != "0-d" else source[2:3, 3:4].reshape(())
        into = np.zeros((*view.shape, 2), dtype)[..., 0]
        turned = np.zeros(view.shape[::-1], dtype).T
        if group.size > 1:
            group.exchange([(up, view)], [(down, into)])
            group.exchange([(up, view)], [(down, turned)])
            other = VIEWS[how](mine(down)) if how != "0-d" else mine(down)[2, 3]
            assert np.array_equal(into, other)
            assert np.array_equal(turned, other)

    world.run(ranks, program)


@pytest.mark.parametrize("kind", ["f8", "i4", "D", "?", "f2"])
def test_views_that_are_not_aligned(world, ranks, kind, sent_as):
    """One element of a field is contiguous, but it need not be aligned."""

    def program(group):
        up, down = (group.rank + 1) % group.size, (group.rank - 1) % group.size
        field = np.zeros(4, [("a", "u1"), ("b", kind)])["b"]
        field[:] = values(group.rank, "i8", (4,)).astype(kind)
        theirs = values(down, "i8", (4,)).astype(kind)
        for part in (slice(1, 2), slice(1, 3)):
            whole = group.allgather(field[part])
            assert all(len(row) == part.stop - part.start for row in whole)
            assert np.array_equal(whole[down], theirs[part])
            total = group.allreduce(field[part], Fold.MAX)
            assert np.array_equal(total, np.max(np.array(whole), axis=0))
            if group.size > 1:
                into = np.zeros(4, [("a", "u1"), ("b", kind)])["b"]
                group.exchange([(up, field[part])], [(down, into[part])])
                assert np.array_equal(into[part], theirs[part])
            sent = field[part].copy() if group.rank else field[part]
            group.broadcast(sent, 0)
            assert np.array_equal(sent, whole[0])

    world.run(ranks, program)


def test_exchange_all_pairs(world, ranks, sent_as):
    def program(group):
        others = [rank for rank in range(group.size) if rank != group.rank]
        sent = np.arange(20.0).reshape(4, 5) + 100 * group.rank
        landed = {rank: np.zeros((5, 4)) for rank in others}
        for _ in range(3):
            group.exchange(
                [(rank, sent[:, : rank + 1]) for rank in others],
                [(rank, landed[rank].T[:, : group.rank + 1]) for rank in others],
            )
        for rank in others:
            want = (np.arange(20.0).reshape(4, 5) + 100 * rank)[:, : group.rank + 1]
            assert np.array_equal(landed[rank].T[:, : group.rank + 1], want[:, :5])

    if ranks <= 5:
        world.run(ranks, program)


@pytest.mark.mpi
def test_datatypes_are_used_and_bounded(world, ranks):
    from distarray.comm import datatypes

    def program(group):
        block = np.arange(40.0 * 1200).reshape(40, 1200)
        up, down = (group.rank + 1) % group.size, (group.rank - 1) % group.size
        held = []
        widths = range(300, 1150) if group.size <= 2 else range(300, 420)
        for width in [*widths, *widths]:
            into = np.zeros((2, 1200))
            if group.size > 1:
                group.exchange([(up, block[3:5, 7:width])], [(down, into[:, 7:width])])
                assert np.array_equal(into[:, 7:width], block[3:5, 7:width])
                held.append(datatypes.cached_datatypes())
        assert max(held, default=0) <= datatypes.CACHE_SIZE
        assert group.size == 1 or max(held) > 100

    world.run(ranks, program)


@pytest.mark.mpi
@pytest.mark.parametrize("dtype", ["f8", "f2", "S3", "i4", "f4"])
def test_more_elements_than_an_int_counts(world, ranks, dtype, monkeypatch):
    """The paths for more than 2 GiB, taken with a few elements."""
    from distarray.comm import datatypes, mpi

    monkeypatch.setattr(datatypes, "LARGE", 5)
    monkeypatch.setattr(mpi, "LARGE", 5)
    datatypes.clear_datatypes()

    def program(group):
        size, rank = group.size, group.rank
        up, down = (rank + 1) % size, (rank - 1) % size
        block, below = (
            values(rank, "i8", (3, 4)).astype(dtype),
            values(down, "i8", (3, 4)).astype(dtype),
        )
        into = np.zeros((3, 4), dtype)
        if size > 1:
            group.exchange([(up, block)], [(down, into)])
            assert np.array_equal(into, below)
        stack = group.allgather(block)
        parts = group.allgather_varied(block[: rank % 3])
        group.broadcast(into, size - 1)
        assert size == 1 or np.array_equal(stack[size - 2], into)
        assert [len(part) for part in parts] == [r % 3 for r in range(size)]
        if dtype != "S3":
            total = group.allreduce(block, Fold.SUM)
            first = group.exscan(block, Fold.SUM, 0)
            mine = group.reduce_scatter([block] * size, Fold.SUM)
            assert np.array_equal(total, sum(values(r, "i8", (3, 4)) for r in range(size)))
            assert np.array_equal(mine, total)
            assert np.array_equal(
                first, sum([values(r, "i8", (3, 4)) for r in range(rank)], 0 * into)
            )

    world.run(ranks, program)
    datatypes.clear_datatypes()


def test_read_only_blocks_can_be_sent(world, ranks):
    def program(group):
        block = np.arange(6.0).reshape(2, 3)
        block.flags.writeable = False
        into = np.zeros((2, 2))
        up, down = (group.rank + 1) % group.size, (group.rank - 1) % group.size
        if group.size > 1:
            group.exchange([(up, block[:, ::2])], [(down, into)])
            assert np.array_equal(into, block[:, ::2])
        assert np.array_equal(group.allreduce(block, Fold.MAX), block)
        assert np.array_equal(group.allgather(block)[0], block)

    world.run(ranks, program)


def test_objects_travel_pickled(world, ranks):
    def program(group):
        up, down = (group.rank + 1) % group.size, (group.rank - 1) % group.size
        block = np.array([[group.rank, None], [{"a": [1]}, "text"]], dtype=object)
        into = np.empty((2,), object)
        if group.size > 1:
            group.exchange([(up, block[:, 0])], [(down, into)])
            assert into.tolist() == [down, {"a": [1]}]
        assert group.allgather(block).tolist()[-1][0] == [group.size - 1, None]
        parts = group.allgather_varied(block[: group.rank % 2 + 1])
        assert [len(part) for part in parts] == [rank % 2 + 1 for rank in range(group.size)]
        assert group.broadcast(block, 0)[0, 0] == 0
        total = group.allreduce(np.array([group.rank, 1 << 80], object), Fold.SUM)
        assert total.tolist() == [sum(range(group.size)), group.size << 80]

    world.run(ranks, program)


def test_objects_that_cannot_be_pickled(world, ranks):
    def program(group):
        with pytest.raises(TypeError, match="cannot be sent"):
            group.broadcast(np.array([lambda: None], dtype=object), 0)

    if ranks > 1:
        world.run(ranks, program)


@pytest.mark.parametrize("root", [0, -1])
@pytest.mark.parametrize("dtype", ["f8", "M8[s]", "S3", "?"])
def test_broadcast(world, ranks, dtype, root, sent_as):
    def program(group):
        source = root % group.size
        block = values(group.rank, "i4", (4, 5)).astype(dtype)
        edge = block[1:, 0].copy()
        same = group.broadcast(block[:, 1:4].T, source)
        assert np.array_equal(same, values(source, "i4", (4, 5)).astype(dtype)[:, 1:4].T)
        assert np.array_equal(block[1:, 0], edge)
        alone = np.array(group.rank)
        assert group.broadcast(alone, source) is alone
        assert alone == source
        group.broadcast(np.zeros((0, 3)), source)

    world.run(ranks, program)


@pytest.mark.parametrize("dtype", ["f8", "M8[s]", "S3", "?", "f2"])
def test_gathering(world, ranks, dtype):
    def mine(rank):
        return values(rank, "i4", (rank, 2)).astype(dtype)

    def program(group):
        size, rank = group.size, group.rank
        stack = group.allgather(values(rank, "i4", (2, 3)).astype(dtype).T)
        scalars = group.allgather(np.array(rank))
        unknown = group.allgather_varied(mine(rank))
        known = group.allgather_varied(mine(rank), list(range(size)))
        gathered = group.gather_varied(mine(rank), size - 1)
        assert np.array_equal(stack, [values(r, "i4", (2, 3)).astype(dtype).T for r in range(size)])
        assert scalars.tolist() == list(range(size))
        for parts in (unknown, known, gathered if rank == size - 1 else unknown):
            assert [part.shape for part in parts] == [(r, 2) for r in range(size)]
            assert all(np.array_equal(part, mine(r)) for r, part in enumerate(parts))
            assert parts[0].base.shape == (sum(range(size)), 2)
        assert (gathered is None) == (rank != size - 1)

    world.run(ranks, program)


@pytest.mark.parametrize("dtype", ["f8", "M8[s]", "i2,f8"])
def test_alltoall_and_scatter(world, ranks, dtype):
    def part(source, target):
        return np.full((source + 2 * target) % 3, source + 10 * target).astype(dtype)

    def program(group):
        size, rank = group.size, group.rank
        got = group.alltoall_varied([part(rank, target) for target in range(size)])
        block = np.zeros((2, 1), "f8")
        blocks = [np.arange(4.0).reshape(2, 2)[:, :1] + r for r in range(size)]
        same = group.scatter(blocks if rank == size - 1 else None, block, size - 1)
        assert all(np.array_equal(got[r], part(r, rank)) for r in range(size))
        assert same is block
        assert np.array_equal(block, blocks[rank])

    world.run(ranks, program)


def test_objects(world, ranks):
    def program(group):
        everyone = group.allgather_object({"rank": group.rank})
        word = group.broadcast_object(("from", group.rank), group.size - 1)
        group.barrier()
        assert everyone == [{"rank": rank} for rank in range(group.size)]
        assert word == ("from", group.size - 1)

    world.run(ranks, program)


def test_split_and_subset(world, ranks):
    def program(group):
        size, rank = group.size, group.rank
        part = group.split(rank % 2, -rank)
        members = [r for r in range(size) if r % 2 == rank % 2][::-1]
        mine = part.allgather_object(rank)
        again = group.split(rank % 2, -rank)
        none = group.split(None if rank else 0, 0)
        last = group.subset((size - 1,))
        backwards = group.subset(range(size)[::-1])
        order = backwards.allgather_object(rank)
        total = part.allreduce(np.array(rank), Fold.SUM)
        assert mine == members
        assert again is part
        assert (none is None) == (rank > 0)
        assert (last is None) == (rank != size - 1)
        assert order == list(range(size))[::-1]
        assert total == sum(members)
        assert part.world_ranks == tuple(members)
        assert group.subset(range(size)) is group

    world.run(ranks, program)


def test_splitting_in_a_loop_is_free(world, ranks):
    def program(group):
        # Two ranks in another order need a communicator; MPICH has about two thousand.
        for _ in range(2500 if world.name == "mpi" and group.size == 2 else 50):
            group.split(0, -group.rank)
            group.subset((0,))

    world.run(ranks, program)


# -- thread ranks only: what goes wrong is said at once -------------------------------------------


def thread_ranks(n, program):
    from distarray.comm import run_threads

    return run_threads(n, program, timeout=3)


def test_a_skipped_collective_is_an_error():
    from distarray.comm.threads import BrokenWorldError

    def program(group):
        if group.rank != 1:
            group.barrier()

    with pytest.raises(BrokenWorldError, match=r"barrier.*have ended"):
        thread_ranks(3, program)


def test_a_rank_that_cannot_start_is_not_waited_for(monkeypatch):
    from distarray.comm import thread_start

    start = thread_start.try_start

    def try_start(thread):
        none = thread.name == "rank-1"
        return RuntimeError("can't start new thread") if none else start(thread)

    monkeypatch.setattr(thread_start, "try_start", try_start)
    with pytest.raises(RuntimeError, match="can't start"):
        thread_ranks(3, lambda group: group.barrier())


def test_a_missing_message_is_an_error():
    from distarray.comm.threads import BrokenWorldError

    def program(group):
        group.exchange([], [(1 - group.rank, np.zeros(3))])

    with pytest.raises(BrokenWorldError, match=r"a message from rank"):
        thread_ranks(2, program)


def test_different_calls_are_an_error():
    def program(group):
        group.barrier() if group.rank else group.allreduce(np.zeros(2), Fold.SUM)

    with pytest.raises(DivergenceError, match=r"rank 0  allgather of float64 \(2,\)\n.*barrier"):
        thread_ranks(2, program)


def test_the_real_failure_is_reported():
    def program(group):
        if group.rank == 2:
            raise KeyError("the cause")
        group.barrier()

    with pytest.raises(KeyError, match="the cause"):
        thread_ranks(4, program)


def test_messages_that_do_not_fit_are_an_error():
    def program(group):
        group.exchange([(1 - group.rank, np.zeros(3))], [(1 - group.rank, np.zeros(4))])

    with pytest.raises(DivergenceError, match=r"sent float64 \(3,\)"):
        thread_ranks(2, program)
