"""Differences of neighbours, tables, and functions that turn complex."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distarray
import distarray.numpy as dnp
from distarray.comm import DeviceMesh
from distarray.config import config
from distarray.layout import Replicate, Shard
from distarray.testing import (
    array_values,
    assert_matches,
    assert_same_error,
    mesh_shapes,
    recipes,
    shapes,
)

pytestmark = pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
KINDS = ("plain", "view", "transposed", "ragged", "partial")


@settings(max_examples=50)
@given(data=st.data())
def test_diff(world, ranks, data):
    values = data.draw(array_values(min_dims=1, dtypes=("f8", "i4", "?", "c16")))
    mesh_shape = data.draw(mesh_shapes(ranks))
    recipe = data.draw(recipes(values.shape, mesh_shape, values.dtype, KINDS))
    n = data.draw(st.integers(0, 7))
    axis = data.draw(st.integers(-values.ndim, values.ndim - 1))
    ends = {}
    for name in ("prepend", "append"):
        choice = data.draw(st.sampled_from([None, 0, values]))
        if choice is not None:
            ends[name] = choice

    def program(group):
        x = recipe.build(values, DeviceMesh(group, mesh_shape))
        mine = {name: x if end is values else end for name, end in ends.items()}
        assert_matches(np.diff(x, n, axis, **mine), np.diff(values, n, axis, **ends))

    world.run(ranks, program)


@settings(max_examples=50)
@given(data=st.data())
def test_gradient(world, ranks, data):
    shape = data.draw(shapes(min_dims=1, max_dims=2, max_side=9).filter(lambda s: min(s) >= 3))
    values = data.draw(array_values(shape=shape, dtypes=("f8", "i4", "f4", "c16", "u1")))
    mesh_shape = data.draw(mesh_shapes(ranks))
    recipe = data.draw(recipes(shape, mesh_shape, values.dtype, KINDS))
    edge_order = data.draw(st.sampled_from([1, 2]))
    axis = data.draw(st.sampled_from([None, 0, -1, tuple(range(len(shape)))]))
    axes = range(len(shape)) if axis is None else np.atleast_1d(axis)
    spacing = data.draw(st.sampled_from(["none", "one", "each", "even", "uneven"]))
    given_spacing = {
        "none": [],
        "one": [0.5],
        "each": [2.0 + a for a in range(len(axes))],
        "even": [np.arange(shape[a]) * 3 for a in axes],
        "uneven": [np.arange(float(shape[a])) ** 2 for a in axes],
    }[spacing]

    def program(group):
        mesh = DeviceMesh(group, mesh_shape)
        x = recipe.build(values, mesh)
        wanted = np.gradient(values, *given_spacing, axis=axis, edge_order=edge_order)
        assert_matches(np.gradient(x, *given_spacing, axis=axis, edge_order=edge_order), wanted)
        mine = [dnp.array(d, mesh=mesh) if np.ndim(d) else d for d in given_spacing]
        assert_matches(np.gradient(x, *mine, axis=axis, edge_order=edge_order), wanted)

    world.run(ranks, program)


@settings(max_examples=40)
@given(data=st.data())
def test_ediff1d_trapezoid_unwrap(world, ranks, data):
    values = data.draw(array_values(min_dims=1, dtypes=("f8", "i4")))
    mesh_shape = data.draw(mesh_shapes(ranks))
    recipe = data.draw(recipes(values.shape, mesh_shape, values.dtype, KINDS))
    axis = data.draw(st.integers(-values.ndim, values.ndim - 1))
    points = np.arange(float(values.shape[axis])) ** 1.5

    def program(group):
        mesh = DeviceMesh(group, mesh_shape)
        x = recipe.build(values, mesh)
        assert_matches(np.ediff1d(x), np.ediff1d(values))
        begin, end = np.array([1, 2], values.dtype), 7
        wanted = np.ediff1d(values, to_begin=begin, to_end=end)
        assert_matches(np.ediff1d(x, to_begin=begin, to_end=end), wanted)
        assert_matches(np.trapezoid(x, axis=axis), np.trapezoid(values, axis=axis), exact=False)
        wanted = np.trapezoid(values, points, axis=axis)
        assert_matches(np.trapezoid(x, points, axis=axis), wanted, exact=False)
        wanted = np.trapezoid(values, values, axis=axis)
        assert_matches(np.trapezoid(x, x, axis=axis), wanted, exact=False)
        assert_matches(np.unwrap(x, axis=axis), np.unwrap(values, axis=axis), exact=False)
        wanted = np.unwrap(values, period=6, axis=axis)
        assert_matches(np.unwrap(x, period=6, axis=axis), wanted, exact=False)

    world.run(ranks, program)


def test_messages_of_differences(world):
    ranks = world.ranks[-1]

    def program(group):
        x = dnp.ones((20 * ranks, 8), mesh=DeviceMesh(group, (ranks,)), placements=[Shard(0)])
        with distarray.trace() as trace:
            np.diff(x, axis=0)
        assert trace.messages <= 2
        assert trace.bytes <= 2 * 64
        for line in (x, dnp.ones(20 * ranks, mesh=x.mesh, placements=[Shard(0)])):
            with distarray.trace() as trace:
                np.gradient(line, axis=0)
            assert trace.messages <= 2
            with distarray.trace() as trace:
                np.unwrap(line, axis=0)
            assert trace.messages <= 1 + 1 + 1  # a slab, the scan, a slab
        with distarray.forbid_communication():
            np.diff(x, axis=1)
            np.gradient(x, axis=1)
            np.piecewise(x, [x < 1, x > 1], [1, -1])  # in a list they are not brought anywhere

    world.run(ranks, program)


@pytest.mark.parametrize("dtype", ["f8", "?", "M8[s]", "u1"])
@pytest.mark.parametrize("order", [3, 30, 39, 70_000])
def test_high_orders_end_soon(world, dtype, order):
    ranks = world.ranks[-1]
    values = (np.arange(80) ** 3 % 97).astype("i8").astype(dtype).reshape(40, 2)

    def program(group):
        x = dnp.array(values, mesh=DeviceMesh(group, (ranks,)), placements=[Shard(0)])
        with distarray.trace() as trace:
            found = np.diff(x, order, axis=0)
        assert trace.messages <= 2 * (ranks + 1) * ranks
        assert_matches(found, np.diff(values, min(order, 41), axis=0))

    world.run(ranks, program)


def test_an_order_of_a_short_array_ends_soon_whoever_has_it(world):
    def program(group):
        x = dnp.arange(7, mesh=DeviceMesh(group, world.ranks[-1:]), placements=[Replicate()])
        assert np.diff(x.astype(object), 70_000).shape == (0,)
        with pytest.raises(TypeError):
            np.diff(x.redistribute(placements=[Shard(0)]), 3.5)

    world.run(world.ranks[-1], program)


@settings(max_examples=40)
@given(data=st.data())
def test_tables(world, ranks, data):
    values = data.draw(array_values(dtypes=("f8", "i4", "f4"), special=True))
    mesh_shape = data.draw(mesh_shapes(ranks))
    recipe = data.draw(recipes(values.shape, mesh_shape, values.dtype, KINDS[:-1]))
    points, heights = np.array([-5.0, 0.0, 2.5, 7.0]), np.array([1.0, -2.0, 3.0, 8.0])

    def program(group):
        mesh = DeviceMesh(group, mesh_shape)
        x = recipe.build(values, mesh)
        cut = [Shard(0)] * len(mesh_shape)
        xp, fp = (dnp.array(v, mesh=mesh, placements=cut) for v in (points, heights))
        with np.errstate(all="ignore"):
            for args in ((points, heights), (xp, fp), (points, heights * 1j)):
                plain = (points, heights * 1j if args[1].dtype.kind == "c" else heights)
                assert_matches(np.interp(x, *args), np.interp(values, *plain))
            wanted = np.interp(values, points, heights, left=-1, right=9)
            assert_matches(np.interp(x, points, heights, left=-1, right=9), wanted)
            wanted = np.interp(values, points, heights, period=3)
            assert_matches(np.interp(x, points, heights, period=3), wanted)
            for right in (False, True):
                wanted = np.digitize(values, points, right)
                assert_matches(np.digitize(x, points, right), wanted)
                assert_matches(np.digitize(x, xp, right), wanted)
            assert_matches(np.polyval([1.0, -2, 3], x), np.polyval([1.0, -2, 3], values))
            assert_matches(np.polyval(fp, x), np.polyval(heights, values))
            assert_matches(np.polyval(fp, 2.0), np.polyval(heights, 2.0))

    world.run(ranks, program)


def test_piecewise(world, ranks):
    def program(group):
        values = np.arange(-6.0, 6.0).reshape(3, 4)
        x = dnp.array(values, placements=[Shard(1)])
        choices = [lambda v: -v, 7, lambda v, k: v * k]

        def call(v, *choices, **named):
            return np.piecewise(v, [v < -2, v > 3], list(choices), **named)

        assert_matches(call(x, *choices[:2]), call(values, *choices[:2]))
        wanted = call(values, choices[2], 1.5, choices[2], k=3)
        assert_matches(call(x, choices[2], 1.5, choices[2], k=3), wanted)
        wanted = np.piecewise(values[0], values[0] > -4, [1, -1])
        assert_matches(np.piecewise(x[0], x[0] > -4, [1, -1]), wanted)
        wanted = np.piecewise(values, [values > 0], [1, -1])
        assert_matches(np.piecewise(x, [x > 0], [1, -1]), wanted)
        assert_same_error(lambda: call(x, *choices, 1), lambda: call(values, *choices, 1))

    world.run(ranks, program)


@pytest.mark.parametrize("name", ["sqrt", "log", "log10", "log2", "arccos", "arcsin", "arctanh"])
def test_functions_that_turn_complex(world, ranks, name):
    def program(group):
        for values in (
            np.array([0.25, 0.5, 1 - 1e-9]),
            np.array([0.5, -4.0, 0.1]),
            np.array([2.0, 0.5, 0.25]),
            np.array([1, -1, 0]),
            np.array([1j, 2, -0.5]),
        ):
            x = dnp.array(values, placements=[Shard(0)])
            call = getattr(dnp.emath, name)
            with np.errstate(all="ignore"):
                assert_matches(call(x), getattr(np.emath, name)(values))
        assert_matches(np.emath.power(x, 2), np.emath.power(values, 2))
        ints = dnp.array([-2, 2, 3], placements=[Shard(0)])
        for exponent in (2, -2, [1, -1, 0]):
            assert_matches(np.emath.power(ints, exponent), np.emath.power([-2, 2, 3], exponent))
        assert_matches(np.emath.logn(2, ints), np.emath.logn(2, np.array([-2, 2, 3])))

    world.run(ranks, program)


def test_printing_functions(world, ranks):
    def program(group):
        values = np.arange(6.0) / 3
        whole, cut = dnp.array(values), dnp.array(values, placements=[Shard(0)])
        with distarray.forbid_communication():
            assert np.array2string(whole, precision=2) == np.array2string(values, precision=2)
            assert np.array_repr(whole, precision=2) == np.array_repr(values, precision=2)
            assert np.array_str(whole, precision=2) == np.array_str(values, precision=2)
            if ranks > 1:
                assert "Shard(0)" in np.array2string(cut, separator=";")
                assert "Shard(0)" in np.array_repr(cut)
                assert "Shard(0)" in np.array_str(cut)
        with config.override(print_gathered=True):
            assert np.array2string(cut, precision=2) == np.array2string(values, precision=2)

    world.run(ranks, program)


BAD = [
    lambda x: np.diff(x, -1),
    lambda x: np.diff(x, axis=2),
    lambda x: np.diff(x.sum()),
    lambda x: np.diff(x, prepend=np.zeros((1, 1))),
    lambda x: np.gradient(x, edge_order=3),
    lambda x: np.gradient(x, 1, 2, 3),
    lambda x: np.gradient(x, [1.0, 2.0], 1.0),
    lambda x: np.gradient(x[:1]),
    lambda x: np.gradient(x, axis=5),
    lambda x: np.ediff1d(x.astype("i1"), to_end=1.5),
    lambda x: np.interp(x, [1, 2, 3], [1, 2]),
    lambda x: np.interp(x, [1, 2, 3], [1, 2, 3], period=0),
    lambda x: np.digitize(x, [1, 3, 2]),
    lambda x: np.digitize(x * 1j, [1, 2]),
]


@pytest.mark.parametrize("call", BAD, ids=range(len(BAD)))
def test_bad_input(world, ranks, call):
    def program(group):
        values = np.arange(12.0).reshape(4, 3)
        x = dnp.array(values, placements=[Shard(0)])
        assert_same_error(lambda: call(x), lambda: call(values))
        group.barrier()

    world.run(ranks, program)
