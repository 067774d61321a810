"""``x[key]``, ``x[key] = value`` and ``ufunc.at`` for drawn keys, layouts and values."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import distarray.ops  # noqa: F401
from distarray import DistArray, Replicate, Shard, distribute
from distarray.comm import DeviceMesh
from distarray.config import config
from distarray.testing import assert_matches, recipes

from .drawing import built, check_error, keys, outcome, plainly, sources


@settings(max_examples=150)
@given(data=st.data())
def test_reading(world, data):
    ranks = data.draw(st.sampled_from(world.ranks), label="ranks")
    mesh_shape, values, recipe = data.draw(sources(ranks), label="source")
    key = data.draw(keys(values.shape, mesh_shape), label="key")
    small = data.draw(st.booleans(), label="small results are replicated")
    expected = outcome(lambda: values[plainly(key)])

    def program(group):
        mesh = DeviceMesh(group, mesh_shape)
        with config.override(replicate_below=2**18 if small else 0):
            x = recipe.build(values, mesh)
            found = outcome(lambda: x[built(key, mesh)])
        if isinstance(expected, Exception):
            check_error(found, expected)
            return
        if isinstance(found, Exception):
            raise found
        assert_matches(found, expected)
        found[...] = 0
        assert_matches(x, values)  # a copy

    world.run(ranks, program)


def test_integers_that_are_0d_arrays_select_copies(world):
    """They selected views, as integers and scalars do."""
    values = np.arange(12).reshape(3, 4)
    keys = [
        lambda i: i(1),
        lambda i: (i(1), slice(None, 2)),
        lambda i: (slice(None), i(2), None),
        lambda i: (i(2), 3),
        lambda i: (0, ..., i(1)),
    ]

    def program(group):
        mesh = DeviceMesh(group)
        for key in keys:
            for made in (np.array, lambda n: distribute(np.array(n), mesh, src=None)):
                x = distribute(values, mesh, [Shard(0)], src=None)
                found = x[key(made)]
                assert_matches(found, values[key(np.array)])
                if found.ndim:  # NumPy's scalars refuse it
                    found[...] = -1
                assert_matches(x, values)
                x[key(made)] = -1
                expected = values.copy()
                expected[key(int)] = -1
                assert_matches(x, expected)

    for ranks in world.ranks:
        world.run(ranks, program)


@settings(max_examples=200)
@given(data=st.data())
def test_writing(world, data):
    ranks = data.draw(st.sampled_from(world.ranks), label="ranks")
    mesh_shape, values, recipe = data.draw(sources(ranks), label="source")
    key = data.draw(keys(values.shape, mesh_shape), label="key")
    shape = getattr(outcome(lambda: values[plainly(key)]), "shape", ())
    value, lay = data.draw(written(shape, mesh_shape), label="value")
    expected = values.copy()
    error = outcome(lambda: expected.__setitem__(plainly(key), value))

    def program(group):
        mesh = DeviceMesh(group, mesh_shape)
        x = recipe.build(values, mesh)
        given = value if lay is None else lay.build(value, mesh)
        found = outcome(lambda: x.__setitem__(built(key, mesh), given))
        if isinstance(error, Exception):
            check_error(found, error)
        elif found is not None:
            raise found
        assert_matches(x, values if isinstance(error, Exception) else expected)

    world.run(ranks, program)


@settings(max_examples=100)
@given(data=st.data())
def test_ufunc_at(world, data):
    ranks = data.draw(st.sampled_from(world.ranks), label="ranks")
    mesh_shape, values, recipe = data.draw(sources(ranks), label="source")
    key = data.draw(keys(values.shape, mesh_shape), label="key")
    ufunc = data.draw(st.sampled_from([np.add, np.subtract, np.negative, np.maximum]))
    reading = outcome(lambda: values[plainly(key)])
    value, lay = data.draw(written(getattr(reading, "shape", ()), mesh_shape), label="value")
    expected = values.copy()
    operands = (value,) if ufunc.nin == 2 else ()
    error = outcome(lambda: ufunc.at(expected, plainly(key), *operands))
    if isinstance(reading, Exception):
        error = reading  # NumPy's `at` does not look at keys into empty arrays

    def program(group):
        mesh = DeviceMesh(group, mesh_shape)
        x = recipe.build(values, mesh)
        given = value if lay is None else lay.build(value, mesh)
        operands = (given,) if ufunc.nin == 2 else ()
        found = outcome(lambda: ufunc.at(x, built(key, mesh), *operands))
        if isinstance(error, np.exceptions.AxisError):
            return  # NumPy stumbles over 0-d masks here; a plain assignment does not
        if isinstance(error, Exception):
            assert isinstance(found, type(error)), (found, error)
            assert_matches(x, values)
        elif found is not None:
            raise found
        else:
            assert_matches(x, expected)

    world.run(ranks, program)


@st.composite
def written(draw, shape, mesh_shape):
    """A value that (mostly) broadcasts to a shape, and how it lies; None: on every rank."""
    shape = list(shape)
    if draw(st.booleans()):
        shape = shape[draw(st.integers(0, len(shape))) :]
    for dim in range(len(shape)):
        if draw(st.integers(0, 4)) == 0:
            shape[dim] = draw(st.sampled_from([1, 1, 1, 1, 5]))
    if draw(st.integers(0, 5)) == 0:
        shape.insert(0, 1)
    value = np.arange(100.0, 100 + np.prod(shape, dtype=int)).reshape(shape)
    if not shape:
        return draw(st.sampled_from([(7, None), (2.5, None), (np.float64(3), None)]))
    if draw(st.booleans()):
        return value, None
    kinds = ("plain", "view", "ragged", "transposed")
    return value, draw(recipes(value.shape, mesh_shape, value.dtype, kinds))


def test_last_value_in_c_order_stays(world, ranks):
    """NumPy goes through operands in the order of their memory; here it must not matter."""
    index = np.asfortranarray([[-1, -2, -2], [-2, -2, 1]])
    rows, columns = np.zeros((2, 1), int), np.zeros((1, 3), int)

    def program(group):
        x = DistArray.from_local(np.array([7.0, 3.0]), DeviceMesh(group, (ranks,)), [Replicate()])
        x[index] = np.array([[100.0, 101.0, 102.0]])
        assert x.tolist() == [101.0, 102.0]
        y = x[:1].reshape(1, 1).copy()
        y[rows, columns] = np.asfortranarray(np.arange(6.0).reshape(2, 3))
        assert y.tolist() == [[5.0]]

    world.run(ranks, program)
