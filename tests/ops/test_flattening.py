"""``x.flat`` and ``x.flatten()``."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import distarray.ops  # noqa: F401
from distarray.array import distribute
from distarray.comm import DeviceMesh
from distarray.layout import Shard
from distarray.testing import array_values, assert_matches, recipes

from .likeness import LAYOUTS, Operand, cases, check, outcome


def drawn_key(data, size):
    kind = data.draw(st.sampled_from(["int", "slice", "ints", "mask", "dots", "tuple"]))
    index = st.integers(-size, max(size - 1, 0)) if size else st.just(0)
    if kind == "int":
        return data.draw(index | st.just(99))
    if kind == "slice":
        bound = st.none() | st.integers(-9, 9)
        step = data.draw(st.sampled_from([None, 2, -1]))
        return slice(data.draw(bound), data.draw(bound), step)
    if kind == "ints" and size:
        return data.draw(st.lists(index, min_size=1, max_size=5))
    if kind == "mask":
        return np.array(data.draw(st.lists(st.booleans(), min_size=size, max_size=size)), bool)
    return ... if kind == "dots" else (slice(1, None),)


@settings(max_examples=80)
@given(data=st.data())
def test_reading(world, data):
    case = data.draw(cases(world))
    key = drawn_key(data, case.operands[0].values.size)
    check(world, case, lambda x: x.flat[key])


@settings(max_examples=80)
@given(data=st.data())
def test_writing(world, data):
    case = data.draw(cases(world))
    (operand,) = case.operands
    values = operand.values.copy()
    key = drawn_key(data, values.size)
    given_values = data.draw(array_values(dtypes=(values.dtype.str,)))
    lay = data.draw(recipes(given_values.shape, case.mesh_shape, given_values.dtype, LAYOUTS))
    more = Operand(given_values, lay)
    error = outcome(lambda: values.flat.__setitem__(key, given_values))

    def program(group):
        mesh = DeviceMesh(group, case.mesh_shape)
        x = operand.build(mesh)
        found = outcome(lambda: x.flat.__setitem__(key, more.build(mesh)))
        if isinstance(error, Exception):
            assert isinstance(found, type(error)), (found, error)
        else:
            assert found is None, found
            assert_matches(x, values)

    world.run(case.ranks, program)


@settings(max_examples=50)
@given(data=st.data())
def test_flatten(world, data):
    case = data.draw(cases(world))
    order = data.draw(st.sampled_from("CF"))

    def after(found, arrays):
        assert not np.shares_memory(found.to_local(), arrays[0].to_local())

    check(world, case, lambda x: x.flatten(order), after=after)
    if case.ranks == 1 and case.operands[0].recipe.kind == "plain":
        check(world, case, lambda x: x.flatten("K"))


def test_the_rest(world, ranks):
    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        values = np.arange(12.0).reshape(3, 4)
        x = distribute(values, mesh, [Shard(1)], src=None)
        assert x.flat.base is x
        assert len(x.flat) == 12
        assert [float(v) for v in x.flat] == list(range(12))
        assert float(np.sum(x.flat)) == 66
        assert_matches(np.concatenate([x.flat, x[0]]), np.concatenate([values.flat, values[0]]))
        assert_matches(x.flat == 3, values.flat == 3)
        assert_matches(np.sqrt(x.flat), np.sqrt(values.flat))
        assert_matches(x.flat.copy(), values.flat.copy())
        np.testing.assert_array_equal(np.asarray(x.flat), np.asarray(values.flat))
        it, plain = x.flat, values.flat
        assert float(next(it)) == next(plain)
        assert (it.index, it.coords) == (plain.index, plain.coords)
        x.flat = [1, 2]
        values.flat = [1, 2]
        x.flat[::5] = 7
        values.flat[::5] = 7
        assert_matches(x, values)

    world.run(ranks, program)
