"""Order statistics: NumPy's bits, however the elements are spread, by selection in many rounds."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distarray
from distarray.comm import DeviceMesh
from distarray.engines.selecting import order_statistics as lines
from distarray.engines.selecting import selection, weighted
from distarray.layout import Shard
from distarray.testing import (
    array_values,
    assert_matches,
    assert_same_error,
    mesh_shapes,
    recipes,
)

#: Whether quantiles with weights that are all zero are refused, as NumPy does since 2.4.
REFUSES_ZEROS = np.lib.NumpyVersion(np.__version__) >= "2.4.0"
KINDS = ("plain", "view", "transposed", "ragged", "partial")
METHODS = [
    "inverted_cdf", "averaged_inverted_cdf", "closest_observation", "interpolated_inverted_cdf",
    "hazen", "weibull", "linear", "median_unbiased", "normal_unbiased", "lower", "higher",
    "midpoint", "nearest",
]  # fmt: skip
SHARES = [0.5, 0, 1, [0.25, 0.5, 0.75], [0.0, 1.0], [[0.1], [0.9]], np.linspace(0, 1, 13)]


@pytest.fixture(autouse=True)
def _many_rounds(monkeypatch):
    """Small arrays too go through the rounds that large ones need."""
    monkeypatch.setattr(lines, "REPLICATED_BELOW", 0)
    monkeypatch.setattr(lines, "LONG", lines.LONG)
    for module in (selection, weighted):
        monkeypatch.setattr(module, "GATHERED", 4)
        monkeypatch.setattr(module, "SAMPLED", 16)
    monkeypatch.setattr(selection, "FEW", 8)
    monkeypatch.setattr(selection, "SORTED_ABOVE", 2)


def some_nan(values, seed, share=0.2):
    if values.dtype.kind != "f":
        return values
    rng = np.random.default_rng(seed)
    values = values.copy()
    values[rng.random(values.shape) < share] = np.nan
    return values


def axes_of(draw, ndim):
    single = [None, *range(-ndim, ndim)]
    return draw(st.sampled_from([*single, *[tuple(range(k)) for k in range(2, ndim + 1)]]))


@settings(max_examples=15)
@given(data=st.data())
def test_quantiles_along_axes(world, ranks, data):
    values = data.draw(array_values(dtypes=("f8", "i4", "f4", "u1"), min_dims=1))
    if not values.size:
        return
    mesh_shape = data.draw(mesh_shapes(ranks))
    recipe = data.draw(recipes(values.shape, mesh_shape, values.dtype, KINDS))
    axis = axes_of(data.draw, values.ndim)
    keepdims = data.draw(st.booleans())
    method = data.draw(st.sampled_from(METHODS))
    q = data.draw(st.sampled_from(SHARES))
    long = data.draw(st.booleans())

    def program(group):
        x = recipe.build(values, DeviceMesh(group, mesh_shape))
        assert_matches(
            np.median(x, axis, keepdims=keepdims), np.median(values, axis, keepdims=keepdims)
        )
        named = {"axis": axis, "keepdims": keepdims, "method": method}
        assert_matches(np.quantile(x, q, **named), np.quantile(values, q, **named))
        percent = np.multiply(q, 100)
        assert_matches(np.percentile(x, percent, **named), np.percentile(values, percent, **named))

    lines.LONG = 0 if long else 1 << 15
    world.run(ranks, program)


@pytest.mark.parametrize("method", METHODS)
def test_every_method(world, method):
    """At places on elements, halfway between two, and elsewhere; where some are not known."""
    values = np.round(np.random.default_rng(2).random((9, 3)), 1)
    odd = values.copy()
    odd[4, 1] = np.nan
    ranks = world.ranks[min(1, len(world.ranks) - 1)]

    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        x, holed = (distarray.distribute(v, mesh, [Shard(0)], src=None) for v in (values, odd))
        for q in (1, [0.5, 0.3, 0.25, 1 / 16]):
            for axis in (0, None):
                wanted = np.quantile(values, q, axis, method=method)
                assert_matches(np.quantile(x, q, axis, method=method), wanted)
                percent = np.multiply(q, 100)
                wanted = np.nanpercentile(odd, percent, axis, method=method)
                assert_matches(np.nanpercentile(holed, percent, axis, method=method), wanted)

    world.run(ranks, program)


def test_samples_that_mislead(world, ranks, monkeypatch):
    """What is wanted lies below or above where the sample has it, or is the sample's own end."""
    for module in (selection, weighted):
        monkeypatch.setattr(module, "SPREAD", 0)
    values = np.repeat(np.random.default_rng(4).integers(0, 40, 300), 2).astype(float)
    weights = np.tile([0.0, 1, 3], 200)
    q = np.linspace(0, 1, 41)

    def program(group):
        x, heavy = (
            distarray.distribute(v, DeviceMesh(group, (ranks,)), [Shard(0)], src=None)
            for v in (values, weights)
        )
        for share in q[::4]:  # alone, so that no neighbour widens the bracket
            assert_matches(np.quantile(x, share), np.quantile(values, share))
        for how in ({}, {"method": "inverted_cdf", "weights": weights}):
            laid = {**how, "weights": heavy} if how else how
            assert_matches(np.quantile(x, q, **laid), np.quantile(values, q, **how))

    world.run(ranks, program)


def test_weights_of_lines(world, ranks):
    """They are as long as the axis, and every line has the same."""
    values = np.random.default_rng(3).random((5, 12))
    named = {"axis": 1, "method": "inverted_cdf"}

    def program(group):
        x = distarray.distribute(values, DeviceMesh(group, (ranks,)), [Shard(1)], src=None)
        for weights in (np.arange(12.0), np.arange(12)):
            wanted = np.quantile(values, [0.2, 0.5], weights=weights, **named)
            assert_matches(np.quantile(x, [0.2, 0.5], weights=weights, **named), wanted)
        with pytest.raises(ValueError, match="Weights included"):
            np.quantile(x, 0.5, weights=np.full(12, np.nan), **named)

    world.run(ranks, program)


@settings(max_examples=12)
@given(data=st.data())
def test_nan(world, ranks, data):
    values = data.draw(array_values(dtypes=("f8", "i4"), min_dims=1, max_dims=2))
    if not values.size:
        return
    values = some_nan(values, data.draw(st.integers(0, 99)), data.draw(st.sampled_from([0.2, 1.0])))
    mesh_shape = data.draw(mesh_shapes(ranks))
    recipe = data.draw(recipes(values.shape, mesh_shape, values.dtype, KINDS[:4]))
    axis = axes_of(data.draw, values.ndim)
    method = data.draw(st.sampled_from(METHODS))
    q = data.draw(st.sampled_from(SHARES))

    def program(group):
        x = recipe.build(values, DeviceMesh(group, mesh_shape))
        for function in (np.median, np.nanmedian):
            assert_matches(function(x, axis), function(values, axis))
        for function in (np.quantile, np.nanquantile):
            expected = function(values, q, axis, method=method)
            assert_matches(function(x, q, axis, method=method), expected)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        world.run(ranks, program)


@settings(max_examples=12)
@given(data=st.data())
def test_weights(world, ranks, data):
    values = data.draw(array_values(dtypes=("f8", "i4"), min_dims=1, max_dims=2))
    if not values.size:
        return
    values = some_nan(values, data.draw(st.integers(0, 99)), data.draw(st.sampled_from([0.0, 0.1])))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    weights = rng.integers(0, 4, values.shape) + (rng.random(values.shape) < 0.5)
    weights += not REFUSES_ZEROS
    mesh_shape = data.draw(mesh_shapes(ranks))
    recipe = data.draw(recipes(values.shape, mesh_shape, values.dtype, KINDS[:4]))
    other = data.draw(recipes(values.shape, mesh_shape, weights.dtype, KINDS[:4]))
    axis = axes_of(data.draw, values.ndim)
    q = data.draw(st.sampled_from(SHARES[:5]))
    named = {"axis": axis, "method": "inverted_cdf"}
    function = data.draw(st.sampled_from([np.quantile, np.nanquantile]))

    def program(group):
        mesh = DeviceMesh(group, mesh_shape)
        x, heavy = recipe.build(values, mesh), other.build(weights, mesh)
        try:
            expected = function(values, q, weights=weights, **named)
        except ValueError:
            with pytest.raises(ValueError, match="all zero"):
                function(x, q, weights=heavy, **named)
            return
        assert_matches(function(x, q, weights=heavy, **named), expected)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        world.run(ranks, program)


def test_weights_are_summed_exactly(world, ranks):
    """The element does not depend on the ranks, be it at the very edge of a share."""
    values = np.random.default_rng(1).permutation(1000).astype(float)
    weights = np.full(1000, 0.001)
    q = np.arange(1, 1000) / 1000

    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        x, heavy = (distarray.distribute(v, mesh, [Shard(0)], src=None) for v in (values, weights))
        found = np.quantile(x, q[::27], method="inverted_cdf", weights=heavy)
        assert_matches(found, np.arange(0.0, 999.0)[::27])

    world.run(ranks, program)


@pytest.mark.parametrize("case", ["random", "equal", "few", "rising", "heavy tail", "zeros", "M8"])
def test_lines_of_many_kinds(world, ranks, case):
    rng = np.random.default_rng(3)
    values = {
        "random": rng.random(4001),
        "equal": np.full(4000, 2.5, np.float32),
        "few": rng.integers(0, 3, 4001),
        "rising": np.arange(4000) // 7,
        "heavy tail": np.exp(rng.standard_normal(4001) * 5),
        "zeros": np.zeros(4000),
        "M8": rng.integers(0, 999, 4001).astype("m8[s]"),
    }[case]

    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        x = distarray.distribute(values, mesh, [Shard(0)], src=None)
        assert_matches(np.median(x), np.median(values))
        q = np.array([0, 0.01, 0.33, 0.5, 0.501, 0.99, 1])
        if case != "M8":
            assert_matches(np.quantile(x, q), np.quantile(values, q))
            ones = np.ones(len(values), int)
            named = {"method": "inverted_cdf", "weights": ones}
            assert_matches(np.quantile(x, q, **named), np.quantile(values, q, **named))
        assert_matches(np.quantile(x, q, method="lower"), np.quantile(values, q, method="lower"))

    world.run(ranks, program)


def test_zeros_of_either_sign(world, ranks):
    """Which zero is taken does not depend on the ranks: the negative ones come first."""
    values = np.array([0.0, -0.0] * 50 + [-1.0] * 20 + [1.0] * 20)

    def program(group):
        x = distarray.distribute(values, DeviceMesh(group, (ranks,)), [Shard(0)], src=None)
        q = np.array([30, 69, 70, 119, 139]) / 139
        found = np.quantile(x, q, method="nearest").full()
        return np.array_equal(found, [0, 0, 0, 0, 1]), np.signbit(found).tolist()

    if ranks > 1:
        expected = (True, [True, True, False, False, False])
        assert all(result == expected for result in world.run(ranks, program))


def test_out(world, ranks):
    values = np.random.default_rng(0).random((12, 5))

    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        x = distarray.distribute(values, mesh, [Shard(0)], src=None)
        for dtype in (np.float64, np.float32):
            out = distarray.distribute(np.zeros(5, dtype), mesh, [Shard(0)], src=None)
            wanted = np.zeros(5, dtype)
            assert np.median(x, 0, out) is out
            assert_matches(out, np.median(values, 0, wanted))
            assert np.quantile(x, 0.3, 0, out) is out
            assert_matches(out, np.quantile(values, 0.3, 0, wanted))
        kept = distarray.distribute(np.zeros((2, 1, 5)), mesh, [Shard(2)], src=None)
        np.percentile(x, [10, 90], 0, kept, keepdims=True)
        assert_matches(kept, np.percentile(values, [10, 90], 0, keepdims=True))

    world.run(ranks, program)


BAD = {
    "share": lambda np_, x: np_.quantile(x, 1.5),
    "percent": lambda np_, x: np_.percentile(x, [5, -1]),
    "method": lambda np_, x: np_.quantile(x, 0.5, method="no such"),
    "axis": lambda np_, x: np_.median(x, axis=5),
    "complex": lambda np_, x: np_.quantile(x + 1j, 0.5),
    "out": lambda np_, x: np_.median(x, 0, np.zeros(7)),
    "weights": lambda np_, x: np_.quantile(x, 0.5, weights=np.ones(10)),
    "negative weights": lambda np_, x: np_.quantile(
        x, 0.5, weights=-np.ones((10, 3)), method="inverted_cdf"
    ),
    "shape of weights": lambda np_, x: np_.quantile(
        x, 0.5, weights=np.ones(4), axis=0, method="inverted_cdf"
    ),
    "weights without an axis": lambda np_, x: np_.quantile(
        x, 0.5, weights=np.ones(10), method="inverted_cdf"
    ),
    "bool": lambda np_, x: np_.quantile(x > 0, 0.5),
    "empty": lambda np_, x: np_.quantile(x[:0], 0.5),
}
if REFUSES_ZEROS:
    BAD["zero weights"] = lambda np_, x: np_.quantile(
        x, 0.5, weights=np.zeros((10, 3)), method="inverted_cdf"
    )


@pytest.mark.parametrize("what", BAD)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_bad_input(world, ranks, what):
    values = np.arange(30.0).reshape(10, 3)

    def program(group):
        x = distarray.distribute(values, DeviceMesh(group, (ranks,)), [Shard(0)], src=None)
        assert_same_error(lambda: BAD[what](np, x), lambda: BAD[what](np, values))

    world.run(ranks, program)


def test_nothing_is_gathered(world, ranks, monkeypatch):
    """Of 64 KiB a rank sends samples, counts and candidates; the input stays what it was."""
    monkeypatch.undo()
    monkeypatch.setattr(selection, "GATHERED", 512)
    values = np.random.default_rng(1).random(ranks << 15)

    def program(group):
        x = distarray.distribute(values, DeviceMesh(group, (ranks,)), [Shard(0)], src=None)
        with distarray.trace() as trace:
            found = np.median(x)
        assert_matches(found, np.median(values))
        assert np.array_equal(x.full(), values)
        return trace.bytes, trace.messages

    for nbytes, messages in world.run(ranks, program):
        assert nbytes <= (1 << 17) // max(1, ranks - 1)
        assert messages <= 14
