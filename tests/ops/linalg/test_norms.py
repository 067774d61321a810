"""norm and its relatives, cross and multi_dot: as NumPy, whatever the placement."""

import warnings
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distarray import DeviceMesh, Shard, distribute, trace
from distarray.engines.factoring import small
from distarray.testing import array_values, assert_matches, mesh_shapes, recipes
from tests.ops.likeness import let_through

from .matrices import run

LA = np.linalg
KINDS = ("plain", "view", "transposed", "ragged", "partial")
DTYPES = ("f8", "i8", "c16", "f4", "?", "u1")
SHAPES = ((7,), (1,), (5, 4), (3, 8), (2, 3, 4), (6, 1), (4, 0, 3), ())


def laid(draw, world, *values):
    """A number of ranks, the shape of a mesh of them, and a recipe for each array."""
    ranks = draw(st.sampled_from(world.ranks))
    mesh_shape = draw(mesh_shapes(ranks))
    return ranks, mesh_shape, [draw(recipes(v.shape, mesh_shape, v.dtype, KINDS)) for v in values]


def outcome(call, *args):
    """What NumPy gives, or the exception it raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return call(*args)
        except Exception as error:
            let_through(error)
            return error


def compare(world, drawn, values, call):
    """A call on distributed operands against NumPy's; the same exception where that raises."""
    expected = outcome(call, *values)
    single = getattr(expected, "dtype", np.dtype("f8")).char in "efF"
    exact = {"rtol": 2e-3 if single else 1e-10, "atol": 1e-6 if single else 1e-11}

    def check(*arrays):
        with np.errstate(all="ignore"):  # NumPy may warn before it raises
            if isinstance(expected, Exception):
                with pytest.raises(type(expected)) as found:
                    call(*arrays)
                assert str(found.value) == str(expected)
                return
            assert_matches(call(*arrays), expected, exact=False, **exact)

    run(world, drawn, values, check)


@settings(max_examples=100)
@given(data=st.data())
def test_norm(world, data):
    a = data.draw(array_values(data.draw(st.sampled_from(SHAPES)), DTYPES))
    orders = st.sampled_from([None, "fro", "nuc", inf, -inf, 0, 1, -1, 2, -2, 3, 0.5, "odd"])
    order, keepdims = data.draw(orders), data.draw(st.booleans())
    axis = data.draw(st.sampled_from([None, 0, -1, (0,), (0, 1), (-1, 0), (1, 1), 5, "x"]))
    drawn = laid(data.draw, world, a)
    compare(world, drawn, [a], lambda x: LA.norm(x, order, axis, keepdims))


@settings(max_examples=40)
@given(data=st.data())
def test_vector_norm(world, data):
    a = data.draw(array_values(data.draw(st.sampled_from(SHAPES)), DTYPES))
    order = data.draw(st.sampled_from([inf, -inf, 0, 1, 2, 3, -1, 0.5, "fro"]))
    axis = data.draw(st.sampled_from([None, 0, -1, (0, 1), (1, 0), (0, 2), ()]))
    keepdims = data.draw(st.booleans())
    drawn = laid(data.draw, world, a)
    compare(world, drawn, [a], lambda x: LA.vector_norm(x, axis=axis, ord=order, keepdims=keepdims))


@settings(max_examples=40)
@given(data=st.data())
def test_matrix_norm(world, data):
    a = data.draw(array_values(data.draw(st.sampled_from(SHAPES)), DTYPES))
    order = data.draw(st.sampled_from(["fro", "nuc", inf, -inf, 1, -1, 2, -2, 0]))
    keepdims = data.draw(st.booleans())
    drawn = laid(data.draw, world, a)
    compare(world, drawn, [a], lambda x: LA.matrix_norm(x, ord=order, keepdims=keepdims))


@pytest.mark.parametrize("p", [1, -1, 2, inf, -inf, "fro", "nuc"])
def test_cond(world, ranks, p):
    """Of a matrix, of a singular one (infinite), of one with NaN."""
    rng = np.random.default_rng(5)
    regular = rng.standard_normal((6, 6))
    singular, odd = np.ones((6, 6)), regular.copy()
    odd[2, 3] = np.nan
    for a in (regular, singular, *([odd] if p not in (2, "nuc") else [])):
        drawn = (ranks, (ranks,), [Laid()])
        if a is not singular or p != "nuc":
            compare(world, drawn, [a], lambda x: np.isinf(LA.cond(x, p)))
        if a is regular:
            compare(world, drawn, [a], lambda x: LA.cond(x, p))


class Laid:
    """Rows are cut."""

    def build(self, values, mesh):
        return distribute(values, mesh, [Shard(0)], src=None)


TABLE = np.arange(12.0).reshape(4, 3) - 5
#: Calls that few programs make, with (4, 3) floats.
CALLS = {
    "norm, complex": lambda x: LA.norm(x * (1 + 2j)),
    "norm of rows, complex": lambda x: LA.norm(x * (1 + 2j), axis=1),
    "vector_norm, complex": lambda x: LA.vector_norm(x * (1 + 2j), keepdims=True),
    "norm, three axes": lambda x: LA.norm(x[None], axis=(0, 1, 2)),
    "matrix_rank of a vector": lambda x: LA.matrix_rank(x[0]),
    "pinv, rtol": lambda x: LA.pinv(x, rtol=0.5),
    "pinv, rtol as by default": lambda x: LA.pinv(x, rtol=None),
    "pinv, rcond an array": lambda x: LA.pinv(x, x[3, 2] / 100),
    "pinv of nothing": lambda x: LA.pinv(x[:0]),
    "lstsq, few rows": lambda x: LA.lstsq(x[:2], x[:2, 0])[0],
    "cross of a number": lambda x: np.cross(x, x[0, 0]),
    "qr, full": lambda x: abs(LA.qr(x, "full")[1]),
    "qr, economic": lambda x: abs(LA.qr(x, "economic")),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", CALLS)
def test_calls_that_are_rare(world, name):
    ranks = world.ranks[-1]
    compare(world, (ranks, (ranks,), [Laid()]), [TABLE], CALLS[name])


def test_condition_of_large_matrices(world, ranks, monkeypatch):
    """By norm and inverse, not by a copy on every rank."""
    monkeypatch.setattr(small, "is_small", lambda *args, **kwargs: False)
    regular = TABLE[:3] + np.eye(3)
    for a in (regular, np.ones((3, 3))):
        compare(world, (ranks, (ranks,), [Laid()]), [a], lambda x: 1 / LA.cond(x, 1))


@settings(max_examples=40)
@given(data=st.data())
def test_cross(world, data):
    lengths = data.draw(st.sampled_from([(3, 3), (3, 3), (3, 2), (2, 3), (2, 2), (3, 4)]))
    stacks = data.draw(st.sampled_from([((), ()), ((5,), (5,)), ((4,), ()), ((2, 1), (6,))]))
    axes = data.draw(st.sampled_from([{}, {}, {"axisa": 0}, {"axisb": 0}, {"axisc": 0}]))
    shapes = [[*stack, length] for stack, length in zip(stacks, lengths, strict=True)]
    for shape, name in zip(shapes, ("axisa", "axisb"), strict=True):
        if name in axes:
            shape.insert(0, shape.pop())
    a, b = [data.draw(array_values(tuple(shape), ("f8", "i4", "c16"))) for shape in shapes]
    drawn = laid(data.draw, world, a, b)

    def call(x, y):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            return np.cross(x, y, **axes)

    compare(world, drawn, [a, b], call)


def test_cross_of_the_standard(world, ranks):
    a, b = np.arange(12.0).reshape(3, 4), np.arange(12.0)[::-1].reshape(3, 4)
    drawn = (ranks, (ranks,), [Laid(), Laid()])
    compare(world, drawn, [a, b], lambda x, y: LA.cross(x, y, axis=0))
    compare(world, drawn, [a, b], LA.cross)
    pairs = [a[:, :2], b[:, :2]]
    # A warning, or since NumPy 2.5 an error.
    said = words(lambda: np.cross(*pairs))
    assert said
    assert words(lambda: run(world, drawn, pairs, np.cross)) == said


def words(call):
    """What a call says: the text of its exception, or of its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            call()
        except ValueError as error:
            return {str(error)}
    return {str(warning.message) for warning in caught}


@settings(max_examples=20)
@given(data=st.data())
def test_multi_dot(world, data):
    count = data.draw(st.integers(1, 5))
    sides = [data.draw(st.sampled_from([1, 2, 3, 5, 9])) for _ in range(count + 1)]
    shapes = [tuple(sides[i : i + 2]) for i in range(count)]
    shapes[0] = data.draw(st.sampled_from([shapes[0], shapes[0][1:]]))
    shapes[-1] = data.draw(st.sampled_from([shapes[-1], shapes[-1][:1]]))
    values = [data.draw(array_values(shape, ("f8", "i4"))) for shape in shapes]
    drawn = laid(data.draw, world, *values)
    compare(world, drawn, values, lambda *arrays: LA.multi_dot(arrays))


def test_multi_dot_takes_the_cheapest_order(world, ranks):
    """A vector at the end: no product of two matrices is formed; `out` receives the result."""
    a, b, v = np.ones((60, 50)), np.ones((50, 60)), np.ones(60)

    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        arrays = [distribute(x, mesh, [Shard(0)], src=None) for x in (a, b, a, v[:50])]
        out = distribute(np.zeros((60, 1)), mesh, [Shard(0)], src=None)
        with trace() as found:
            assert_matches(LA.multi_dot(arrays), LA.multi_dot([a, b, a, v[:50]]))
        assert found.bytes <= 8 * 60 * 4 * group.size
        result = LA.multi_dot([*arrays[:3], arrays[3][:, None]], out=out)
        assert result is out
        assert_matches(out, LA.multi_dot([a, b, a, v[:50]])[:, None])

    world.run(ranks, program)
