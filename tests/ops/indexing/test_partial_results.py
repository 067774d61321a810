"""``ufunc.at`` with a long index onto a short array: what it gives, and what it sends."""

import numpy as np
import pytest

import distarray
from distarray import DeviceMesh, Replicate, Shard, distribute
from distarray.config import config
from distarray.testing import assert_matches, assert_same_error

pytestmark = pytest.mark.host

ANY_ORDER = (
    *(np.add, np.subtract, np.multiply, np.maximum, np.minimum, np.fmax, np.fmin, np.hypot),
    *(np.logical_or, np.logical_and, np.logical_xor, np.bitwise_and, np.bitwise_or),
    *(np.bitwise_xor, np.gcd, np.logaddexp),
)
IN_ORDER = (np.divide, np.power, np.arctan2, np.floor_divide, np.remainder, np.lcm)
TYPES = (
    *(("f8", "f8"), ("i8", "i8"), ("i4", "i8"), ("f4", "f8"), ("u1", "u1"), ("u1", "i8")),
    *(("c16", "f8"), ("?", "?"), ("f8", "i4"), (">f8", "f8"), (">i4", "i4")),
)
N = 300


def drawn(kind, shape, seed):
    rng, dtype = np.random.default_rng(seed), np.dtype(kind)
    if dtype.kind in "iu":
        return rng.integers(0 if dtype.kind == "u" else -3, 4, shape).astype(dtype)
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    found = rng.normal(size=shape)
    return (found + 1j * rng.normal(size=shape) if dtype.kind == "c" else found).astype(dtype)


def after(ufunc, x, key, *operands):
    x = x.copy()
    ufunc.at(x, key, *operands)
    return x


def outcome(call):
    try:
        with np.errstate(all="ignore"):
            return call()
    except (TypeError, ValueError, IndexError) as error:
        return type(error)


def placed(values, mesh, short=40):
    where = [Replicate()] if values.size < short else [Shard(0)]
    return distribute(values, mesh, where, src=None)


@pytest.mark.parametrize("ufunc", [*ANY_ORDER, *IN_ORDER], ids=lambda ufunc: ufunc.__name__)
def test_data_types(world, ranks, ufunc):
    index = np.random.default_rng(1).integers(-7, 7, N)
    cases = []
    for own, given in TYPES:
        x, v = drawn(own, 7, 1), drawn(given, N, 2)
        if ufunc is np.multiply:
            v = np.where(np.arange(N) % 9, v.dtype.type(1), v)
        cases.append((x, v, outcome(lambda x=x, v=v: after(ufunc, x, index, v))))

    def program(group):
        mesh = DeviceMesh(group)
        with config.override(replicate_below=0):
            i = placed(index, mesh)
            for x, v, wanted in cases:
                ours, given = placed(x, mesh), placed(v, mesh)
                found = outcome(lambda x=ours, v=given: after(ufunc, x, i, v))
                if isinstance(wanted, type):
                    assert found is wanted, (x.dtype, v.dtype)
                else:
                    exact = x.dtype.kind in "biu"
                    assert_matches(found, wanted, exact=exact, rtol=0 if exact else 1e-4)

    world.run(ranks, program)


X, ROWS = drawn("f8", 7, 1), drawn("f8", (5, 6), 1)
INDEX, J = np.random.default_rng(2).integers(-5, 5, N), np.random.default_rng(3).integers(0, 6, N)
V = drawn("f8", N, 4)
KEYS = {
    "one value": lambda x, y, i, j, v: after(np.add, x, i, 1),
    "two arrays": lambda x, y, i, j, v: after(np.add, y, (i, j), v),
    "rows": lambda x, y, i, j, v: after(np.add, y, i, v[:6]),
    "columns": lambda x, y, i, j, v: after(np.subtract, y, (slice(None), j), v),
    "of a view": lambda x, y, i, j, v: after(np.add, y, (slice(1, 3), j), v),
    "in two dimensions": lambda x, y, i, j, v: after(np.add, x, i.reshape(20, 15), v[:20, None]),
    "side by side": lambda x, y, i, j, v: after(np.add, y, (i[:40, None], j[None, :30]), 1.5),
    "nothing": lambda x, y, i, j, v: after(np.add, x, i[:0], v[:0]),
    "a known index": lambda x, y, i, j, v: after(np.maximum, x, INDEX, v),
    "transposed": lambda x, y, i, j, v: after(np.add, y.T, (slice(None), i), v),
    "a list": lambda x, y, i, j, v: after(np.add, x, INDEX.tolist(), v),
    "no numbers": lambda x, y, i, j, v: after(np.add, x * np.nan, i[:100], v[:100]),
    "untouched": lambda x, y, i, j, v: np.signbit(after(np.add, -x * 0.0, i * 0, v)),
    "in place": lambda x, y, i, j, v: _in_place(y, i, v),
}


def _in_place(y, i, v):
    y = y.copy()
    np.add.at(y[1:4].T[2], i % 3, v)
    return y


@pytest.mark.parametrize("name", KEYS)
def test_keys(world, ranks, name):
    wanted = KEYS[name](X, ROWS, INDEX, J, V)

    def program(group):
        mesh = DeviceMesh(group)
        for short in (40, 0):
            with config.override(replicate_below=0):
                arrays = [placed(values, mesh, short) for values in (X, ROWS, INDEX, J, V)]
                assert_matches(KEYS[name](*arrays), wanted, exact=False, rtol=1e-12)

    world.run(ranks, program)


def test_an_index_out_of_bounds_writes_nothing(world, ranks):
    wrong = np.append(INDEX, 9)

    def program(group):
        mesh = DeviceMesh(group)
        x, i, v = (placed(values, mesh) for values in (X, wrong, drawn("f8", N + 1, 4)))
        assert_same_error(lambda: np.add.at(x, i, v), lambda: np.add.at(X.copy(), wrong, 1.0))
        assert_matches(x, X)
        short = v[:-2]
        assert_same_error(
            lambda: np.add.at(x, i % 7, short), lambda: np.add.at(X.copy(), wrong % 7, V[:-1])
        )
        assert_matches(x, X)

    world.run(ranks, program)


@pytest.mark.parametrize("kind", ["f4", "f8", "c16"])
def test_reproducible_sums_have_numpys_bits(world, ranks, kind):
    values = drawn(kind, N, 4)
    wanted = after(np.add, drawn(kind, 7, 1), INDEX, values)

    def program(group):
        mesh = DeviceMesh(group)
        with config.override(reproducible=True):
            x, i, v = (placed(a, mesh) for a in (drawn(kind, 7, 1), INDEX, values))
            np.add.at(x, i, v)
            assert_matches(x, wanted)

    world.run(ranks, program)


def test_what_is_sent_has_the_size_of_the_array(world, ranks):
    index, weights = np.arange(60_000) % 100, np.ones(60_000)

    def program(group):
        mesh = DeviceMesh(group)
        i, w = placed(index, mesh), placed(weights, mesh)
        sent = []
        for ufunc in (np.add, np.subtract, np.maximum, np.logical_or, np.divide):
            h = placed(np.zeros(100), mesh, short=1000)
            with distarray.trace() as trace:
                ufunc.at(h, i, w)
            sent.append(trace.bytes)
        return sent

    for sent in world.run(ranks, program):
        if ranks > 1:
            assert max(sent[:4]) <= 8 * 100 * 2 * 4
            assert sent[4] > 100_000  # in order: everything to every rank
        else:
            assert not any(sent)
