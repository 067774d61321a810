"""Reductions under ``config.reproducible``: the same bits on every mesh, and good ones."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distarray
from distarray import DeviceMesh, Shard
from distarray.comm import run_threads
from distarray.testing import assert_matches, mesh_shapes, recipes, shapes

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

FUNCTIONS = [
    np.sum, np.mean, np.var, np.std, np.prod, np.nansum, np.nanmean, np.nanstd, np.nanprod,
    np.add.reduce, np.multiply.reduce, np.hypot.reduce, np.logaddexp.reduce,
]  # fmt: skip
SCANS = [np.cumsum, np.cumprod, np.nancumsum, np.add.accumulate, np.cumulative_sum]


def alone(call, values):
    """The result on one rank, as a NumPy array."""

    def program(group):
        with distarray.config.override(reproducible=True):
            x = distarray.distribute(values, DeviceMesh(group, (1,)), [Shard(0)], src=None)
            return np.array(call(x))

    return run_threads(1, program)[0]


def wild(shape, seed, dtype, spread=30):
    """Values of very different magnitudes that mostly cancel."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape) * 2.0 ** rng.integers(-spread, spread, shape)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * rng.standard_normal(shape)
    return values.astype(dtype)


def bits(value):
    """The memory of an array; every NaN alike. What follows 80 bits of a number means nothing."""
    array = np.where(np.isnan(value), np.nan, value).astype(value.dtype)
    padded = array.dtype.char == "g" and np.finfo("g").nmant == 63
    return array.reshape(-1, 1).view("u1")[:, : 10 if padded else None].tobytes()


@settings(max_examples=120)
@given(data=st.data())
def test_the_mesh_does_not_show(world, data):
    ranks = data.draw(st.sampled_from(world.ranks))
    mesh_shape = data.draw(mesh_shapes(ranks))
    shape = data.draw(shapes(1, 3, max_side=9, max_size=400))
    dtype = data.draw(st.sampled_from(["f8", "f4", "c16", "f2"]))
    function = data.draw(st.sampled_from(FUNCTIONS + SCANS))
    if dtype == "c16" and function in (np.hypot.reduce, np.logaddexp.reduce):
        dtype = "f8"
    values = wild(shape, data.draw(st.integers(0, 999)), dtype, spread=8 if dtype == "f2" else 30)
    if data.draw(st.booleans()):
        values.flat[:: data.draw(st.integers(2, 9))] = data.draw(
            st.sampled_from([np.nan, np.inf, -np.inf, 0.0, -0.0])
        )
    recipe = data.draw(recipes(shape, mesh_shape, dtype, ("plain", "view", "transposed", "ragged")))
    axis = data.draw(st.sampled_from([*range(len(shape))]))
    if function in (np.sum, np.mean, np.var, np.std, np.nansum):
        axis = data.draw(st.sampled_from([None, axis, tuple(range(len(shape)))]))

    def call(a):
        return function(a, axis=axis)

    expected = alone(call, values)

    def program(group):
        x = recipe.build(values, DeviceMesh(group, mesh_shape))
        with distarray.config.override(reproducible=True):
            result = np.asarray(call(x))
        assert result.dtype == expected.dtype
        assert bits(np.asarray(result)) == bits(expected)

    world.run(ranks, program)
    tolerance = {"f8": 1e-12, "c16": 1e-11, "f4": 1e-3, "f2": 1e-1}[dtype]
    exact = function(values, axis=axis)
    if np.isfinite(exact).all() and function not in (np.var, np.std, np.nanstd):
        scale = np.nansum(np.abs(values[np.isfinite(values)].astype("c16"))) + 1
        if "prod" in function.__qualname__ or "multiply" in repr(function):
            scale = np.max(np.abs(exact), initial=0) + 1
        np.testing.assert_allclose(expected, exact, rtol=tolerance, atol=tolerance * scale)


@settings(max_examples=60)
@given(data=st.data())
def test_where_initial_and_out(world, data):
    ranks = data.draw(st.sampled_from(world.ranks))
    mesh_shape = data.draw(mesh_shapes(ranks))
    shape = data.draw(shapes(1, 3, max_side=6, max_size=100))
    values = np.random.default_rng(data.draw(st.integers(0, 99))).random(shape) + 0.5
    mask = np.random.default_rng(1).random(shape) < 0.7
    recipe = data.draw(recipes(shape, mesh_shape, "f8", ("plain", "view", "ragged")))
    function = data.draw(st.sampled_from([np.sum, np.prod, np.nansum, np.mean, np.std]))
    axis = data.draw(st.sampled_from([None, 0, -1, tuple(range(len(shape)))]))
    keywords = {"axis": axis, "where": mask, "keepdims": data.draw(st.booleans())}
    if function in (np.sum, np.prod, np.nansum):
        keywords["initial"] = data.draw(st.sampled_from([0.5, 3.0]))
    expected = function(values, **keywords)

    def program(group):
        x = recipe.build(values, DeviceMesh(group, mesh_shape))
        with distarray.config.override(reproducible=True):
            assert_matches(function(x, **keywords), expected, exact=False)
            out = np.zeros(expected.shape)
            assert function(x, out=out, **keywords) is out
        np.testing.assert_allclose(out, expected)

    world.run(ranks, program)


#: Shapes around the sizes at which sums are divided, and axes.
LONG = [
    ((129,), None), ((1000,), 0), ((4097,), None), ((65, 3), 0), ((700, 2), 0), ((300, 3), None),
    ((5, 400), 1), ((3, 130, 2), 1), ((130, 3, 2), (0, 2)), ((2, 7, 300), (0, 2)), ((900, 1), 0),
    ((1, 1000), None), ((200, 1, 5), (0, 1)), ((0, 2), None), ((2, 0, 3), (1, 2)), ((0, 3), 0),
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["f8", "f4", "c16", "f2", "g"])
@settings(max_examples=40)
@given(data=st.data())
def test_many_summands(world, dtype, data):
    if dtype == "g" and distarray.config.device == "cuda":
        pytest.skip("a GPU has no long double")
    ranks = data.draw(st.sampled_from(world.ranks))
    mesh_shape = data.draw(mesh_shapes(ranks))
    shape, axis = data.draw(st.sampled_from(LONG))
    values = wild(shape, data.draw(st.integers(0, 99)), dtype, spread=4 if dtype == "f2" else 20)
    recipe = data.draw(recipes(shape, mesh_shape, dtype, ("plain", "view", "transposed", "ragged")))
    expected = alone(lambda x: np.sum(x, axis=axis), values)
    of_memory = axis is None or axis == len(shape) - 1
    if of_memory and dtype != "f2":  # the bits are those of NumPy's own sum
        assert bits(expected) == bits(np.asarray(np.sum(values, axis=axis)))

    def program(group):
        x = recipe.build(values, DeviceMesh(group, mesh_shape))
        with distarray.config.override(reproducible=True):
            return np.asarray(np.sum(x, axis=axis))

    for found in world.run(ranks, program):
        assert bits(found) == bits(expected)


@pytest.mark.parametrize("n", [1, 2, 1000, 100_003])
def test_sums_of_a_line_are_numpys(world, ranks, n):
    values = wild(n, 3, "f8", spread=20)

    def program(group):
        x = distarray.distribute(values, DeviceMesh(group, (ranks,)), [Shard(0)], src=None)
        with distarray.config.override(reproducible=True):
            return float(x.sum()), float(x[::-1].sum()), float(x.mean()), float(x[1::2].sum())

    expected = values.sum(), values[::-1].copy().sum(), values.mean(), values[1::2].copy().sum()
    for found in world.run(ranks, program):
        assert found == tuple(map(float, expected))


def test_edges_of_the_exponent_range(world, ranks):
    big, tiny = np.finfo("f8").max, 5e-324
    cases = [
        [big, -big, 3.0],
        [big, big],
        [tiny, tiny, -tiny, tiny],
        [2.0**-1022, tiny, -(2.0**-1022)],
        [0.0, 0.0],
        [-0.0, -0.0],
        [np.inf, 1.0],
        [np.inf, -np.inf, 1.0],
        [np.nan, np.inf],
        [1e300, 1.0, -1e300, 1e-300],
    ]

    def program(group):
        for case in cases:
            values = np.array(case * 90)
            x = distarray.distribute(values, DeviceMesh(group, (ranks,)), [Shard(0)], src=None)
            with distarray.config.override(reproducible=True):
                found = x.sum()
            assert bits(np.asarray(found)) == bits(np.asarray(values.sum()))

    world.run(ranks, program)


def test_several_columns_of_different_magnitude(world, ranks):
    values = wild((40, 6), 3, "f8") * np.array([1e300, 1e-300, 1, np.inf, 0, 1e-320])
    values[0, 3] = np.nan

    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        for placement in (Shard(0), Shard(1)):
            x = distarray.distribute(values, mesh, [placement], src=None)
            with distarray.config.override(reproducible=True):
                found = x.sum(axis=0)
            assert_matches(found, values.sum(axis=0), exact=False)

    world.run(ranks, program)


def test_price_of_a_sum(world, ranks):
    """A message to another rank or from it for each doubling, and the result for everybody."""

    def program(group):
        x = distarray.distribute(np.ones(1000), DeviceMesh(group, (ranks,)), [Shard(0)], src=None)
        with distarray.config.override(reproducible=True), distarray.trace() as t:
            x.sum()
        sent = [event.bytes for event in t.events if event.kind == "exchange"]
        assert len(sent) == (ranks > 1 and group.rank > 0)
        assert len(t.events) == len(sent) + (ranks > 1)
        assert sum(sent) <= 8 * (2 * 127 + 8)

    world.run(ranks, program)


@pytest.mark.parametrize("ufunc", [np.multiply, np.hypot, np.add])
def test_no_axes_under_a_mask(world, ranks, ufunc):
    """Elements outside of the mask are the identity."""
    values = np.arange(1.0, 13.0).reshape(6, 2)
    expected = ufunc.reduce(values, axis=(), where=values > 3)

    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        x = distarray.distribute(values, mesh, [Shard(0)], src=None)
        with distarray.config.override(reproducible=True):
            assert_matches(ufunc.reduce(x, axis=(), where=x > 3), expected)

    world.run(ranks, program)
