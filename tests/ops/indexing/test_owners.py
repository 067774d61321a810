"""The owners of indexed rows, told apart by keys."""

from itertools import product

import numpy as np
import pytest

import distarray.ops  # noqa: F401
from distarray import Replicate, Shard, distribute
from distarray.comm import DeviceMesh
from distarray.engines.indexing.owners import Rows

VIEWS = {
    "whole": lambda x: x,
    "backwards": lambda x: x[::-1],
    "steps": lambda x: x[3::2],
    "steps backwards": lambda x: x[::-3],
    "turned": lambda x: x.T[:, 2:],
    "one row": lambda x: x[4:5],
}


@pytest.mark.parametrize("view", VIEWS)
def test_owners_follow_from_keys(world, ranks, view):
    def program(group):
        meshes = [DeviceMesh(group, (ranks,))]
        if ranks == 4:
            meshes.append(DeviceMesh(group, (2, 2)))
        for mesh in meshes:
            for placements in product((Shard(0), Shard(1), Replicate()), repeat=mesh.ndim):
                x = distribute(np.arange(77).reshape(11, 7), mesh, placements, src=None)
                check(VIEWS[view](x))

    world.run(ranks, program)


def check(y):
    for dims in ((0,), (1,), (0, 1), (1, 0)):
        rows = Rows(y, dims)
        if not rows.mesh_dims:
            continue
        index = [np.arange(60) * 5 % y.shape[d] for d in dims]
        keys, starts = rows.keys(index)
        found = np.searchsorted(starts, keys, side="right")
        np.testing.assert_array_equal(found, rows.owners(index))
