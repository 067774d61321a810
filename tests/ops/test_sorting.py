"""sort, argsort, lexsort, partition and their relatives against NumPy, on every layout."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distarray
from distarray import DeviceMesh, Replicate, Shard
from distarray.config import config
from distarray.engines.sorting import buckets, packed
from distarray.testing import assert_matches, assert_same_error

from .sortable import RECORD, check, sorting_cases, tied

STABLE = {"kind": "stable"}


def first(case):
    return case.operands[0].values


@settings(max_examples=120)
@given(data=st.data())
def test_sort_and_argsort(world, data):
    case = data.draw(sorting_cases(world))
    ndim = first(case).ndim
    axis = data.draw(st.sampled_from([None, *range(-ndim, ndim)]))
    order = data.draw(st.sampled_from([None, "b", ["c", "a"]])) if first(case).dtype.names else None
    function = data.draw(st.sampled_from([np.sort, np.argsort]))
    check(world, case, lambda x: function(x, axis=axis, kind="stable", order=order))


@settings(max_examples=40)
@given(data=st.data())
def test_in_place(world, data):
    case = data.draw(sorting_cases(world))
    axis = data.draw(st.integers(-first(case).ndim, first(case).ndim - 1))

    def sorted_copy(x):
        y = x[::-1].copy()
        view = y[::-1]
        view.sort(axis, **STABLE)
        return y, view

    check(world, case, sorted_copy)


@settings(max_examples=40)
@given(data=st.data())
def test_lexsort(world, data):
    count = data.draw(st.integers(1, 3))
    case = data.draw(sorting_cases(world, count=count))
    axis = data.draw(st.integers(-first(case).ndim, first(case).ndim - 1))
    check(world, case, lambda *keys: np.lexsort(keys, axis=axis))


@settings(max_examples=60)
@given(data=st.data())
def test_partitions(world, data):
    case = data.draw(sorting_cases(world))
    values = first(case)
    axis = data.draw(st.sampled_from([None, *range(-values.ndim, values.ndim)]))
    extent = values.size if axis is None else values.shape[axis]
    numbers = st.integers(-extent, max(extent - 1, -extent))
    kth = data.draw(st.one_of(numbers, st.lists(numbers, min_size=1, max_size=3)))
    if not values.size:
        return
    line, at = (values.reshape(-1), 0) if axis is None else (values, axis)
    places = sorted({place % extent for place in np.atleast_1d(kth)})
    order = _arranged(line, places, at)
    whole = np.take_along_axis(line, order, at)

    def program(group):
        mesh = DeviceMesh(group, case.mesh_shape)
        with config.override(replicate_below=0 if case.large else 2**18):
            x = case.operands[0].build(mesh)
            _assert_partitioned(line, np.partition(x, kth, axis=axis).full(), places, at)
            found = np.argpartition(x, kth, axis=axis).full()
            np.testing.assert_array_equal(np.sort(found, at), np.sort(order, at))
            _assert_partitioned(line, np.take_along_axis(line, found, at), places, at)
            with config.override(reproducible=True):
                assert_matches(np.partition(x, kth, axis=axis), whole)
                assert_matches(np.argpartition(x, kth, axis=axis), order)

    world.run(case.ranks, program)


def _assert_partitioned(values, found, places, axis):
    """That the same elements are there, and on the right side of each place."""
    found, wanted = np.moveaxis(found, axis, -1), np.sort(np.moveaxis(values, axis, -1))
    for stop in (*places, *[place + 1 for place in places], values.shape[axis]):
        np.testing.assert_array_equal(np.sort(found[..., :stop]), wanted[..., :stop])


@pytest.mark.parametrize("function", [np.partition, np.argpartition])
def test_whole_lines_are_partitioned_by_numpy(world, ranks, function):
    values = np.random.default_rng(4).integers(0, 9, (4, 30)).astype("M8[s]")

    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        for x in (
            distarray.distribute(values, mesh, [p], src=None) for p in (Shard(0), Replicate())
        ):
            assert_matches(function(x, [3, -8], 1), function(values, [3, -8], 1))
            base = x.copy()
            block = base.to_local()
            base[:, ::2].partition(7)
            assert base.to_local() is block
            wanted = values.copy()
            wanted[:, ::2].partition(7)
            assert_matches(base, wanted)

    world.run(ranks, program)


@pytest.mark.parametrize("axis", [0, 1])
def test_many_lines_are_partitioned_as_numpy_does(world, ranks, axis):
    values = np.random.default_rng(3).integers(0, 90, (70, 100)).astype(float)

    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        for cut in (0, 1):
            x = distarray.distribute(values, mesh, [Shard(cut)], src=None)
            with config.override(replicate_below=0):
                for function in (np.partition, np.argpartition):
                    found = function(x, [20, 40], axis)
                    assert_matches(found, function(values, [20, 40], axis))
                    assert found.placements == x.placements

    world.run(ranks, program)


def _arranged(values, places, axis):
    """The places of a stable partition, where it is not all sorted."""
    if values.dtype.kind not in "biufmM":
        return np.argsort(values, axis=axis, **STABLE)
    rank = np.argsort(np.argsort(values, axis=axis, **STABLE), axis=axis)
    equal = np.sort(values, axis=axis, **STABLE)
    labels = np.zeros(values.shape, int)
    for line in np.ndindex(*np.delete(values.shape, axis)):
        key = list(line)
        key.insert(axis % values.ndim, slice(None))
        ordered = equal[tuple(key)]
        for place in places:
            low, high = (np.searchsorted(ordered, ordered[place], s) for s in ("left", "right"))
            labels[tuple(key)] += (rank[tuple(key)] >= low) + 1 * (rank[tuple(key)] >= high)
    return np.argsort(labels, axis=axis, **STABLE)


@settings(max_examples=20)
@given(data=st.data())
def test_sort_complex(world, data):
    case = data.draw(sorting_cases(world, dtypes=("f8", "c16", "i4", "u1", "f2", "c8")))
    check(world, case, np.sort_complex)


def _with_zeros(values):
    values[::700], values[1::900] = -0.0, 0.0
    return values


draws = np.random.default_rng
PATTERNS = {
    "ascending": np.arange,
    "descending": lambda n: np.arange(n)[::-1],
    "equal": lambda n: np.zeros(n, int),
    "two": lambda n: np.arange(n) % 2,
    "zeros": lambda n: np.where(np.arange(n) % 3, 0.0, -0.0),
    "nan": lambda n: np.where(np.arange(n) % 4, np.nan, 1.0),
    "organ pipe": lambda n: np.minimum(np.arange(n), np.arange(n)[::-1]),
    "random": lambda n: draws(5).random(n),
    "one large": lambda n: np.append(np.zeros(n - 1), 1e9),
    "rare nan": lambda n: np.where(np.arange(n) % 1900 == 5, np.nan, draws(8).random(n)),
    "rare zeros": lambda n: _with_zeros(draws(7).standard_normal(n)),
}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_long_lines_are_cut_evenly(world, ranks, pattern):
    values = PATTERNS[pattern](4999)

    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        with config.override(replicate_below=0):
            x = distarray.distribute(values, mesh, [Shard(0)], src=None)
            with distarray.trace() as t:
                result = np.sort(x)
            order = np.argsort(x)
        assert_matches(result, np.sort(values, **STABLE))
        assert_matches(order, np.argsort(values, **STABLE))
        assert result.layout.is_canonical
        assert order.layout is result.layout
        # The range of integers; samples, bounds, two of cuts; the elements.
        assert len(t) <= (7 if ranks > 1 else 0), t
        share = -(-values.nbytes // ranks)
        assert t.bytes <= share + 20_000, t

    world.run(ranks, program)


#: Of how many samples the pivots are, and what part of a block may be too much at its ends.
SAMPLES = {"good": (4096, 16), "poor": (300, 1)}


@pytest.mark.parametrize("samples", SAMPLES)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_splitting_before_sorting(world, ranks, pattern, samples, monkeypatch):
    number, part = SAMPLES[samples]
    monkeypatch.setattr(buckets, "_sample_size", lambda total, size: number)
    monkeypatch.setattr(buckets, "_UNEVEN", part)
    values = PATTERNS[pattern](4999)

    def program(group):
        x = distarray.distribute(values, DeviceMesh(group, (ranks,)), [Shard(0)], src=None)
        with config.override(replicate_below=0), distarray.trace() as t:
            result = np.sort(x)
        with config.override(replicate_below=0), distarray.trace() as of_order:
            order = np.argsort(x)
        assert_matches(result, np.sort(values, **STABLE))
        assert_matches(order, np.argsort(values, **STABLE))
        return len(t), len(of_order)

    counts = world.run(ranks, program)
    if pattern == "random" and config.device != "cuda":
        # Samples, lengths, parts, perhaps an end, a check: nothing had to be done twice.
        assert counts[0][0] in ((4, 5) if ranks > 1 else (0,))
        # Samples, lengths, parts, their places, perhaps an end.
        assert counts[0][1] in ((4, 5) if ranks > 1 else (0,))


def test_a_sample_that_misleads(world, ranks, monkeypatch):
    monkeypatch.setattr(buckets, "_sample_size", lambda total, size: 1024)
    monkeypatch.setattr(buckets, "_sample", lambda block, count: np.sort(block)[:count])
    values = PATTERNS["random"](9999)

    def program(group):
        x = distarray.distribute(values, DeviceMesh(group, (ranks,)), [Shard(0)], src=None)
        with config.override(replicate_below=0):
            assert_matches(np.sort(x), np.sort(values))
            assert_matches(np.argsort(x), np.argsort(values, **STABLE))

    world.run(ranks, program)


@pytest.mark.host
@pytest.mark.mpi  # threads copy what they send
@pytest.mark.parametrize("few", [False, True])
def test_memory_for_twice_the_block(world, ranks, few):
    values = np.random.default_rng(2).random(1_000_000)
    values = np.floor(values * 9) if few else values

    def program(group):
        x = distarray.distribute(values, DeviceMesh(group, (ranks,)), [Shard(0)], src=None)
        tracemalloc.start()
        np.sort(x)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak <= 2.1 * x.to_local().nbytes + 1_500_000

    world.run(ranks, program)


@pytest.mark.parametrize("dtype", ["i8", "u8", "i2", "u1", "?", "i1", "i4"])
def test_integers_of_which_few_are_possible(world, ranks, dtype):
    rng = np.random.default_rng(6)
    values = rng.integers(0, 2 if dtype == "?" else 60, 3000).astype(dtype)
    values += np.dtype(dtype).type(0 if dtype in "?u1i1" else 1 << 14)

    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        with config.override(replicate_below=0):
            x = distarray.distribute(values, mesh, [Shard(0)], src=None)
            with distarray.trace() as t:
                result = np.sort(x)
        assert_matches(result, np.sort(values))
        if config.device != "cuda" and dtype != "i2":
            assert {event.kind for event in t.events} <= {"allreduce"}

    world.run(ranks, program)


def test_what_stays_local_is_not_sent(world, ranks):
    values = tied((12, 40), "f8", 3)

    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        with config.override(replicate_below=0):
            rows = distarray.distribute(values, mesh, [Shard(0)], src=None)
            everywhere = distarray.distribute(values, mesh, [Replicate()], src=None)
            with distarray.forbid_communication():
                results = [np.sort(rows), np.argsort(rows), np.lexsort((rows, rows[:, ::-1]))]
                np.sort(everywhere, axis=0)
                np.argsort(everywhere, axis=None)
                np.searchsorted(np.sort(everywhere[0]), rows)
            with distarray.trace() as t:
                along = np.sort(rows, axis=0)
        assert_matches(results[0], np.sort(values, **STABLE))
        assert all(result.layout is rows.layout for result in (*results, along))
        assert_matches(along, np.sort(values, axis=0, **STABLE))
        # Two exchanges, and nobody ever has more than a part.
        assert t.bytes <= 2 * rows.to_local().nbytes, t

    world.run(ranks, program)


def test_in_place_keeps_the_memory(world, ranks):
    values = tied((101,), "f8", 4)

    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        with config.override(replicate_below=0):
            base = distarray.distribute(values, mesh, [Shard(0)], src=None)
            block = base.to_local()
            assert base[3:90:2].sort() is None
            assert base.to_local() is block
            wanted = values.copy()
            wanted[3:90:2].sort(**STABLE)
            assert_matches(base, wanted)
            with config.override(reproducible=True):
                base.partition(5)
            assert base.to_local() is block
            assert_matches(base, wanted[_arranged(wanted, [5], 0)])
            assert_same_error(lambda: base.partition(101), lambda: wanted.partition(101))

    world.run(ranks, program)


@pytest.mark.host
def test_read_only_arrays_are_not_partitioned(world, ranks):
    values = np.arange(40.0).reshape(4, 10)
    values.setflags(write=False)

    def program(group):
        x = distarray.distribute(values, DeviceMesh(group, (ranks,)), [Shard(0)], src=None)
        x.setflags(write=False)
        assert_same_error(lambda: x.partition(5), lambda: values.partition(5))

    world.run(ranks, program)


@pytest.mark.host
def test_objects_and_text(world, ranks):
    words = np.array(["pear", "fig", "apple", "kiwi"], object)

    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        x = distarray.distribute(words, mesh, src=None)
        assert np.sort(x).full().tolist() == sorted(words)
        assert_matches(np.argsort(x), np.argsort(words))
        assert_matches(np.lexsort((x, x)), np.argsort(words))
        y = distarray.distribute(words[:, None], mesh, src=None)
        assert_same_error(lambda: np.sort(x + 1), lambda: np.sort(words + 1))
        assert np.sort(y, axis=None).full().tolist() == sorted(words)

    world.run(ranks, program)


BAD = [
    lambda a: np.sort(a, axis=2),
    lambda a: np.sort(a, axis=-3),
    lambda a: np.sort(a, kind="fast"),
    lambda a: np.sort(a, kind="stable", stable=True),
    lambda a: np.sort(a, order="x"),
    lambda a: np.sort(a[0, 0, ...]),
    lambda a: np.argsort(a, axis=0.5),
    lambda a: np.argsort(a, order=["x"]),
    lambda a: np.lexsort((a, a[0])),
    lambda a: np.lexsort(()),
    lambda a: np.lexsort((a,), axis=4),
    lambda a: np.partition(a, 4),
    lambda a: np.partition(a, -5),
    lambda a: np.partition(a, 1.5),
    lambda a: np.partition(a, True),
    lambda a: np.partition(a, [[1]]),
    lambda a: np.partition(a, 0, kind="quick"),
    lambda a: np.argpartition(a, [0, 12], axis=None),
    lambda a: np.argpartition(a, 3, axis=0),
    lambda a: a.sort(3),
    lambda a: a.sort(kind="heap", stable=False),
    lambda a: a.partition(9),
    lambda a: np.sort_complex(a[0, 0, ...]),
]


@pytest.mark.parametrize("number", range(len(BAD)))
def test_errors_are_numpys_on_every_rank(world, ranks, number):
    values = np.arange(12.0).reshape(3, 4)

    def program(group):
        x = distarray.distribute(values, DeviceMesh(group, (ranks,)), [Shard(1)], src=None)
        assert_same_error(lambda: BAD[number](x), lambda: BAD[number](values))
        group.barrier()

    world.run(ranks, program)


@pytest.mark.host
@pytest.mark.parametrize("tile", [1 << 16, 1000])
@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "i8", "u8", "i2", "?", "M8[s]", "g"])
def test_packed_order(dtype, tile, monkeypatch):
    """The stable order by way of integers is NumPy's, whatever the bits are."""
    from distarray.engines.sorting.sort_in_block import (
        labels_in_order,
        sort_block,
        sorted_values,
        stable_order,
    )

    monkeypatch.setattr(packed, "TILE", tile)
    labels = np.cumsum(np.arange(9000) % 7 + 1)
    rng = np.random.default_rng(1)
    for values in (
        tied(9000, dtype, 1),
        tied(9000, dtype, 2, 100),
        rng.integers(0, 2**63, 9000, np.uint64).view("u1")[: 9000 * np.dtype(dtype).itemsize],
    ):
        values = values.view(dtype) if dtype != "?" else values.astype("?")
        if dtype == "g":
            values = tied(9000, dtype, 3)
        with np.errstate(invalid="ignore"):
            wanted = np.argsort(values, **STABLE)
            np.testing.assert_array_equal(stable_order(values), wanted)
            np.testing.assert_array_equal(labels_in_order(values, labels), labels[wanted])
            lines = values.reshape(6, 1500)
            np.testing.assert_array_equal(stable_order(lines), np.argsort(lines, **STABLE))
            np.testing.assert_array_equal(sorted_values(values), values[wanted])
            for place in (
                values.copy(),
                values[values > np.zeros((), dtype)],
            ):  # with and without NaN and -0.0
                ordered = np.sort(place, **STABLE)
                sort_block(place, 0)
                assert place.tobytes() == ordered.tobytes() or dtype == "g"  # with padding


@pytest.mark.host
def test_fields_after_an_order(world, ranks):
    values = tied((60,), RECORD, 8)

    def program(group):
        x = distarray.distribute(values, DeviceMesh(group, (ranks,)), [Shard(0)], src=None)
        assert_matches(np.sort(x, order="c"), np.sort(values, order="c", **STABLE))
        x.sort(order=["b"])
        assert_matches(x, np.sort(values, order="b", **STABLE))

    world.run(ranks, program)
