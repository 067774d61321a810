"""Reductions and extremes against NumPy on every layout."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distarray
from distarray import DeviceMesh, Replicate, Shard
from distarray.testing import array_values, assert_matches, assert_same_error, mesh_shapes, recipes
from tests.ops.reduced import (
    EXTREMES,
    MANY,
    NAN_REDUCTIONS,
    REDUCTIONS,
    STATISTICS,
    axes,
    cases,
    compare,
    masks,
    tolerances,
    tried,
)

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@MANY
@given(data=st.data())
def test_reductions(world, data):
    ranks, mesh_shape, recipe, values = data.draw(cases(world, special=data.draw(st.booleans())))
    function = data.draw(st.sampled_from(REDUCTIONS + NAN_REDUCTIONS))
    keywords = {"axis": data.draw(axes(values.ndim)), "keepdims": data.draw(st.booleans())}
    compare(world, ranks, mesh_shape, recipe, values, function, **keywords)


@MANY
@given(data=st.data())
def test_extremes(world, data):
    ranks, mesh_shape, recipe, values = data.draw(cases(world, special=data.draw(st.booleans())))
    function = data.draw(st.sampled_from(EXTREMES))
    axis = data.draw(st.sampled_from([None, *range(-values.ndim, values.ndim)]))
    keywords = {"axis": axis, "keepdims": data.draw(st.booleans())}
    compare(world, ranks, mesh_shape, recipe, values, function, **keywords)


@MANY
@given(data=st.data())
def test_counts_and_ranges(world, data):
    ranks, mesh_shape, recipe, values = data.draw(cases(world))
    function = data.draw(st.sampled_from([np.count_nonzero, np.ptp]))
    keywords = {"axis": data.draw(axes(values.ndim)), "keepdims": data.draw(st.booleans())}
    compare(world, ranks, mesh_shape, recipe, values, function, **keywords)


@MANY
@given(data=st.data())
def test_where_and_initial(world, data):
    ranks, mesh_shape, recipe, values = data.draw(cases(world, dtypes=("f8", "i4", "?")))
    function = data.draw(st.sampled_from([*REDUCTIONS, *NAN_REDUCTIONS, *STATISTICS]))
    keywords = {"axis": data.draw(axes(values.ndim))}
    mask = data.draw(masks(values.shape))
    if function not in (np.any, np.all, *STATISTICS) and data.draw(st.booleans()):
        keywords["initial"] = data.draw(st.sampled_from([0, 3, 1, True]))
    spread = data.draw(recipes(mask.shape, mesh_shape, "?", ("plain", "view")))
    expected, error = tried(lambda: function(values, where=mask, **keywords))

    def program(group):
        mesh = DeviceMesh(group, mesh_shape)
        x, where = recipe.build(values, mesh), spread.build(mask, mesh)
        if error is not None:
            for chosen in (mask, where):
                assert_same_error(
                    lambda chosen=chosen: function(x, where=chosen, **keywords),
                    lambda: function(values, where=mask, **keywords),
                )
            return
        for chosen in (mask, where):
            with distarray.config.override(replicate_below=1 if values.size % 2 else 1 << 18):
                result = function(x, where=chosen, **keywords)
            assert_matches(result, expected, **tolerances(expected.dtype))

    world.run(ranks, program)


@MANY
@given(data=st.data())
def test_out_and_dtype(world, data):
    ranks, mesh_shape, recipe, values = data.draw(
        cases(world, dtypes=("f8", "i4", "?"), special=False)
    )
    function = data.draw(
        st.sampled_from([np.sum, np.prod, np.max, np.any, np.mean, np.std, np.nansum])
    )
    axis = data.draw(axes(values.ndim))
    keywords = {"axis": axis}
    if function not in (np.max, np.any) and data.draw(st.booleans()):
        keywords["dtype"] = data.draw(st.sampled_from(["f8", "f4", "c16"]))
    shape = np.sum(values, axis=axis).shape
    target = np.full(shape, 7, data.draw(st.sampled_from(["f8", "f4", "i8", "c16"])))
    place = data.draw(recipes(shape, mesh_shape, target.dtype, ("plain", "view", "ragged")))
    expected, error = tried(lambda: function(values, out=target.copy(), **keywords))

    def program(group):
        mesh = DeviceMesh(group, mesh_shape)
        x, out = recipe.build(values, mesh), place.build(target, mesh)
        own = target.copy()
        if error is not None:
            reference = lambda: function(values, out=target.copy(), **keywords)  # noqa: E731
            assert_same_error(lambda: function(x, out=out, **keywords), reference)
            assert_same_error(lambda: function(x, out=own, **keywords), reference)
            return
        loose = tolerances("f4" if "f4" in (keywords.get("dtype"), target.dtype) else "f8")
        assert function(x, out=out, **keywords) is out
        assert function(x, out=own, **keywords) is own
        assert_matches(out, expected, **loose)
        np.testing.assert_allclose(own, expected, rtol=1e-4)

    world.run(ranks, program)


BAD = [
    (lambda np, a: np.sum(a, axis=2), np.exceptions.AxisError),
    (lambda np, a: np.sum(a, axis=(0, 0)), ValueError),
    (lambda np, a: np.sum(a, axis=[0, 1]), TypeError),
    (lambda np, a: np.sum(a, axis=0.5), TypeError),
    (lambda np, a: np.max(a[:0], axis=0), ValueError),
    (lambda np, a: np.max(a[:0]), ValueError),
    (lambda np, a: np.max(a, where=np.ones(4, bool)), ValueError),
    (lambda np, a: np.max(a, where=np.ones(5, bool), initial=0), ValueError),
    (lambda np, a: np.sum(a, where=np.ones((2, 3, 4), bool)), ValueError),
    (lambda np, a: np.sum(a, where=np.ones(4, int)), TypeError),
    (lambda np, a: np.sum(a, axis=0, out=np.ones(3)), ValueError),
    (lambda np, a: np.sum(a, axis=0, out=np.ones((1, 4))), ValueError),
    (lambda np, a: np.sum(a, axis=0, initial="x"), ValueError),
    (lambda np, a: np.sum(a, dtype="U3"), TypeError),
    (lambda np, a: np.argmax(a, axis=2), np.exceptions.AxisError),
    (lambda np, a: np.argmax(a[:0]), ValueError),
    (lambda np, a: np.argmax(a, axis=0, out=np.ones(4)), TypeError),
    (lambda np, a: np.argmax(a, axis=0, out=np.ones(3, int)), ValueError),
    (lambda np, a: np.argmax(a, axis=(0, 1)), TypeError),
    (lambda np, a: np.var(a, ddof=1, correction=2), ValueError),
    (lambda np, a: np.mean(a, axis=5), np.exceptions.AxisError),
    (lambda np, a: np.ptp(a > 0), TypeError),
    (lambda np, a: np.nanmean(a, dtype=int), TypeError),
    (lambda np, a: np.nanargmax(a * np.nan), ValueError),
    (lambda np, a: np.nanargmin(a * np.array([np.nan, 1, 1, 1]), axis=0), ValueError),
    (lambda np, a: np.average(a, weights=np.zeros((3, 4))), ZeroDivisionError),
    (lambda np, a: np.average(a, weights=np.ones(3)), TypeError),
    (lambda np, a: np.average(a, axis=1, weights=np.ones(3)), ValueError),
    (lambda np, a: np.count_nonzero(a, axis=3), np.exceptions.AxisError),
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


def test_messages(world, ranks):
    values = np.arange(60.0).reshape(6, 10)

    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        x = distarray.distribute(values, mesh, [Shard(0)], src=None)
        many = ranks > 1
        counts = {
            np.sum: 1, np.max: 1, np.any: 1, np.count_nonzero: 1, np.mean: 1, np.nansum: 1,
            np.argmax: 1, np.nanmax: 1, np.ptp: 2, np.var: 2, np.std: 2, np.nanmean: 2,
        }  # fmt: skip
        for function, expected in counts.items():
            for axis in (None, 0):
                with distarray.trace() as t:
                    result = function(x, axis=axis)
                    repr(float(result) if axis is None else result.shape)
                assert len(t) == many * expected, (function, t)
            with distarray.forbid_communication():
                function(x, axis=1)
        with distarray.trace() as t:
            x.sum()
        assert t.bytes == many * 8

    world.run(ranks, program)


def test_large_results_stay_pending(world, ranks):
    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        x = distarray.distribute(np.ones((6, 50)), mesh, [Shard(0)], src=None)
        with distarray.config.override(replicate_below=100), distarray.forbid_communication():
            total = x.sum(axis=0)
            twice = total.mean() * 2 if ranks == 1 else total * 2
        if ranks > 1:
            assert twice.layout.partials == (0,)
            with distarray.trace() as t:
                assert float(total.sum()) == 300
            assert len(t) == 1
        assert_matches(np.asarray(twice) if ranks == 1 else twice, np.full(50, 12.0)[: twice.size])

    if ranks > 1:
        world.run(ranks, program)


def test_a_row_is_reduced_where_it_lies(world, ranks):
    values = np.arange(60.0).reshape(6, 10)

    def program(group):
        x = distarray.distribute(values, DeviceMesh(group, (ranks,)), [Shard(0)], src=None)
        with distarray.trace() as t:
            total = x[3].sum()
        assert len(t) == (ranks > 1)
        assert t.bytes <= 8
        assert_matches(total, values[3].sum())
        assert_matches(x[3:4].T[2].max(), values[3:4].T[2].max())
        assert_matches(x[-1].mean(keepdims=True), values[-1].mean(keepdims=True))
        assert_matches(np.sum(x[2, 3, ...], initial=5), np.sum(values[2, 3], initial=5))

    world.run(ranks, program)


@settings(max_examples=100)
@given(data=st.data())
def test_arrays_at_one_coordinate(world, data):
    """An integer index on a cut dimension leaves the array on the ranks that own the index."""
    ranks = data.draw(st.sampled_from(world.ranks))
    mesh_shape = data.draw(mesh_shapes(ranks))
    values = data.draw(array_values(dtypes=("f8", "i4"), special=False))
    dim, position = data.draw(st.integers(0, values.ndim)), data.draw(st.integers(0, 4))
    base = np.stack([values + i for i in range(5)], axis=dim)
    key = (slice(None),) * dim + (position, ...)
    recipe = data.draw(recipes(base.shape, mesh_shape, base.dtype, ("plain", "view", "ragged")))
    function = data.draw(st.sampled_from([*REDUCTIONS, *STATISTICS, *EXTREMES, np.cumsum, np.ptp]))
    axis = data.draw(st.sampled_from([None, *range(values.ndim)]))
    expected, error = tried(lambda: function(base[key], axis=axis))

    def program(group):
        x = recipe.build(base, DeviceMesh(group, mesh_shape))
        if error is not None:
            assert_same_error(
                lambda: function(x[key], axis=axis), lambda: function(base[key], axis=axis)
            )
            return
        with distarray.config.override(replicate_below=1 if values.size % 2 else 1 << 18):
            result = function(x[key], axis=axis)
        assert_matches(result, expected, **tolerances(expected.dtype))

    world.run(ranks, program)


@pytest.mark.parametrize("dtype", ["M8[D]", "m8[s]", "f2", "g", "G", "S3", "U2"])
def test_other_dtypes(world, ranks, dtype):
    values = (
        np.array([5, 3, 9, 9, 1, 7]).astype("M8[D]" if dtype == "M8[D]" else "i8").astype(dtype)
    )
    calls = [
        np.argmax,
        np.argmin,
        np.count_nonzero,
        np.max,
        np.min,
        np.sum,
        np.mean,
        np.var,
        np.any,
    ]

    def program(group):
        x = distarray.distribute(values, DeviceMesh(group, (ranks,)), [Shard(0)], src=None)
        for function in calls:
            expected, error = tried(lambda function=function: function(values))
            if error is None:
                assert_matches(function(x), expected, exact=False, rtol=1e-3)
            else:
                with pytest.raises(
                    type(error).__mro__[1] if "UFunc" in repr(error) else type(error)
                ):
                    function(x)

    world.run(ranks, program)


def test_nan_and_ties_across_ranks(world, ranks):
    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        ties = np.array([1.0, 5, 2, 5, 5, 0, 0, 5])
        for values in (ties, np.where(ties == 2, np.nan, ties), ties[::-1], np.full(8, np.nan)):
            for spread in (values, np.repeat(values[:, None], 3, 1), values.astype("c16")):
                x = distarray.distribute(spread, mesh, [Shard(0)], src=None)
                for y, whole in ((x, spread), (x[::-1], spread[::-1]), (x[::-2], spread[::-2])):
                    for function in (np.argmax, np.argmin):
                        assert_matches(function(y), function(whole))
                        assert_matches(function(y, axis=0), function(whole, axis=0))

    world.run(ranks, program)


def test_warnings_are_numpys(world, ranks, request):
    with_nan = np.where(np.arange(12).reshape(3, 4) % 4 == 1, np.nan, 1.0)
    calls = [
        lambda a: np.mean(a[:0]),
        lambda a: np.var(a[:0]),
        lambda a: np.std(a[0, :1], ddof=1),
        lambda a: np.nanmax(a, axis=0),
        lambda a: np.nanmean(a, axis=0),
        lambda a: np.nanvar(a, axis=0),
    ]

    def program(group):
        x = distarray.distribute(with_nan, DeviceMesh(group, (ranks,)), [Shard(0)], src=None)
        for call in calls:
            found = call(x)
            assert np.isnan(np.asarray(found)).any()

    world.run(ranks, program)
    if world.name == "threads" and ranks > 1:
        return  # threads share the list of warnings
    for call in calls:
        with warnings.catch_warnings(record=True) as wanted:
            warnings.simplefilter("always")
            call(with_nan)

        def alone(group, call=call, wanted=wanted):
            x = distarray.distribute(with_nan, DeviceMesh(group, (ranks,)), [Shard(0)], src=None)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                call(x)
            said, heard = ({str(w.message).rstrip(".") for w in ws} for ws in (wanted, caught))
            if request.config.option.device == "cuda":  # a GPU says nothing of what it computes
                said = {text for text in said if "encountered in" not in text}
            assert said <= heard

        world.run(ranks, alone)


def test_operands_of_other_kinds(world, ranks):
    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        x = distarray.distribute(np.arange(6.0), mesh, [Shard(0)], src=None)
        out = distarray.distribute(np.zeros(()), mesh, [Replicate()], src=None)
        assert np.sum([1.0, 2.0], out=out) is out
        assert_matches(out, np.array(3.0))
        assert_matches(np.add.reduce(np.arange(6.0), where=x > 2), np.float64(12))
        assert_matches(x.sum(), np.float64(15))
        assert_matches(x.std(ddof=1), np.arange(6.0).std(ddof=1), exact=False)
        assert isinstance(float(x.max()), float)
        with pytest.raises(TypeError):
            np.sum(x, out=x.sum())

    world.run(ranks, program)


def test_ranks_outside_of_the_mesh_take_no_part(world, ranks):
    if ranks == 1:
        return
    values = np.arange(24.0).reshape(6, 4)
    calls = [
        *[lambda a, f=f: f(a) for f in (*REDUCTIONS, *STATISTICS, *NAN_REDUCTIONS, np.ptp)],
        *[lambda a, f=f: f(a, axis=0) for f in (*REDUCTIONS, *STATISTICS, *EXTREMES)],
        np.argmax,
        np.nanargmin,
        np.cumsum,
        np.count_nonzero,
        lambda a: np.cumprod(a, axis=0),
        np.subtract.reduce,
        np.subtract.accumulate,
        np.logaddexp.reduce,
        lambda a: np.add.reduceat(a, [0, 2]),
        lambda a: np.subtract.reduceat(a, [0, 2]),
        lambda a: np.add.outer(a, a[0]),
        lambda a: np.average(a, axis=0, weights=np.arange(6)),
        lambda a: np.cumulative_sum(a, axis=0, include_initial=True),
    ]

    def program(group):
        mesh = DeviceMesh(group, (ranks - 1,), ranks=range(1, ranks))
        x = distarray.distribute(values, mesh, [Shard(0)], src=None)
        for call in calls:
            for reproducible in (False, True):
                with distarray.config.override(reproducible=reproducible):
                    result = call(x)
                assert_matches(result, call(values), exact=False)

    world.run(ranks, program)
