"""Sorting and sets on a mesh that leaves out a rank: it takes no part, and nobody waits for it."""

import numpy as np
import pytest

from distarray.array import distribute
from distarray.comm import DeviceMesh
from distarray.config import config
from distarray.layout import Replicate, Shard
from distarray.testing import assert_matches

from .sortable import tied

STABLE = {"kind": "stable"}
CALLS = {
    "sort": lambda x: np.sort(x, axis=0, **STABLE),
    "sort rows": lambda x: np.sort(x, **STABLE),
    "sort all": lambda x: np.sort(x, axis=None, **STABLE),
    "argsort": lambda x: np.argsort(x, axis=None, **STABLE),
    "lexsort": lambda x: np.lexsort((x[:, 0], x[:, 1])),
    "partition": lambda x: np.sort(np.partition(x, 3), **STABLE),
    "argpartition": lambda x: np.sort(np.argpartition(x, 2, axis=0), axis=0),
    "searchsorted": lambda x: np.searchsorted(np.sort(x[:, 1], **STABLE), x),
    "searchsorted by sorter": lambda x: np.searchsorted(
        x[:, 1], x[0], sorter=np.argsort(x[:, 1], **STABLE)
    ),
    "isin": lambda x: np.isin(x, x[:3]),
}
#: How many elements these give, only the ranks of the mesh know.
UNKNOWN = {
    "unique": lambda x: np.unique(x, return_index=True, return_counts=True),
    "unique inverse": lambda x: np.unique(x, return_inverse=True),
    "unique rows": lambda x: np.unique(x, return_index=True, axis=0),
    "union1d": lambda x: np.union1d(x, x + 1),
    "intersect1d": lambda x: np.intersect1d(x, x[:5]),
    "setdiff1d": lambda x: np.setdiff1d(x, x[:5]),
    "setxor1d": lambda x: np.setxor1d(x, x + 1),
}


@pytest.mark.parametrize("name", [*CALLS, *UNKNOWN])
def test_a_rank_outside_of_the_mesh(world, name):
    ranks = world.ranks[-1]
    if ranks == 1:
        pytest.skip("needs a second rank, to leave it out of the mesh")
    call = CALLS.get(name) or UNKNOWN[name]
    values = tied((24, 5), "i8", 3, 40)

    def program(group):
        mesh = DeviceMesh(group, (ranks - 1,), ranks=range(1, ranks))
        for placement in (Shard(0), Shard(1), Replicate()):
            for limit in (0, 2**18):
                with config.override(replicate_below=limit):
                    found = call(distribute(values, mesh, [placement], src=None))
                if mesh.coords is not None or name in CALLS:
                    assert_matches(found, call(values))

    world.run(ranks, program)
