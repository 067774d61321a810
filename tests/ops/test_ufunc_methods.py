"""Methods of ufuncs against NumPy: reduce, reduceat, outer (accumulate is in test_scans)."""

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distarray
from distarray import DeviceMesh, Shard
from distarray.testing import (
    array_values,
    assert_matches,
    assert_same_error,
    mesh_shapes,
    recipes,
    shapes,
)

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

UFUNCS = sorted(
    {u for u in vars(np).values() if isinstance(u, np.ufunc) and u.nin == 2 and u.nout == 1},
    key=lambda u: u.__name__,
)
ORDERED = {np.subtract, np.divide, np.floor_divide, np.power, np.arctan2, np.lcm, np.left_shift}
DTYPES = ("f8", "i8", "?", "c16", "u1")


def tolerances(dtype):
    if np.dtype(dtype).kind not in "fc":
        return {"exact": True}
    return {"exact": False, "rtol": 1e4 * np.finfo(dtype).eps, "atol": 1e-9}


def tried(call):
    try:
        return call(), None
    except Exception as error:
        return None, error


@st.composite
def cases(draw, world, min_dims=0):
    ranks = draw(st.sampled_from(world.ranks))
    mesh_shape = draw(mesh_shapes(ranks))
    special = draw(st.booleans())
    values = draw(array_values(dtypes=DTYPES, special=special, min_dims=min_dims))
    if values.dtype.kind == "c":
        values[np.isinf(values)] = 3  # what a product of infinite ones is depends on the order
    kinds = ("plain", "view", "transposed", "ragged", "partial")
    if special and values.dtype.kind in "fc":
        kinds = kinds[:-1]
    return ranks, mesh_shape, draw(recipes(values.shape, mesh_shape, values.dtype, kinds)), values


def compare(world, case, call):
    ranks, mesh_shape, recipe, values = case
    expected, error = tried(lambda: call(values))

    def program(group):
        x = recipe.build(values, DeviceMesh(group, mesh_shape))
        if error is not None:
            assert_same_error(lambda: call(x), lambda: call(values))
        else:
            assert_matches(call(x), expected, **tolerances(expected.dtype))

    world.run(ranks, program)


@settings(max_examples=150)
@given(data=st.data())
def test_reduce(world, data):
    case = data.draw(cases(world))
    ufunc = data.draw(st.sampled_from(UFUNCS))
    ndim = case[3].ndim
    keywords = {}
    if data.draw(st.booleans()):
        keywords["axis"] = data.draw(
            st.sampled_from([None, (), *range(-ndim, ndim), (0, ndim - 1)])
        )
    if data.draw(st.booleans()):
        keywords["keepdims"] = True
    if data.draw(st.integers(0, 3)) == 0:
        keywords["initial"] = data.draw(st.sampled_from([1, 2, True, None]))
    compare(world, case, lambda a: ufunc.reduce(a, **keywords))


@settings(max_examples=80)
@given(data=st.data())
def test_reduce_where(world, data):
    case = data.draw(cases(world, min_dims=1))
    ufunc = data.draw(st.sampled_from(UFUNCS))
    shape = case[3].shape
    mask = np.random.default_rng(data.draw(st.integers(0, 99))).random(shape) < 0.6
    axis = data.draw(st.sampled_from([*range(len(shape))]))
    keywords = {"initial": data.draw(st.sampled_from([1, 3]))} if data.draw(st.booleans()) else {}
    compare(world, case, lambda a: ufunc.reduce(a, axis=axis, where=mask, **keywords))


@settings(max_examples=100)
@given(data=st.data())
def test_reduceat(world, data):
    case = data.draw(cases(world, min_dims=1))
    ufunc = data.draw(st.sampled_from(UFUNCS))
    axis = data.draw(st.integers(-case[3].ndim, case[3].ndim - 1))
    extent = case[3].shape[axis]
    indices = data.draw(st.lists(st.integers(0, max(0, extent - 1)), max_size=6))
    if data.draw(st.booleans()):
        indices = np.array(sorted(indices), int)
    compare(world, case, lambda a: ufunc.reduceat(a, indices, axis=axis))


@settings(max_examples=100)
@given(data=st.data())
def test_outer(world, data):
    ranks, mesh_shape, recipe, values = data.draw(cases(world))
    ufunc = data.draw(
        st.sampled_from([np.add, np.multiply, np.divide, np.less, np.maximum, np.hypot])
    )
    other = data.draw(array_values(data.draw(shapes(0, 2, max_size=20)), DTYPES))
    spread = data.draw(recipes(other.shape, mesh_shape, other.dtype, ("plain", "view", "partial")))
    expected, error = tried(lambda: ufunc.outer(values, other))

    def program(group):
        mesh = DeviceMesh(group, mesh_shape)
        x, y = recipe.build(values, mesh), spread.build(other, mesh)
        for a, b in ((x, y), (values, y), (x, other), (x, other.tolist() if other.ndim else other)):
            if error is not None:
                assert_same_error(
                    lambda a=a, b=b: ufunc.outer(a, b), lambda: ufunc.outer(values, other)
                )
            elif isinstance(b, list) and (other.dtype == np.uint8 or not other.size):
                continue  # as a list it is of another dtype or shape
            else:
                assert_matches(ufunc.outer(a, b), expected, exact=expected.dtype.kind not in "fc")

    world.run(ranks, program)


@pytest.mark.parametrize(
    "ufunc", [np.subtract, np.divide, np.power, np.arctan2], ids=lambda u: u.__name__
)
def test_the_order_of_operations_is_numpys(world, ranks, ufunc):
    """Bit for bit where NumPy's loops round alike, on any number of ranks: they take turns."""
    values = 1 + np.random.default_rng(0).random((13, 3)) / 3
    exact = ufunc in (np.subtract, np.divide)  # the others have vector loops for some strides

    def program(group):
        for placements in ([Shard(0)], [Shard(1)]):
            x = distarray.distribute(values, DeviceMesh(group, (ranks,)), placements, src=None)
            for y, whole in ((x, values), (x[::-1], values[::-1]), (x[::3], values[::3])):
                # NumPy's own reduce may be wrong (see `faults`): the definition.
                expected = functools.reduce(ufunc, list(whole))
                assert_matches(ufunc.reduce(y, axis=0), expected, exact=exact)
                scanned = ufunc.accumulate(whole.copy(), axis=0)
                assert_matches(ufunc.accumulate(y, axis=0), scanned, exact=exact)

    world.run(ranks, program)


def test_messages(world, ranks):
    values = np.arange(48.0).reshape(12, 4)

    def program(group):
        x = distarray.distribute(values, DeviceMesh(group, (ranks,)), [Shard(0)], src=None)
        many = ranks > 1
        for ufunc in (np.add, np.logical_xor, np.fmax, np.hypot, np.bitwise_or):
            operand = x.astype(int) if ufunc is np.bitwise_or else x
            with distarray.trace() as t:
                ufunc.reduce(operand)
            assert len(t) == many, ufunc
        with distarray.trace() as t:
            np.subtract.reduce(x)
        assert t.bytes <= (2 * 4 * 8 + 8) * many  # a slab on, a slab back, an agreement
        with distarray.trace() as t:
            np.add.reduceat(x, [0, 5, 6])
        assert len(t) == many
        with distarray.trace() as t:
            np.add.outer(x, values)
        assert not t.events

    world.run(ranks, program)


BAD = [
    lambda a: np.add.reduce(a, axis=2),
    lambda a: np.subtract.reduce(a, axis=None),
    lambda a: np.subtract.reduce(a[:0]),
    np.less.reduce,
    np.sin.reduce,
    np.divmod.reduce,
    np.matmul.reduce,
    np.ldexp.reduce,
    lambda a: np.maximum.reduce(a, initial=None, where=np.ones(4, bool)),
    lambda a: np.add.reduceat(a, [0, 3]),
    lambda a: np.add.reduceat(a, [0, -1]),
    lambda a: np.add.reduceat(a, 2),
    lambda a: np.add.reduceat(a, [0], axis=None),
    lambda a: np.add.reduceat(a, np.array([0.5])),
    lambda a: np.add.reduceat(a[0, 0, ...], [0]),
    lambda a: np.sin.outer(a, [1, 2]),
    lambda a: np.matmul.outer(a, [1, 2]),
    lambda a: np.add.outer(a, [1, 2], a),
]


@pytest.mark.parametrize("number", range(len(BAD)))
def test_errors_are_numpys_on_every_rank(world, ranks, number):
    call = BAD[number]
    values = np.arange(12.0).reshape(3, 4)

    def program(group):
        x = distarray.distribute(values, DeviceMesh(group, (ranks,)), [Shard(0)], src=None)
        assert_same_error(lambda: call(x), lambda: call(values))
        group.barrier()

    world.run(ranks, program)


def test_objects_into_an_out(world, ranks):
    """Ufuncs pass their `out` in a tuple, which reductions of objects take apart."""
    values = np.array([1, 2, 3], object)

    def program(group):
        x = distarray.distribute(values, src=None)
        out = distarray.distribute(np.zeros(1))
        assert np.add.reduce(x, out=out, keepdims=True) is out
        assert_matches(out, np.array([6.0]))

    world.run(ranks, program)
