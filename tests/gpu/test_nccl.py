"""GPU messages by NCCL, on the stand-ins for CuPy and nccl4py: `test_families.py` runs this."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import distarray
import distarray.numpy as dnp
from distarray import DeviceMesh, Shard, distribute
from distarray.comm import devices, ways
from distarray.comm.nccl import folds
from distarray.comm.threads import ThreadGroup
from distarray.config import config
from distarray.errors import DivergenceError, MessageError
from distarray.layout.placement import Fold
from distarray.testing import assert_matches


@pytest.fixture
def nccl() -> Any:
    """The stand-in for nccl4py, as new; tests of it are about ``--device nccl``."""
    module = sys.modules["nccl_standin"]
    module.install()
    yield module
    module.install()


@pytest.fixture
def xp(nccl: ModuleType) -> ModuleType:
    return sys.modules["cupy"]


@pytest.fixture(params=[1, 2, 3, 4])
def several(request: pytest.FixtureRequest, world: Any) -> int:
    """1 to 4 ranks; under MPI as many as there are."""
    if world.name == "mpi" and request.param not in world.ranks:
        pytest.skip("another number of processes")
    return request.param


def anew(group: Any) -> Any:
    """The group as if nothing had been chosen; under MPI tests share it."""
    group.barrier()
    group._ways = None
    return group


def crossings(program: Any) -> tuple[int, int]:
    """How many blocks have been copied to the host and back by this process."""
    before = devices.transfers.to_host, devices.transfers.to_device
    program()
    return devices.transfers.to_host - before[0], devices.transfers.to_device - before[1]


DTYPES = "?bBhHiIlLqQefdFD"


def values(dtype: str, rank: int, count: int = 5) -> np.ndarray:
    line = (np.arange(count) * 7 + 11 * rank) % 5
    found = line.astype(dtype)
    if dtype in "fd":
        found[1] = np.nan if rank == 0 else 2.0
    return found


@pytest.mark.parametrize("fold", list(Fold))
@pytest.mark.parametrize("dtype", DTYPES)
def test_folds_are_numpys(world, xp, nccl, fold, dtype):
    bits = fold in (Fold.BAND, Fold.BOR, Fold.BXOR)
    if (bits and dtype in "efdFD") or (dtype in "FD" and fold in (Fold.MIN, Fold.MAX)):
        pytest.skip("NumPy has no such fold")
    size = max(world.ranks)

    def program(group):
        anew(group)
        mine = values(dtype, group.rank)
        with config.override(gpu_messages="nccl"):
            found = group.allreduce(xp.asarray(mine), fold)
            parts = [xp.asarray(mine[:n]) for n in [(r * 3) % 5 for r in range(group.size)]]
            part = group.reduce_scatter(parts, fold)
        assert group.uses_nccl == (group.size > 1)
        expected = group.allreduce(mine, fold)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found.get(), expected)
        kept = (group.rank * 3) % 5
        assert part.dtype == expected.dtype
        np.testing.assert_array_equal(part.get(), expected[:kept])

    before = nccl.calls["allreduce"]
    world.run(size, program)
    if size > 1:
        assert (nccl.calls["allreduce"] > before) == folds(np.dtype(dtype), fold)


@pytest.mark.parametrize("dtype", ["?", "h", "e", "D"])
def test_copies_of_any_dtype_cross_nothing(world, several, xp, nccl, dtype):
    def program(group):
        anew(group)
        size, rank = group.size, group.rank

        def block(r, rows=3):
            return (np.arange(rows * 4).reshape(rows, 4) + 10 * r).astype(dtype)

        mine = xp.asarray(block(rank))
        same = np.testing.assert_array_equal
        group.meet_devices(xp)
        stack = group.allgather(mine[:, ::2])
        same(stack.get(), [block(r)[:, ::2] for r in range(size)])
        for lengths in ([r % 3 for r in range(size)], [2] * size, [0] * size):
            cut = mine[: lengths[rank]]
            for counts in (lengths, None):
                parts = group.allgather_varied(cut, counts)
                for r, part in enumerate(parts):
                    same(part.get(), block(r)[: lengths[r]])
        came = group.alltoall_varied([mine[: (rank + r) % 3] for r in range(size)])
        for r, part in enumerate(came):
            same(part.get(), block(r)[: (rank + r) % 3])
        whole = group.gather_varied(mine[: rank + 1 - rank % 2], size - 1)
        assert (whole is None) == (rank < size - 1)
        for r, part in enumerate(whole or []):
            same(part.get(), block(r)[: r + 1 - r % 2])
        copied = xp.asarray(block(rank))
        group.broadcast(copied[:, 1:3], 0)
        same(copied.get()[:, 1:3], block(0)[:, 1:3])
        same(copied.get()[:, 3:], block(rank)[:, 3:])
        landing = xp.empty((2, 4), dtype)
        blocks = [xp.asarray(block(r))[:2] for r in range(size)] if rank == 0 else None
        group.scatter(blocks, landing[::-1], 0)
        same(landing.get()[::-1], block(rank)[:2])
        if size > 1:
            up, down = (rank + 1) % size, (rank - 1) % size
            into, point = xp.empty((4, 3), dtype), xp.empty((), dtype)
            sends = [(up, mine.T[::-1]), (up, mine[0, 0]), (up, mine)]
            group.exchange(sends, [(down, into), (down, point), (down, mine.copy())])
            same(into.get(), block(down).T[::-1])
            same(point.get(), block(down)[0, 0])
        assert nccl.unfinished() == 0

    with config.override(gpu_messages="nccl"):
        crossed = crossings(lambda: world.run(several, program))
    assert crossed == (0, 0) or several == 1


def test_data_may_be_used_at_once(world, several, xp, nccl):
    def program(group):
        anew(group)
        block = xp.asarray(np.ones(3))
        for _ in range(3):
            group.allreduce(block, Fold.SUM)
            assert nccl.unfinished() == 0

    with config.override(gpu_messages="nccl"):
        world.run(several, program)


# -- the choice ---------------------------------------------------------------------------------


def pretended(monkeypatch: Any, seconds: dict[str, tuple[float, float]]) -> None:
    """Let the ways of exchanges, and of collectives, take these times; differently on each rank."""

    def measure(group, xp, call):
        call()
        short, long = seconds[call.way]
        return (short if call.nbytes == ways.SIZES[0] else long) / (1 + group.rank)

    trial = ways._trial

    def noted(group, only, kind, xp, nbytes):
        call = trial(group, only, kind, xp, nbytes)
        call.way, call.nbytes = next(iter(only.lines[kind])), nbytes
        return call

    monkeypatch.setattr(ways, "_trial", noted)
    monkeypatch.setattr(ways, "_seconds", measure)


def test_the_fastest_way_is_taken_for_each_size(world, xp, nccl, monkeypatch):
    pretended(monkeypatch, {"nccl": (5.0, 6.0), "host": (1.0, 50.0)})
    size = max(world.ranks)
    if size == 1:
        pytest.skip("one rank has no messages")

    def program(group):
        anew(group)
        with distarray.trace() as t:
            group.meet_devices(xp)
        assert t.count("exchange") == t.count("allreduce") == 0
        chosen = group._ways
        found = [(kind, n, chosen.way(kind, n)) for kind in chosen.lines for n in (8, 1 << 23)]
        assert len(set(map(tuple, group.allgather_object(found)))) == 1
        assert [way for _, _, way in found] == ["host", "nccl"] * 2
        group.barrier()
        before = nccl.calls.copy()
        group.barrier()
        group.allreduce(xp.asarray(np.ones(8)), Fold.SUM)
        group.barrier()
        assert nccl.calls == before
        group.barrier()
        group.allreduce(xp.asarray(np.ones(1 << 20)), Fold.SUM)
        up, down = (group.rank + 1) % size, (group.rank - 1) % size
        small, large = xp.empty(2, float), xp.empty(1 << 20, float)
        mine = [xp.asarray(np.full(n, group.rank + 0.5)) for n in (2, 1 << 20)]
        group.exchange([(up, b) for b in mine], [(down, small), (down, large)])
        assert set(small.get()) == set(large.get()) == {down + 0.5}
        group.barrier()
        assert set(nccl.calls - before) == {"allreduce", "send", "recv"}

    with config.override(gpu_messages="measured"):
        world.run(size, program)


def test_a_peer_may_take_in_two_calls_what_is_sent_in_one(world, xp, nccl, monkeypatch):
    pretended(monkeypatch, {"nccl": (5.0, 6.0), "host": (1.0, 50.0)})
    if world.name == "mpi" and 2 not in world.ranks:
        pytest.skip("another number of processes")

    def program(group):
        other = 1 - group.rank
        small, large = (xp.asarray(np.full(n, group.rank + 0.5)) for n in (2, 1 << 20))
        first, second = xp.empty(2, float), xp.empty(1 << 20, float)
        anew(group).meet_devices(xp)
        for one, two, into, then in [
            (small, large, first, second),
            (large, small, second, first),
        ]:
            into[...] = then[...] = -1.0
            if group.rank == 0:
                group.exchange([(other, one), (other, two)], [(other, into), (other, then)])
            else:
                group.exchange([], [(other, into)])
                group.exchange([(other, one)], [(other, then)])
                group.exchange([(other, two)], [])
            assert set(first.get()) == set(second.get()) == {other + 0.5}

    with config.override(gpu_messages="measured"):
        world.run(2, program)


def test_a_measurement_agrees_and_counts_for_nothing(world, several, xp, nccl):
    def program(group):
        anew(group)
        with distarray.trace() as t:
            group.allreduce(xp.asarray(np.ones(3)), Fold.SUM)
        events = [(event.kind, event.bytes, event.messages) for event in t]
        assert events == ([("allreduce", 24, 1)] if group.size > 1 else [])
        lines = None if group._ways is None else group._ways.lines
        assert all(other == lines for other in group.allgather_object(lines))
        if lines is not None:
            assert set(lines) == {"exchange", "together"}
            assert all(set(each) == {"nccl", "host"} for each in lines.values())

    with config.override(gpu_messages="measured"):
        world.run(several, program)


def test_one_way_alone_is_not_measured(world, several, xp, nccl, monkeypatch):
    monkeypatch.setattr(ways, "_seconds", lambda *args: pytest.fail("measured"))

    def program(group):
        way = config.gpu_messages
        total = anew(group).allreduce(xp.asarray(np.ones(3)), Fold.SUM)
        assert total.tolist() == [group.size] * 3
        assert group.uses_nccl == (way == "nccl" and group.size > 1)

    for way in ("nccl", "host"):
        with config.override(gpu_messages=way):
            world.run(several, program)
    nccl.remove()
    with config.override(gpu_messages="measured"):
        world.run(several, program)


def test_the_ledger_does_not_tell_the_ways_apart(world, several, xp, nccl):
    def program(group):
        anew(group)
        mesh = DeviceMesh(group, (group.size,))
        with distarray.trace() as t:
            x = distribute(np.arange(24.0).reshape(6, 4), mesh, [Shard(0)])
            y = x.redistribute(placements=[Shard(1)])
            total = (x[1:] - x[:-1]).sum(axis=0) @ (y.T @ x)
            order = dnp.sort(x.reshape(-1))
            seen = total.full().tolist(), order.full().tolist()
        return seen, [event[:5] for event in t]

    found = []
    for way in ("host", "nccl"):
        with config.override(gpu_messages=way):
            found.append(world.run(several, program))
    assert found[0] == found[1]


# -- what falls back ----------------------------------------------------------------------------


def test_without_nccl4py_on_one_rank_all_go_the_next_way(world, xp, nccl, monkeypatch):
    from distarray.comm import nccl as module

    size, seat = max(world.ranks), module.seat
    if size == 1:
        pytest.skip("one rank has no messages")

    def program(group):
        last = group.rank == size - 1
        missing = module.Seat("ModuleNotFoundError: No module named 'nccl'", "")
        here = missing if last else seat(xp)
        group.barrier()
        seats = group.allgather_object(here)
        monkeypatch.setattr(module, "seat", lambda xp: seats[own(group)])
        group.barrier()
        total = anew(group).allreduce(xp.asarray(np.ones(2)), Fold.SUM)
        assert total.tolist() == [size, size]
        assert not group.uses_nccl
        group._ways = None
        with (
            config.override(gpu_messages="nccl"),
            pytest.raises(MessageError, match="cannot use nccl4py"),
        ):
            group.allreduce(xp.asarray(np.ones(2)), Fold.SUM)
        group.barrier()

    def own(group):
        from distarray.comm import current_world

        return group.rank if current_world() is None else current_world().rank

    with config.override(gpu_messages="measured"):
        world.run(size, program)


@pytest.mark.parametrize("trouble", ["one GPU", "init", "no id"])
def test_where_nccl_will_not_start_all_go_the_next_way(world, xp, nccl, monkeypatch, trouble):
    size = max(world.ranks)
    if size == 1:
        pytest.skip("one rank has no messages")
    if trouble == "one GPU":
        monkeypatch.setattr(sys.modules["standin"], "gpu", lambda: "0000:00:00.0")
    if trouble == "no id":
        monkeypatch.setattr(sys.modules["nccl.core"], "get_unique_id", lambda: 1 // 0)
    texts = {
        "one GPU": "ranks 0 and 1 are on one GPU",
        "init": "rank 0: NCCLError",
        "no id": "rank 0: ZeroDivisionError",
    }

    def program(group):
        for way in ("measured", "nccl"):
            if trouble == "init" and group.rank == 1:
                nccl.refuse_on(1)
            anew(group)
            with config.override(gpu_messages=way):
                if way == "nccl":
                    with pytest.raises(MessageError, match=texts[trouble]):
                        group.allreduce(xp.asarray(np.ones(2)), Fold.SUM)
                else:
                    total = group.allreduce(xp.asarray(np.ones(2)), Fold.SUM)
                    assert total.tolist() == [size, size]
                    assert not group.uses_nccl
            group.barrier()

    world.run(size, program)


def test_ways_that_cannot_be_are_refused(world, xp, nccl, monkeypatch):
    monkeypatch.setattr(devices, "_aware", False)
    size = max(world.ranks)
    if size == 1:
        pytest.skip("one rank has no messages")

    def program(group):
        group.barrier()
        group._ways = None
        with config.override(gpu_messages="mpi"), pytest.raises(MessageError, match=r"MPI|threads"):
            group.allgather(xp.asarray(np.ones(2)))
        way = "host" if group.rank else "nccl"
        with config.override(gpu_messages=way), pytest.raises(DivergenceError, match="differs"):
            group.allgather(xp.asarray(np.ones(2)))

    world.run(size, program)
    with pytest.raises(ValueError, match="gpu_messages"):
        config.gpu_messages = "pigeon"


def test_mpi_is_given_device_buffers_in_one_piece(world, xp, nccl, monkeypatch):
    if world.name == "mpi":
        pytest.skip("threads pass for an MPI that takes the stand-in's memory")
    given: list[int] = []
    by_threads = ThreadGroup._exchange

    def memory(view):
        if isinstance(view, np.ndarray):
            return view
        assert view.flags.c_contiguous
        given.append(view.nbytes)
        return view._memory

    def exchange(self, sends, receives):
        lists = [[(peer, memory(view)) for peer, view in side] for side in (sends, receives)]
        by_threads(self, *lists)

    monkeypatch.setattr(ThreadGroup, "_exchange", exchange)
    monkeypatch.setattr(ThreadGroup, "takes_device_buffers", True)
    monkeypatch.setattr(devices, "_aware", True)
    nccl.remove()

    def program(group):
        mine, into = xp.asarray(np.arange(12.0).reshape(3, 4)), xp.empty((4, 3), float)
        group.meet_devices(xp)
        group.exchange([(1 - group.rank, mine[:, ::2])], [(1 - group.rank, into.T[:, ::2])])
        np.testing.assert_array_equal(into.get()[::2], mine.get()[:, ::2].T)
        assert group.allreduce(mine, Fold.SUM).tolist() == (2 * mine).tolist()
        return [sorted(ways) for ways in group._ways.lines.values()]

    with config.override(gpu_messages="mpi"):
        assert world.run(2, program) == [[["mpi"], ["host"]]] * 2
    assert given == [48] * 4
    with config.override(gpu_messages="measured"):
        assert world.run(2, program) == [[["host", "mpi"], ["host"]]] * 2


def test_a_broken_connection_is_an_error_on_all_ranks(world, xp, nccl):
    size = max(world.ranks)
    if size == 1 or world.name == "mpi":
        pytest.skip("the stand-in breaks connections between threads")

    def program(group):
        anew(group)
        block = xp.asarray(np.ones(3))
        group.allreduce(block, Fold.SUM)
        group.barrier()
        if group.rank == 0:
            nccl.break_next(size - 1)
        group.barrier()
        for _ in range(2):
            with pytest.raises(MessageError, match=r"by NCCL failed.*(system error|exited)"):
                group.allreduce(block, Fold.SUM)

    with config.override(gpu_messages="nccl"):
        world.run(size, program)


def test_a_freed_group_frees_its_communicator(world, xp, nccl):
    if world.name == "mpi":
        pytest.skip("the group of the tests lives on")

    def program(group):
        group.allreduce(xp.asarray(np.ones(3)), Fold.SUM)
        communicator = group._ways.nccl
        group.free()
        with pytest.raises(MessageError, match="freed"):
            communicator.allgather(xp.asarray(np.ones(3)))

    with config.override(gpu_messages="nccl"):
        world.run(2, program)


def test_programs_compute_the_same(world, several, xp, nccl):
    def program(group):
        anew(group)
        mesh = DeviceMesh(group, (group.size,))
        for n in (0, 1, 7):
            whole = np.arange(3.0 * n).reshape(n, 3)
            x = distribute(whole, mesh, [Shard(0)])
            assert_matches(x.redistribute(placements=[Shard(1)]), whole)
            assert_matches(x.T @ x, whole.T @ whole, exact=False)
            assert_matches(dnp.roll(x, 2, axis=0), np.roll(whole, 2, axis=0))
            assert_matches(x.astype(np.float16).sum(axis=0), whole.astype(np.float16).sum(axis=0))
            assert_matches((x > 2).any(axis=0), (whole > 2).any(axis=0))
        across = distribute(np.arange(5.0), mesh, [Shard(0)]).redistribute(mesh.on("cpu"))
        assert_matches(across, np.arange(5.0))
        assert_matches(across.redistribute(mesh), np.arange(5.0))

    with config.override(gpu_messages="nccl"):
        world.run(several, program)
