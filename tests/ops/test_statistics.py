"""Means, variances and averages against NumPy on every layout."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distarray
from distarray import DeviceMesh, Shard, distribute
from distarray.config import config
from distarray.engines import tiles
from distarray.ops import statistics
from distarray.testing import array_values, assert_matches, mesh_shapes, recipes, shapes
from tests.ops.reduced import MANY, STATISTICS, axes, cases, compare, tried

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@MANY
@given(data=st.data())
def test_statistics(world, data):
    ranks, mesh_shape, recipe, values = data.draw(cases(world, special=data.draw(st.booleans())))
    function = data.draw(st.sampled_from(STATISTICS))
    keywords = {"axis": data.draw(axes(values.ndim)), "keepdims": data.draw(st.booleans())}
    if function not in (np.mean, np.nanmean) and data.draw(st.booleans()):
        keywords[data.draw(st.sampled_from(["ddof", "correction"]))] = data.draw(
            st.sampled_from([0, 1, 2, 0.5])
        )
    compare(world, ranks, mesh_shape, recipe, values, function, **keywords)


@pytest.mark.parametrize("tile", [None, 64])
def test_offsets_do_not_hurt_the_variance(world, ranks, tile, monkeypatch):
    if tile:  # as long blocks are: not left to NumPy
        monkeypatch.setattr(statistics, "_LONG", 0)
        monkeypatch.setattr(statistics, "TILE", tile)
        monkeypatch.setattr(tiles, "TILE", tile)
    rng = np.random.default_rng(0)
    noise = rng.standard_normal(1000)
    for offset in (1e6, 1e9, -1e12):
        values = noise + offset
        exact = np.var((values - offset).astype(np.longdouble))

        def program(group, values=values, exact=exact):
            x = distarray.distribute(values, DeviceMesh(group, (ranks,)), [Shard(0)], src=None)
            assert abs(float(x.var()) - exact) <= 2 * abs(float(np.var(values)) - exact) + 1e-12

        world.run(ranks, program)


@settings(max_examples=40)
@given(data=st.data())
def test_average(world, data):
    ranks = data.draw(st.sampled_from(world.ranks))
    mesh_shape = data.draw(mesh_shapes(ranks))
    values = data.draw(array_values(data.draw(shapes(1, 3)), ("f8", "i4", "f4")))
    axis = data.draw(st.integers(0, values.ndim - 1))
    weights = np.arange(1.0, values.shape[axis] + 1)
    recipe = data.draw(recipes(values.shape, mesh_shape, values.dtype, ("plain", "view")))
    calls = [
        lambda a, w: np.average(a),
        lambda a, w: np.average(a, axis=axis),
        lambda a, w: np.average(a, axis=axis, weights=w),
        lambda a, w: np.average(a, axis=axis, weights=w, keepdims=True),
        lambda a, w: np.average(a, axis=axis, weights=w, returned=True),
    ]

    def program(group):
        mesh = DeviceMesh(group, mesh_shape)
        x = recipe.build(values, mesh)
        for call in calls:
            expected, error = tried(lambda call=call: call(values, weights))
            if error is not None:
                with pytest.raises(type(error)):
                    call(x, weights)
                continue
            for w in (
                weights,
                distarray.distribute(weights, mesh, [Shard(0)] * mesh.ndim, src=None),
            ):
                assert_matches(call(x, w), expected, exact=False, rtol=1e-5)

    world.run(ranks, program)


@pytest.mark.filterwarnings("ignore:Degrees of freedom", "ignore:divide by zero", "ignore:invalid")
def test_a_pending_variance_divided_by_nothing(world, ranks):
    values = np.array([4.0])

    def program(group):
        with config.override(replicate_below=0):
            x = distribute(values, DeviceMesh(group), [Shard(0)], src=None)
            return np.var(x[None], axis=1, ddof=1, mean=0.5).full()

    for found in world.run(ranks, program):
        np.testing.assert_array_equal(found, [np.inf])
