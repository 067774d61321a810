"""Files mapped into memory: each rank its own pages."""

from __future__ import annotations

import numpy
import pytest

import distarray
import distarray.numpy as np
from distarray import DistArray, Shard
from tests.io.helpers import VALUES, common, content, meshes, placements, raised, reference, tiny

__all__ = ["tiny"]


@pytest.mark.host
def test_mapped(world, ranks, tmp_path, tiny):
    values = VALUES["matrix"]

    def program(group):
        directory = common(group, tmp_path)
        path = directory / "x.npy"
        mesh = meshes(group)[-1]
        for placed in placements(mesh, 2):
            reference(group, path, lambda p: numpy.save(p, values))
            x = np.load(path, mmap_mode="r", mesh=mesh, placements=placed)
            assert isinstance(x, np.memmap)
            assert (x.mode, x.filename) == ("r", str(path))
            numpy.testing.assert_array_equal((x[1:, :-1] * 2).full(), values[1:, :-1] * 2)
            assert raised(lambda x=x: x.__setitem__(0, 1.0))[0] is ValueError
            y = np.load(path, mmap_mode="c", mesh=mesh, placements=placed)
            y[:, 0] += 1
            numpy.testing.assert_array_equal(y.full()[:, 0], values[:, 0] + 1)
            numpy.testing.assert_array_equal(numpy.load(path), values)
            group.barrier()
            z = np.load(path, mmap_mode="r+", mesh=mesh, placements=placed)
            z[2:5] += 10  # once, whichever ranks hold them
            z.flush()
            wanted = values.copy()
            wanted[2:5] += 10
            numpy.testing.assert_array_equal(z.full(), wanted)
            numpy.testing.assert_array_equal(numpy.load(path), wanted)
            group.barrier()

    world.run(ranks, program)


@pytest.mark.host
def test_memmap_makes_files(world, ranks, tmp_path):
    def program(group):
        path = common(group, tmp_path) / "map"
        mesh = distarray.DeviceMesh(group, (group.size,))
        x = np.memmap(path, "i4", "w+", 8, (5, 4), mesh=mesh, placements=[Shard(0)])
        assert (x.shape, x.mode, x.offset) == ((5, 4), "w+", 8)
        x[...] = numpy.arange(20).reshape(5, 4)
        x.flush()
        assert content(group, path) == bytes(8) + numpy.arange(20, dtype="i4").tobytes()
        y = np.memmap(path, "i4", "r", 8, order="F", mesh=mesh)
        assert y.shape == (20,)
        assert int(y.sum()) == 190
        assert raised(lambda: np.memmap(path, mode="a"))[0] is ValueError
        assert (
            raised(lambda: np.memmap(str(path) + "no", mode="r", mesh=mesh))[0] is FileNotFoundError
        )
        return type(y + 1) is DistArray

    assert all(world.run(ranks, program))
