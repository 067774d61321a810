"""Elementwise functions that are no ufuncs, comparisons of whole arrays, and types."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distarray
import distarray.numpy as dnp
from distarray.array import DistArray
from distarray.comm import DeviceMesh
from distarray.layout import Fold, Partial, Replicate, Shard
from distarray.testing import array_values, assert_matches, mesh_shapes, recipes, shapes
from distarray.testing.strategies import make_values
from tests.ops.likeness import let_through

# Casts warn as NumPy's do; ignored here by mark, as catch_warnings is not for several threads.
pytestmark = pytest.mark.filterwarnings("ignore")

NUMBERS = ("f8", "f4", "i4", "c16", "u1", "?")
ONE = {
    "angle": np.angle,
    "angle in degrees": lambda x: np.angle(x, deg=True),
    "fix": np.fix,
    "i0": np.i0,
    "imag": np.imag,
    "iscomplex": np.iscomplex,
    "isneginf": np.isneginf,
    "isposinf": np.isposinf,
    "isreal": np.isreal,
    "nan_to_num": np.nan_to_num,
    "nan_to_num with numbers": lambda x: np.nan_to_num(x, nan=1, posinf=7.5, neginf=-3),
    "real": np.real,
    "round": np.round,
    "around": lambda x: np.around(x, 1),
    "round to tens": lambda x: np.round(x, decimals=-1),
    "sinc": np.sinc,
    "clip": lambda x: np.clip(x, -2, 3),
    "clip below": lambda x: np.clip(x, -2, None),
    "clip above": lambda x: np.clip(x, None, 3),
    "clip not": lambda x: np.clip(x, None, None),
    "clip by keyword": lambda x: np.clip(x, min=-1, max=2.5),
    "clip far": lambda x: np.clip(x, -1000, 1000),
    "astype": lambda x: np.astype(x, "c16"),
    "method clip": lambda x: x.clip(0, 3),
    "method round": lambda x: x.round(2),
    "conj": lambda x: x.conj(),
}


def outcome(call, *args):
    try:
        with np.errstate(all="ignore"):
            return call(*args), None
    except Exception as error:
        let_through(error)
        return None, error


@pytest.mark.parametrize("name", ONE)
@settings(max_examples=15)
@given(data=st.data())
def test_functions_of_one_array(world, name, data):
    ranks = data.draw(st.sampled_from(world.ranks))
    values = data.draw(array_values(dtypes=NUMBERS, special=True))
    mesh_shape = data.draw(mesh_shapes(ranks))
    kinds = ("plain", "view", "transposed", "ragged")
    recipe = data.draw(recipes(values.shape, mesh_shape, values.dtype, kinds))
    expected, wanted = outcome(ONE[name], values)

    def program(group):
        x = recipe.build(values, DeviceMesh(group, mesh_shape))
        with distarray.forbid_communication():
            found, error = outcome(ONE[name], x)
        assert type(error) is type(wanted), (error, wanted)
        if wanted is None:
            assert_matches(found, expected)
            assert not x.ndim or found.layout is x.layout  # else a number
        assert_matches(x, values)

    world.run(ranks, program)


@settings(max_examples=40)
@given(data=st.data())
def test_limits_that_are_arrays(world, ranks, data):
    shape = data.draw(shapes(min_dims=1))
    arrays = [data.draw(array_values(shape=shape, dtypes=("f8", "i4"))) for _ in range(2)]
    arrays.append(data.draw(array_values(shape=shape[-1:], dtypes=("f8", "i4"))))
    mesh_shape = data.draw(mesh_shapes(ranks))
    laid = [data.draw(recipes(a.shape, mesh_shape, a.dtype)) for a in arrays]
    where = make_values(shape, "?", 4)

    def program(group):
        mesh = DeviceMesh(group, mesh_shape)
        x, y, z = (recipe.build(a, mesh) for recipe, a in zip(laid, arrays, strict=True))
        a, b, c = arrays
        assert_matches(np.clip(x, y, z), np.clip(a, b, c))
        assert_matches(np.clip(x, z, 4), np.clip(a, c, 4))
        assert_matches(np.clip(a, y, c), np.clip(a, b, c))
        out, wanted = dnp.zeros(shape, mesh=mesh), np.zeros(shape)
        assert np.clip(x, z, y, out=out) is out
        assert_matches(out, np.clip(a, c, b, out=wanted))
        assert np.clip(x, -1, 1, out=out, where=where) is out
        assert_matches(out, np.clip(a, -1, 1, out=wanted, where=where))
        assert_matches(np.nan_to_num(x, nan=z, posinf=1), np.nan_to_num(a, nan=c, posinf=1))
        for equal_nan in (False, True):
            assert_matches(np.isclose(x, y, atol=2, equal_nan=equal_nan), np.isclose(a, b, atol=2))
        assert_matches(np.isclose(x, z, rtol=z, atol=1), np.isclose(a, c, rtol=c, atol=1))

    world.run(ranks, program)


@settings(max_examples=30)
@given(data=st.data())
def test_into_out(world, ranks, data):
    values = data.draw(array_values(dtypes=("f8", "i4"), special=True))
    mesh_shape = data.draw(mesh_shapes(ranks))
    recipe, other = (
        data.draw(recipes(values.shape, mesh_shape, "f8", ("plain", "view", "ragged")))
        for _ in "ab"
    )
    call = data.draw(
        st.sampled_from([np.round, np.fix, np.isneginf, lambda x, out: np.clip(x, 0, 2, out=out)])
    )
    dtype = data.draw(st.sampled_from(["f8", "i4", "c16", "?"]))

    def program(group):
        mesh = DeviceMesh(group, mesh_shape)
        x = recipe.build(values, mesh)
        wanted = np.asarray(make_values(values.shape, dtype, 3))
        out = other.build(wanted, mesh)
        plain = wanted.copy()
        _, error = outcome(lambda: call(values, out=wanted))
        found, mine = outcome(lambda: call(x, out=out))
        _, numpys = outcome(lambda: call(x, out=plain))
        assert type(mine) is type(error), (mine, error)
        assert (numpys is None) is (error is None), (numpys, error)
        assert_matches(out, wanted)
        np.testing.assert_array_equal(plain, wanted)
        assert error or found is out

    world.run(ranks, program)


@pytest.mark.host
def test_real_and_imag_are_views(world, ranks):
    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        values = np.arange(6.0) + 1j
        x = dnp.array(values, mesh=mesh, placements=[Shard(0)])
        x.real[1:4] = 7
        x.imag = 5
        x.imag[0] += 1
        np.real(x)[-1] = -1
        values.real[1:4], values.imag, values.real[-1] = 7, 5, -1
        values.imag[0] += 1
        assert_matches(x, values)
        y = dnp.arange(4.0)
        assert_matches(y.imag, np.zeros(4))
        y.real[0] = 3
        assert_matches(y, np.array([3.0, 1, 2, 3]))
        with pytest.raises(TypeError, match="imaginary"):
            y.imag = 3
        with pytest.raises(ValueError, match="read-only"):
            y.imag[0] = 1
        pending = DistArray.from_local(np.ones(3) + 2j, mesh, [Partial()])
        np.imag(pending)[0] = 7
        assert_matches(np.imag(pending), np.array([7.0, 2 * ranks, 2 * ranks]))

    world.run(ranks, program)


def test_nan_to_num_in_place(world, ranks):
    def program(group):
        values = np.array([1.0, np.nan, np.inf, -np.inf])
        x = dnp.array(values, placements=[Shard(0)])
        assert np.nan_to_num(x, copy=False, posinf=2) is x
        assert_matches(x, np.nan_to_num(values, posinf=2))
        pairs = np.empty(4, complex)
        pairs.real, pairs.imag = values, values[::-1]
        z = dnp.array(pairs, placements=[Shard(0)])
        np.nan_to_num(z, copy=False)
        assert_matches(z, np.nan_to_num(pairs))
        scalar = dnp.array(np.nan)
        assert_matches(np.nan_to_num(scalar, copy=False), np.nan_to_num(np.array(np.nan)))

    world.run(ranks, program)


@settings(max_examples=30)
@given(data=st.data())
def test_whole_arrays_compared(world, ranks, data):
    values = data.draw(array_values(dtypes=("f8", "i4", "c16"), special=True))
    other = data.draw(
        st.sampled_from([values, values.copy(), values + 1, values[..., None], "text"])
    )
    mesh_shape = data.draw(mesh_shapes(ranks))
    laid = [
        data.draw(recipes(np.shape(v), mesh_shape, "f8", ("plain", "view")))
        for v in (values, other)
    ]

    def program(group):
        mesh = DeviceMesh(group, mesh_shape)
        x = laid[0].build(values, mesh)
        y = other if isinstance(other, str) else laid[1].build(other, mesh)
        for z in (y, other):
            for equal_nan in (False, True):
                if not isinstance(other, str) or not equal_nan:
                    wanted = np.array_equal(values, other, equal_nan)
                    assert np.array_equal(x, z, equal_nan) is wanted
            assert np.array_equiv(x, z) is np.array_equiv(values, other)
        assert np.array_equal(x, x, equal_nan=True) is True
        assert np.array_equiv(x, x) is np.array_equiv(values, values)
        if not isinstance(other, str):
            assert np.allclose(x, x, equal_nan=True) is True
            assert np.allclose(x, values) is np.allclose(values, values)

    world.run(ranks, program)


def test_no_elements_are_equal_to_any(world, ranks):
    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        x = distarray.distribute(np.empty((0, 5), int), mesh, [Shard(0)], src=None)
        for other in ("text", [["a"] * 5], [["a", "b"]], np.empty((0, 1), "M8[s]"), [[], [1]], {}):
            assert np.array_equiv(x, other) is np.array_equiv(np.empty((0, 5), int), other)

    world.run(ranks, program)


def test_real_if_close(world, ranks):
    def program(group):
        values = np.arange(5.0) + 1e-15j
        for imaginary in (1e-15, 1e-10):
            values.imag = 1e-15
            values.imag[-1] = imaginary
            x = dnp.array(values, placements=[Shard(0)])
            assert_matches(np.real_if_close(x), np.real_if_close(values))
            assert_matches(np.real_if_close(x, tol=1e-3), np.real_if_close(values, tol=1e-3))
        y = dnp.arange(3)
        assert np.real_if_close(y) is y

    world.run(ranks, program)


def test_casts(world, ranks):
    def program(group):
        values = np.array([1.5, -2.5, 300.0, 0.0, 9.0])
        x = dnp.array(values, placements=[Shard(0)])
        with distarray.forbid_communication():
            for dtype in ("i4", "c8", "?", "U4", "f2"):
                assert_matches(x.astype(dtype), values.astype(dtype))
            assert x.astype(float, copy=False) is x
            assert x.astype(float) is not x
            with pytest.raises(TypeError):
                x.astype(int, casting="safe")
            with pytest.raises(TypeError):
                x.astype("no such type")
        text = dnp.array(["1", "2", "three", "4"], placements=[Shard(0)])
        with pytest.raises(ValueError, match="three"):
            text.astype(float)
        assert_matches(dnp.array(["1", "2"], placements=[Shard(0)]).astype(int), np.array([1, 2]))
        with pytest.raises(ValueError, match="Device"):
            np.astype(x, int, device="elsewhere")

    world.run(ranks, program)


def test_types_and_memory(world, ranks):
    def program(group):
        x = dnp.zeros(5, "f4", placements=[Shard(0)])
        i = dnp.zeros(5, "i8", placements=[Replicate()])
        assert np.result_type(x, i, 2) == np.result_type(np.float32, np.int64, 2)
        assert np.result_type(x, 1.0) == np.float32
        assert np.can_cast(x, "f8")
        assert not np.can_cast(x, "i8")
        assert np.min_scalar_type(x) == np.float32
        assert np.min_scalar_type(dnp.array(300)) == np.uint16
        assert np.common_type(x, i) is np.float64
        assert np.iscomplexobj(x + 1j)
        assert np.isrealobj(x)
        assert np.isrealobj(dnp.zeros(2, "U1"))
        assert dnp.isscalar(x.sum())
        assert not dnp.isscalar(x)
        assert dnp.isscalar(3)
        assert np.may_share_memory(x, x[1:])
        assert np.shares_memory(x[:4], x[3:])
        assert not np.shares_memory(x[:2], x[2:])
        assert not np.may_share_memory(x, i)
        assert np.shares_memory(x, x.to_local()) or ranks > 5
        lent = np.asarray(x)  # libraries copy what may be the program's before they write to it
        assert np.may_share_memory(lent, x)
        assert lent.flags.writeable or not np.shares_memory(lent, x)
        assert not np.may_share_memory(lent[1:].copy(), x)
        pending = DistArray.from_local(np.ones(3), DeviceMesh(group, (ranks,)), [Partial()])
        np.result_type(pending, x)
        assert pending.placements == (Partial(Fold.SUM),)

    world.run(ranks, program)


@pytest.mark.host
def test_namespaces_and_devices(world, ranks):
    def program(group):
        x = dnp.arange(3)
        assert x.__array_namespace__() is dnp
        assert x.__array_namespace__(api_version="2023.12") is dnp
        with pytest.raises(ValueError, match="version"):
            x.__array_namespace__(api_version="1999.12")
        assert x.to_device("cpu") is x
        with pytest.raises(ValueError, match="device"):
            x.to_device("elsewhere")
        with pytest.raises(ValueError, match="stream"):
            x.to_device("cpu", stream=1)

    world.run(ranks, program)
