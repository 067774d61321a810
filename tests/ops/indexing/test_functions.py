"""The functions on top of indexing, against NumPy, for drawn layouts and arguments."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distarray.ops  # noqa: F401
from distarray.comm import DeviceMesh
from distarray.testing import assert_matches, recipes

from .drawing import Spread, check_error, outcome, sources, spread

MODES = st.sampled_from(["raise", "wrap", "clip"])
KINDS = ("plain", "view", "ragged", "transposed")


def compare(world, ranks, mesh_shape, function, arguments, target=None, exact_text=True):
    """Call a function with arguments that are laid out, and NumPy's with the plain ones.

    `target` is the number of an argument that the function changes, also where it stops halfway.
    """
    plain = [a.values.copy() if isinstance(a, Spread) else a for a in arguments]
    expected = outcome(lambda: function(*plain))

    def program(group):
        mesh = DeviceMesh(group, mesh_shape)
        given = [a.build(mesh) if isinstance(a, Spread) else a for a in arguments]
        found = outcome(lambda: function(*given))
        if isinstance(expected, Exception):
            if exact_text:
                check_error(found, expected)
            else:
                assert isinstance(found, type(expected)), (found, expected)
        elif isinstance(found, Exception):
            raise found
        else:
            assert_matches(found, expected)
        if target is not None:
            assert_matches(given[target], plain[target])

    world.run(ranks, program)


def drawn(data, world, **options):
    ranks = data.draw(st.sampled_from(world.ranks), label="ranks")
    mesh_shape, values, recipe = data.draw(sources(ranks, **options), label="source")
    return ranks, mesh_shape, Spread(values, recipe), values


def positions(data, size, mesh_shape, shape=None):
    """Index arrays that are within bounds, mostly."""
    if shape is None:
        shape = tuple(data.draw(st.lists(st.integers(0, 4), max_size=2), label="index shape"))
    slack = data.draw(st.sampled_from([0, 0, 0, 2]), label="out of bounds by")
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    low, high = -size - slack, size + slack
    index = np.asarray(rng.integers(low, max(high, low + 1), shape))
    if not index.ndim:
        return int(index)
    return data.draw(spread(index, mesh_shape), label="index")


@given(data=st.data())
def test_take(world, data):
    ranks, mesh_shape, x, values = drawn(data, world, min_dims=0)
    axis = data.draw(st.sampled_from([None, *range(-values.ndim, values.ndim)]), label="axis")
    size = values.size if axis is None else values.shape[axis]
    index, mode = positions(data, size, mesh_shape), data.draw(MODES)
    compare(world, ranks, mesh_shape, lambda a, i: np.take(a, i, axis, mode=mode), [x, index])


@given(data=st.data())
def test_put(world, data):
    ranks, mesh_shape, x, values = drawn(data, world)
    index, mode = positions(data, values.size, mesh_shape), data.draw(MODES)
    count = data.draw(st.integers(0, 9))
    v = data.draw(spread(np.arange(count) + 0.5, mesh_shape), label="values")
    compare(
        world, ranks, mesh_shape, lambda a, i, v: np.put(a, i, v, mode), [x, index, v], target=0
    )


@given(data=st.data())
def test_along_axis(world, data):
    ranks, mesh_shape, x, values = drawn(data, world)
    axis = data.draw(st.integers(-values.ndim, values.ndim - 1), label="axis")
    shape = list(values.shape)
    shape[axis] = data.draw(st.integers(0, 4))
    if data.draw(st.booleans()):
        dim = data.draw(st.integers(0, values.ndim - 1))
        shape[dim] = 1 if dim != axis % values.ndim else shape[dim]
    index = positions(data, values.shape[axis], mesh_shape, tuple(shape))
    index = np.asarray(index, int).reshape(shape) if isinstance(index, list) else index
    compare(world, ranks, mesh_shape, lambda a, i: np.take_along_axis(a, i, axis), [x, index])
    v = data.draw(spread(np.arange(float(np.prod(shape))).reshape(shape), mesh_shape))
    compare(
        world,
        ranks,
        mesh_shape,
        lambda a, i, v: np.put_along_axis(a, i, v, axis),
        [x, index, v],
        target=0,
    )


@given(data=st.data())
def test_nonzero(world, data):
    ranks, mesh_shape, x, _ = drawn(data, world, dtypes=("?", "i4", "f8"), min_dims=0)
    for function in (np.nonzero, np.flatnonzero, np.argwhere, np.where):
        compare(world, ranks, mesh_shape, function, [x])


@given(data=st.data())
def test_conditions(world, data):
    ranks, mesh_shape, x, values = drawn(data, world, min_dims=1)
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    mask = rng.random(values.shape) < data.draw(st.sampled_from([0.0, 0.4, 1.0]))
    condition = data.draw(spread(mask, mesh_shape), label="mask")
    flat = data.draw(spread(mask.reshape(-1), mesh_shape), label="flat mask")
    v = data.draw(spread(np.arange(data.draw(st.integers(0, 6))) + 10, mesh_shape), label="values")
    same = data.draw(spread(np.arange(values.size).reshape(values.shape) * 1.5, mesh_shape))
    compare(world, ranks, mesh_shape, np.extract, [condition, x])
    compare(world, ranks, mesh_shape, np.extract, [flat, x])
    compare(world, ranks, mesh_shape, np.place, [x, condition, v], target=0)
    compare(world, ranks, mesh_shape, np.place, [x, flat, v], target=0)
    compare(world, ranks, mesh_shape, np.putmask, [x, condition, v], target=0)
    compare(world, ranks, mesh_shape, np.putmask, [x, flat, same], target=0)
    compare(world, ranks, mesh_shape, np.putmask, [x, condition, same], target=0)
    compare(world, ranks, mesh_shape, lambda a, m: np.putmask(a, m, 3), [x, condition], target=0)
    where = Spread(mask, data.draw(recipes(mask.shape, mesh_shape, bool, KINDS)))
    copy = [x, same, where]
    compare(world, ranks, mesh_shape, lambda a, s, m: np.copyto(a, s, "unsafe", m), copy, target=0)


@given(data=st.data())
def test_compress(world, data):
    ranks, mesh_shape, x, values = drawn(data, world)
    axis = data.draw(st.sampled_from([None, *range(-values.ndim, values.ndim)]), label="axis")
    size = values.size if axis is None else values.shape[axis]
    length = max(0, size + data.draw(st.integers(-2, 1)))
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    condition = data.draw(spread(rng.random(length) < 0.5, mesh_shape), label="condition")
    compare(world, ranks, mesh_shape, lambda c, a: np.compress(c, a, axis), [condition, x])


@given(data=st.data())
def test_where_select_choose(world, data):
    ranks, mesh_shape, x, values = drawn(data, world, min_dims=0)
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))

    def another(array):
        return Spread(array, data.draw(recipes(array.shape, mesh_shape, array.dtype, KINDS)))

    mask = another(rng.random(values.shape) < 0.5)
    other = another(rng.integers(0, 9, values.shape[1:]).astype("f4"))
    number = another(rng.integers(0, 2 + (rng.random() < 0.3), values.shape))
    compare(world, ranks, mesh_shape, np.where, [mask, x, other])
    compare(world, ranks, mesh_shape, lambda m, a: np.where(m, a, 2), [mask, x])
    both = [mask, x, other]
    compare(world, ranks, mesh_shape, lambda m, a, b: np.select([m, ~m], [a, b], 5), both)
    compare(world, ranks, mesh_shape, lambda m, a: np.select([m], [a], 1.5), [mask, x])
    compare(world, ranks, mesh_shape, lambda i, a, b: np.choose(i, [a, b]), [number, x, other])
    compare(world, ranks, mesh_shape, lambda i, a: np.choose(i, [a, 3], mode="wrap"), [number, x])


@given(data=st.data())
def test_diagonals(world, data):
    ranks, mesh_shape, x, values = drawn(data, world, min_dims=1)
    k = data.draw(st.integers(-4, 4), label="k")
    wrap = data.draw(st.booleans())
    axes = data.draw(st.tuples(*[st.integers(-values.ndim, values.ndim - 1)] * 2), label="axes")
    v = data.draw(spread(np.arange(data.draw(st.integers(1, 9))), mesh_shape), label="values")
    compare(world, ranks, mesh_shape, lambda a: np.diagonal(a, k, *axes), [x])
    compare(world, ranks, mesh_shape, lambda a: np.diag(a, k), [x])
    compare(world, ranks, mesh_shape, lambda a: np.diagflat(a[:1], k), [x])
    compare(world, ranks, mesh_shape, lambda a: np.tril(a, k), [x])
    compare(world, ranks, mesh_shape, lambda a: np.triu(a, k), [x])
    compare(world, ranks, mesh_shape, lambda a, v: np.fill_diagonal(a, v, wrap), [x, v], target=0)
    compare(world, ranks, mesh_shape, lambda a: np.fill_diagonal(a, 5), [x], target=0)
    compare(world, ranks, mesh_shape, lambda a: np.tril_indices_from(a, k), [x])
    compare(world, ranks, mesh_shape, lambda a: np.triu_indices_from(a, k), [x])
    compare(world, ranks, mesh_shape, np.diag_indices_from, [x])


@settings(max_examples=60)
@given(data=st.data())
def test_positions(world, data):
    ranks = data.draw(st.sampled_from(world.ranks))
    from distarray.testing import mesh_shapes

    mesh_shape = data.draw(mesh_shapes(ranks))
    dims = tuple(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    order, mode = data.draw(st.sampled_from("CF")), data.draw(MODES)
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    size = int(np.prod(dims)) + data.draw(st.sampled_from([0, 0, 1]))
    shape = (data.draw(st.integers(1, 7)),)

    def another(array):
        return Spread(array, data.draw(recipes(array.shape, mesh_shape, array.dtype, KINDS)))

    flat = another(rng.integers(0, size, shape))
    index = [another(rng.integers(0, d, shape)) for d in dims]
    compare(world, ranks, mesh_shape, lambda i: np.unravel_index(i, dims, order), [flat])
    compare(
        world,
        ranks,
        mesh_shape,
        lambda *i: np.ravel_multi_index(i, dims, mode, order),
        index,
        exact_text=False,
    )
    masks = [another(rng.random(shape) < 0.5) if rng.random() < 0.5 else i for i in index]
    compare(world, ranks, mesh_shape, np.ix_, masks)


BY_NAME = {
    "copyto": lambda a, i: np.copyto(dst=a, src=a[::-1] + 1),
    "put": lambda a, i: np.put(a=a, ind=i, v=9),
    "putmask": lambda a, i: np.putmask(a, mask=a > 2, values=a + 1),
    "diff": lambda a, i: np.diff(a=a, n=1, prepend=a),
    "take": lambda a, i: np.take(a=a, indices=i, mode="wrap"),
}


@pytest.mark.parametrize("name", BY_NAME)
def test_arguments_by_name(world, ranks, name):
    values, places = np.arange(6), np.array([1, 4])

    def program(group):
        from distarray import Shard, distribute

        plain, x = values.copy(), distribute(values, DeviceMesh(group, (ranks,)), [Shard(0)])
        assert_matches(BY_NAME[name](x, places), BY_NAME[name](plain, places))
        assert_matches(x, plain)

    world.run(ranks, program)


@pytest.mark.parametrize("function", [np.take, np.compress, np.choose])
def test_out(world, ranks, function):
    """A result is written into `out` and that is returned."""
    first = np.array([1, 0, 1])
    values = np.arange(12).reshape(3, 4)

    def call(a, i, out):
        if function is np.take:
            return np.take(a, i, axis=0, out=out)
        if function is np.compress:
            return np.compress(i, a, axis=0, out=out)
        return np.choose(a % 2, [a, -a], out=out)

    expected = call(values, first, None)

    def program(group):
        from distarray import Shard, distribute

        mesh = DeviceMesh(group, (ranks,))
        x = distribute(values, mesh, [Shard(1)], src=None)
        out = distribute(np.zeros_like(expected), mesh, [Shard(0)], src=None)
        assert call(x, first, out) is out
        assert_matches(out, expected)
        wrong = distribute(np.zeros((9,), int), mesh, [Shard(0)], src=None)
        assert isinstance(outcome(lambda: call(x, first, wrong)), (ValueError, TypeError))

    world.run(ranks, program)
