"""The shape family on a mesh that leaves out a rank: it takes no part, and nobody waits for it."""

import numpy as np
import pytest

import distarray.ops  # noqa: F401
from distarray.array import distribute
from distarray.comm import DeviceMesh
from distarray.layout import Replicate, Shard
from distarray.testing import assert_matches

CALLS = {
    "T": lambda x: x.T,
    "reshape": lambda x: x.reshape(120),
    "reshape that moves": lambda x: x.reshape(5, 24),
    "ravel in Fortran order": lambda x: x.ravel("F"),
    "ravel as stored": lambda x: x.ravel("A"),
    "roll": lambda x: np.roll(x, 3),
    "roll rows": lambda x: np.roll(x, 3, 0),
    "tile": lambda x: np.tile(x, (3, 2)),
    "tile often": lambda x: np.tile(x, (9, 9)),
    "repeat": lambda x: np.repeat(x, 2, 0),
    "repeat unevenly": lambda x: np.repeat(x, np.arange(24) % 3, 0),
    "resize": lambda x: np.resize(x, (7, 31)),
    "concatenate": lambda x: np.concatenate([x, x]),
    "concatenate columns": lambda x: np.concatenate([x, x], 1),
    "stack rows": lambda x: np.stack([x[1], x[20]]),
    "block": lambda x: np.block([[x, x], [x, x]]),
    "append": lambda x: np.append(x, x),
    "pad": lambda x: np.pad(x, 2),
    "reflect": lambda x: np.pad(x, 2, "reflect"),
    "wrap": lambda x: np.pad(x, 9, "wrap"),
    "ramp": lambda x: np.pad(x, 3, "linear_ramp"),
    "maximum": lambda x: np.pad(x, 3, "maximum"),
    "function": lambda x: np.pad(x, 1, lambda vector, width, axis, keywords: None),
    "delete": lambda x: np.delete(x, [3, 4], 0),
    "insert": lambda x: np.insert(x, [3, 4], 0, 0),
    "insert rows": lambda x: np.insert(x, 3, x[:4], 0),
    "broadcast_to": lambda x: np.broadcast_to(x[:1], (4, 5)),
    "copy": lambda x: np.copy(x[3]),
    "squeeze": lambda x: np.squeeze(x[2:3]),
    "flip": np.flip,
    "array_split": lambda x: np.array_split(x, 5),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_rank_outside_of_the_mesh(world, name):
    ranks = world.ranks[-1]
    if ranks == 1:
        pytest.skip("needs a second rank, to leave it out of the mesh")

    def program(group):
        mesh = DeviceMesh(group, (ranks - 1,), ranks=range(1, ranks))
        values = np.arange(120.0).reshape(24, 5)
        for placement in (Shard(0), Shard(1), Replicate()):
            x = distribute(values, mesh, [placement], src=None)
            assert_matches(CALLS[name](x), CALLS[name](values))

    world.run(ranks, program)
