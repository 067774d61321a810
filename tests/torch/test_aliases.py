"""Tensors over the memory of arrays that share it with arrays of another cut."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import distarray.ops  # noqa: E402, F401
import distarray.torch as dt  # noqa: E402
from distarray.array import distribute  # noqa: E402
from distarray.comm import DeviceMesh, run_threads  # noqa: E402
from distarray.errors import CommunicationForbidden, LayoutError  # noqa: E402
from distarray.layout import Shard  # noqa: E402

RANKS = 4


def on_ranks(program):
    def act(group):
        mesh = DeviceMesh(group, (group.size,))
        return program(mesh, distribute(np.arange(100.0), mesh, [Shard(0)]))

    return run_threads(RANKS, act)


def test_tensors_see_aliases_and_are_seen():
    def program(mesh, x):
        t = dt.to_torch(x)
        grid = x.reshape(2, 50)
        t += 1
        found = float(grid.sum())
        grid[:] = 2
        return found, float(t.sum()) == 2 * len(t)

    assert on_ranks(program) == [(5050, True)] * RANKS


def test_a_tensor_over_an_alias():
    def program(mesh, x):
        t = dt.to_torch(x.reshape(2, 50))
        t += 1
        return float(x.sum())

    assert on_ranks(program) == [5050] * RANKS


def test_memory_that_tensors_lend():
    def program(mesh, x):
        t = torch.ones(25)
        grid = dt.from_torch(t, mesh=mesh, placements=[Shard(0)]).reshape(2, 50)
        t += 1
        return float(grid.sum())

    assert on_ranks(program) == [200] * RANKS


def test_an_old_alias_is_no_tensor():
    def program(mesh, x):
        grid = x.reshape(2, 50)
        x[:] = 1
        with pytest.raises(CommunicationForbidden, match="refresh"):
            dt.to_torch(grid)
        return float(dt.to_torch(grid.refresh()).max())

    assert on_ranks(program) == [1] * RANKS


def test_a_moved_cut_is_no_dtensor():
    def program(mesh, x):
        x.reshape(10, 10)
        with pytest.raises(LayoutError, match="redistribute"):
            dt.to_dtensor(x)
        return True

    assert all(on_ranks(program))
