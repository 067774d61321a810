"""Twelve thousand redistributions, meshes and views: memory and MPI objects stay level."""

import gc
import resource

import numpy as np
import pytest

from distarray import DeviceMesh, Replicate, Shard, distribute
from distarray.comm import default_mesh
from distarray.layout import Layout


def rounds(group, count):
    """Redistributions of ever new shapes, meshes of every kind, and views of views."""
    shape = (group.size, 1)
    for number in range(count):
        mesh = DeviceMesh(group, shape if number % 2 else shape[::-1], ("a", "b"))
        values = np.arange(3.0 * (20 + number % 977)).reshape(-1, 3)
        x = distribute(values, default_mesh(), [Shard(0)], src=None)
        y = x.redistribute(placements=[Shard(1)])
        z = distribute(values, mesh, [Shard(0), Shard(1)], src=None)
        z = z.redistribute(mesh, [Replicate(), Shard(0)])
        assert z[3:-2][::2].shape[0] == len(values[3:-2][::2])
        assert mesh["a"].size() * mesh["b"].size() == group.size
        del y


def kilobytes():
    gc.collect()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@pytest.mark.mpi
@pytest.mark.counts(lambda n: n in (2, 3))  # even and uneven blocks; others keep nothing else
def test_nothing_accumulates(world, ranks):
    from distarray.comm import datatypes

    def program(group):
        count = 4_000 if group.size == 2 else 1_000  # more ranks than cores take turns
        rounds(group, 2_000)  # every shape twice: fills the caches, which are bounded
        memory, meshes = kilobytes(), len(group.meshes)
        rounds(group, count)
        assert len(group.meshes) == meshes
        assert datatypes.cached_datatypes() <= datatypes.CACHE_SIZE
        assert len(Layout._interned) <= 40_000  # what the bounded caches keep, not ten a round
        assert kilobytes() - memory < 8_000

    world.run(ranks, program, timeout=200)
