"""Windows that share elements, written on several ranks: of all values NumPy's last one counts."""

import numpy as np
import pytest

import distarray.numpy as dnp
from distarray import DeviceMesh, Shard, distribute

pytestmark = pytest.mark.host


def _where(np, v, w):
    np.add(v, w, out=v, where=w != 0)


def _masked(np, v, w):
    v[w > 0.5] = 3.5


#: Name -> what is written to windows `v`, given values `w` of their shape, some of them zero.
WRITES = {
    "added": lambda np, v, w: v.__iadd__(w),
    "added, transposed": lambda np, v, w: v.T.__iadd__(w.T),
    "added backwards": lambda np, v, w: v[::-1, ::-1].__iadd__(w),
    "assigned": lambda np, v, w: v.__setitem__(slice(1, None), w[1:]),
    "assigned, transposed": lambda np, v, w: v.T.__setitem__(slice(1, None), w.T[1:]),
    "into": lambda np, v, w: np.multiply(v.T, w.T, out=v.T),
    "copied": lambda np, v, w: np.copyto(v, w),
    "copied by a mask": lambda np, v, w: np.copyto(v.T, w.T, where=w.T > 0),
    "added by a mask": _where,
    "assigned by a mask": _masked,
}


def _written(np, x, name, window, values):
    view = np.lib.stride_tricks.sliding_window_view(x, window, writeable=True)
    WRITES[name](np, view, values)


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("window, step", [(2, 1), (3, 1), (2, 2)])
def test_windows_that_ranks_share(world, ranks, name, window, step):
    draw = np.random.default_rng(window + step)
    for count in (17, 30, 59):
        given = draw.standard_normal(count)
        shape = len(given[::step]) - window + 1, window
        values = draw.standard_normal(shape) * (draw.random(shape) < 0.6)
        wanted = given.copy()
        _written(np, wanted[::step], name, window, values)

        def program(group, given=given, values=values):
            with DeviceMesh(group) as mesh:
                x = distribute(given.copy(), mesh, [Shard(0)], src=None)
                _written(dnp, x[::step], name, window, values)
                return x.full()

        for found in world.run(ranks, program):
            assert np.array_equal(found, wanted), count
