"""Fourier transforms against NumPy's on every layout."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distarray
from distarray import DeviceMesh, Partial, Replicate, Shard
from distarray.plan import fourier
from distarray.testing import (
    array_values,
    assert_matches,
    assert_same_error,
    mesh_shapes,
    recipes,
    shapes,
)

ONE = [np.fft.fft, np.fft.ifft, np.fft.rfft, np.fft.irfft, np.fft.hfft, np.fft.ihfft]
SEVERAL = [
    np.fft.fftn, np.fft.ifftn, np.fft.rfftn, np.fft.irfftn,
    np.fft.fft2, np.fft.ifft2, np.fft.rfft2, np.fft.irfft2,
]  # fmt: skip
REAL = (np.fft.rfft, np.fft.ihfft, np.fft.rfftn, np.fft.rfft2)
NORMS = [None, "backward", "ortho", "forward"]


def close(result, expected):
    """Equal to rounding, which is relative to the largest number."""
    if expected.dtype.kind not in "fc":
        assert_matches(result, expected)
        return
    eps = np.finfo(expected.dtype).eps
    scale = float(np.abs(expected).max(initial=0))
    assert_matches(result, expected, exact=False, rtol=100 * eps, atol=100 * float(eps) * scale)


@st.composite
def operands(draw, world, function, dtypes=("f8", "c16", "f4", "c8", "i4", "?", "g", "G", "f2")):
    ranks = draw(st.sampled_from(world.ranks))
    mesh_shape = draw(mesh_shapes(ranks))
    real = function in REAL
    dtypes = [dtype for dtype in dtypes if not real or np.dtype(dtype).kind != "c"]
    shape = draw(shapes(min_dims=1, max_dims=3, max_side=9))
    values = draw(array_values(shape=shape, dtypes=dtypes))
    return ranks, mesh_shape, draw(recipes(shape, mesh_shape, values.dtype)), values


def compared(world, ranks, mesh_shape, recipe, values, call):
    try:
        expected = call(values)
    except Exception as error:
        expected, failed = None, error
    else:
        failed = None
        if not values.size:  # where NumPy's irfft and hfft read what is not there
            expected = np.zeros_like(expected)

    def program(group):
        x = recipe.build(values, DeviceMesh(group, mesh_shape))
        if failed is not None:
            assert_same_error(lambda: call(x), lambda: call(values))
            return
        close(call(x), expected)
        assert_matches(x, values)

    world.run(ranks, program)


@settings(max_examples=50)
@given(data=st.data())
def test_one_dimension(world, data):
    function = data.draw(st.sampled_from(ONE))
    ranks, mesh_shape, recipe, values = data.draw(operands(world, function))
    n = data.draw(st.none() | st.integers(1, 13))
    axis = data.draw(st.integers(-values.ndim, values.ndim - 1))
    norm = data.draw(st.sampled_from(NORMS))
    call = lambda x: function(x, n, axis, norm)  # noqa: E731
    compared(world, ranks, mesh_shape, recipe, values, call)


@settings(max_examples=50)
@given(data=st.data())
def test_several_dimensions(world, data):
    function = data.draw(st.sampled_from(SEVERAL))
    ranks, mesh_shape, recipe, values = data.draw(operands(world, function))
    dims = st.integers(-values.ndim, values.ndim - 1)
    keywords = {"norm": data.draw(st.sampled_from(NORMS))}
    if data.draw(st.booleans()):
        keywords["axes"] = data.draw(st.lists(dims, min_size=1, max_size=3))
        if data.draw(st.booleans()):
            lengths = st.sampled_from([-1, 1, 2, 3, 5, 8, 12])
            count = len(keywords["axes"])
            keywords["s"] = data.draw(st.lists(lengths, min_size=count, max_size=count))
    compared(world, ranks, mesh_shape, recipe, values, lambda x: function(x, **keywords))


@pytest.fixture
def lines_first(monkeypatch):
    """Dimensions that are cut are transformed as they lie, however short they are."""
    fourier.plan_transform.cache_clear()
    monkeypatch.setattr(fourier, "_line_cost", lambda line, size: 0.0)
    yield
    fourier.plan_transform.cache_clear()


@settings(max_examples=60)
@given(data=st.data())
def test_lines(world, lines_first, data):
    """A dimension that stays cut: in steps where the length has factors, by a chirp otherwise."""
    function = data.draw(st.sampled_from(ONE))
    ranks = data.draw(st.sampled_from(world.ranks))
    mesh_shape = data.draw(mesh_shapes(ranks))
    dtypes = ["f8", "f4", "g", "i4", "f2", ">f8"] + ["c16", "c8", "G"] * (function not in REAL)
    extent = data.draw(st.integers(1, 150))
    shape = data.draw(st.sampled_from([(extent,), (2, extent), (extent, 3)]))
    values = data.draw(array_values(shape=shape, dtypes=dtypes))
    recipe = data.draw(recipes(shape, mesh_shape, values.dtype))
    n = data.draw(st.none() | st.integers(1, 300) | st.sampled_from([64, 97, 144, 210, 251]))
    norm = data.draw(st.sampled_from(NORMS))
    call = lambda x: function(x, n, shape.index(extent), norm)  # noqa: E731
    compared(world, ranks, mesh_shape, recipe, values, call)


@settings(max_examples=20)
@given(data=st.data())
def test_shifts(world, data):
    function = data.draw(st.sampled_from([np.fft.fftshift, np.fft.ifftshift]))
    ranks, mesh_shape, recipe, values = data.draw(operands(world, function))
    dims = st.integers(-values.ndim, values.ndim - 1)
    axes = data.draw(st.none() | dims | st.lists(dims, min_size=1, max_size=2))
    compared(world, ranks, mesh_shape, recipe, values, lambda x: function(x, axes))


@settings(max_examples=25)
@given(data=st.data())
def test_out(world, data):
    function = data.draw(st.sampled_from([np.fft.fft, np.fft.ifft, np.fft.rfft, np.fft.irfft,
                                          np.fft.ihfft, np.fft.fftn, np.fft.ifftn, np.fft.rfftn,
                                          np.fft.irfftn, np.fft.fft2]))  # fmt: skip
    ranks, mesh_shape, recipe, values = data.draw(operands(world, function, ("f8", "c16", "i4")))
    try:
        shape = function(values).shape
    except (IndexError, ValueError):
        return
    target = np.zeros(shape, data.draw(st.sampled_from(["c16", "c8", "f8"])))
    place = data.draw(recipes(shape, mesh_shape, target.dtype, ("plain", "view")))
    try:
        expected = function(values, out=target.copy())
    except TypeError:
        expected = None

    def program(group):
        mesh = DeviceMesh(group, mesh_shape)
        x, out, own = recipe.build(values, mesh), place.build(target, mesh), target.copy()
        if expected is None:
            with pytest.raises(TypeError):
                function(x, out=out)
            return
        assert function(x, out=out) is out
        assert function(x, out=own) is own
        eps = 1e-5 if target.dtype == "c8" else 1e-13
        scale = float(np.abs(expected).max(initial=0)) * eps
        assert_matches(out, expected, exact=False, rtol=eps, atol=scale)
        np.testing.assert_allclose(own, expected, rtol=eps, atol=scale)

    world.run(ranks, program)


# -- where results go, and what it costs ---------------------------------------------------------


def sent(call):
    """The result, and messages and bytes that this rank has sent for it."""
    with distarray.trace() as trace:
        result = call()
    return result, len(trace), trace.messages, trace.bytes


def test_slabs_come_and_go(world, ranks):
    values = np.arange(48.0 * 24).reshape(48, 24) + 1j

    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        x = distarray.distribute(values, mesh, [Shard(0)], src=None)
        block = values.nbytes // ranks
        spectrum, events, messages, nbytes = sent(lambda: np.fft.fft2(x))
        assert spectrum.placements == ((Shard(1) if ranks > 1 else Shard(0)),)
        assert (events, messages) == (ranks > 1, ranks - 1)
        assert nbytes == block * (ranks - 1) // ranks
        back, events, messages, nbytes = sent(lambda: np.fft.ifft2(spectrum))
        assert back.placements == (Shard(0),)
        assert (events, messages, nbytes) == (ranks > 1, ranks - 1, block * (ranks - 1) // ranks)
        close(back, values)
        with distarray.forbid_communication():
            assert np.fft.fft(x, axis=1).layout is x.layout
            assert np.fft.rfft(np.real(x), axis=1).placements == (Shard(0),)

    world.run(ranks, program)


def test_real_slabs_cost_no_more(world, ranks):
    """Cut along the first dimension, half of the spectrum moves, and once."""
    values = np.arange(24.0 * 24 * 4).reshape(24, 24, 4)

    def program(group):
        x = distarray.distribute(values, DeviceMesh(group, (ranks,)), [Shard(0)], src=None)
        spectrum, events, _, nbytes = sent(lambda: np.fft.rfftn(x))
        assert events == (ranks > 1)
        assert nbytes == 24 * 24 * 3 * 16 // ranks * (ranks - 1) // ranks
        back, events, _, _ = sent(lambda: np.fft.irfftn(spectrum))
        assert events == (ranks > 1)
        close(back, values)

    world.run(ranks, program)


def test_pencils_on_a_grid(world):
    values = np.arange(12.0 * 12 * 12).reshape(12, 12, 12) + 0j
    expected = np.fft.fftn(values)

    def program(group):
        shape = {4: (2, 2), 6: (2, 3)}.get(group.size, (1, group.size))
        x = distarray.distribute(values, DeviceMesh(group, shape), [Shard(0), Shard(1)], src=None)
        spectrum, events, _, _ = sent(lambda: np.fft.fftn(x))
        close(spectrum, expected)
        assert events <= 1
        back, events, _, _ = sent(lambda: np.fft.ifftn(spectrum))
        close(back, values)
        assert events <= 1
        if group.size > 3:
            assert spectrum.placements == (Shard(2), Shard(2))
            assert back.placements == (Shard(0), Shard(1))

    world.run(max(world.ranks), program)


def test_a_long_line_stays_cut(world, ranks, lines_first):
    """Three redistributions, each of all but one p-th of the array."""
    values = np.arange(144.0 * ranks * ranks) + 0j

    def program(group):
        x = distarray.distribute(values, DeviceMesh(group, (ranks,)), [Shard(0)], src=None)
        spectrum, events, messages, nbytes = sent(lambda: np.fft.fft(x))
        close(spectrum, np.fft.fft(values))
        assert spectrum.layout is x.layout
        many = ranks > 1
        assert (events, messages) == (3 * many, 3 * (ranks - 1))
        assert nbytes == 3 * (values.nbytes // ranks * (ranks - 1) // ranks)

    world.run(ranks, program)


def test_pending_sums_and_rows(world, ranks):
    values = np.arange(24.0).reshape(4, 6)

    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        share = mesh.asarray(values / 8 * (1 + (group.rank == 0) * (8 - ranks)))
        pending = distarray.DistArray.from_local(share, mesh, [Partial()])
        rows = distarray.distribute(values, mesh, [Shard(0)], src=None)
        with distarray.forbid_communication():
            spectrum = np.fft.rfft2(pending)
            row = np.fft.fft(rows[2])
        assert spectrum.placements == (Partial(),)
        close(spectrum, np.fft.rfft2(values))
        close(row, np.fft.fft(values[2]))
        with distarray.config.override(replicate_below=1):
            shared = np.fft.rfft2(distarray.DistArray.from_local(share, mesh, [Partial()]))
        assert shared.layout.is_plain
        close(shared, np.fft.rfft2(values))
        counted = distarray.DistArray.from_local(
            mesh.asarray(np.full((3,), 100, "i1")), mesh, [Partial()]
        )
        close(np.fft.fft(counted), np.fft.fft(counted.full()))  # the sum wraps round first

    world.run(ranks, program)


@pytest.mark.host
def test_reproducible(world, ranks):
    """NumPy's own bits, on every layout."""
    rng = np.random.default_rng(3)
    plane, line = rng.standard_normal((20, 12)), rng.standard_normal(1000)

    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        with distarray.config.override(reproducible=True):
            for place in (Shard(0), Shard(1), Replicate()):
                x = distarray.distribute(plane, mesh, [place], src=None)
                assert_matches(np.fft.fft2(x), np.fft.fft2(plane))
                assert_matches(np.fft.rfft2(x), np.fft.rfft2(plane))
            for values in (line, line.astype("f2")):
                x = distarray.distribute(values, mesh, [Shard(0)], src=None)
                assert_matches(np.fft.ifft(x), np.fft.ifft(values))

    world.run(ranks, program)


def test_a_rank_outside_of_the_mesh(world, lines_first):
    ranks = world.ranks[-1]
    if ranks == 1:
        pytest.skip("needs a second rank, to leave it out of the mesh")
    values = np.arange(24.0 * 5).reshape(24, 5)

    def program(group):
        mesh = DeviceMesh(group, (ranks - 1,), ranks=range(1, ranks))
        for placement in (Shard(0), Shard(1), Replicate()):
            x = distarray.distribute(values, mesh, [placement], src=None)
            for function in (np.fft.fft2, np.fft.rfft2, np.fft.irfft2, np.fft.fftshift):
                close(function(x), function(values))
            for n in (24, 23):
                close(np.fft.fft(x, n, 0), np.fft.fft(values, n, 0))
                close(np.fft.hfft(x, n, 0), np.fft.hfft(values, n, 0))

    world.run(ranks, program)


# -- bad input -----------------------------------------------------------------------------------

BAD = {
    "n of 0": lambda x: np.fft.fft(x, 0),
    "n negative": lambda x: np.fft.irfft(x, -2),
    "n a fraction": lambda x: np.fft.fft(x, 2.5),
    "norm unknown": lambda x: np.fft.fft(x, norm="half"),
    "norm unknown, inverse": lambda x: np.fft.ifftn(x, norm="half"),
    "norm unknown, hfft": lambda x: np.fft.hfft(x, norm=3),
    "axis": lambda x: np.fft.fft(x, axis=2),
    "axis, n": lambda x: np.fft.fft(x, 3, axis=-3),
    "axes": lambda x: np.fft.fftn(x, axes=(0, 5)),
    "axes, s": lambda x: np.fft.fftn(x, (3, 4), axes=(0, 5)),
    "no axes": lambda x: np.fft.rfftn(x, axes=()),
    "axes a number": lambda x: np.fft.fftn(x, axes=1),
    "lengths": lambda x: np.fft.fftn(x, (3, 4), axes=(0,)),
    "rfft of complex": lambda x: np.fft.rfft(x + 1j),
    "rfftn of complex": lambda x: np.fft.rfftn(x + 1j),
    "dates": lambda x: np.fft.fft(x.astype("m8[s]")),
    "empty": lambda x: np.fft.fft(x[:, :0]),
    "irfft of one": lambda x: np.fft.irfft(x[:, :1]),
    "out of a wrong shape": lambda x: np.fft.fft(x, out=np.empty((4, 5), complex)),
    "out of a wrong length": lambda x: np.fft.fft(x, out=np.empty((5, 6), complex)),
    "out of a wrong kind": lambda x: np.fft.fft(x, out=np.empty((4, 6))),
    "out a list": lambda x: np.fft.fft(x, out=[1]),
    "shift": lambda x: np.fft.fftshift(x, 2),
}


@pytest.mark.host
@pytest.mark.parametrize("call", BAD.values(), ids=BAD)
def test_bad_input(world, call):
    values = np.arange(24.0).reshape(4, 6)
    with pytest.raises(Exception) as wanted:
        call(values)

    def program(group):
        x = distarray.distribute(values, DeviceMesh(group), [Shard(0)], src=None)
        with pytest.raises(wanted.type) as found:
            call(x)
        assert str(found.value) == str(wanted.value)

    world.run(world.ranks[-1], program)


def test_deprecations(world):
    values = np.arange(24.0).reshape(4, 6)

    def program(group):
        x = distarray.distribute(values, DeviceMesh(group), [Shard(0)], src=None)
        for keywords in ({"s": (3, 4)}, {"s": (None, 4), "axes": (0, 1)}):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                expected = np.fft.rfftn(values, **keywords)
                close(np.fft.rfftn(x, **keywords), expected)

    world.run(world.ranks[-1], program)
    x = distarray.distribute(values, DeviceMesh(None, (1,), ranks=[0]), src=None)
    with pytest.warns(DeprecationWarning, match="`axes` should not be `None`"):
        np.fft.fftn(x, s=(3, 4))
    with pytest.warns(DeprecationWarning, match="containing `None` values"):
        np.fft.fftn(x, s=(3, None), axes=(0, 1))
