"""roll, tile, repeat, resize and copy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distarray.ops  # noqa: F401
from distarray.array import distribute
from distarray.comm import DeviceMesh
from distarray.comm.ledger import forbid_communication, trace
from distarray.config import config
from distarray.layout import Replicate, Shard
from distarray.testing import array_values, assert_matches, recipes, shapes

from .likeness import LAYOUTS, Operand, cases, check


@settings(max_examples=90)
@given(data=st.data())
def test_roll(world, data):
    case = data.draw(cases(world))
    ndim = case.operands[0].values.ndim
    amount = st.integers(-9, 9)
    one = st.integers(-ndim, ndim)
    axis = data.draw(st.none() | one | st.lists(one, max_size=3).map(tuple))
    shift = data.draw(amount | st.lists(amount, max_size=3).map(tuple))
    if not ndim and axis == ():
        return  # NumPy stumbles over its own loop here
    check(world, case, lambda x: np.roll(x, shift, axis))


@settings(max_examples=90)
@given(data=st.data())
def test_tile(world, data):
    case = data.draw(cases(world))
    reps = data.draw(st.integers(-1, 7) | st.lists(st.integers(0, 4), max_size=4).map(tuple))
    check(world, case, lambda x: np.tile(x, reps))


@settings(max_examples=90)
@given(data=st.data())
def test_resize(world, data):
    case = data.draw(cases(world))
    shape = data.draw(st.integers(-1, 40) | st.lists(st.integers(0, 7), max_size=3).map(tuple))
    check(world, case, lambda x: np.resize(x, shape))


@settings(max_examples=120)
@given(data=st.data())
def test_repeat(world, data):
    values = data.draw(array_values(data.draw(shapes())))
    case = data.draw(cases(world, given=[values]))
    axis = data.draw(st.sampled_from([None, *range(-values.ndim, values.ndim), 7]))
    length = values.size if axis in (None, 7) else values.shape[axis]
    if data.draw(st.integers(0, 12)) == 0:
        length += 1
    low = -1 if data.draw(st.integers(0, 12)) == 0 else 0
    counts = data.draw(
        st.integers(low, 4)
        | st.lists(st.integers(low, 4), min_size=length, max_size=length).map(tuple)
    )
    if isinstance(counts, tuple) and data.draw(st.booleans()):
        array = np.array(counts, "i8" if data.draw(st.integers(0, 9)) else "f8")
        lay = data.draw(recipes(array.shape, case.mesh_shape, array.dtype, LAYOUTS))
        both = type(case)(
            case.ranks, case.mesh_shape, (*case.operands, Operand(array, lay)), case.large
        )
        check(world, both, lambda x, n: np.repeat(x, n, axis))
    else:
        check(world, case, lambda x: np.repeat(x, counts, axis))


@settings(max_examples=60)
@given(data=st.data())
def test_copy(world, data):
    case = data.draw(cases(world))

    def after(found, arrays):
        if arrays[0].ndim:
            assert found.layout.is_canonical
            assert found.layout.is_plain
        # CuPy's shares_memory says so of any two arrays without dimensions.
        assert not np.may_share_memory(found.to_local(), arrays[0].to_local())

    order = data.draw(st.sampled_from("CFAK"))
    check(world, case, lambda x: np.copy(x, order), after=after)


@pytest.mark.parametrize("shift", [1, -1, 25])
def test_roll_by_one_sends_one_row_a_boundary(world, ranks, shift):
    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        values = np.arange(120.0).reshape(24, 5)
        x = distribute(values, mesh, [Shard(0)], src=None)
        with trace() as t:
            rolled = np.roll(x, shift, 0)
        assert rolled.layout is x.layout
        assert_matches(rolled, np.roll(values, shift, 0))
        assert (t.messages, t.bytes) == ((1, 40) if group.size > 1 else (0, 0))
        with forbid_communication():
            np.roll(x, shift, 1)

    world.run(ranks, program)


@pytest.mark.parametrize("dim", [0, 1])
def test_a_flat_roll_moves_what_crosses_boundaries(world, ranks, dim):
    def program(group):
        values = np.arange(24.0 * 24).reshape(24, 24)
        x = distribute(values, DeviceMesh(group, (group.size,)), [Shard(dim)], src=None)
        for shift in (2, -2, (24, 3), 24 * 24 - 1):
            with trace() as t:
                rolled = np.roll(x, shift)
            assert rolled.layout is x.layout
            assert_matches(rolled, np.roll(values, shift))
            assert len(t) == (group.size > 1)
            assert t.bytes <= (3 * 24 + 2) * 8

    world.run(ranks, program)


def test_repetitions_stay_where_they_are(world, ranks):
    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        values = np.arange(39.0).reshape(13, 3)
        x = distribute(values, mesh, [Shard(0)], src=None)
        counts = np.arange(13) % 3 + 1
        with forbid_communication():
            three = np.repeat(x, 3, 0)
            across = np.repeat(x, 2, 1)
            varied = np.repeat(x, counts, 0)
            wide = np.tile(x, (1, 4))
        assert_matches(three, np.repeat(values, 3, 0))
        assert_matches(across, np.repeat(values, 2, 1))
        assert_matches(varied, np.repeat(values, counts, 0))
        assert_matches(wide, np.tile(values, (1, 4)))
        spread = distribute(counts, mesh, [Shard(0)], src=None)
        with trace() as t:
            again = np.repeat(x, spread, 0)
        assert_matches(again, np.repeat(values, counts, 0))
        assert t.bytes <= 16
        assert t.count("exchange") == 0

    world.run(ranks, program)


def test_uneven_repetitions_are_balanced(world, ranks):
    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        x = distribute(np.arange(24.0), mesh, [Shard(0)], src=None)
        counts = np.where(np.arange(24) < 4, 100, 0)
        result = np.repeat(x, counts)
        assert_matches(result, np.repeat(np.arange(24.0), counts))
        assert result.to_local().size <= 2 * 400 / group.size

    world.run(ranks, program)


def test_tile_sends_each_element_to_a_rank_once(world, ranks):
    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        values = np.arange(24.0)
        x = distribute(values, mesh, [Shard(0)], src=None)
        with trace() as t:
            result = np.tile(x, 50)
        assert_matches(result, np.tile(values, 50))
        return t.bytes

    found = world.run(ranks, program)
    if len(found) == ranks:
        assert sum(found) == 24 * 8 * (ranks - 1)


def test_a_large_tiling_of_a_replicated_array_is_divided(world, ranks):
    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        values = np.arange(24.0)
        x = distribute(values, mesh, [Replicate()], src=None)
        with config.override(replicate_below=1000), forbid_communication():
            result = np.tile(x, 120)
        assert result.placements == (Shard(0),)
        assert_matches(result, np.tile(values, 120))

    world.run(ranks, program)


def test_copies_of_rows_are_spread(world, ranks):
    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        values = np.arange(480.0).reshape(8, 60)
        x = distribute(values, mesh, [Shard(0)], src=None)
        with config.override(replicate_below=100):
            row = np.copy(x[5])
        assert row.placements == (Shard(0) if group.size > 1 else Replicate(),)
        assert_matches(row, values[5])
        assert np.copy(x[5]).placements == (Replicate(),)

    world.run(ranks, program)
