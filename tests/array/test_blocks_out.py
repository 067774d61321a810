"""Blocks that the program has of memory which several materializations have."""

import copy
import pickle
import tracemalloc
from threading import Barrier

import numpy as np
import pytest

import distarray.ops  # noqa: F401
from distarray.array import blocks_out, distribute, from_local
from distarray.comm import DeviceMesh, run_threads
from distarray.comm.ledger import forbid_communication, trace
from distarray.errors import CommunicationForbidden, CopyRequiredError, PerformanceWarning
from distarray.layout import Shard

RANKS = 4
#: Too few rows: a cut that ends with them would leave half of the ranks idle.
SHAPE = (2, 50)


def on_ranks(program, ranks=RANKS):
    def act(group):
        mesh = DeviceMesh(group, (group.size,))
        x = distribute(np.arange(100.0), mesh, [Shard(0)])
        return program(mesh, x)

    return run_threads(ranks, act)


def test_an_old_block_is_not_handed_out():
    def program(mesh, x):
        grid = x.reshape(SHAPE)
        x[:] = 1
        with forbid_communication():
            text = repr(grid)
            with pytest.raises(CommunicationForbidden, match=r"x\.refresh\(\)"):
                grid.to_local()
            assert grid.dtype == float and grid.nbytes == 800 and len(grid) == 2
            assert getattr(grid.flags, "writeable", True) and grid.shape == SHAPE
            (
                str(grid),
                grid.summary(),
                grid._repr_html_(),
                grid.__sizeof__(),
                grid.__dlpack_device__(),
            )
        return text, float(grid.refresh().to_local().max())

    for text, most in on_ranks(program):
        assert "x.refresh() brings it up to date" in text
        assert most == 1


def test_one_rank_writes_to_its_block():
    def program(mesh, x):
        grid = x.reshape(SHAPE)
        if mesh.rank == 1:
            x.to_local()[:] = 7
        found = [float(grid.sum())]
        if mesh.rank == 1:
            x.to_local()[:] = 8
        found.append(float((grid + 0).sum()))
        grid[0, 0] = 100
        found += [float(x.to_local()[0]), float(x.sum())]
        return found

    rest = sum(range(100)) - sum(range(25, 50))
    for rank, found in enumerate(on_ranks(program)):
        assert found[:2] == [rest + 7 * 25, rest + 8 * 25]
        assert found[2] == [100, 8, 50, 75][rank]
        assert found[3] == rest + 8 * 25 + 100


def test_a_block_that_was_out_before():
    def program(mesh, x):
        block = x.to_local()
        grid = x.reshape(5, 20)  # whose cut could move
        block[:] = 3
        found = float(grid.sum())
        grid[:] = 4
        return found, float(block.min()), float(block.max())

    assert on_ranks(program) == [(300, 4, 4)] * RANKS


@pytest.mark.host  # what a device gets of NumPy's memory is a copy
def test_a_block_that_the_program_gave():
    def program(mesh, x):
        own = np.full(8 + mesh.rank, 2.0)
        y = from_local(own, mesh, [Shard(0)])
        grid = y.reshape(2, 19)
        own[:] = 3
        found = float(grid.sum())
        grid[:] = 4
        return found, float(own.min())

    assert on_ranks(program) == [(114, 4)] * RANKS


def test_blocks_of_two_aliases():
    def program(mesh, x):
        grid = x.reshape(SHAPE)
        x.to_local()
        with pytest.raises(CopyRequiredError, match="handed out"):
            grid.to_local()
        return True

    assert all(on_ranks(program))


def test_blocks_of_two_aliases_on_two_ranks():
    def program(mesh, x):
        grid = x.reshape(SHAPE)
        (x if mesh.rank else grid).to_local()
        with pytest.raises(CopyRequiredError, match="blocks of two aliases"):
            grid.sum()
        return True

    assert all(on_ranks(program))


def test_a_cut_that_one_rank_has_the_block_of_is_not_moved():
    def program(mesh, x):
        if mesh.rank == 2:
            x.to_local()
        grid = x.reshape(5, 20)
        if mesh.rank == 2:
            x.to_local()[:] = 0
        return float(grid.sum())

    assert on_ranks(program) == [sum(range(100)) - sum(range(50, 75))] * RANKS


def test_copies_of_aliases():
    def program(mesh, x):
        grid = x.reshape(SHAPE)
        x[:] = 2
        first = pickle.loads(pickle.dumps(grid)), copy.deepcopy(grid), grid.copy()
        grid[:] = 3
        second = pickle.loads(pickle.dumps(x)), copy.deepcopy(x), x.copy()
        return [float(y.sum()) for y in (*first, *second)]

    assert on_ranks(program) == [[200] * 3 + [300] * 3] * RANKS


def test_aliases_that_died_are_given_up():
    def program(mesh, x):
        for k in range(10):
            grid = x.reshape(SHAPE)
            grid[0, 0] = k
            del grid
            x[1] = k
            assert len(x._storage.source.memory.materializations) <= 2
        x[2] = 1
        x[2] = 2
        x[2] = 3
        assert len(x._storage.source.memory.materializations) == 1
        return [float(value) for value in x[:3]]

    assert on_ranks(program) == [[9, 9, 3]] * RANKS


def test_refreshes_are_told_and_traced(monkeypatch):
    def program(mesh, x):
        grid = x.reshape(SHAPE)
        with trace() as told:
            x[0] = 1
            grid[0, 1] = 2
            x[2] = 3
        return [event.kind for event in told].count("refresh")

    monkeypatch.setattr(blocks_out, "QUIET", 0)
    with pytest.warns(PerformanceWarning, match="another alias of the same memory"):
        assert on_ranks(program) == [2] * RANKS


def test_an_exception_in_a_refresh():
    def program(mesh, x):
        grid = x.reshape(SHAPE)
        x[:] = 1
        with pytest.raises(CommunicationForbidden), forbid_communication():
            grid.sum()
        with pytest.raises(CommunicationForbidden), forbid_communication():
            grid[0] = 5
        x[0] = 2
        return float(grid.sum()), float(x.sum())

    assert on_ranks(program) == [(101, 101)] * RANKS


def test_a_block_that_the_program_took():
    def program(mesh, x):
        block = x.block
        grid = x.reshape(5, 20)  # whose cut could move
        block[:] = 3
        return float(grid.sum())

    assert on_ranks(program) == [300] * RANKS


@pytest.mark.filterwarnings("ignore:this line needs elements")
@pytest.mark.host  # of which the memory is measured
def test_the_memory_of_aliases():
    """A living alias that no cut serves has one buffer of its own, a dead one none."""
    size, started = 1 << 20, Barrier(RANKS)

    def program(mesh, x):
        y = distribute(np.zeros(size), mesh, [Shard(0)])
        grid = y.reshape(2, size // 2)  # plans are made
        del grid
        y[2] = 0
        started.wait()
        if mesh.rank == 0:
            tracemalloc.start()
        started.wait()
        for k in range(5):
            grid = y.reshape(2, size // 2)
            grid[0, 0] = k
            y[1] = k
            del grid
        y[2] = 0
        mesh.group.barrier()
        return float(y.sum())

    try:
        assert on_ranks(program) == [8] * RANKS
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # An exchange between threads also has copies of what is sent.
    assert most < 2.5 * 8 * size
