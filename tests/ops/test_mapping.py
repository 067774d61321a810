"""Functions of the user's: along axes, element by element, on blocks; against NumPy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distarray
import distarray.numpy as dnp
from distarray.comm import DeviceMesh
from distarray.errors import CommunicationForbidden
from distarray.layout import Replicate, Shard
from distarray.testing import (
    array_values,
    assert_matches,
    assert_same_error,
    mesh_shapes,
    recipes,
    shapes,
)

pytestmark = pytest.mark.filterwarnings("ignore::distarray.errors.PerformanceWarning")
KINDS = ("plain", "view", "transposed", "ragged", "partial")
LINE_FUNCTIONS = {
    "sum": np.sum,
    "double": lambda line: line * 2,
    "evens": lambda line: line[::2],
    "outer": lambda line: np.outer(line, line),
    "number": lambda line: 3,
    "python float": lambda line: float(line.sum() if line.size else 0),
    "first": lambda line, n=1: line[:n].tolist(),
}


def full_shapes(**keywords):
    return shapes(**keywords).filter(lambda shape: 0 not in shape)


@settings(max_examples=8)
@given(data=st.data())
def test_apply_along_axis(world, ranks, data):
    shape = data.draw(full_shapes(min_dims=1))
    values = data.draw(array_values(shape=shape, dtypes=("f8", "i4", "?", "c16")))
    mesh_shape = data.draw(mesh_shapes(ranks))
    recipe = data.draw(recipes(shape, mesh_shape, values.dtype, KINDS))
    name = data.draw(st.sampled_from(sorted(LINE_FUNCTIONS)))
    function = LINE_FUNCTIONS[name]
    if name == "python float" and values.dtype.kind == "c":
        function = np.sum
    args = (2,) if name == "first" else ()
    axis = data.draw(st.integers(-values.ndim, values.ndim - 1))
    wanted = np.apply_along_axis(function, axis, values, *args)

    def program(group):
        x = recipe.build(values, DeviceMesh(group, mesh_shape))
        assert_matches(np.apply_along_axis(function, axis, x, *args), wanted)

    world.run(ranks, program)


def test_type_and_shape_come_from_the_first_line(world, ranks):
    values = np.arange(12.0).reshape(6, 2)

    def function(line):
        return 1 if line[0] == 0 else 2.75

    def grows(line):
        return line if line[0] < 6 else line[:1]

    def program(group):
        x = distarray.distribute(values, DeviceMesh(group, (ranks,)), [Shard(0)], src=None)
        assert_matches(
            np.apply_along_axis(function, 1, x), np.apply_along_axis(function, 1, values)
        )
        assert_matches(np.apply_along_axis(grows, 1, x), np.apply_along_axis(grows, 1, values))
        with pytest.raises(ValueError, match="broadcast"):
            np.apply_along_axis(lambda line: np.ones(int(line[0]) + 1), 1, x)

    world.run(ranks, program)


@settings(max_examples=10)
@given(data=st.data())
def test_apply_over_axes(world, ranks, data):
    values = data.draw(array_values(min_dims=2, dtypes=("f8", "i4")))
    mesh_shape = data.draw(mesh_shapes(ranks))
    recipe = data.draw(recipes(values.shape, mesh_shape, values.dtype, KINDS))
    axes = data.draw(st.sampled_from([0, -1, (0, 1), [1, -2], (0,)]))

    def program(group):
        x = recipe.build(values, DeviceMesh(group, mesh_shape))
        for function in (np.sum, np.cumsum):
            wanted = np.apply_over_axes(function, values, axes)
            assert_matches(np.apply_over_axes(function, x, axes), wanted, exact=False)
        with pytest.raises(ValueError):
            np.apply_over_axes(lambda a, axis: np.sum(a, (0, 1)), x, axes)

    world.run(ranks, program)


def branchy(a, b=1):
    return a + b if a > 0 else b


ELEMENT_CALLS = {
    "plain": lambda np_, x, y: np_.vectorize(branchy)(x, y),
    "default": lambda np_, x, y: np_.vectorize(branchy)(x),
    "keyword": lambda np_, x, y: np_.vectorize(branchy)(x, b=y),
    "scalar": lambda np_, x, y: np_.vectorize(branchy)(x, 2),
    "otypes": lambda np_, x, y: np_.vectorize(branchy, otypes=["f4"])(x, y),
    "cache": lambda np_, x, y: np_.vectorize(branchy, cache=True)(x, y),
    "two results": lambda np_, x, y: np_.vectorize(lambda a, b: (a, b > 1))(x, y),
    "text": lambda np_, x, y: np_.vectorize(lambda a: "x" * int(abs(a)))(x),
    "text type": lambda np_, x, y: np_.vectorize(str, otypes=[str])(x),
    "excluded": lambda np_, x, y: np_.vectorize(
        lambda p, a: sum(p) + a, excluded=[0], otypes=["f8"]
    )([1, 2], x),
}


@settings(max_examples=8)
@given(data=st.data())
def test_vectorize(world, ranks, data):
    shape = data.draw(full_shapes())
    values = data.draw(array_values(shape=shape, dtypes=("f8", "i8", "f4")))
    other = data.draw(array_values(shape=shape[1:], dtypes=("f8", "i8")))
    mesh_shape = data.draw(mesh_shapes(ranks))
    one, two = (data.draw(recipes(v.shape, mesh_shape, v.dtype, KINDS)) for v in (values, other))
    call = ELEMENT_CALLS[data.draw(st.sampled_from(sorted(ELEMENT_CALLS)))]
    wanted = call(np, values, other)

    def program(group):
        mesh = DeviceMesh(group, mesh_shape)
        assert_matches(call(dnp, one.build(values, mesh), two.build(other, mesh)), wanted)

    world.run(ranks, program)


def weighted(line, weight):
    return (line * weight).sum(), line[::-1]


SIGNATURES = {
    "(n),()->()": lambda line, weight: (line * weight).sum(),
    "(n),()->(),(n)": weighted,
    "(n),()->(m)": lambda line, weight: np.arange(3.0) + line.sum() + weight,
    "(m,n),()->(n)": lambda block, weight: block.sum(0) * weight,
}


@settings(max_examples=6)
@given(data=st.data())
def test_vectorize_with_a_signature(world, ranks, data):
    shape = data.draw(full_shapes(min_dims=2))
    values = data.draw(array_values(shape=shape, dtypes=("f8",)))
    signature = data.draw(st.sampled_from(sorted(SIGNATURES)))
    cores = signature.count(",", 0, signature.index(")")) + 1
    weights = np.arange(1.0, 1.0 + np.prod(shape[: len(shape) - cores], dtype=int))
    weights = weights.reshape(shape[: len(shape) - cores])
    mesh_shape = data.draw(mesh_shapes(ranks))
    one, two = (data.draw(recipes(v.shape, mesh_shape, v.dtype, KINDS)) for v in (values, weights))
    keywords = data.draw(st.sampled_from([{}, {"otypes": ["f4"] * (1 + signature.count("),(n)"))}]))
    wanted = np.vectorize(SIGNATURES[signature], signature=signature, **keywords)(values, weights)

    def program(group):
        mesh = DeviceMesh(group, mesh_shape)
        call = dnp.vectorize(SIGNATURES[signature], signature=signature, **keywords)
        assert_matches(call(one.build(values, mesh), two.build(weights, mesh)), wanted)

    world.run(ranks, program)


def test_pure_functions_are_called_once_for_each_element(world, ranks):
    def program(group):
        for placement in (Shard(0), Replicate()):
            calls = []
            x = distarray.distribute(
                np.arange(7), DeviceMesh(group, (ranks,)), [placement], src=None
            )
            dnp.vectorize(distarray.pure(lambda n, calls=calls: calls.append(n)), otypes=[object])(
                x
            )
            everyone = sorted([n for each in group.allgather_object(calls) for n in each])
            assert everyone == list(range(7))

    world.run(ranks, program)


def test_vectorize_is_numpys_for_numpy_arrays():
    assert isinstance(dnp.vectorize(branchy)([1, 2]), np.ndarray)

    @dnp.vectorize
    def twice(a):
        """Two of them."""
        return 2 * a

    assert twice.__doc__ == "Two of them."
    assert issubclass(dnp.vectorize, np.vectorize)


@settings(max_examples=6)
@given(data=st.data())
def test_python_ufuncs(world, ranks, data):
    values = data.draw(array_values(dtypes=("f8", "i8", "?")))
    mesh_shape = data.draw(mesh_shapes(ranks))
    recipe = data.draw(recipes(values.shape, mesh_shape, values.dtype, KINDS))
    add, split = np.frompyfunc(lambda a, b: a + b, 2, 1), np.frompyfunc(divmod, 2, 2)
    mask = values > 0

    def program(group):
        x = recipe.build(values, DeviceMesh(group, mesh_shape))
        found, wanted = add(x, 2), add(values, 2)
        if values.ndim:
            assert found.dtype == object
            assert_matches(found.astype(float), wanted.astype(float))
            parts, plain = split(x, 3), split(values, 3)
            assert_matches(parts[1].astype(float), plain[1].astype(float))
            out = np.zeros(values.shape)
            into = np.zeros_like(x, dtype=float)
            add(values, values, out=out, where=mask, casting="unsafe")
            assert add(x, x, out=into, where=x > 0, casting="unsafe") is into
            assert_matches(into, out)
        else:
            assert found == wanted

    world.run(ranks, program)


def test_objects_go_where_arrays_go(world, ranks):
    values = np.arange(7)
    words = np.frompyfunc(lambda n: f"<{n}>", 1, 1)

    def program(group):
        x = distarray.distribute(values, DeviceMesh(group, (ranks,)), [Shard(0)], src=None)
        found = words(x)
        assert np.array_equal(found.full(), words(values))
        assert found[3] == "<3>"
        assert found[::2].redistribute(placements=[Replicate()]).to_local().tolist()[-1] == "<6>"
        assert np.array_equal(found[np.array([5, 0, 5])].full(), words(values)[[5, 0, 5]])
        assert np.sum(found) == "<0><1><2><3><4><5><6>"
        vectorized = dnp.vectorize(lambda n: {n}, otypes=[object])
        assert vectorized(x.redistribute([Replicate()])).full().tolist() == [{n} for n in range(7)]

    world.run(ranks, program)


OBJECT_CALLS = {
    "reduce": lambda words, x: np.frompyfunc(max, 2, 1).reduce(x),
    "accumulate": lambda words, x: np.frompyfunc(max, 2, 1).accumulate(x),
    "outer": lambda words, x: np.frompyfunc(max, 2, 1).outer(x, x),
    "add": lambda words, x: words + words,
    "compare": lambda words, x: words == "<3>",
    "sort": lambda words, x: np.sort(words),
    "argsort": lambda words, x: np.argsort(words),
    "unique": lambda words, x: np.unique(words),
    "max": lambda words, x: words.max(),
    "concatenate": lambda words, x: np.concatenate([words, words[1:]]),
    "where": lambda words, x: np.where(x > 2, words, "-"),
    "reshape": lambda words, x: words[:6].reshape(2, 3),
    "astype": lambda words, x: words.astype("U3"),
    "tolist": lambda words, x: words.tolist(),
}


@pytest.mark.parametrize("name", sorted(OBJECT_CALLS))
@pytest.mark.filterwarnings("ignore::distarray.errors.PerformanceWarning")
def test_objects_are_not_taken_for_numbers(world, ranks, name):
    values = np.array([3, 11, 2, 5, 0, 7, 2])
    words = np.frompyfunc(lambda n: f"<{n}>", 1, 1)
    wanted = OBJECT_CALLS[name](words(values), values)

    def program(group):
        x = distarray.distribute(values, DeviceMesh(group, (ranks,)), [Shard(0)], src=None)
        found = OBJECT_CALLS[name](words(x), x)
        whole = found.full() if isinstance(found, distarray.DistArray) else found
        assert np.array_equal(np.asarray(whole, object), np.asarray(wanted, object))
        assert getattr(found, "dtype", None) == getattr(wanted, "dtype", None)

    world.run(ranks, program)


def test_generalized_ufuncs(world, ranks):
    from numpy.linalg import _umath_linalg

    rng = np.random.default_rng(0)
    values = rng.standard_normal((5, 4, 4))

    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        for placement in (Shard(0), Shard(1), Shard(2), Replicate()):
            x = distarray.distribute(values, mesh, [placement], src=None)
            assert_matches(_umath_linalg.det(x), _umath_linalg.det(values), exact=False)
            found, wanted = _umath_linalg.slogdet(x), _umath_linalg.slogdet(values)
            assert_matches(found, tuple(wanted), exact=False)
            assert_matches(_umath_linalg.det(x[0]), _umath_linalg.det(values[0]), exact=False)
            wanted = _umath_linalg.solve(values, values[0])
            assert_matches(_umath_linalg.solve(x, x[0]), wanted, exact=False)
            with pytest.raises(ValueError, match="enough dimensions"):
                _umath_linalg.det(x[0, 0])

    world.run(ranks, program)


def fails_late(value):
    if np.max(value) >= 10:
        raise KeyError("ten")
    return np.sum(value)


FAILING = {
    "apply_along_axis": lambda x: np.apply_along_axis(fails_late, 1, x),
    "vectorize": dnp.vectorize(fails_late),
    "signature": dnp.vectorize(fails_late, signature="(n)->()"),
    "frompyfunc": np.frompyfunc(fails_late, 1, 1),
    "map_blocks": lambda x: distarray.map_blocks(fails_late, x),
    "map_overlap": lambda x: distarray.map_overlap(lambda b: fails_late(b) + b, x, 1),
    "local_map": distarray.local_map(fails_late, [Shard(0)]),
}


@pytest.mark.parametrize("name", sorted(FAILING))
def test_what_one_rank_raises_all_raise(world, ranks, name):
    def program(group):
        x = distarray.distribute(
            np.arange(12.0).reshape(6, 2), DeviceMesh(group, (ranks,)), [Shard(0)], src=None
        )
        with pytest.raises(KeyError, match="ten"):
            FAILING[name](x)
        group.barrier()

    world.run(ranks, program)


def test_functions_run_on_each_rank_by_itself(world):
    ranks = world.ranks[-1]

    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        x = distarray.distribute(np.arange(24.0).reshape(12, 2), mesh, [Shard(0)], src=None)
        small = dnp.array([1.0, 2.0], mesh=mesh)
        # Arrays made inside are this rank's own, replicated ones from outside are at hand.
        function = distarray.pure(lambda line: line + dnp.ones(2) * small)
        found = np.apply_along_axis(function, 1, x)
        assert_matches(found, x.full() + [1.0, 2.0])
        if ranks > 1:
            with pytest.raises(CommunicationForbidden):
                np.apply_along_axis(distarray.pure(lambda line: x.sum()), 1, x)
        group.barrier()

    world.run(ranks, program)


BAD = [
    lambda x, np_: np.apply_along_axis(np.sum, 2, x),
    lambda x, np_: np.apply_along_axis(np.sum, 0, x[:, :0]),
    lambda x, np_: np_.vectorize(branchy)(x[:0]),
    lambda x, np_: np_.vectorize(branchy)(x, x[:2]),
    lambda x, np_: np_.vectorize(np.sum, signature="(n)->()")(x, x),
    lambda x, np_: np_.vectorize(np.sum, signature="(n)->(n)")(x),
    lambda x, np_: np_.vectorize(np.sum, signature="(n),(n)->()")(x, x[:, :1]),
    lambda x, np_: np_.vectorize(np.sum, signature="(a,b,c)->()")(x),
    lambda x, np_: np_.vectorize(np.sum, signature="(n)->()")(x[:0]),
    lambda x, np_: np_.vectorize(lambda v: (1, 2), signature="(n)->()")(x),
]


@pytest.mark.parametrize("call", BAD, ids=range(len(BAD)))
def test_bad_input(world, ranks, call):
    values = np.arange(12.0).reshape(4, 3)

    def program(group):
        x = distarray.distribute(values, DeviceMesh(group, (ranks,)), [Shard(0)], src=None)
        assert_same_error(lambda: call(x, dnp), lambda: call(values, np))
        group.barrier()

    world.run(ranks, program)


def test_messages(world):
    """A line's function costs the redistribution, a broadcast and two small allreduces."""
    ranks = world.ranks[-1]

    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        x = distarray.distribute(np.ones((8 * ranks, 4 * ranks)), mesh, [Shard(0)], src=None)
        with distarray.trace() as trace:
            np.apply_along_axis(np.sum, 1, x)
        assert trace.count("exchange") == 0
        assert trace.messages <= 3
        assert trace.bytes <= 64
        with distarray.trace() as trace:
            np.apply_along_axis(np.sum, 0, x)
        moved = 8 * 8 * 4 * (ranks - 1) + 8 * 4 * (ranks - 1)  # and the small result to all
        assert sum(e.bytes for e in trace if e.kind == "exchange") == moved
        with distarray.trace() as trace:
            dnp.vectorize(branchy, otypes=["f8"])(x)
        assert trace.messages <= 1

    world.run(ranks, program)
