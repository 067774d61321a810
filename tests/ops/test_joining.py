"""concatenate and its relatives: NumPy's result, and only what changes rank is sent."""

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
from distarray.testing import array_values, assert_matches, assert_same_error, shapes

from .likeness import cases, check


@st.composite
def joinable(draw, world):
    """Operands of shapes that fit along an axis; now and then not."""
    shape = draw(shapes(min_dims=1))
    axis = draw(st.integers(0, len(shape) - 1))
    values = []
    for _ in range(draw(st.integers(1, 4))):
        own = list(shape)
        own[axis] = draw(st.integers(0, 5))
        if draw(st.integers(0, 30)) == 0:
            own[draw(st.integers(0, len(shape) - 1))] += 1
        if draw(st.integers(0, 60)) == 0:
            own.append(2)
        values.append(draw(array_values(tuple(own))))
    sign = draw(st.sampled_from([0, 0, len(shape)]))
    return draw(cases(world, given=values)), axis - sign


@settings(max_examples=120)
@given(data=st.data())
def test_concatenate(world, data):
    case, axis = data.draw(joinable(world))
    axis = data.draw(st.sampled_from([axis, axis, axis, None, 5]))
    keywords = data.draw(
        st.sampled_from(
            [{}, {}, {"dtype": "f4"}, {"dtype": "i2"}, {"dtype": "i2", "casting": "unsafe"}]
        )
    )
    check(world, case, lambda *arrays: np.concatenate(arrays, axis, **keywords))


@settings(max_examples=60)
@given(data=st.data())
def test_concatenate_into_an_array(world, data):
    case, axis = data.draw(joinable(world))
    dtype = data.draw(st.sampled_from(["f8", "c16", "i4"]))
    (*parts, _) = (*case.operands, None)
    shape = list(parts[0].values.shape)
    if all(len(p.values.shape) == len(shape) for p in parts):
        shape[axis] = sum([p.values.shape[axis] for p in parts])
    if data.draw(st.integers(0, 9)) == 0:
        shape[0] += 1

    def call(*arrays):
        mesh = getattr(arrays[0], "mesh", None)
        out = np.zeros(shape, dtype)
        if mesh is not None:
            out = distribute(out, mesh, [Shard(0)] + [Replicate()] * (mesh.ndim - 1), src=None)
        result = np.concatenate(arrays, axis, out=out)
        assert result is out
        return result

    check(world, case, call)


def test_concatenate_into_an_operand(world, ranks):
    """NumPy reads what was there before anything is written."""

    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        values = np.arange(12.0)
        x = distribute(values, mesh, [Shard(0)], src=None)
        assert np.concatenate([x[6:], x[:6]], out=x) is x
        assert_matches(x, np.concatenate([values[6:], values[:6]]))

    world.run(ranks, program)


@settings(max_examples=90)
@given(data=st.data())
def test_stacks(world, data):
    case, axis = data.draw(joinable(world))
    if data.draw(st.booleans()):
        first = case.operands[0].values
        given = [first] + [first + first.dtype.type(1)] * (len(case.operands) - 1)
        case = data.draw(cases(world, given=given))
    name = data.draw(st.sampled_from(["stack", "vstack", "hstack", "dstack", "column_stack"]))
    along = {"axis": axis} if name == "stack" else {}
    check(world, case, lambda *arrays: getattr(np, name)(arrays, **along))


@settings(max_examples=40)
@given(data=st.data())
def test_append(world, data):
    case, axis = data.draw(joinable(world))
    axis = data.draw(st.sampled_from([None, axis]))
    check(world, case, lambda x, *rest: np.append(x, rest[0] if rest else 3, axis))


@settings(max_examples=60)
@given(data=st.data())
def test_block(world, data):
    rows = [data.draw(st.integers(1, 4)) for _ in range(data.draw(st.integers(1, 3)))]
    columns = [data.draw(st.integers(0, 4)) for _ in range(data.draw(st.integers(1, 3)))]
    lead = data.draw(st.sampled_from([(), (), (2,)]))
    blocks = [[data.draw(array_values((*lead, r, c))) for c in columns] for r in rows]
    if data.draw(st.integers(0, 5)) == 0:
        blocks[-1][-1] = data.draw(array_values(max_dims=2))
    flat = [values for row in blocks for values in row]
    case = data.draw(cases(world, given=flat))

    def call(*arrays):
        found = iter(arrays)
        return np.block([[next(found) for _ in columns] for _ in rows])

    check(world, case, call)


def test_block_of_odd_nestings(world, ranks):
    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        values = np.arange(4.0)
        x = distribute(values, mesh, [Shard(0)], src=None)
        for nest in (
            lambda a: a,
            lambda a: [a, a],
            lambda a: [a[0], 5, a],
            lambda a: [[a], [a]],
            lambda a: [[[a, a]], [[a, a]]],
        ):
            assert_matches(np.block(nest(x)), np.block(nest(values)))
        for wrong in (
            lambda a: [[a], a],
            lambda a: [],
            lambda a: [a, []],
            lambda a: [(a, a), a],
            lambda a: [[a, a], [a]],
        ):
            if wrong(x):
                assert_same_error(
                    lambda w=wrong: np.block(w(x)), lambda w=wrong: np.block(w(values))
                )

    world.run(ranks, program)


def test_lists_and_numpy_arrays_join_in(world, ranks):
    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        values = np.arange(6.0)
        x = distribute(values, mesh, [Shard(0)], src=None)
        assert_matches(np.concatenate([x, [1, 2]]), np.concatenate([values, [1, 2]]))
        assert_matches(np.append(x, 7), np.append(values, 7))
        assert_matches(np.hstack([1.5, x]), np.hstack([1.5, values]))
        pairs = distribute(values.reshape(3, 2), mesh, [Shard(0)], src=None)
        for axis in (0, -1):
            cube, plain = np.stack([pairs, pairs]), np.stack([values.reshape(3, 2)] * 2)
            assert_matches(np.concatenate(cube, axis), np.concatenate(plain, axis))
        assert_matches(np.vstack(pairs), np.vstack(values.reshape(3, 2)))
        assert_matches(np.stack([x[1, ...], x[5]]), np.stack([values[1], values[5]]))
        numbers = np.concatenate([x, values], out=(out := np.zeros(12)))
        assert numbers is out
        np.testing.assert_array_equal(out, np.tile(values, 2))

    world.run(ranks, program)


@pytest.mark.parametrize("dim", [0, 1])
def test_along_a_whole_dimension_nothing_is_sent(world, ranks, dim):
    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        values = np.arange(84.0).reshape(12, 7)
        x = distribute(values, mesh, [Shard(dim)], src=None)
        y = x * 2
        other = 1 - dim
        with forbid_communication():
            joined = np.concatenate([x, y], other)
            stacked = np.stack([x, y, x], 2)
            halves = np.concatenate(np.split(x, [2], other), other)
        assert joined.placements == (Shard(dim),)
        assert joined.layout.is_canonical
        assert_matches(joined, np.concatenate([values, values * 2], other))
        assert_matches(stacked, np.stack([values, values * 2, values], 2))
        assert_matches(halves, values)

    world.run(ranks, program)


def test_along_the_sharded_dimension_only_what_changes_owner(world, ranks):
    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        values = np.arange(36.0).reshape(12, 3)
        x = distribute(values, mesh, [Shard(0)], src=None)
        y = distribute(values + 36, mesh, [Shard(0)], src=None)
        had = {*x.to_local().ravel().tolist(), *y.to_local().ravel().tolist()}
        with trace() as t:
            result = np.concatenate([x, y])
        assert result.layout.is_canonical
        assert result.placements == (Shard(0),)
        lacks = set(result.to_local().ravel().tolist()) - had
        return t.bytes, 8 * len(lacks), t.messages

    found = world.run(ranks, program)
    if len(found) == ranks:
        assert sum([sent for sent, _, _ in found]) == sum([lack for _, lack, _ in found])
    assert all(messages <= 2 * (ranks - 1) for _, _, messages in found)


def test_large_results_of_small_operands_are_divided(world, ranks):
    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        values = np.arange(32.0)
        x = distribute(values, mesh, [Replicate()], src=None)
        with config.override(replicate_below=400), forbid_communication():
            assert np.concatenate([x, x]).placements == (Shard(0),)
            assert np.stack([x, x, x]).layout.size == 96
            small = np.concatenate([x[:4], x[:4]])
        assert small.placements == (Replicate(),)
        with config.override(replicate_below=100):  # large ones that the user wants everywhere
            assert np.concatenate([x, x]).placements == (Replicate(),)

    world.run(ranks, program)


def test_rows_of_one_array_are_read_where_they_are(world, ranks):
    """Rows live on one rank each; stacking them sends each to its place and to no other rank."""

    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        values = np.arange(120.0).reshape(12, 10)
        x = distribute(values, mesh, [Shard(0)], src=None)
        with config.override(replicate_below=0), trace() as t:
            picked = np.stack([x[i] for i in (0, 3, 7, 11)])
            alone = np.concatenate([x[5]])
        assert_matches(picked, values[[0, 3, 7, 11]])
        assert_matches(alone, values[5])
        assert group.size == 1 or alone.placements == (Shard(0),)
        assert all(event.kind == "exchange" for event in t)
        return t.bytes

    found = world.run(ranks, program)
    assert sum(found) <= 5 * 80
