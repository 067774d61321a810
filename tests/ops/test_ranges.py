"""Ranges, grids and windows: NumPy's bits, each rank making only its own part."""

import operator

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import distarray.numpy as dnp
from distarray.comm import DeviceMesh
from distarray.config import config
from distarray.testing import array_values, assert_matches, mesh_shapes, recipes, shapes
from tests.ops.placed import keywords, places, silently

numbers = st.one_of(
    st.integers(-20, 20),
    st.floats(-5, 5).map(lambda x: round(x, 3)),
    st.floats(-1e3, 1e3),
)


@settings(max_examples=25)
@pytest.mark.filterwarnings("ignore:The 'generic' unit:DeprecationWarning")
@given(data=st.data())
@example(data=None)
def test_arange_has_numpys_bits(world, ranks, data):
    if data is None:
        cases = [((0, 1, 0.1), None), ((1e16, 1e16 + 64, 3.0), None), ((0.1, 700, 0.1), "f4")]
        cases += [((5,), "i1"), ((0, 300, 7), "u1"), ((250, 400, 3), "u1"), ((3, 1), None)]
        cases += [((0, 2), "?"), ((0, 7, 0.5), "f2"), ((0, 3, 0.25), "c8"), ((0, 9, 2.5), int)]
        cases += [((np.float32(0.1), np.float32(2), np.float32(0.05)), None)]
        cases += [((np.datetime64("2020-01-30"), np.datetime64("2020-03-02")), None)]
        cases += [((0, 10, 3), "m8[s]"), ((2**62, 2**62 + 40, 7), None), ((-5, 5, 1e300), None)]
        cases += [((0.0, 1.0, np.inf), None), ((10, 0, -1), "f4"), ((0, -5), "u8")]
        cases += [((-0.0, 5.0), None), ((0, 3e5, 4e4), "f2")]
    else:
        start, stop = data.draw(numbers), data.draw(numbers)
        step = data.draw(numbers.filter(lambda s: abs(s) > 1e-2))
        args = data.draw(st.sampled_from([(stop,), (start, stop), (start, stop, step)]))
        cases = [(args, data.draw(st.sampled_from([None, "f8", "f4", "i8", "c16", "g"])))]

    def program(group):
        for args, dtype in cases:
            with np.errstate(all="ignore"):
                assert_matches(dnp.arange(*args, dtype=dtype), np.arange(*args, dtype=dtype))

    silently(world, ranks, program)


@settings(max_examples=25)
@given(data=st.data())
def test_linspace_has_numpys_bits(world, ranks, data):
    start, stop = data.draw(numbers), data.draw(numbers)
    num = data.draw(st.integers(0, 40))
    endpoint = data.draw(st.booleans())
    dtype = data.draw(st.sampled_from([None, "f4", "i8", "c16", "f8"]))
    place = data.draw(places(ranks, 1))

    def program(group):
        where = keywords(place, group)
        args = (start, stop, num, endpoint, True, dtype)
        made, step = dnp.linspace(*args, **where)
        expected, wanted = np.linspace(*args)
        assert_matches(made, expected)
        assert step == wanted or (step != step and wanted != wanted)

    silently(world, ranks, program)


@settings(max_examples=25)
@given(data=st.data())
def test_linspace_between_arrays(world, ranks, data):
    start = data.draw(array_values(dtypes=("f8", "i4", "f4"), max_dims=2))
    stop = data.draw(st.one_of(st.just(start + 3), numbers, st.just(start * 0)))
    num = data.draw(st.integers(0, 9))
    axis = data.draw(st.integers(-start.ndim - 1, start.ndim))
    endpoint = data.draw(st.booleans())
    place = data.draw(places(ranks, start.ndim + 1))
    recipe = data.draw(recipes(start.shape, (ranks,), start.dtype))

    def program(group):
        expected = np.linspace(start, stop, num, endpoint, axis=axis)
        assert_matches(dnp.linspace(start, stop, num, endpoint, axis=axis), expected)
        where = keywords(place, group)
        assert_matches(dnp.linspace(start, stop, num, endpoint, axis=axis, **where), expected)
        x = recipe.build(start, DeviceMesh(group, (ranks,)))
        assert_matches(np.linspace(x, stop, num, endpoint, axis=axis), expected)
        assert_matches(
            np.linspace(stop, x, num, axis=axis), np.linspace(stop, start, num, axis=axis)
        )

    world.run(ranks, program)


@settings(max_examples=25)
@given(data=st.data())
def test_logspace_and_geomspace(world, ranks, data):
    start = data.draw(st.floats(0.1, 9).map(lambda x: round(x, 3)))
    stop = data.draw(st.one_of(st.floats(0.1, 30), st.just([1.0, 2.5, 7.0])))
    num = data.draw(st.integers(0, 20))
    endpoint = data.draw(st.booleans())
    base = data.draw(st.sampled_from([10.0, 2, [2.0, 3.0, 10.0]]))
    axis = data.draw(st.sampled_from([0, -1]))
    dtype = data.draw(st.sampled_from([None, "f4", "c16"]))
    sign = data.draw(st.sampled_from([1, -1, 1j]))

    def program(group):
        args, named = (start, stop, num, endpoint), {"axis": axis, "dtype": dtype}
        assert_matches(dnp.logspace(*args, base, **named), np.logspace(*args, base, **named))
        args = (np.multiply(start, sign), np.multiply(stop, sign), num, endpoint)
        if sign != 1j or dtype != "f4":
            assert_matches(dnp.geomspace(*args, **named), np.geomspace(*args, **named))

    with config.override(replicate_below=0):
        world.run(ranks, program)


@settings(max_examples=25)
@given(data=st.data())
def test_grids(world, ranks, data):
    shape = data.draw(shapes(min_dims=1))
    dtype = data.draw(st.sampled_from(["i8", "f4", "u1"]))
    lines = [data.draw(array_values(shape=(n,), dtypes=("f8", "i4"))) for n in shape]
    copy, sparse, indexing = (
        data.draw(st.booleans()),
        data.draw(st.booleans()),
        data.draw(st.sampled_from(["xy", "ij"])),
    )
    place = data.draw(places(ranks, len(shape)))

    def program(group):
        where = keywords(place, group)
        assert_matches(dnp.indices(shape, dtype), np.indices(shape, dtype))
        made = dnp.indices(shape, dtype, sparse=True, **where)
        assert_matches(made, np.indices(shape, dtype, sparse=True))
        named = {"copy": copy, "sparse": sparse, "indexing": indexing}
        made = dnp.meshgrid(*lines, **named, **(where if indexing == "ij" else {}))
        assert_matches(made, np.meshgrid(*lines, **named))

        def function(*at):
            return sum(index * 10.0**power for power, index in enumerate(at)) + 1

        made = dnp.fromfunction(function, shape, dtype=dtype, **where)
        assert_matches(made, np.fromfunction(function, shape, dtype=dtype))

    silently(world, ranks, program)


@settings(max_examples=25)
@given(data=st.data())
def test_meshgrid_of_distributed_lines(world, ranks, data):
    lines = [data.draw(array_values(max_dims=2)) for _ in range(data.draw(st.integers(1, 3)))]
    mesh_shape = data.draw(mesh_shapes(ranks))
    laid = [data.draw(recipes(line.shape, mesh_shape, line.dtype)) for line in lines]
    sparse, indexing = data.draw(st.booleans()), data.draw(st.sampled_from(["xy", "ij"]))

    def program(group):
        mesh = DeviceMesh(group, mesh_shape)
        xs = [recipe.build(line, mesh) for recipe, line in zip(laid, lines, strict=True)]
        made = np.meshgrid(*xs, sparse=sparse, indexing=indexing)
        assert_matches(made, np.meshgrid(*lines, sparse=sparse, indexing=indexing))

    world.run(ranks, program)


KEYS = [
    np.s_[0:5],
    np.s_[1:7:2, 0:3],
    np.s_[0:1:5j],
    np.s_[-1:1:4j, 0:3:1, :4],
    np.s_[0:5.5, 2:3:2j],
    np.s_[3:0:-1, 0:1:1j],
    np.s_[0:2:0.25],
]


@pytest.mark.parametrize("key", KEYS, ids=str)
@pytest.mark.parametrize("name", ["mgrid", "ogrid"])
def test_grids_by_slices(world, ranks, name, key):
    def program(group):
        assert_matches(getattr(dnp, name)[key], getattr(np, name)[key])

    silently(world, ranks, program)


TRANSLATED = [
    ("r_", np.s_[1:4, 0, 4]),
    ("r_", np.s_[0:1:5j, 2.5]),
    ("r_", ([1, 2, 3], 0, 0, [4.0, 5])),
    ("r_", ("0,2", [1, 2], [3, 4])),
    ("r_", ("1,2,0", [1, 2], [3, 4])),
    ("r_", ("-1", [[1, 2]], [[3, 4]])),
    ("r_", (np.float32(1), 2)),
    ("c_", ([1, 2, 3], [4, 5, 6])),
    ("c_", ([[1, 2, 3]], 0, [[4, 5, 6]])),
    ("c_", np.s_[0:3, 3:6]),
]


@pytest.mark.parametrize(("name", "key"), TRANSLATED, ids=str)
def test_translators(world, ranks, name, key):
    def program(group):
        with config.override(replicate_below=0):
            assert_matches(getattr(dnp, name)[key], getattr(np, name)[key])
            mine = tuple(dnp.array(k) if isinstance(k, list) else k for k in key)
            assert_matches(getattr(dnp, name)[mine], getattr(np, name)[key])

    world.run(ranks, program)


@pytest.mark.parametrize("name", ["bartlett", "blackman", "hamming", "hanning"])
def test_windows(world, ranks, name):
    def program(group):
        for points in (-1, 0, 1, 2, 9, 12, 5.5):
            assert_matches(getattr(dnp, name)(points), getattr(np, name)(points))
        for points in (0, 1, 8):
            assert_matches(dnp.kaiser(points, 3.5), np.kaiser(points, 3.5))
        for points in (1, 8, 9):
            assert_matches(dnp.fft.fftfreq(points, 0.3), np.fft.fftfreq(points, 0.3))
            assert_matches(dnp.fft.rfftfreq(points, 0.3), np.fft.rfftfreq(points, 0.3))

    silently(world, ranks, program)


@settings(max_examples=25)
@given(data=st.data())
def test_vander(world, ranks, data):
    values = data.draw(
        array_values(shape=(data.draw(st.integers(0, 9)),), dtypes=("f8", "i4", "c16"))
    )
    columns = data.draw(st.one_of(st.none(), st.integers(0, 5)))
    increasing = data.draw(st.booleans())
    recipe = data.draw(recipes(values.shape, (ranks,), values.dtype))

    def program(group):
        x = recipe.build(values, DeviceMesh(group, (ranks,)))
        assert_matches(np.vander(x, columns, increasing), np.vander(values, columns, increasing))
        assert_matches(dnp.vander(values.tolist(), columns), np.vander(values.tolist(), columns))

    world.run(ranks, program)


def test_index_helpers(world, ranks):
    def program(group):
        for n, k, m in ((4, 0, None), (3, 1, 5), (5, -2, 2), (0, 0, 0)):
            assert_matches(dnp.tril_indices(n, k, m), np.tril_indices(n, k, m))
            assert_matches(dnp.triu_indices(n, k, m), np.triu_indices(n, k, m))
        assert_matches(dnp.diag_indices(4, 3), np.diag_indices(4, 3))
        assert_matches(dnp.mask_indices(4, np.triu, 1), np.mask_indices(4, np.triu, 1))
        assert operator.index(dnp.array(3)) == 3

    with config.override(replicate_below=0):
        world.run(ranks, program)
