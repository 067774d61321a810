"""The acceptance programs of the notes on DTensor that need no torch, as they stand there.

T1 and T2 are in torch/modules/test_plans.py, T3 to T8 in torch/test_examples_torch.py, training on
a grid (T9) in torch/sharded/test_sharding.py. What follows here torch gets wrong, gathers or hangs
at.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import distarray
import distarray.numpy as dnp
from distarray import DeviceMesh, Replicate, Shard, checkpoint
from distarray.testing import assert_matches
from tests.everywhere import line


def grid(group):
    """Two rows of ranks, or one of an odd number."""
    rows = 2 if group.size % 2 == 0 else 1
    return DeviceMesh(group, (rows, group.size // rows))


def test_nested_uneven_shards(world, ranks):
    """T9: five rows cut twice are gathered whole, however the mesh is looked at."""
    values = np.arange(15.0).reshape(5, 3)

    def program(group):
        x = distarray.distribute(values, grid(group), [Shard(0), Shard(0)])
        assert_matches(x, values)
        assert_matches(x.redistribute(line(group), [Shard(0)]), values)
        rows = group.allgather_object(len(x.to_local()))
        if ranks == 4:
            assert rows == [2, 1, 1, 1]
        assert sum(rows) == 5

    world.run(ranks, program)


def test_checkpoint(world, tmp_path):
    """T10: saved on all ranks, loaded in other layouts on all of them and on fewer."""
    most, values = min(4, world.ranks[-1]), np.arange(35.0).reshape(7, 5)
    if world.name == "mpi":
        tmp_path = Path(world.group.broadcast_object(str(tmp_path), 0))
        most = world.ranks[-1]

    def program(group):
        plane = grid(group)
        u = distarray.distribute(values, line(group), [Shard(0)])
        v = distarray.distribute(values, plane, [Shard(0), Shard(1)])
        r = distarray.distribute(values, line(group), [Replicate()])
        checkpoint.save(tmp_path / "seed", {"u": u, "v": v, "r": r})
        whole = [(line(group), [Shard(1)]), (plane, [Shard(1), Shard(0)])]
        fewer = [
            (DeviceMesh(group, (n,), ranks=np.arange(n)), [Shard(0)]) for n in range(1, group.size)
        ]
        for mesh, placements in whole + fewer:
            found = checkpoint.load(tmp_path / "seed", mesh=mesh, placements=placements)
            for name in "uvr" if mesh.coords is not None else "":
                assert found[name].placements == tuple(placements)
                assert found[name].full().tobytes() == values.tobytes()

    world.run(most, program)


def test_scalars_are_global(world, ranks):
    """T11: torch's were those of the rank, 28 and 63 of 91."""

    def program(group):
        x = distarray.distribute(np.arange(14.0).reshape(7, 2), line(group), [Shard(0)])
        assert float(x.sum()) == 91.0
        assert bool((x > 12).any())
        assert (x.sum() + 10) == 101
        assert x.mean() == 6.5

    world.run(ranks, program)


def test_what_is_assigned_is_there(world, ranks):
    """T12: in place, on the ranks that own it, and the layout stays."""
    y = -np.arange(12.0).reshape(3, 4)
    steps = [
        ((1, 2), 7),
        (slice(2, 5), y),
        ((slice(None), 1), 5),
        (np.arange(28).reshape(7, 4) % 3 == 0, 0),
        ([0, 2], 0),
    ]

    def program(group):
        values = np.arange(28.0).reshape(7, 4)
        x = distarray.distribute(values, line(group), [Shard(0)])
        layout = x.layout
        for key, value in steps:
            x[key] = value
            values[key] = value
            assert_matches(x, values)
            assert x.layout is layout

    world.run(ranks, program)


@pytest.mark.parametrize("shape", [(5, 3), (9,)], ids=str)
def test_empty_shards(world, shape):
    """T13: more ranks than rows; torch gave NaN, raised, or waited for ever."""
    values = np.random.default_rng(3).permutation(np.prod(shape)).reshape(shape).astype(float)
    calls = [
        np.max,
        np.argmax,
        np.mean,
        lambda x: np.min(x, 0),
        lambda x: np.argmin(x, 0),
        lambda x: np.any(x > 6),
        lambda x: np.fft.fft(x, axis=0),
        lambda x: x[np.array([4, 0, 4])],  # an embedding
    ]
    most = 8 if world.name == "threads" else world.ranks[-1]

    def program(group):
        x = distarray.distribute(values, line(group), [Shard(0)])
        for call in calls:
            np.testing.assert_allclose(np.asarray(call(x)), call(values), rtol=1e-12, atol=1e-12)
        assert float(dnp.max(x)) == values.max()

    world.run(most, program)


def test_without_torch(own_processes):
    """T14: nothing but NumPy and MPI is needed, where torch is not installed."""
    code = """
import sys
sys.modules["torch"] = sys.modules["ml_dtypes"] = None
import numpy, distarray
x = distarray.distribute(numpy.arange(14.0).reshape(7, 2), placements=[distarray.Shard(0)])
x[1, 1] = 5
assert float(numpy.sum(x @ x.T)) == float((x.full() @ x.full().T).sum())
"""
    job = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert job.returncode == 0, job.stderr
