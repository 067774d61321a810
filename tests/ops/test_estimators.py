"""Bins chosen by rules: NumPy's numbers of bins, edges and counts."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distarray
from distarray.comm import DeviceMesh
from distarray.layout import Shard
from distarray.testing import assert_matches, assert_same_error, mesh_shapes, recipes

RULES = ("auto", "doane", "fd", "rice", "scott", "sqrt", "sturges")
pytestmark = pytest.mark.filterwarnings("ignore:The number of bins", "ignore:Converting input")


@settings(max_examples=12)
@given(data=st.data())
def test_rules(world, ranks, data):
    rule = data.draw(st.sampled_from(RULES))
    shape = data.draw(st.sampled_from([(60,), (7, 9), (1,), (2,), (0,)]))
    dtype = data.draw(st.sampled_from(["f8", "i4", "u1", "?"]))
    limits = data.draw(st.sampled_from([None, (-20, 30), (500, 600)]))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    values = (rng.standard_normal(shape) * 50).astype(np.int64).astype(dtype)
    mesh_shape = data.draw(mesh_shapes(ranks))
    recipe = data.draw(recipes(shape, mesh_shape, values.dtype))

    def program(group):
        x = recipe.build(values, DeviceMesh(group, mesh_shape))
        try:
            expected = np.histogram(values, rule, limits)
        except ValueError:
            with pytest.raises(ValueError, match="Too many bins"):
                np.histogram(x, rule, limits)
            return
        assert_matches(np.histogram(x, rule, limits), expected)
        assert_matches(np.histogram_bin_edges(x, rule, limits), expected[1])

    world.run(ranks, program)


def test_cross_validation(world, ranks):
    """A hundred histograms: once, not for every example."""
    values = np.random.default_rng(0).standard_normal(60)

    def program(group):
        x = distarray.distribute(values, DeviceMesh(group, (ranks,)), [Shard(0)], src=None)
        assert_matches(np.histogram(x, "stone"), np.histogram(values, "stone"))

    world.run(ranks, program)


BAD = {
    "rule": ("no such", None, None),
    "weights": ("fd", None, True),
    "range": ("fd", (3, 1), None),
    "bins": (0, None, None),
    "fraction": (1.5, None, None),
    "falling edges": ([3, 1], None, None),
    "infinite range": ("auto", (0, np.inf), None),
    "dimensions": ([[1, 2]], None, None),
}


@pytest.mark.parametrize("what", BAD)
@pytest.mark.parametrize("function", [np.histogram, np.histogram_bin_edges])
def test_bad_input(world, ranks, function, what):
    values = np.arange(10.0)
    bins, limits, weighted = BAD[what]

    def program(group):
        x = distarray.distribute(values, DeviceMesh(group, (ranks,)), [Shard(0)], src=None)
        named = {"range": limits, "weights": values if weighted else None}
        assert_same_error(
            lambda: function(x, bins, **named), lambda: function(values, bins, **named)
        )

    world.run(ranks, program)
