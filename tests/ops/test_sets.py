"""unique and its relatives, and sets of two arrays, against NumPy on every layout."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distarray
from distarray import DeviceMesh, Replicate, Shard, distribute
from distarray.config import config
from distarray.testing import assert_matches, assert_same_error, mesh_shapes, shapes

from .likeness import Case, operands
from .sortable import KINDS, NUMBERS, OTHERS, WHOLE, check, sorting_cases, tied

flags = st.tuples(st.booleans(), st.booleans(), st.booleans())


def absolute(values):
    """Values without -0.0: which of equal elements it gives, NumPy leaves open."""
    return values + 0 if values.dtype.kind in "fc" else values


@settings(max_examples=100)
@given(data=st.data())
def test_unique(world, data):
    case = data.draw(sorting_cases(world))
    asked = data.draw(flags)
    # Which NaN gets which number, NumPy leaves open unless it is asked for the first places.
    equal_nan = data.draw(st.booleans()) or (asked[1] and not asked[0])

    def call(x):
        found = np.unique(x, *asked, equal_nan=equal_nan)
        parts = found if isinstance(found, tuple) else (found,)
        return absolute(parts[0]), *parts[1:]

    check(world, case, call)


@settings(max_examples=30)
@given(data=st.data())
def test_the_first_of_equal_elements_is_given(world, data):
    case = data.draw(sorting_cases(world, dtypes=("f8", "c16", "f4")))
    check(world, case, lambda x: np.unique(x, return_index=True))
    values = case.operands[0].values
    wanted = np.unique(values, return_index=True)[0]

    def program(group):
        with config.override(replicate_below=0):
            x = case.operands[0].build(DeviceMesh(group, case.mesh_shape))
            assert_matches(np.unique(x), wanted)

    world.run(case.ranks, program)


@pytest.mark.parametrize("kind", ["f8", "c16"])
def test_the_sign_of_zero_is_that_of_the_first_one(world, ranks, kind):
    """Also where the blocks do not follow one another in the order of the elements."""
    rng = np.random.default_rng(5)
    cases = [rng.choice([np.nan, -0.0, 0.0, 1.0], (4, 5)).astype(kind) for _ in range(20)]

    def program(group):
        mesh = DeviceMesh(group, (1, group.size))
        for values in cases:
            wanted, places = np.unique(values, return_index=True)
            for limit in (0, 1 << 18):
                with config.override(replicate_below=limit):
                    x = distribute(values, mesh, [Replicate(), Shard(1)])
                    found, index = np.unique(x, return_index=True)
                assert_matches(index, places)
                numbers = ~np.isnan(wanted)
                signs = np.signbit(found.full().real)[numbers]
                assert signs.tolist() == np.signbit(wanted.real)[numbers].tolist()

    world.run(ranks, program)


@settings(max_examples=40)
@given(data=st.data())
def test_slices(world, data):
    case = data.draw(sorting_cases(world, dtypes=(*NUMBERS[:6], *OTHERS[:3:2])))
    axis = data.draw(st.integers(-case.operands[0].values.ndim, 0))
    asked = data.draw(flags)

    def call(x):
        found = np.unique(x, *asked, axis=axis)
        parts = found if isinstance(found, tuple) else (found,)
        return absolute(parts[0]), *parts[1:]

    check(world, case, call)


API = [np.unique_all, np.unique_counts, np.unique_inverse, np.unique_values]


@settings(max_examples=30)
@given(data=st.data())
def test_array_api(world, data):
    function = data.draw(st.sampled_from(API))
    numbers = ("i8", "?", "u1") if function is np.unique_inverse else NUMBERS
    case = data.draw(sorting_cases(world, dtypes=numbers))

    def call(x):
        found = function(x)
        if function is np.unique_values:
            # In an order that NumPy leaves open.
            return np.sort(absolute(found))
        assert found._fields == function(np.zeros(1))._fields
        return absolute(found[0]), *found[1:]

    check(world, case, call)


@pytest.mark.parametrize("values", [[1, 0, 1, 7, 3], ["b", "a", "b"], [2.5, -1.0, 2.5]])
def test_distinct_elements_ascend_though_numpys_need_not(world, ranks, values):
    """Libraries rely on it that are tried with torch and CuPy, which sort."""

    def program(group):
        for placement in (Replicate(), Shard(0)):
            x = distribute(np.array(values), DeviceMesh(group), [placement], src=None)
            assert np.unique_values(x).full().tolist() == sorted(set(values))
            assert np.unique(x, sorted=False).full().tolist() == sorted(set(values))

    world.run(ranks, program)


@st.composite
def pairs(draw, world):
    ranks = draw(st.sampled_from(world.ranks))
    mesh_shape = draw(mesh_shapes(ranks))
    kinds = draw(st.sampled_from([NUMBERS, *[(dtype,) for dtype in KINDS if dtype not in NUMBERS]]))
    found = []
    for span in (3, 9):
        dtype = draw(st.sampled_from(kinds))
        values = tied(draw(shapes(max_dims=2)), dtype, draw(st.integers(0, 2**16)), span)
        found.append(draw(operands(mesh_shape, values, WHOLE, values.dtype.isnative)))
    return Case(ranks, mesh_shape, tuple(found), draw(st.integers(0, 3)) > 0)


@settings(max_examples=80)
@given(data=st.data())
def test_two_arrays(world, data):
    case = data.draw(pairs(world))
    function = data.draw(st.sampled_from([np.union1d, np.intersect1d, np.setdiff1d, np.setxor1d]))
    assume = {} if function is np.union1d else {"assume_unique": data.draw(st.booleans())}
    if function is np.intersect1d and not assume["assume_unique"]:
        assume["return_indices"] = data.draw(st.booleans())

    def call(a, b):
        found = function(a, b, **assume)
        return (absolute(found[0]), *found[1:]) if isinstance(found, tuple) else absolute(found)

    check(world, case, call)


@settings(max_examples=50)
@given(data=st.data())
def test_isin(world, data):
    case = data.draw(pairs(world))
    invert = data.draw(st.booleans())
    integers = all(operand.values.dtype.kind in "iub" for operand in case.operands)
    kind = data.draw(st.sampled_from([None, "sort", "table"] if integers else [None, "sort"]))
    check(world, case, lambda a, b: np.isin(a, b, invert=invert, kind=kind))


def test_few_distinct_elements_cost_a_small_message(world, ranks):
    values = np.arange(60_000) % 17

    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        x = distarray.distribute(values, mesh, [Shard(0)], src=None)
        with distarray.trace() as t:
            found = np.unique(x, return_counts=True)
        assert_matches(found, np.unique(values, return_counts=True))
        assert found[0].layout.is_replicated
        assert t.bytes <= (ranks > 1) * 300, t
        with distarray.trace() as t:
            inside = np.isin(x, np.array([3, 4]))
        assert_matches(inside, np.isin(values, [3, 4]))
        assert not len(t)

    world.run(ranks, program)


def test_many_distinct_elements_are_spread(world, ranks):
    values = np.random.default_rng(3).integers(0, 1 << 40, 5000)
    values[1000:1900] = 7

    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        with config.override(replicate_below=0):
            x = distarray.distribute(values, mesh, [Shard(0)], src=None)
            with distarray.trace() as t:
                found = np.unique(x)
            both = np.intersect1d(x, x[:2000])
            inside = np.isin(x, x[500:1500])
        wanted = np.unique(values)
        assert_matches(found, wanted)
        assert_matches(both, np.unique(values[:2000]))
        assert_matches(inside, np.isin(values, values[500:1500]))
        assert found.to_local().size <= -(-wanted.size // ranks) + 1
        assert t.bytes <= (ranks > 1) * (values.nbytes // ranks + 20_000), t

    world.run(ranks, program)


BAD = [
    lambda a: np.unique(a, axis=2),
    lambda a: np.unique(a[0], axis=1),
    lambda a: np.isin(a, a, kind="hash"),
    lambda a: np.isin(a, a, kind="table"),
    lambda a: np.isin(a.astype("i8"), np.array([-(2**62), 2**62]), kind="table"),
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
@pytest.mark.parametrize("kind", ["M8[s]", "m8[s]", ">M8[D]"])
@pytest.mark.parametrize("counts", [False, True])
def test_times_that_are_none_are_listed_as_often_as_numpy_lists_them(world, ranks, kind, counts):
    values = np.array(["NaT", 5, "NaT", 3, "NaT", 5, 3], "m8[s]").view(kind)
    wanted = np.unique(values, return_counts=counts, equal_nan=False)
    wanted = wanted if counts else np.sort(wanted)

    def program(group):
        for below in (0, 1 << 18):
            with config.override(replicate_below=below):
                x = distribute(values, DeviceMesh(group), [Shard(0)], src=None)
                assert_matches(np.unique(x, return_counts=counts, equal_nan=False), wanted)

    world.run(ranks, program)
