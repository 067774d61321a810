"""What NumPy's iterators and libraries get of a cut array lies in memory as the array does."""

import numpy as np
import pytest

import distarray
from distarray import DeviceMesh, Shard
from distarray.config import config

pytestmark = pytest.mark.host

VIEWS = {
    "as it is": lambda a, b: a,
    "transposed": lambda a, b: a.T,
    "three dimensions": lambda a, b: b.transpose(2, 0, 1),
    "two exchanged": lambda a, b: b.transpose(0, 2, 1),
    "reversed": lambda a, b: a[:, ::-1],
    "rows reversed": lambda a, b: a.T[::-1],
    "some": lambda a, b: a.T[::2],
    "one dimension less": lambda a, b: b[:, 2].T,
    "one more": lambda a, b: a.T[None],
    "a result": lambda a, b: a.T + 1,
    "one row": lambda a, b: a[:1].T,
    "nothing": lambda a, b: a[:0].T,
    "a line": lambda a, b: a[:, 0][::-1],
    "a copy": lambda a, b: a.T.copy("K"),
}
WALKS = {
    "nditer": lambda x: [float(v) for v in np.nditer(x, flags=["zerosize_ok"])],
    "C": lambda x: [float(v) for v in np.nditer(x, flags=["zerosize_ok"], order="C")],
    "two": lambda x: [[float(v) for v in pair] for pair in np.nditer([x, x * 2])],
    "numbers": lambda x: _numbers(np.nditer(x, flags=["multi_index", "zerosize_ok"])),
    "bytes": lambda x: [x.tobytes("A"), x.tobytes("C"), x.tobytes("F")],
    "ravel": lambda x: [x.ravel("K").tolist(), x.flatten("K").tolist(), x.ravel("A").tolist()],
}


def _numbers(walk):
    return [(walk.multi_index, float(value)) for value in walk]


@pytest.mark.parametrize("walk", WALKS)
@pytest.mark.parametrize("view", VIEWS)
def test_in_the_order_of_memory(world, ranks, view, walk):
    if view == "nothing" and walk == "two":
        pytest.skip("NumPy refuses to walk over nothing")
    a, b = np.arange(390.0).reshape(26, 15), np.arange(390.0).reshape(13, 5, 6)
    wanted = WALKS[walk](VIEWS[view](a, b))

    def program(group):
        for below in (0, 1 << 18):
            with config.override(replicate_below=below):
                mesh = DeviceMesh(group)
                ours = [distarray.distribute(x, mesh, [Shard(0)], src=None) for x in (a, b)]
                assert WALKS[walk](VIEWS[view](*ours)) == wanted

    world.run(ranks, program)
