"""Arrays that become whole on many ranks are gathered: no rank sends to each other one."""

import numpy as np
import pytest

from distarray import DeviceMesh, DistArray, Partial, Replicate, Shard, comm, distribute, trace
from distarray.array.movement import FEW

RANKS = 20
VIEWS = {
    "as it is": lambda x: x,
    "turned": lambda x: x.T,
    "reversed": lambda x: x[::-1],
    "steps": lambda x: x[..., ::3],
    "part": lambda x: x[2:-1],
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize(
    ("shape", "mesh_shape", "placements"),
    [
        ((37,), (RANKS,), [Shard(0)]),
        ((4, 50), (RANKS,), [Shard(1)]),
        ((3, 7), (RANKS,), [Shard(0)]),
        ((9, 23), (4, 5), [Shard(0), Shard(1)]),
        ((9, 23), (4, 5), [Shard(1), Shard(0)]),
        ((60, 2), (4, 5), [Shard(0), Shard(0)]),
        ((60, 2), (4, 5), [Replicate(), Shard(0)]),
    ],
)
def test_every_rank_has_it(shape, mesh_shape, placements, view):
    values = np.random.default_rng(3).random(shape)
    expected = VIEWS[view](values)

    def program(group):
        mesh = DeviceMesh(group, mesh_shape)
        x = VIEWS[view](distribute(values, mesh, placements, src=None))
        with trace() as sent:
            whole = x.redistribute(placements=[Replicate()] * mesh.ndim)
        np.testing.assert_array_equal(whole.full(), expected)
        parts = [mesh.shape[m] for m, p in enumerate(placements) if p != Replicate()]
        if expected.size and np.prod(parts) > FEW:
            assert [event.kind for event in sent] == ["allgather"]

    comm.run_threads(RANKS, program)


def test_pending_folds_are_carried_out():
    def program(group):
        mesh = DeviceMesh(group, (2, RANKS // 2))
        share = np.full(9, group.rank % 10, float)
        x = DistArray.from_local(share, mesh, [Partial(), Shard(0)])
        np.testing.assert_array_equal(x.full(), 2.0 * np.arange(10).repeat(9))

    comm.run_threads(RANKS, program)
