"""Linear algebra on a mesh that leaves out a rank: it takes no part, and nobody waits for it."""

import numpy as np
import pytest

from distarray import DeviceMesh, Replicate, Shard, distribute
from distarray.testing import assert_matches

from .test_orthogonal import distributed

LA = np.linalg
TALL = {
    "qr": LA.qr,
    "qr r": lambda x: LA.qr(x, "r"),
    "qr raw": lambda x: LA.qr(x, "raw"),
    "qr complete": lambda x: LA.qr(x, "complete"),
    "svdvals": LA.svdvals,
    "svd": lambda x: tuple(abs(v) for v in LA.svd(x, full_matrices=False)),
    "svd in full": lambda x: tuple(abs(v)[:, :3] for v in LA.svd(x)[::2]),
    "pinv": LA.pinv,
    "lstsq": lambda x: LA.lstsq(x, x[:, 0])[:2],
    "norm": LA.norm,
    "norm of rows": lambda x: LA.norm(x, axis=1),
    "cross": lambda x: np.cross(x, x[0]),
    "multi_dot": lambda x: LA.multi_dot([x.T, x, x.T]),
}
SQUARE = {name: TALL[name] for name in ("qr", "qr r", "qr raw", "qr complete", "svdvals", "svd")}


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("name", [*TALL, *[f"{name} of a square" for name in SQUARE]])
def test_a_rank_outside_of_the_mesh(world, name, large):
    ranks = world.ranks[-1]
    if ranks == 1:
        pytest.skip("needs a second rank, to leave it out of the mesh")
    shape = (9, 9) if name.endswith("square") else (60, 3)
    call = TALL[name.removesuffix(" of a square")]
    values = np.random.default_rng(1).standard_normal(shape)

    def program(group):
        mesh = DeviceMesh(group, (ranks - 1,), ranks=range(1, ranks))
        for placement in (Shard(0), Shard(1), Replicate()):
            x = distribute(values, mesh, [placement], src=None)
            assert_matches(call(x), call(values), exact=False, rtol=1e-9, atol=1e-9)

    if large:
        with distributed():
            world.run(ranks, program)
    else:
        world.run(ranks, program)
