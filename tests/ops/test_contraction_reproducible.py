"""``config.reproducible``: the same bits on every mesh, and no less exact than NumPy."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distarray import DeviceMesh, Shard, distribute, trace
from distarray.config import config
from distarray.engines.contracting.arrivals import Arrived
from distarray.testing import mesh_shapes, recipes

RNG = np.random.default_rng(11)


CALLS = [
    (lambda a, b: a @ b, ((9, 31), (31, 5))),
    (lambda a, b: np.dot(a[0], b[:, 0]), ((9, 31), (31, 5))),
    (np.matmul, ((2, 4, 7), (7, 3))),
    (lambda a, b: np.einsum("ij,jk->ki", a, b), ((9, 31), (31, 5))),
    (lambda a, b: np.einsum("ij,jk,kj->i", a, b, b.T.T), ((4, 6), (6, 6))),
    (lambda a, b: np.einsum("ij,k->i", a, b), ((4, 6), (5,))),
    (lambda a, b: np.einsum("ij->j", a), ((9, 31), (1,))),
    (np.vdot, ((40,), (40,))),
    (np.vecdot, ((3, 40), (3, 40))),
    (np.inner, ((3, 40), (40,))),
    (lambda a, b: np.tensordot(a, b, 2), ((3, 4, 5), (4, 5, 2))),
    (lambda a, b: a @ b, ((3, 1100), (1100,))),
    (lambda a, b: b @ a, ((1100, 5), (1100,))),
    (lambda a, b: b @ a, ((1100, 1), (1100,))),
    (lambda a, b: a.T @ b, ((530, 7), (530,))),
    (lambda a, b: a @ b, ((2100,), (2100,))),
]
#: The bits that each call gave first.
_bits: dict[object, bytes] = {}


def _bits_of(found):
    """The bits of the elements; a long double of 80 bits is followed by some that mean nothing."""
    padded = found.dtype.char == "g" and np.finfo("g").nmant == 63
    return found.reshape(-1, 1).view("u1")[:, : 10 if padded else None].tobytes()


@pytest.mark.parametrize("dtype", ["f8", "c16", "f4", "f2", "g"])
@pytest.mark.parametrize("number", range(len(CALLS)))
@settings(max_examples=8)
@given(data=st.data())
def test_bits_do_not_depend_on_the_layout(world, number, dtype, data):
    if dtype == "g" and config.device == "cuda":
        pytest.skip("a GPU has no long double")
    call, shapes = CALLS[number]
    rng = np.random.default_rng(number)
    values = []
    for shape in shapes:
        v = rng.standard_normal(shape) * 2.0 ** rng.integers(-9, 1 if dtype == "f2" else 9, shape)
        values.append((v * (1 + 0.3j) if dtype == "c16" else v).astype(dtype))
    ranks = data.draw(st.sampled_from(world.ranks))
    mesh_shape = data.draw(mesh_shapes(ranks))
    kinds = ("plain", "view", "transposed", "ragged")
    placed = [data.draw(recipes(shape, mesh_shape, dtype, kinds)) for shape in shapes]

    def program(group):
        mesh = DeviceMesh(group, mesh_shape)
        operands = [r.build(v, mesh) for r, v in zip(placed, values, strict=True)]
        with config.override(reproducible=True):
            return np.asarray(call(*operands))

    expected = call(*[v.astype("G" if dtype == "c16" else "g") for v in values])
    scale = call(*[np.abs(v).astype("f8") for v in values])
    for found in world.run(ranks, program):
        assert found.dtype == values[0].dtype
        # One call, one result: of the first example and of all others.
        bits = _bits_of(found)
        assert _bits.setdefault((number, dtype), bits) == bits
        eps = np.finfo(dtype).eps * (50 if dtype == "g" else 1)  # NumPy's own sum is no better
        assert np.all(np.abs(found - expected) <= 4 * eps * scale + np.finfo(dtype).tiny)


def test_as_exact_as_a_plain_product(world, ranks):
    """Elements of very different sizes: the error is about NumPy's."""
    a = RNG.standard_normal((6, 50)) * 10.0 ** RNG.integers(-20, 20, (6, 50))
    b = RNG.standard_normal((50, 4)) * 10.0 ** RNG.integers(-5, 5, (50, 4))
    exact = [
        [float(sum(Fraction(x) * Fraction(y) for x, y in zip(row, column, strict=True)))
         for column in b.T]
        for row in a
    ]  # fmt: skip

    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        x = distribute(a, mesh, src=None)
        with config.override(reproducible=True):
            return (x @ b).full()

    largest = np.abs(a @ b - exact) / (np.abs(a) @ np.abs(b))
    for found in world.run(ranks, program):
        error = np.abs(found - exact) / (np.abs(a) @ np.abs(b))
        assert error.max() <= 2 * largest.max()


def test_what_is_not_finite(world, ranks):
    a, b = RNG.standard_normal((5, 8)), RNG.standard_normal((8, 3))
    a[0, 0], a[1, 1], a[2, 2], a[2, 3] = np.nan, np.inf, np.inf, -np.inf
    b[1, 1], b[1, 2] = 0.0, -1.0

    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        x = distribute(a, mesh, [Shard(1)], src=None)
        with config.override(reproducible=True), np.errstate(invalid="ignore"):
            return (x @ b).full()

    with np.errstate(invalid="ignore"):
        expected = a @ b
        for found in world.run(ranks, program):
            np.testing.assert_allclose(found, expected, rtol=1e-13)


def test_extreme_magnitudes(world, ranks):
    a = np.array([[1e308, 1e-308, 5e-324], [1e200, 1.0, 0.0], [0.0, 0.0, 0.0]])
    b = np.array([[1e-308], [1e308], [1e300]])

    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        x = distribute(a, mesh, src=None)
        with config.override(reproducible=True):
            return (x @ b).full()

    for found in world.run(ranks, program):
        np.testing.assert_allclose(found, a @ b, rtol=1e-14)


def test_factors_keep_their_order(world, ranks):
    """NumPy's `*` may exchange large factors, which gives complex products other bits."""
    a, b = RNG.standard_normal((2, ranks, 66_000)).astype("f4").view("c8")
    expected = np.multiply(np.conjugate(a), b).sum(axis=-1)

    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        x, y = [distribute(v, mesh, [Shard(d)], src=None) for d, v in enumerate((a, b))]
        with config.override(reproducible=True):
            return np.asarray(np.vecdot(x, y))

    for found in world.run(ranks, program):
        np.testing.assert_array_equal(found, expected)


def test_borders_of_tiles_move_few_rows(world, ranks):
    """Where a cut is inside a tile, rows of that tile move, each once, and nothing else does."""
    values = RNG.standard_normal((2048 * ranks + 300, 8))

    def program(group):
        x = distribute(values, DeviceMesh(group, (ranks,)), src=None)
        line = distribute(values[:, 0], x.mesh, src=None)
        sent = []
        with config.override(reproducible=True):
            for act in (lambda: x.T @ x, lambda: line @ x, lambda: line @ line):
                with trace() as messages:
                    act()
                sent.append(messages.bytes)
        return sent

    tile, tree = 512 * 8, 2 * ranks.bit_length() * 12 * 8  # of one column; sums on their way up
    for squares, columns, number in world.run(ranks, program):
        assert squares <= 2 * 8 * tile + 64 * tree
        assert columns <= 9 * tile + 8 * tree
        assert number <= 2 * tile + tree


@pytest.mark.host
def test_what_stays_is_read_where_it_is(world, ranks):
    """Of an operand that moves by a few rows only what joins several ranks' rows is copied."""
    values = RNG.standard_normal((60 * ranks, 3))

    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        x = distribute(values, mesh, src=None)
        shifted = distribute(np.zeros((60 * ranks + 20, 3)), mesh, src=None)[10:-10]
        found = Arrived.of(x, shifted.layout, 0)
        start, stop = shifted.layout.section(mesh.coords)[0]
        low, high = found.longest
        shared = np.shares_memory(found.stretch(low + 1, high), x.to_local())
        return start, stop, shared, found.stretch(0, stop - start), found.stretch(0, 5)

    for start, stop, shared, whole, few in world.run(ranks, program):
        assert shared
        np.testing.assert_array_equal(whole, values[start:stop])
        np.testing.assert_array_equal(few, values[start : start + 5])


@pytest.mark.parametrize("act", [lambda a, v: a @ v, lambda a, v: v @ a, lambda a, v: v @ v])
def test_floating_point_errors_of_products_with_lines(world, ranks, act):
    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        a, v = [distribute(np.full(shape, 1e200), mesh, src=None) for shape in ((7, 7), 7)]
        with config.override(reproducible=True), np.errstate(over="raise"):
            with pytest.raises(FloatingPointError, match="overflow"):
                act(a, v)
            with np.errstate(over="ignore"):
                assert np.all(act(a, v) == np.inf)
            return float(np.sum(act(a, v * 1e-200)))

    assert set(world.run(ranks, program)) <= {49e200, 7.0}
