"""insert, delete and trim_zeros."""

from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import distarray.ops  # noqa: F401
from distarray.array import distribute
from distarray.comm import DeviceMesh
from distarray.comm.ledger import forbid_communication, trace
from distarray.layout import Replicate, Shard
from distarray.testing import array_values, assert_matches, assert_same_error, recipes, shapes

from .likeness import LAYOUTS, Case, Operand, cases, check, check_view


def some_slice(data):
    bound = st.none() | st.integers(-9, 9)
    return slice(
        data.draw(bound), data.draw(bound), data.draw(st.sampled_from([None, 1, 2, -1, -3]))
    )


def selections(data, extent):
    """What delete and insert take: an int, ints, a slice or a mask; now and then a wrong one."""
    kind = data.draw(st.sampled_from(["int", "ints", "slice", "mask"]))
    beyond = data.draw(st.integers(0, 20)) == 0
    index = st.integers(-extent - beyond, extent - 1 + beyond) if extent else st.integers(-1, 1)
    if kind == "int":
        return data.draw(index)
    if kind == "slice":
        return some_slice(data)
    if kind == "mask":
        size = extent + beyond
        return np.array(data.draw(st.lists(st.booleans(), min_size=size, max_size=size)), bool)
    numbers = data.draw(st.lists(index, max_size=6))
    return np.array(numbers, np.intp) if data.draw(st.booleans()) else numbers


def with_array(data, case, obj):
    """The case with the selection as a further DistArray operand, where it is an array."""
    if isinstance(obj, np.ndarray) and data.draw(st.booleans()):
        lay = data.draw(recipes(obj.shape, case.mesh_shape, obj.dtype, LAYOUTS[:-1]))
        return Case(case.ranks, case.mesh_shape, (*case.operands, Operand(obj, lay)), case.large)
    return case


@settings(max_examples=150)
@given(data=st.data())
def test_delete(world, data):
    case = data.draw(cases(world))
    values = case.operands[0].values
    axis = data.draw(st.sampled_from([None, *range(-values.ndim, values.ndim)]))
    obj = selections(data, values.size if axis is None else values.shape[axis])
    case = with_array(data, case, obj)
    check(world, case, lambda x, *given: np.delete(x, *(given or (obj,)), axis))


@settings(max_examples=150)
@given(data=st.data())
def test_insert(world, data):
    case = data.draw(cases(world))
    values = case.operands[0].values
    axis = data.draw(st.sampled_from([None, *range(-values.ndim, values.ndim)]))
    obj = selections(data, values.size if axis is None else values.shape[axis])
    extent = values.size if axis is None else values.shape[axis] if values.ndim else 0
    if not isinstance(obj, (int, slice)) and min([*obj, 0]) < -extent:
        return  # NumPy puts these somewhere; here they are out of bounds
    shape = list((values.size,) if axis is None else values.shape)
    where = 0 if axis is None else axis
    if shape:
        count = len(range(*obj.indices(shape[where]))) if isinstance(obj, slice) else np.size(obj)
        if isinstance(obj, np.ndarray) and obj.dtype == bool:
            count = int(obj.sum())
        shape[where] = data.draw(st.sampled_from([1, count, data.draw(st.integers(0, 3))]))
        shape = [n if data.draw(st.integers(0, 4)) else 1 for n in shape]
        shape = shape[data.draw(st.integers(0, len(shape))) :]
    given_values = data.draw(array_values(tuple(shape), dtypes=(values.dtype.str, "i8", "f4")))
    if data.draw(st.booleans()):
        check(world, case, lambda x: np.insert(x, obj, given_values, axis))
        return
    lay = data.draw(recipes(given_values.shape, case.mesh_shape, given_values.dtype, LAYOUTS))
    operands = (*case.operands, Operand(given_values, lay))
    both = Case(case.ranks, case.mesh_shape, operands, case.large)
    check(world, both, lambda x, new: np.insert(x, obj, new, axis))


@pytest.mark.host
def test_the_order_in_memory_is_numpys(world, ranks):
    """Arrays in Fortran order keep it."""
    square = np.arange(24.0).reshape(4, 6)
    whole = [lambda x: x, lambda x: x.T]
    parts = [lambda x: x[:, :2], lambda x: x.T[:2]]
    edits = [(np.insert, (7.0,)), (np.delete, ())]

    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        for placement in (Shard(0), Shard(1), Replicate()):
            x = distribute(square, mesh, [placement])
            for array in whole if placement == Shard(1) else whole + parts:
                for (edit, values), obj in product(edits, (0, [1], slice(0, 2))):
                    for axis in (0, 1):
                        found = edit(array(x), obj, *values, axis=axis)
                        wanted = edit(array(square), obj, *values, axis=axis)
                        assert_matches(found, wanted)
                        for order in ("c_contiguous", "f_contiguous"):
                            assert getattr(found.flags, order) == getattr(wanted.flags, order)

    world.run(ranks, program)


@settings(max_examples=60)
@given(data=st.data())
def test_trim_zeros(world, data):
    values = data.draw(array_values(data.draw(shapes())))
    for dim in range(values.ndim):
        front, back = data.draw(st.integers(0, 3)), data.draw(st.integers(0, 3))
        moved = np.moveaxis(values, dim, 0)
        moved[:front] = 0
        moved[max(values.shape[dim] - back, 0) :] = 0
    case = data.draw(cases(world, given=[values]))
    trim = data.draw(st.sampled_from(["fb", "f", "b", "BF", "x"]))
    some = st.integers(-values.ndim, values.ndim)
    axis = data.draw(st.none() | some | st.lists(some, max_size=2).map(tuple))
    if np.lib.NumpyVersion(np.__version__) < "2.4.0":  # which accepts axes that there are not
        assume(axis is None and values.ndim)
    check_view(world, case, lambda x: np.trim_zeros(x, trim, axis))


def test_edits_stay_where_they_are(world, ranks):
    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        values = np.arange(72.0).reshape(24, 3)
        x = distribute(values, mesh, [Shard(0)], src=None)
        with forbid_communication():
            less = np.delete(x, [3, 11, 20], 0)
            halved = np.delete(x, slice(None, None, 2), 0)
            more = np.insert(x, [0, 7, 24], -1, 0)
            one = np.insert(x, 13, [5, 6, 7], 0)
            narrow = np.delete(x, 1, 1)
        assert_matches(less, np.delete(values, [3, 11, 20], 0))
        assert_matches(halved, np.delete(values, slice(None, None, 2), 0))
        assert_matches(more, np.insert(values, [0, 7, 24], -1, 0))
        assert_matches(one, np.insert(values, 13, [5, 6, 7], 0))
        assert_matches(narrow, np.delete(values, 1, 1))
        mask = x[:, 0] % 2 == 0
        with trace() as t:
            kept = np.delete(x, mask, 0)
        assert_matches(kept, np.delete(values, values[:, 0] % 2 == 0, 0))
        assert t.count("exchange") == 0
        assert t.bytes <= 8

    world.run(ranks, program)


def test_what_gets_lopsided_is_cut_anew(world, ranks):
    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        values = np.arange(48.0)
        x = distribute(values, mesh, [Shard(0)], src=None)
        rest = np.delete(x, slice(0, 36))
        assert_matches(rest, values[36:])
        assert rest.to_local().size <= 2 * -(-12 // group.size)
        longer = np.insert(x, 5, np.zeros(1000))
        assert_matches(longer, np.insert(values, 5, np.zeros(1000)))
        assert longer.to_local().size <= 2 * -(-1048 // group.size)

    world.run(ranks, program)


def test_errors(world, ranks):
    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        values = np.arange(12.0).reshape(4, 3)
        x = distribute(values, mesh, [Shard(0)], src=None)
        for obj in (4, -5, [0, 9], [[True]], [True], 1.5, "a", [1.5, 2.0]):
            assert_same_error(
                lambda o=obj: np.delete(x, o, 0), lambda o=obj: np.delete(values, o, 0)
            )
        for obj, new in ((5, 0), (-6, 0), ([0, 9], 0), ([[0]], 0), ([1, 2], np.zeros((3, 3)))):
            assert_same_error(
                lambda o=obj, n=new: np.insert(x, o, n, 0),
                lambda o=obj, n=new: np.insert(values, o, n, 0),
            )
        far = distribute(np.array([0, 9]), mesh, [Shard(0)], src=None)
        assert_same_error(lambda: np.delete(x, far, 0), lambda: np.delete(values, [0, 9], 0))

    world.run(ranks, program)


def test_sharded_values_go_where_they_are_inserted(world, ranks):
    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        values = np.arange(480.0)
        x = distribute(values, mesh, [Shard(0)], src=None)
        where = np.arange(0, 480, 2)
        new = distribute(-where.astype(float), mesh, [Shard(0)], src=None)
        with trace() as t:
            result = np.insert(x, where, new)
        assert_matches(result, np.insert(values, where, -where.astype(float)))
        assert t.bytes == 0  # they lie there already
        with trace() as t:
            np.insert(x, where[::-1], new)
        return t.bytes

    found = world.run(ranks, program)
    assert all(sent <= 3 * 240 * 8 / ranks for sent in found)  # with their positions
