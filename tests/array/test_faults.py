"""The ways around faults of NumPy's loops, taken whether this processor has the fault or not."""

import functools

import numpy as np
import pytest

import distarray
from distarray import DeviceMesh, Replicate, Shard
from distarray.array import faults
from distarray.array.faults import Fault
from distarray.testing import assert_matches

RNG = np.random.default_rng(5)


def in_order(ufunc, values, axis, initial=None, mask=None):
    """The reduction by its definition, one call for each slab."""
    slabs = list(np.moveaxis(values, axis, 0))
    masks = [True] * len(slabs) if mask is None else list(np.moveaxis(mask, axis, 0))
    if initial is None:
        found = slabs.pop(0)
        masks.pop(0)
    else:
        found = np.full(slabs[0].shape, initial, values.dtype)
    for slab, where in zip(slabs, masks, strict=True):
        found = np.where(where, ufunc(found, slab), found)
    return found


@pytest.fixture(params=[True, False], ids=["around", "probed"])
def around(request):
    """Run the test with every way around, and with those that this processor needs."""
    if not request.param:
        yield
        return
    with faults.assumed(True):
        yield


def test_probes_answer():
    for fault in Fault:
        assert faults.present(fault) in (True, False)
        for answer in (True, False):
            with faults.assumed(answer, fault):
                assert faults.present(fault) is answer
        assert faults.present(fault) is faults.present(fault)


@pytest.mark.host
@pytest.mark.parametrize("ufunc", [np.power, np.arctan2, np.ldexp], ids=lambda u: u.__name__)
def test_reductions(world, ranks, around, ufunc):
    values = 1 + RNG.random((13, 5)) / 3
    if ufunc is np.ldexp:
        values = RNG.integers(-2, 3, (13, 5)).astype("i4")
    mask = RNG.random((13, 5)) < 0.6

    def program(group):
        for placements in ([Shard(0)], [Shard(1)], [Replicate()]):
            x = distarray.distribute(values, DeviceMesh(group, (ranks,)), placements, src=None)
            for y, whole in ((x, values), (x[::-1], values[::-1]), (x[::3], values[::3])):
                for axis in (0, 1):
                    expected = in_order(ufunc, whole, axis)
                    close(ufunc.reduce(y, axis=axis), expected)
                    kept = ufunc.reduce(y, axis=axis, keepdims=True)
                    close(kept, np.expand_dims(expected, axis))
                    out = distarray.distribute(np.zeros(expected.shape), x.mesh, src=None)
                    assert ufunc.reduce(y, axis=axis, out=out) is out
                    close(out, expected)
            close(ufunc.reduce(x[:, 1]), in_order(ufunc, values[:, 1], 0))
            if ufunc is np.power:
                close(ufunc.reduce(x, axis=0, dtype="i8"), np.ones(5, "i8"))
            if ufunc is not np.ldexp:  # which has no reduceat, and casts what it starts from
                pieces = [in_order(ufunc, values[a:b], 0) for a, b in ((2, 7), (7, 8), (3, 13))]
                close(ufunc.reduceat(x, [2, 7, 3]), np.stack(pieces))
                expected = in_order(ufunc, values, 0, 1.25, mask)
                close(ufunc.reduce(x, axis=0, initial=1.25, where=mask), expected)
                close(ufunc.reduce(x, axis=1, initial=1.25), in_order(ufunc, values, 1, 1.25))

    world.run(ranks, program)


def close(found, expected):
    assert found.shape == expected.shape
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-13)


@pytest.mark.host
def test_what_numpy_refuses(around):
    x = distarray.distribute(np.ones((3, 4)), src=None)
    for call in (
        lambda a: np.power.reduce(a, axis=(0, 1)),
        lambda a: np.power.reduce(a[:0], axis=0),
        lambda a: np.power.reduce(a, axis=2),
        lambda a: np.power.reduce(a, axis=0, where=a > 0),
        lambda a: np.power.reduceat(a, [5]),
    ):
        with pytest.raises(Exception) as expected:
            call(np.ones((3, 4)))
        with pytest.raises(type(expected.value)):
            call(x)


@pytest.mark.host
def test_long_lines_are_folded_in_pieces(around):
    values = 1 + np.random.default_rng(0).random(200_001) / 1e6
    expected = functools.reduce(lambda a, b: a**b, values.tolist())
    x = distarray.distribute(values, src=None)
    np.testing.assert_allclose(float(np.power.reduce(x)), expected, rtol=1e-12)


@pytest.mark.host
def test_sorts_of_halves(world, ranks, around):
    """Sorted, with the bits of every NaN and zero."""
    choice = np.array([-np.inf, np.inf, np.nan, 0, -0.0, 1, -1, 2, -4, 7], np.float16)
    values = choice[RNG.integers(0, len(choice), 9001)]
    values[::97] = np.array([0x7E01], np.uint16).view(np.float16)
    ordered = np.sort(values, kind="stable")
    finite = values[np.isfinite(values)]

    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        x = distarray.distribute(values, mesh, [Shard(0)], src=None)
        assert_matches(np.sort(x).view(np.uint16), ordered.view(np.uint16))
        y = x.copy()
        for place in (0, 4500, 9000):
            y.partition(place)
            order = np.argpartition(x, place).full()
            np.testing.assert_array_equal(np.sort(order), np.arange(9001))
            for found in (np.partition(x, place).full(), y.full(), values[order]):
                np.testing.assert_array_equal(found[place], ordered[place])
                np.testing.assert_array_equal(np.sort(found, kind="stable"), ordered)
        x.sort()
        assert_matches(x.view(np.uint16), ordered.view(np.uint16))
        z = distarray.distribute(finite, mesh, [Shard(0)], src=None)
        assert_matches(np.unique(z) + 0, np.array(sorted(set(finite + 0)), np.float16))
        assert_matches(np.median(z), np.median(finite.astype("f4")).astype("f2"))

    world.run(ranks, program)


@pytest.mark.host
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "u8"])
def test_results_with_steps(world, ranks, around, dtype):
    values = RNG.integers(1, 9, (90, 8)).astype(dtype)
    if values.dtype.kind == "f":
        values[::7, ::3] = np.nan
        values[1::5] = -np.inf

    falses = np.zeros((90, 8), bool)

    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        x = distarray.distribute(values, mesh, [Shard(0)], src=None)
        flat, whole = np.ravel(x), values.ravel()
        for step in (1, 2, 4, 8, -3):
            y = distarray.distribute(whole, mesh, [Shard(0)], src=None)
            part = y[::step]
            np.negative(part, out=part)
            expected = whole.copy()
            expected[::step] = -whole[::step].copy()
            assert_matches(y, expected)
        if values.dtype.kind == "f":
            for ufunc in (np.isnan, np.isinf, np.signbit):
                for placements in ([Shard(0)], [Shard(1)], [Replicate()]):
                    table = distarray.distribute(falses, mesh, placements, src=None)
                    column = table[:, 3]
                    ufunc(x[:, 2], out=column)
                    ufunc(x[::-1, 5], out=table[:, 6], where=x[:, 0] > 4)
                    expected = np.zeros((90, 8), bool)
                    expected[:, 3] = ufunc(values[:, 2])
                    expected[:, 6] = ufunc(values[::-1, 5]) & (values[:, 0] > 4)
                    assert_matches(table, expected)
                assert_matches(ufunc(flat[::3]), ufunc(whole[::3].copy()))

    world.run(ranks, program)
