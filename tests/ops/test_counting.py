"""Histograms and counts: exactly NumPy's, however the elements are spread."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distarray
import distarray.numpy as dnp
from distarray.comm import DeviceMesh
from distarray.config import config
from distarray.layout import Shard
from distarray.testing import (
    array_values,
    assert_matches,
    assert_same_error,
    mesh_shapes,
    recipes,
)

KINDS = ("plain", "view", "transposed", "ragged", "partial")
BINS = [5, 1, [-4, 0, 1, 8], np.array([-9.0, 0.5, 9.0]), [0, 0, 1]]


@settings(max_examples=50)
@given(data=st.data())
def test_histogram(world, ranks, data):
    values = data.draw(array_values(dtypes=("f8", "i4", "f4", "u1")))
    mesh_shape = data.draw(mesh_shapes(ranks))
    recipe = data.draw(recipes(values.shape, mesh_shape, values.dtype, KINDS))
    bins = data.draw(st.sampled_from(BINS))
    limits = data.draw(st.sampled_from([None, (-3, 5), (2.5, 2.5)]))
    heavy = data.draw(st.booleans())
    density = data.draw(st.booleans()) and values.size > 0

    def program(group):
        x = recipe.build(values, DeviceMesh(group, mesh_shape))
        named = {"bins": bins, "range": limits, "density": density}
        weights = {"weights": values + 1} if heavy else {}
        mine = {"weights": x + 1} if heavy else {}
        with np.errstate(all="ignore"):
            expected = np.histogram(values, **named, **weights)
            assert_matches(np.histogram(x, **named, **mine), expected, exact=not density)
            assert_matches(np.histogram(x, **named, **weights), expected, exact=not density)
        edges = np.histogram_bin_edges(values, bins, limits)
        assert_matches(np.histogram_bin_edges(x, bins, limits), edges)

    world.run(ranks, program)


@settings(max_examples=40)
@given(data=st.data())
def test_histograms_of_points(world, ranks, data):
    count = data.draw(st.integers(1, 20))
    values = data.draw(array_values(shape=(count, 3), dtypes=("f8", "i4")))
    mesh_shape = data.draw(mesh_shapes(ranks))
    recipe = data.draw(recipes(values.shape, mesh_shape, values.dtype, KINDS))
    bins = data.draw(st.sampled_from([3, (2, 3, 4), [[-9, 0, 9]] * 3, (2, [-9, 1, 9], 3)]))
    limits = data.draw(st.sampled_from([None, [(-5, 5)] * 3, [None, (-5, 5), None]]))
    density = data.draw(st.booleans())

    def program(group):
        x = recipe.build(values, DeviceMesh(group, mesh_shape))
        with np.errstate(all="ignore"):
            expected = np.histogramdd(values, bins, limits, density)
            counts, edges = np.histogramdd(x, bins, limits, density)
            assert_matches(counts, expected[0], exact=not density)
            assert_matches(list(edges), list(expected[1]))
            plane = bins[:2] if not isinstance(bins, int) else bins
            expected = np.histogram2d(values[:, 0], values[:, 1], plane, weights=values[:, 2])
            found = np.histogram2d(x[:, 0], x[:, 1], plane, weights=x[:, 2])
            assert_matches(found, expected)

    world.run(ranks, program)


@settings(max_examples=40)
@given(data=st.data())
def test_bincount(world, ranks, data):
    count = data.draw(st.integers(0, 20))
    values = data.draw(array_values(shape=(count,), dtypes=("u1", "i8"))).astype(int) % 7
    recipe = data.draw(recipes(values.shape, (ranks,), values.dtype, KINDS))
    least = data.draw(st.integers(0, 9))
    weights = np.arange(float(count))

    def program(group):
        x = recipe.build(values, DeviceMesh(group, (ranks,)))
        assert_matches(np.bincount(x, minlength=least), np.bincount(values, minlength=least))
        assert_matches(np.bincount(x, weights), np.bincount(values, weights))
        with config.override(replicate_below=0):
            assert_matches(np.bincount(x, minlength=40), np.bincount(values, minlength=40))

    world.run(ranks, program)


def test_messages_of_a_histogram(world, ranks):
    def program(group):
        x = dnp.arange(1000.0, placements=[Shard(0)])
        with distarray.trace() as trace:
            np.histogram(x, 10, (0, 1000))
        assert len(trace.events) <= 1
        with distarray.forbid_communication():
            np.histogram_bin_edges(x, 10, (0, 1000))
            np.histogram(dnp.arange(10.0), 5)

    world.run(ranks, program)


BAD = [
    lambda x: np.histogram(x, 0),
    lambda x: np.histogram(x, [3, 2, 1]),
    lambda x: np.histogram(x, 3, (5, 1)),
    lambda x: np.histogram(x / 0),
    lambda x: np.histogram(x, weights=[1, 2]),
    lambda x: np.histogram(x, 2.5),
    np.bincount,
    lambda x: np.bincount(x.astype(int) - 3),
    lambda x: np.bincount(x.astype(int), weights=[1.0]),
    lambda x: np.bincount(x.astype(int), minlength=-1),
    lambda x: np.bincount(x.astype(int).reshape(2, 3)),
    lambda x: np.histogram2d(x, x[:2]),
    lambda x: np.histogramdd(x.reshape(3, 2), bins=(1, 2, 3)),
    lambda x: np.histogramdd(x.reshape(3, 2), bins=[[1, 0], 3]),
]


@pytest.mark.parametrize("call", BAD, ids=range(len(BAD)))
def test_bad_input(world, ranks, call):
    def program(group):
        values = np.arange(6.0)
        x = dnp.array(values, placements=[Shard(0)])
        with np.errstate(all="ignore"):
            assert_same_error(lambda: call(x), lambda: call(values))
        group.barrier()

    world.run(ranks, program)


@pytest.mark.filterwarnings("ignore:numpy.histogram:distarray.errors.PerformanceWarning")
def test_bins_by_a_rule(world, ranks):
    def program(group):
        values = np.sqrt(np.arange(50.0))
        x = dnp.array(values, placements=[Shard(0)])
        assert_matches(np.histogram(x, "fd"), np.histogram(values, "fd"))
        assert_matches(np.histogram_bin_edges(x, "auto"), np.histogram_bin_edges(values, "auto"))

    world.run(ranks, program)
