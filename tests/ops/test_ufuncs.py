"""Every ufunc on every kind of operand: NumPy's values, types and errors, block by block."""

import operator
from functools import partial
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import distarray
import distarray.numpy as dnp
from distarray.array import DistArray
from distarray.comm import DeviceMesh
from distarray.coverage import ufuncs
from distarray.layout import Shard
from distarray.testing import assert_matches, mesh_shapes, recipes, shapes
from distarray.testing.strategies import make_values
from tests.ops.likeness import let_through

# Casts warn as NumPy's do; ignored here by mark, as catch_warnings is not for several threads.
pytestmark = pytest.mark.filterwarnings("ignore")

#: One name each; those with a core signature belong to the contractions.
UFUNCS = {u.__name__: u for u in ufuncs().values() if u.signature is None}
CHARS = "?bBhHiIlLefdgFDmM"
LAID = ("plain", "view", "transposed", "ragged")
#: Of single complex numbers NumPy itself gives other bits where memory runs backwards.
NEVER_BACKWARDS = {"absolute", "multiply", "square"}
#: What NumPy before 2.4 computes of float16 by vectors or one by one, as the strides are, on CPUs
#: with AVX-512: the last bit differs.
ROUNDED_BY_STRIDES = {
    *("arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctanh", "cbrt", "cos"),
    *("cosh", "exp", "exp2", "expm1", "log", "log10", "log1p", "log2"),
    *("sin", "sinh", "tan", "tanh"),
}


def loops(ufunc):
    """Type characters of the inputs of each loop that takes no Python objects."""
    found = {loop.split("->")[0] for loop in ufunc.types}
    return sorted(chars for chars in found if set(chars) <= set(CHARS))


def values_of(shape, char, seed):
    """Values that most functions are defined for, with NaN, infinities and signed zeros."""
    if char in "mM":
        numbers = make_values(shape, "i8", seed) + 10
        return np.asarray(numbers).astype(f"{char}8[s]")
    return np.asarray(make_values(shape, char, seed, special=True))


@st.composite
def operands(draw, ufunc, kinds=LAID):
    """Values of operands that broadcast, and the shape that they broadcast to."""
    chars = draw(st.sampled_from(loops(ufunc)))
    shape = draw(shapes(max_dims=3, max_side=6))
    arrays = []
    for char in chars:
        lead = draw(st.integers(0, len(shape)))
        narrow = [draw(st.integers(0, 4)) == 0 for _ in shape]
        own = tuple(1 if one else extent for one, extent in zip(narrow, shape, strict=True))[lead:]
        arrays.append(values_of(own, char, draw(st.integers(0, 999))))
    return arrays


def outcome(call):
    """What a call gives: a value, or the type of its exception."""
    try:
        with np.errstate(all="ignore"):
            return call(), None
    except Exception as error:
        let_through(error)
        return None, error


def assert_same_outcome(call, reference, exact=True):
    found, error = outcome(call)
    expected, wanted = outcome(reference)
    assert isinstance(error, type(wanted)), f"{error!r}, NumPy: {wanted!r}"
    if wanted is None:
        assert_matches(found, expected, exact=exact)


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.host] * (n == "isnat")) for n in sorted(UFUNCS)],
)
@settings(max_examples=12)
@given(data=st.data())
def test_every_ufunc(world, name, data):
    ufunc = UFUNCS[name]
    ranks = data.draw(st.sampled_from(world.ranks))
    mesh_shape = data.draw(mesh_shapes(ranks))
    arrays = data.draw(operands(ufunc))
    if np.lib.NumpyVersion(np.__version__) < "2.4.0":
        assume(name not in ROUNDED_BY_STRIDES or "e" not in [a.dtype.char for a in arrays])
    backwards = not (name in NEVER_BACKWARDS and "F" in [a.dtype.char for a in arrays])
    kinds = [kind for kind in LAID if backwards or kind != "view"]
    laid = [data.draw(recipes(a.shape, mesh_shape, a.dtype, kinds)) for a in arrays]
    plain = [data.draw(st.integers(0, 4)) == 0 for _ in arrays]
    if all(plain):
        plain[0] = False

    def program(group):
        mesh = DeviceMesh(group, mesh_shape)
        given_to = []
        for values, recipe, is_plain in zip(arrays, laid, plain, strict=True):
            given_to.append(values if is_plain else recipe.build(values, mesh))
        before = [a.copy() for a in arrays]
        assert_same_outcome(lambda: ufunc(*given_to), lambda: ufunc(*arrays))
        for x, values in zip(given_to, before, strict=True):
            assert_matches(x if isinstance(x, DistArray) else dnp.asarray(x), values)

    world.run(ranks, program)


@settings(max_examples=60)
@given(data=st.data())
def test_keywords(world, ranks, data):
    ufunc = UFUNCS[data.draw(st.sampled_from(["add", "sqrt", "divmod", "modf", "less", "maximum"]))]
    mesh_shape = data.draw(mesh_shapes(ranks))
    arrays = data.draw(operands(ufunc))
    assume(all(a.dtype.kind not in "mM" for a in arrays))
    laid = [data.draw(recipes(a.shape, mesh_shape, a.dtype, LAID)) for a in arrays]
    shape = np.broadcast_shapes(*[a.shape for a in arrays])
    out_types = [data.draw(st.sampled_from("fd?iD")) for _ in range(ufunc.nout)]
    out_laid = [data.draw(recipes(shape, mesh_shape, t, LAID)) for t in out_types]
    given_outs = [data.draw(st.booleans()) for _ in out_types]
    where = data.draw(st.one_of(st.none(), st.just(make_values(shape, "?", 3))))
    where_laid = data.draw(recipes(shape, mesh_shape, "?", LAID))
    keywords = {}
    if data.draw(st.booleans()):
        keywords["dtype"] = data.draw(st.sampled_from("fdD"))
    if data.draw(st.booleans()):
        keywords["casting"] = data.draw(st.sampled_from(["no", "safe", "same_kind", "unsafe"]))
    if data.draw(st.booleans()):
        keywords["order"] = data.draw(st.sampled_from("CFKA"))
    where_is_plain = data.draw(st.booleans())
    if where is not None and not all(given_outs):
        given_outs = [True] * ufunc.nout  # what lies outside of `where` would be arbitrary

    def program(group):
        mesh = DeviceMesh(group, mesh_shape)
        xs = [recipe.build(a, mesh) for recipe, a in zip(laid, arrays, strict=True)]
        fresh = [np.asarray(make_values(shape, t, 5)) for t in out_types]
        outs = [recipe.build(a, mesh) for recipe, a in zip(out_laid, fresh, strict=True)]
        mine, numpys = dict(keywords), dict(keywords)
        if any(given_outs):
            pick = lambda found: tuple(  # noqa: E731
                [o if wanted else None for o, wanted in zip(found, given_outs, strict=True)]
            )
            mine["out"], numpys["out"] = pick(outs), pick(fresh)
        if where is not None:
            numpys["where"] = where
            mine["where"] = where if where_is_plain else where_laid.build(np.asarray(where), mesh)
        assert_same_outcome(lambda: ufunc(*xs, **mine), lambda: ufunc(*arrays, **numpys))
        for out, wanted in zip(outs, fresh, strict=True):
            assert_matches(out, wanted)

    world.run(ranks, program)


@settings(max_examples=40)
@given(data=st.data())
def test_results_into_numpy_arrays(world, ranks, data):
    shape = data.draw(shapes())
    values = make_values(shape, "f8", 1)
    recipe = data.draw(recipes(shape, (ranks,), "f8", LAID))
    where = data.draw(st.sampled_from([True, np.asarray(make_values(shape, "?", 2))]))

    def program(group):
        x = recipe.build(np.asarray(values), DeviceMesh(group, (ranks,)))
        out, wanted = np.ones(shape), np.ones(shape)
        assert np.add(x, 1, out=out, where=where) is out
        np.add(values, 1, out=wanted, where=where)
        np.testing.assert_array_equal(out, wanted)

    world.run(ranks, program)


# -- operators -----------------------------------------------------------------------------------

BINARY = ["+", "-", "*", "/", "//", "%", "**", "<", "<=", "==", "!=", "&", "|", "^", "<<", ">>"]
SCALARS = [2, 3.5, -1, 0, True, 1 + 2j, np.float32(1.5), np.int8(3), 300, 2.0, 0.5, -0.5]


@settings(max_examples=80)
@given(data=st.data())
def test_operators(world, ranks, data):
    symbol = data.draw(st.sampled_from(BINARY))
    dtype, other = (data.draw(st.sampled_from(["f8", "i8", "u1", "f4", "c16", "?"])) for _ in "ab")
    shape = data.draw(shapes())
    a, b = (np.asarray(make_values(shape, t, s, True)) for t, s in ((dtype, 1), (other, 2)))
    laid = [data.draw(recipes(shape, (ranks,), t, LAID)) for t in (dtype, other)]
    scalar = data.draw(st.sampled_from(SCALARS))

    def run(x, y):
        return eval(f"x {symbol} y", {"x": x, "y": y})

    def in_place(x, y):
        exec(f"x {symbol}= y", space := {"x": x, "y": y})
        return space["x"]

    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        x, y = (recipe.build(v, mesh) for recipe, v in zip(laid, (a, b), strict=True))
        assert_same_outcome(lambda: run(x, y), lambda: run(a, b))
        assert_same_outcome(lambda: run(x, b), lambda: run(a, b))
        assert_same_outcome(lambda: run(a, y), lambda: run(a, b))
        assert_same_outcome(lambda: run(x, scalar), lambda: run(a, scalar))
        assert_same_outcome(lambda: run(scalar, x), lambda: run(scalar, a))
        if symbol not in ("<", "<=", "==", "!="):
            c, d = a.copy(), a.copy()
            z, w = dnp.array(x), dnp.array(x)
            assert_same_outcome(lambda: in_place(z, y), lambda: in_place(c, b))
            # NumPy stops half way at a negative power; here nothing is changed.
            assert_matches(z, a if symbol == "**" and outcome(lambda: run(a, b))[1] else c)
            assert_same_outcome(lambda: in_place(w, scalar), lambda: in_place(d, scalar))
            assert_matches(w, d)

    world.run(ranks, program)


@pytest.mark.host
def test_equality_of_what_cannot_be_compared(world, ranks):
    others = ["text", None, (), np.array(["a", "b", "c"]), object()]

    def program(group):
        for values in (np.arange(3.0), np.float64(2), np.zeros((2, 3)), np.zeros(0)):
            x = dnp.array(values, placements=[Shard(0)] if values.ndim else None)
            for other, call in product(others, (operator.eq, operator.ne)):
                assert_same_outcome(partial(call, x, other), partial(call, np.array(values), other))

    world.run(ranks, program)


UNARY = [lambda x: -x, lambda x: +x, abs, lambda x: ~x, lambda x: divmod(x, 3), lambda x: x**2]


@pytest.mark.parametrize("number", range(len(UNARY)))
def test_unary_operators(world, ranks, number):
    values = np.arange(-6.0, 6.0).reshape(4, 3)

    def program(group):
        for dtype in ("f8", "i4", "c16", "?"):
            a = values.astype(dtype)
            x = dnp.array(a, placements=[Shard(0)])
            assert_same_outcome(partial(UNARY[number], x), partial(UNARY[number], a))

    world.run(ranks, program)


@settings(max_examples=60)
@given(data=st.data())
def test_overlapping_views_in_place(world, ranks, data):
    """``u[1:] += u[:-1]`` reads what was there before, as NumPy does."""
    mesh_shape = data.draw(mesh_shapes(ranks))
    shape = (data.draw(st.integers(2, 13)), data.draw(st.integers(1, 5)))
    recipe = data.draw(recipes(shape, mesh_shape, "f8", LAID))
    shift = data.draw(st.integers(1, shape[0] - 1))
    ahead, behind = np.s_[shift:], np.s_[:-shift]
    first, second = data.draw(st.sampled_from([(ahead, behind), (behind, ahead)]))
    flipped = data.draw(st.booleans())
    symbol = data.draw(st.sampled_from(["+=", "-=", "*=", "="]))

    def change(u):
        other = u[second][::-1] if flipped else u[second]
        exec(f"u[key] {symbol} other", {"u": u, "key": first, "other": other})

    def program(group):
        values = np.arange(float(shape[0] * shape[1])).reshape(shape)
        u = recipe.build(values, DeviceMesh(group, mesh_shape))
        change(u)
        change(values)
        assert_matches(u, values)
        np.add(u[ahead], u[behind], out=u[behind])
        np.add(values[ahead], values[behind], out=values[behind])
        assert_matches(u, values)

    world.run(ranks, program)


# -- pending folds -------------------------------------------------------------------------------


@settings(max_examples=40)
@given(data=st.data())
def test_pending_folds_settle_where_they_must(world, ranks, data):
    ufunc = UFUNCS[
        data.draw(st.sampled_from(["add", "multiply", "exp", "negative", "less", "divide"]))
    ]
    shape = data.draw(shapes())
    arrays = [np.asarray(make_values(shape, "f8", seed)) for seed in range(ufunc.nin)]
    mesh_shape = data.draw(mesh_shapes(ranks))
    laid = [data.draw(recipes(shape, mesh_shape, "f8", ("partial", "plain"))) for _ in arrays]

    def program(group):
        mesh = DeviceMesh(group, mesh_shape)
        xs = [recipe.build(a, mesh) for recipe, a in zip(laid, arrays, strict=True)]
        # Not exactly: the contributions to a sum of zero decide about its sign.
        assert_same_outcome(lambda: ufunc(*xs), lambda: ufunc(*arrays), exact=False)
        twos = [2.0] * (ufunc.nin - 1)
        assert_same_outcome(
            lambda: ufunc(xs[0], *twos), lambda: ufunc(arrays[0], *twos), exact=False
        )

    world.run(ranks, program)


# -- errors --------------------------------------------------------------------------------------

BAD = {
    "shapes": lambda x, y: x[:2] + y[:3],
    "out shape": lambda x, y: np.add(x, y, out=y[:2]),
    "out cast": lambda x, y: np.add(x, 1.5, out=y.astype(int)),
    "where type": lambda x, y: np.add(x, y, where=np.ones(3)),
    "no loop": np.bitwise_and,
    "dtype": lambda x, y: np.add(x, y, dtype="U3"),
    "keyword": lambda x, y: np.add(x, y, nonsense=1),
    "too many": lambda x, y: np.add(x, y, y, y),
    "too few": lambda x, y: np.add(x),
    "python int": lambda x, y: x.astype("u1") + 300,
    "negative power": lambda x, y: x.astype(int) ** -1,
    "negative powers": lambda x, y: x.astype(int) ** (y.astype(int) - 5),
    "in-place cast": lambda x, y: x.astype(int).__iadd__(0.5),
    "casting": lambda x, y: np.add(x, y, dtype="f4", casting="safe"),
}


@pytest.mark.parametrize("case", BAD)
def test_errors_are_numpys_on_every_rank(world, ranks, case):
    def program(group):
        values = np.arange(6.0)
        _, wanted = outcome(lambda: BAD[case](values.copy(), values.copy()))
        for shape in (6,):
            x = dnp.array(values[:shape], placements=[Shard(0)])
            y = dnp.array(values[:shape], placements=[Shard(0)])
            _, error = outcome(lambda x=x, y=y: BAD[case](x, y))
            assert type(error) is type(wanted), (error, wanted)
            assert_matches(x, values)
            assert_matches(y, values)

    world.run(ranks, program)


def test_operands_on_two_meshes(world, ranks):
    def program(group):
        x = dnp.zeros(4, mesh=DeviceMesh(group, (ranks,)))
        y = dnp.zeros(4, mesh=DeviceMesh(group, (1, ranks)))
        with pytest.raises(distarray.errors.MeshError, match="redistribute"):
            x + y

    world.run(ranks, program)


def test_objects_that_decline(world, ranks):
    class Other:
        __array_ufunc__ = None

        def __radd__(self, other):
            return "mine"

    def program(group):
        assert dnp.zeros(3) + Other() == "mine"
        with pytest.raises(TypeError):
            dnp.zeros(3) - Other()

    world.run(ranks, program)
