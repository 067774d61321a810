"""What index arrays and masks select lies in memory as NumPy's result, on any number of ranks."""

import itertools

import numpy as np
import pytest

import distarray
from distarray import DeviceMesh, Shard

pytestmark = pytest.mark.host

SHAPES = [(4, 5, 6, 7), (7, 4, 5, 4)]
#: The dimensions of the array that is transposed, from the outermost in memory.
STORED = [(0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1)]
LINE, TABLE = np.array([0, 2, 3]), np.array([[0, 1, 2], [1, 2, 3]])
TURNED = np.asfortranarray(TABLE)
EVERY = slice(None)
KEYS = {
    "rows": lambda n: (LINE,),
    "columns": lambda n: (EVERY, LINE),
    "the last dimension": lambda n: (..., LINE),
    "a table": lambda n: (EVERY, TABLE),
    "a turned table": lambda n: (EVERY, TURNED),
    "turned rows": lambda n: (TURNED,),
    "two tables": lambda n: (TURNED, TURNED),
    "apart": lambda n: (LINE, EVERY, LINE),
    "side by side": lambda n: (EVERY, LINE, LINE),
    "every dimension": lambda n: (TABLE,) * 4,
    "turned, of every dimension": lambda n: (TURNED,) * 4,
    "of two orders": lambda n: (TURNED, TABLE, TABLE, TURNED),
    "broadcast": lambda n: (TURNED, LINE, TABLE, TURNED),
    "open": lambda n: np.ix_([0, 1], [0, 1], [0, 2], [0, 1]),
    "open, of three": lambda n: (EVERY, *np.ix_([0, 1], [0, 1], [0, 2])),
    "of a view": lambda n: (slice(1, 4), LINE, slice(None, None, 2)),
    "of a reversed view": lambda n: (slice(None, None, -1), LINE),
    "with a number": lambda n: (EVERY, LINE, 0),
    "with a new dimension": lambda n: (None, LINE),
    "a mask of rows": lambda n: (np.arange(n[0]) % 2 == 0,),
    "a mask of columns": lambda n: (EVERY, np.arange(n[1]) % 2 == 0),
    "a mask of two": lambda n: (EVERY, np.arange(n[1] * n[2]).reshape(n[1:3]) % 3 == 0),
    "a mask of all": lambda n: (np.arange(np.prod(n)).reshape(n) % 3 == 0,),
    "two masks": lambda n: (np.arange(n[0]) < 2, np.arange(n[1]) > n[1] - 3),
}
#: Where each rank has one index of a dimension of an array that is stored in another order than C,
#: no block tells that order.
THIN = 3


@pytest.mark.parametrize("stored", STORED, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_as_numpys(world, ranks, shape, stored):
    back = np.argsort(stored)
    base = np.arange(np.prod(shape)).reshape([shape[dim] for dim in stored])
    array = base.transpose(back)

    def program(group):
        mesh = DeviceMesh(group)
        for dim in range(4):
            made = distarray.distribute(base, mesh, [Shard(stored.index(dim))], src=None)
            x = made.transpose(*back)
            for name, key_for in KEYS.items():
                key = key_for(shape)
                wanted, found = array[key], x[key]
                assert _likeness(found) == _likeness(wanted), (name, dim)

    if ranks < THIN or stored == tuple(range(4)):
        world.run(ranks, program)


def _likeness(x):
    """What a program sees of the order in memory."""
    flags = x.flags.c_contiguous, x.flags.f_contiguous
    return flags, np.asarray(x.ravel("K")).tolist()


@pytest.mark.parametrize("call", ["take", "compress", "cross"])
def test_others_are_in_c_order(world, ranks, call):
    calls = {
        "take": lambda x: np.take(x, [0, 2], 1),
        "compress": lambda x: np.compress([True, False, True], x, 1),
        "cross": lambda x: np.cross(x[:, :3], x[:, 1:4]),
    }
    array = np.arange(63.0).reshape(9, 7)

    def program(group):
        for given in (array, np.asfortranarray(array)):
            for dim in range(2):
                x = distarray.distribute(given, DeviceMesh(group), [Shard(dim)], src=None)
                assert _likeness(calls[call](x)) == _likeness(calls[call](given))

    world.run(ranks, program)


def test_one_element_of_a_view_has_no_dimensions(world, ranks):
    array = np.arange(20.0)

    def program(group):
        for dims in ([], [Shard(0)]):
            x = distarray.distribute(array, DeviceMesh(group), dims or None, src=None)
            assert np.ndim(np.take(x[::2], 3)) == 0
            assert np.ndim(np.take(x[::2].reshape(5, 2).T, 1, 1)) == 1

    world.run(ranks, program)


@pytest.mark.parametrize("shape", [(3, 4, 6), (9, 8, 5), (5, 2, 7)], ids=str)
def test_ranks_store_alike(world, ranks, shape):
    """Also those that have no row of the array, whose block tells no order."""
    array = np.asfortranarray(np.arange(float(np.prod(shape))).reshape(shape))

    def program(group):
        mesh, found = DeviceMesh(group), []
        for dim, at in itertools.product(range(3), repeat=2):
            x = distarray.distribute(array, mesh, [Shard(dim)], src=None)
            index = np.arange(20) % shape[at]
            spread = distarray.distribute(index, mesh, [Shard(0)], src=None)
            mask = np.arange(shape[0] * shape[1]).reshape(shape[:2]) % 3 == 0
            lead = (EVERY,) * at
            for key in ((*lead, index), (*lead, spread), (mask,)):
                block = x[key].to_local()
                told = min(block.shape) > 1
                found.append(tuple(np.argsort(block.strides)) if told else None)
        return found

    for orders in zip(*world.run(ranks, program), strict=True):
        assert len({order for order in orders if order is not None}) <= 1


def test_writes_reach_what_numpys_reach(world, ranks):
    """Whether ``reshape`` of what was selected is a view depends on its order in memory."""
    array = np.arange(60.0).reshape(12, 5)

    def written(x):
        z = x[:, [0, 2]]
        z.reshape(-1)[:3] = -1
        w = x[[0, 2, 5]]
        w.reshape(-1)[:3] = -2
        return np.asarray(z).tolist(), np.asarray(w).tolist()

    def program(group):
        for dim in range(2):
            x = distarray.distribute(array, DeviceMesh(group), [Shard(dim)], src=None)
            assert written(x) == written(array)

    world.run(ranks, program)
