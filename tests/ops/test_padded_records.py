"""Sorts and sets of records with gaps, of views of fields and of the other byte order."""

import numpy as np
import pytest

import distarray
import distarray.numpy as xp
from distarray import DeviceMesh, Shard
from distarray.config import config
from distarray.testing import assert_matches

pytestmark = pytest.mark.host

ALIGNED = np.dtype([("k", "i1"), ("v", "i8")], align=True)
KINDS = {
    "aligned": ALIGNED,
    "nested": np.dtype([("a", ALIGNED), ("b", "S3"), ("c", "f4")], align=True),
    "rows": np.dtype([("a", "i2", (2,)), ("b", "u1")], align=True),
    "swapped": np.dtype([("a", ">i2"), ("b", ">f8"), ("c", ">U2")]),
    "swapped with gaps": np.dtype(
        {"names": ["a", "b"], "formats": [">i2", "<f8"], "offsets": [6, 8], "itemsize": 20}
    ),
    "backwards": np.dtype(
        {"names": ["b", "a"], "formats": ["<i2", "<i4"], "offsets": [8, 0], "itemsize": 12}
    ),
    "overlapping": np.dtype(
        {"names": ["a", "b"], "formats": ["<i4", "<i2"], "offsets": [0, 0], "itemsize": 8}
    ),
    "np.record": np.dtype((np.record, [("a", ">u2"), ("b", "i1")])),
}


def filled(dtype, length, seed=0):
    """Records of few different values, with bytes between the fields that differ."""
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 256, (length, dtype.itemsize), np.uint8).view(dtype).reshape(length)
    for number, name in enumerate(dtype.names):
        values[name] = _few(dtype[name], length, seed + number + 1)
    return values


def _few(dtype, length, seed):
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return np.stack([_few(base, length, seed + n) for n in range(shape[0])], axis=1)
    if dtype.names is not None:
        return filled(dtype, length, seed)
    numbers = np.random.default_rng(seed).integers(0, 2, length)
    return np.array(["", "ab"])[numbers].astype(dtype) if dtype.kind in "SU" else numbers


CALLS = {
    "unique": lambda x: np.unique(x, True, True, True),
    "unique, values": np.unique,
    "unique_counts": lambda x: tuple(np.unique_counts(x)),
    "unique, axis": lambda x: np.unique(x[:36].reshape(9, 4), True, True, True, axis=0),
    "unique, last axis": lambda x: np.unique(x[:36].reshape(4, 9), True, True, True, axis=1),
    "sort": lambda x: np.sort(x, kind="stable"),
    "sort by a field": lambda x: np.sort(x, order=x.dtype.names[-1], kind="stable"),
    "sort, axis": lambda x: np.sort(x[:36].reshape(9, 4), axis=0, kind="stable"),
    "in place": lambda x: _sorted_in_place(x.copy()),
    "argsort": lambda x: np.argsort(x, kind="stable"),
    "lexsort": lambda x: np.lexsort((x[::-1], x)),
    "partition": lambda x: np.partition(x, 7)[7],
    "searchsorted": lambda x: np.searchsorted(np.sort(x), x),
    "searchsorted, right": lambda x: np.searchsorted(np.sort(x), x[:9], "right"),
    "isin": lambda x: np.isin(x, x[3:9]),
    "isin, many": lambda x: np.isin(x[:9], x[9:], invert=True),
    "union1d": lambda x: np.union1d(x[:19], x[10:]),
    "intersect1d": lambda x: np.intersect1d(x[:19], x[10:], return_indices=True),
    "setdiff1d": lambda x: np.setdiff1d(x, x[5:9]),
    "setxor1d": lambda x: np.setxor1d(x[:9], x[5:]),
}


def _sorted_in_place(x):
    x.sort(kind="stable")
    return x


def _checked(world, ranks, values, call):
    wanted = call(values)

    def program(group):
        for below in (0, 1 << 18):
            with config.override(replicate_below=below):
                x = distarray.distribute(values, DeviceMesh(group), [Shard(0)], src=None)
                assert_matches(call(x), wanted)

    world.run(ranks, program)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", KINDS)
def test_gaps_and_byte_orders_count_for_nothing(world, ranks, kind, call):
    if call == "lexsort" and not KINDS[kind].isnative:
        pytest.skip("NumPy's own lexsort does not swap bytes")
    _checked(world, ranks, filled(KINDS[kind], 41, 3), CALLS[call])


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("names", [["user", "item"], ["item", "user"]])
def test_a_view_of_two_fields_is_of_these_alone(world, ranks, names, call):
    kind = np.dtype([("user", "i4"), ("price", "f8"), ("item", "i4"), ("w", "f8")])
    values = filled(kind, 41, 7)
    values["price"] = np.arange(41)
    _checked(world, ranks, values, lambda x: CALLS[call](x[names]))


@pytest.mark.parametrize("kind", [">f2", ">f8", ">c8", ">M8[s]", ">U3"])
def test_several_keys_of_the_other_byte_order(world, ranks, kind):
    """NumPy's own lexsort of such keys is of their bytes."""
    rng = np.random.default_rng(1)
    keys = [rng.integers(0, 3, 41).astype(kind) for _ in range(2)]
    wanted = np.lexsort([key.astype(key.dtype.newbyteorder("=")) for key in keys])

    def program(group):
        with config.override(replicate_below=0):
            mesh = DeviceMesh(group)
            spread = [distarray.distribute(key, mesh, [Shard(0)], src=None) for key in keys]
            assert_matches(np.lexsort(tuple(spread)), wanted)

    world.run(ranks, program)


def test_zeros_between_fields_arrive_as_zeros(world, ranks):
    def program(group):
        with config.override(replicate_below=0):
            x = xp.zeros(60, ALIGNED, mesh=DeviceMesh(group), placements=[Shard(0)])
            junk = [np.full(60 * 16, 9, np.uint8) for _ in range(4)]
            del junk
            assert x.tobytes() == bytes(60 * 16)
            assert x[7:50].tobytes() == bytes(43 * 16)

    world.run(ranks, program)
