"""Polynomials, and bits: NumPy's results for coefficients and bytes cut in any way."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distarray
import distarray.numpy as dnp
from distarray.comm import DeviceMesh
from distarray.layout import Shard
from distarray.testing import (
    array_values,
    assert_matches,
    assert_same_error,
    mesh_shapes,
    recipes,
)

PAIRS = [np.polyadd, np.polysub, np.polymul]


@settings(max_examples=8)
@given(data=st.data())
def test_arithmetic(world, ranks, data):
    mesh_shape = data.draw(mesh_shapes(ranks))
    dtypes = ("f8", "i8", "c16")
    a, v = [
        data.draw(array_values(shape=(data.draw(st.integers(1, 12)),), dtypes=dtypes)) for _ in "av"
    ]
    left, right = [data.draw(recipes(x.shape, mesh_shape, x.dtype)) for x in (a, v)]
    order = data.draw(st.integers(0, 3))
    constants = data.draw(st.sampled_from([None, 2.0, [1.0, 2.0, 3.0]]))

    def program(group):
        mesh = DeviceMesh(group, mesh_shape)
        x, y = left.build(a, mesh), right.build(v, mesh)
        for function in PAIRS:
            assert_matches(function(x, y), function(a, v))
            assert_matches(function(x, v), function(a, v))
        assert_matches(np.polyder(x, order), np.polyder(a, order))
        assert_matches(np.polyint(x, order, constants), np.polyint(a, order, constants))
        if v[0]:
            assert_matches(np.polydiv(x, y), np.polydiv(a, v))
        assert_matches(dnp.roots(y), np.roots(v))
        assert_matches(dnp.poly(y), np.poly(v))
        assert_matches(np.polyval(x, y), np.polyval(a, v))

    world.run(ranks, program)


@pytest.mark.host
def test_polynomials_stay_polynomials(world, ranks):
    def program(group):
        x = distarray.distribute(np.arange(4.0), DeviceMesh(group, (ranks,)), [Shard(0)], src=None)
        p = np.poly1d([1.0, 2.0])
        for function in PAIRS:
            found = function(p, x)
            assert isinstance(found, np.poly1d)
            assert_matches(found.coeffs, function(p, np.arange(4.0)).coeffs)

    world.run(ranks, program)


@pytest.mark.parametrize(
    "named", [{}, {"full": True}, {"cov": True}, {"cov": "unscaled"}, {"w": 1}, {"w": 1, "cov": 1}]
)
def test_fits(world, ranks, named):
    rng = np.random.default_rng(0)
    x = rng.random(400) * 4
    y = np.stack([3 * x**2 - x + rng.random(400), rng.random(400)], 1)
    weights = rng.random(400)

    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        points, many, heavy = [
            distarray.distribute(part, mesh, [Shard(0)], src=None) for part in (x, y, weights)
        ]
        mine = named | ({"w": heavy} if "w" in named else {})
        theirs = named | ({"w": weights} if "w" in named else {})
        for column in (slice(None), 0):
            found = np.polyfit(points, many[:, column], 2, **mine)
            wanted = np.polyfit(x, y[:, column], 2, **theirs)
            pairs = zip(found, wanted, strict=True) if type(wanted) is tuple else [(found, wanted)]
            for mine_, theirs_ in pairs:
                value = mine_.full() if isinstance(mine_, distarray.DistArray) else mine_
                assert np.shape(value) == np.shape(theirs_)
                np.testing.assert_allclose(value, theirs_, rtol=1e-8)

    world.run(ranks, program)


BAD = {
    "degree": lambda x: np.polyfit(x, x, -1),
    "points": lambda x: np.polyfit(x[:, None], x, 1),
    "no points": lambda x: np.polyfit(x[:0], x[:0], 1),
    "values": lambda x: np.polyfit(x, x[:, None, None], 1),
    "lengths": lambda x: np.polyfit(x, x[:4], 1),
    "weights": lambda x: np.polyfit(x, x, 1, w=x[:4]),
    "derivative": lambda x: np.polyder(x, -1),
    "integral": lambda x: np.polyint(x, -1),
    "constants": lambda x: np.polyint(x, 3, [1.0, 2.0]),
    "roots": lambda x: np.poly(x[:, None]),
    "bits": np.packbits,
    "bytes": np.unpackbits,
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input(world, ranks, what):
    values = np.arange(10.0)

    def program(group):
        x = distarray.distribute(values, DeviceMesh(group, (ranks,)), [Shard(0)], src=None)
        assert_same_error(lambda: BAD[what](x), lambda: BAD[what](values))

    world.run(ranks, program)


@settings(max_examples=12)
@given(data=st.data())
def test_bits(world, ranks, data):
    values = data.draw(array_values(dtypes=("u1",), min_dims=1, max_dims=2))
    if not values.size:  # NumPy leaves memory uninitialized there
        return
    mesh_shape = data.draw(mesh_shapes(ranks))
    recipe = data.draw(recipes(values.shape, mesh_shape, values.dtype))
    axis = data.draw(st.sampled_from([None, *range(-values.ndim, values.ndim)]))
    order = data.draw(st.sampled_from(["big", "little"]))
    count = data.draw(st.sampled_from([None, 3, -2, 70]))

    def program(group):
        x = recipe.build(values, DeviceMesh(group, mesh_shape))
        packed = np.packbits(values, axis, bitorder=order)
        assert_matches(np.packbits(x, axis, bitorder=order), packed)
        assert_matches(np.packbits(x > 3, axis), np.packbits(values > 3, axis))
        bits = np.unpackbits(values, axis, count, bitorder=order)
        assert_matches(np.unpackbits(x, axis, count, bitorder=order), bits)

    world.run(ranks, program)
