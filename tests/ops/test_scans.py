"""Scans against NumPy on every layout."""

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
)
from tests.ops.reduced import tolerances, tried

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

SCANS = [np.cumsum, np.cumprod, np.nancumsum, np.nancumprod, np.cumulative_sum, np.cumulative_prod]


@st.composite
def cases(draw, world, special):
    ranks = draw(st.sampled_from(world.ranks))
    mesh_shape = draw(mesh_shapes(ranks))
    values = draw(array_values(special=special))
    if values.dtype.kind == "c":
        values[np.isinf(values)] = 3  # what a product of infinite ones is depends on the order
    kinds = ("plain", "view", "transposed", "ragged", "partial")
    if special and values.dtype.kind in "fc":
        kinds = kinds[:-1]
    return ranks, mesh_shape, draw(recipes(values.shape, mesh_shape, values.dtype, kinds)), values


@settings(max_examples=80)
@given(data=st.data())
def test_scans(world, data):
    ranks, mesh_shape, recipe, values = data.draw(cases(world, data.draw(st.booleans())))
    function = data.draw(st.sampled_from(SCANS))
    keywords = {"axis": data.draw(st.sampled_from([None, *range(-values.ndim, values.ndim)]))}
    if data.draw(st.booleans()):
        keywords["dtype"] = data.draw(st.sampled_from(["f8", "c16", "i8"]))
    if function in (np.cumulative_sum, np.cumulative_prod):
        keywords["include_initial"] = data.draw(st.booleans())
    expected, error = tried(lambda: function(values, **keywords))

    def program(group):
        x = recipe.build(values, DeviceMesh(group, mesh_shape))
        if error is not None:
            assert_same_error(lambda: function(x, **keywords), lambda: function(values, **keywords))
            return
        result = function(x, **keywords)
        assert_matches(result, expected, **tolerances(expected.dtype))
        if keywords["axis"] is not None and not keywords.get("include_initial"):
            assert result.layout.cuts == x.layout.cuts

    world.run(ranks, program)


@settings(max_examples=60)
@given(data=st.data())
def test_out(world, data):
    ranks, mesh_shape, recipe, values = data.draw(cases(world, special=False))
    function = data.draw(st.sampled_from([np.cumsum, np.cumprod, np.cumulative_sum]))
    axis = data.draw(st.integers(0, values.ndim - 1)) if values.ndim else None
    target = np.full(values.shape or (1,), 7, data.draw(st.sampled_from(["f8", "i8", "c16"])))
    place = data.draw(recipes(target.shape, mesh_shape, target.dtype, ("plain", "view")))
    expected, error = tried(lambda: function(values, axis=axis, out=target.copy()))

    def program(group):
        mesh = DeviceMesh(group, mesh_shape)
        x, out, own = recipe.build(values, mesh), place.build(target, mesh), target.copy()
        if error is not None:
            with pytest.raises((type(error), TypeError)):
                function(x, axis=axis, out=out)
            return
        assert function(x, axis=axis, out=out) is out
        assert function(x, axis=axis, out=own) is own
        assert_matches(out, expected, exact=False, rtol=1e-4)
        np.testing.assert_allclose(own, expected, rtol=1e-4)

    world.run(ranks, program)


UFUNCS = [
    np.add, np.multiply, np.maximum, np.minimum, np.fmax, np.fmin, np.logaddexp, np.hypot,
    np.subtract, np.divide, np.arctan2, np.logical_or, np.logical_and, np.logical_xor,
    np.bitwise_xor, np.bitwise_and, np.gcd, np.lcm, np.left_shift, np.power, np.float_power,
    np.ldexp,
]  # fmt: skip


@settings(max_examples=100)
@given(data=st.data())
def test_accumulate(world, data):
    ranks, mesh_shape, recipe, values = data.draw(cases(world, data.draw(st.booleans())))
    ufunc = data.draw(st.sampled_from(UFUNCS))
    axis = data.draw(st.sampled_from([*range(-values.ndim, values.ndim)])) if values.ndim else 0
    expected, error = tried(lambda: ufunc.accumulate(values, axis=axis))

    def program(group):
        x = recipe.build(values, DeviceMesh(group, mesh_shape))
        if error is not None:
            assert_same_error(
                lambda: ufunc.accumulate(x, axis=axis), lambda: ufunc.accumulate(values, axis=axis)
            )
            return
        assert_matches(ufunc.accumulate(x, axis=axis), expected, **tolerances(expected.dtype))

    world.run(ranks, program)


def test_messages(world, ranks):
    values = np.arange(24.0).reshape(6, 4)

    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        x = distarray.distribute(values, mesh, [Shard(0)], src=None)
        many = ranks > 1
        with distarray.forbid_communication():
            x.cumsum(axis=1)
        with distarray.trace() as t:
            x.cumsum(axis=0)
        assert len(t) == many
        assert t.bytes == many * 4 * 8
        with distarray.trace() as t:
            flat = x.cumsum()
        assert t.bytes <= many * 8, t  # flattened without moving anything
        assert_matches(flat, values.cumsum(), exact=False)
        x[::-1].cumsum(axis=0)
        with distarray.trace() as t:
            backwards = x[::-1].cumsum(axis=0)
        assert len(t) == many
        assert_matches(backwards, values[::-1].cumsum(axis=0), exact=False)

    world.run(ranks, program)


BAD = [
    (lambda np, a: np.cumsum(a, axis=2), np.exceptions.AxisError),
    (lambda np, a: np.cumsum(a, axis=(0,)), TypeError),
    (lambda np, a: np.cumsum(a, axis=0.5), TypeError),
    (lambda np, a: np.cumsum(a, out=np.ones((3, 4))), ValueError),
    (lambda np, a: np.cumsum(a, axis=0, out=np.ones((3, 3))), ValueError),
    (lambda np, a: np.cumulative_sum(a), ValueError),
    (lambda np, a: np.cumulative_prod(a, axis=3, include_initial=True), np.exceptions.AxisError),
    (lambda np, a: np.add.accumulate(a, axis=None), ValueError),
    (lambda np, a: np.add.accumulate(a, axis=(0, 1)), ValueError),
    (lambda np, a: np.add.accumulate(a[0, 0, ...]), TypeError),
    (lambda np, a: np.less.accumulate(a), TypeError),
    (lambda np, a: np.sin.accumulate(a), ValueError),
]


@pytest.mark.parametrize("number", range(len(BAD)))
def test_errors_are_numpys_on_every_rank(world, ranks, number):
    call, kind = BAD[number]
    values = np.arange(12.0).reshape(3, 4)
    with pytest.raises(kind):
        call(np, values)

    def program(group):
        x = distarray.distribute(values, DeviceMesh(group, (ranks,)), [Shard(0)], src=None)
        with pytest.raises(kind):
            call(np, x)
        group.barrier()

    world.run(ranks, program)
