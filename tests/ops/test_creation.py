"""Creation: NumPy's bits, each rank making only its own part, and nothing sent."""

import operator

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import distarray
import distarray.numpy as dnp
from distarray.comm import DeviceMesh
from distarray.config import config
from distarray.errors import LayoutError
from distarray.layout import Partial, Replicate, Shard
from distarray.testing import (
    array_values,
    assert_matches,
    assert_same_error,
    mesh_shapes,
    recipes,
    shapes,
)

DTYPES = ("f8", "f4", "f2", "i8", "i4", "i1", "u1", "u8", "c16", "c8", "?", "g")


@st.composite
def places(draw, ranks, ndim):
    """A mesh shape and placements, or the default of both."""
    mesh_shape = draw(mesh_shapes(ranks))
    choices = [Replicate(), *[Shard(d) for d in range(-ndim, ndim)]]
    placed = [draw(st.sampled_from(choices)) for _ in mesh_shape]
    return None if draw(st.booleans()) else (mesh_shape, placed)


def keywords(place, group):
    """`mesh=` and `placements=` of a drawn place; the defaults cut whatever can be cut."""
    if place is None:
        return {}
    return {"mesh": DeviceMesh(group, place[0]), "placements": place[1]}


def silently(world, ranks, program):
    """Run a program in which nothing may be sent, with a default that cuts small arrays too."""

    def body(group):
        DeviceMesh(group, (group.size,))  # made before: making a mesh is collective
        for shape in {
            (a, group.size // a) for a in range(1, group.size + 1) if group.size % a == 0
        }:
            DeviceMesh(group, shape)
        with config.override(replicate_below=0), distarray.forbid_communication():
            program(group)

    world.run(ranks, body)


@settings(max_examples=25)
@given(data=st.data())
def test_constant_arrays(world, ranks, data):
    shape = data.draw(shapes())
    place = data.draw(places(ranks, len(shape)))
    dtype = data.draw(st.sampled_from(DTYPES))
    order = data.draw(st.sampled_from("CF"))
    number = data.draw(st.integers(0, 100))

    def program(group):
        where = keywords(place, group)
        assert_matches(dnp.zeros(shape, dtype, order, **where), np.zeros(shape, dtype))
        assert_matches(dnp.ones(shape, dtype, order, **where), np.ones(shape, dtype))
        assert_matches(dnp.full(shape, number, **where), np.full(shape, number))
        assert_matches(dnp.full(shape, number, dtype, **where), np.full(shape, number, dtype))
        made = dnp.empty(shape, dtype, order, **where)
        assert (made.shape, made.dtype) == (shape, np.dtype(dtype))
        block = made.to_local()
        assert block.flags.f_contiguous if order == "F" else block.flags.c_contiguous

    silently(world, ranks, program)


@settings(max_examples=25)
@given(data=st.data())
def test_full_of_values_that_broadcast(world, ranks, data):
    values = data.draw(array_values(min_dims=1))
    lead = data.draw(shapes(max_dims=1))
    shape = lead + values.shape
    place = data.draw(places(ranks, len(shape)))
    recipe = data.draw(recipes(values.shape, (ranks,), values.dtype))

    def program(group):
        where = keywords(place, group)
        assert_matches(dnp.full(shape, values, **where), np.full(shape, values))
        if place is None or len(place[0]) == 1:
            x = recipe.build(values, DeviceMesh(group, (ranks,)))
            assert_matches(dnp.full(shape, x, **where), np.full(shape, values))
            zeros = np.zeros(shape, values.dtype)
            assert_matches(dnp.full_like(dnp.array(zeros), x), np.full_like(zeros, values))

    world.run(ranks, program)


@settings(max_examples=25)
@given(data=st.data())
def test_diagonals(world, ranks, data):
    rows, columns = data.draw(st.integers(0, 9)), data.draw(st.one_of(st.none(), st.integers(0, 9)))
    k = data.draw(st.integers(-12, 12))
    dtype = data.draw(st.sampled_from(DTYPES))
    place = data.draw(places(ranks, 2))

    def program(group):
        where = keywords(place, group)
        made = dnp.eye(rows, columns, k, dtype, **where)
        assert_matches(made, np.eye(rows, columns, k, dtype))
        assert_matches(dnp.tri(rows, columns, k, dtype, **where), np.tri(rows, columns, k, dtype))
        assert_matches(dnp.identity(rows, dtype, **where), np.identity(rows, dtype))
        assert_matches(dnp.tri(3, k=1.0), np.tri(3, k=1.0))

    silently(world, ranks, program)


@settings(max_examples=25)
@given(data=st.data())
def test_like_follows_the_prototype(world, ranks, data):
    values = data.draw(array_values())
    mesh_shape = data.draw(mesh_shapes(ranks))
    recipe = data.draw(recipes(values.shape, mesh_shape, values.dtype))
    dtype = data.draw(st.sampled_from([None, *DTYPES]))
    order = data.draw(st.sampled_from("CFAK"))
    other = data.draw(shapes())

    def program(group):
        mesh = DeviceMesh(group, mesh_shape)
        x = recipe.build(values, mesh)
        layout = x.layout
        with distarray.forbid_communication():
            for call, reference in (
                (dnp.zeros_like, np.zeros_like),
                (np.ones_like, np.ones_like),
                (np.zeros_like, np.zeros_like),
            ):
                made = call(x, dtype, order)
                assert_matches(made, reference(values, dtype))
                assert made.layout is layout.settled()
            assert x.layout is layout, "a prototype is not settled"
            assert_matches(dnp.ones_like(x, shape=other), np.ones_like(values, shape=other))
            assert dnp.empty_like(x, dtype, order).mesh is mesh
        assert_matches(dnp.full_like(x, 1), np.full_like(values, 1))
        assert_matches(
            np.full_like(x, 0, dtype, shape=other), np.full_like(values, 0, dtype, shape=other)
        )

    world.run(ranks, program)


numbers = st.one_of(
    st.integers(-20, 20),
    st.floats(-5, 5).map(lambda x: round(x, 3)),
    st.floats(-1e3, 1e3),
)


@settings(max_examples=25)
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


# -- from other arrays ---------------------------------------------------------------------------


@settings(max_examples=25)
@given(data=st.data())
def test_array_of_distributed_arrays(world, ranks, data):
    values = data.draw(array_values())
    mesh_shape = data.draw(mesh_shapes(ranks))
    recipe = data.draw(recipes(values.shape, mesh_shape, values.dtype))
    dtype = data.draw(st.sampled_from([None, "c16"]))
    ndmin = data.draw(st.integers(0, 4))
    order = data.draw(st.sampled_from("KCFA"))

    def program(group):
        x = recipe.build(values, DeviceMesh(group, mesh_shape))
        made = dnp.array(x, dtype, ndmin=ndmin, order=order)
        assert_matches(made, np.array(values, dtype, ndmin=ndmin))
        assert made.to_local().base is None or not np.shares_memory(made.to_local(), x.to_local())
        assert dnp.asarray(x) is x
        assert dnp.asarray(x, dtype=x.dtype) is x
        assert_matches(dnp.ascontiguousarray(x), np.ascontiguousarray(values))
        assert_matches(dnp.asfortranarray(x), np.asfortranarray(values))
        assert dnp.asfortranarray(x).to_local().flags.f_contiguous
        assert_matches(dnp.array([x, x]), np.array([values, values]))
        assert_matches(dnp.array([[x], [values]]), np.array([[values], [values]]))

    world.run(ranks, program)


@pytest.mark.host
@settings(max_examples=25)
@given(data=st.data())
def test_array_of_numpy_arrays_and_lists(world, ranks, data):
    values = data.draw(array_values())
    place = data.draw(places(ranks, values.ndim))
    dtype = data.draw(st.sampled_from([None, "c16"]))

    def program(group):
        where = keywords(place, group)
        made = dnp.array(values, dtype, **where)
        assert_matches(made, np.array(values, dtype))
        assert not np.shares_memory(made.to_local(), values)
        assert_matches(dnp.asarray(values, dtype, **where), np.asarray(values, dtype))
        listed = np.array(values.tolist())
        if listed.shape == values.shape:  # an empty list does not tell its inner lengths
            assert_matches(dnp.array(values.tolist(), **where), listed)
        assert_matches(
            dnp.frombuffer(values.tobytes(), "u1"), np.frombuffer(values.tobytes(), "u1")
        )
        flat = values.ravel().tolist()
        assert_matches(dnp.fromiter(flat, values.dtype), np.fromiter(flat, values.dtype))

    silently(world, ranks, program)


def test_arrays_made_of_scalars(world, ranks):
    def program(group):
        x = dnp.arange(10.0)
        assert_matches(dnp.array([x.sum(), 3, x.max()]), np.array([45.0, 3, 9.0]))
        assert_matches(dnp.array([[x[2], x[9]], [1, 2]]), np.array([[2.0, 9.0], [1, 2]]))
        assert_matches(dnp.array(x.sum()), np.array(45.0))
        assert_matches(dnp.asarray(3.5), np.asarray(3.5))
        assert_matches(dnp.array([]), np.array([]))
        assert_matches(dnp.full(dnp.array(3), x[4]), np.full(3, 4.0))
        assert_matches(dnp.zeros((x[2].astype(int), 3)), np.zeros((2, 3)))
        assert_matches(dnp.arange(x[1], x[7], x[2]), np.arange(1.0, 7.0, 2.0))

    with config.override(replicate_below=0):
        world.run(ranks, program)


@pytest.mark.host
def test_sharing_of_memory(world, ranks):
    def program(group):
        values = np.arange(12.0)
        with config.override(replicate_below=1 << 20):
            assert np.shares_memory(dnp.asarray(values).to_local(), values)
        with config.override(replicate_below=0):
            cut = dnp.asarray(values, copy=False)
            assert np.shares_memory(cut.to_local(), values) or not cut.to_local().size
            assert not np.shares_memory(dnp.asarray(values).to_local(), values) or ranks == 1
        with pytest.raises(ValueError, match="copy"):
            dnp.asarray(dnp.zeros(3), dtype="f4", copy=False)

    world.run(ranks, program)


def test_where_arrays_go(world, ranks):
    def program(group):
        assert dnp.zeros(10).layout.is_replicated
        assert dnp.zeros(1 << 16).placements == (Shard(0),)
        assert dnp.zeros((1, 1 << 16)).placements == (Shard(1 if ranks > 1 else 0),)
        other = DeviceMesh(group, (1, ranks), ("a", "b"))
        x = dnp.zeros((4, 6), mesh=other, placements=[Shard(0), Shard(1)])
        assert x.mesh is other
        for made in (
            np.zeros(3, like=x),
            np.eye(3, like=x),
            np.full(3, 1, like=x),
            dnp.ones_like(x),
        ):
            assert made.mesh is other
        assert np.array([1, 2], like=x).mesh is other
        assert dnp.zeros(3, like=np.zeros(1)).mesh is distarray.default_mesh()
        assert dnp.array(x, placements=[Replicate(), Shard(0)]).placements == (
            Replicate(),
            Shard(0),
        )

    world.run(ranks, program)


def test_files(world, ranks, tmp_path):
    path = world.run(1, lambda group: str(tmp_path))[0] if world.name == "threads" else None

    def program(group):
        where = group.broadcast_object(path or str(tmp_path), 0)
        values = np.arange(24.0).reshape(4, 6)
        if group.rank == 0:
            np.save(f"{where}/x.npy", values)
            np.save(f"{where}/none.npy", values[:0])
            np.savez(f"{where}/x.npz", a=values, b=values[0])
            np.savetxt(f"{where}/x.txt", values)
            values.tofile(f"{where}/x.bin")
        group.barrier()
        assert_matches(dnp.load(f"{where}/x.npy"), values)
        assert_matches(dnp.load(f"{where}/none.npy"), values[:0])
        with dnp.load(f"{where}/x.npz") as archive:
            assert sorted(archive) == ["a", "b"]
            assert_matches(archive["b"], values[0])
        assert_matches(dnp.loadtxt(f"{where}/x.txt"), values)
        assert_matches(dnp.genfromtxt(f"{where}/x.txt"), values)
        assert_matches(dnp.fromfile(f"{where}/x.bin"), values.ravel())
        group.barrier()

    with config.override(replicate_below=0):
        world.run(ranks, program)


BAD = [
    (lambda xp: xp.zeros(-1)),
    (lambda xp: xp.zeros(2.5)),
    (lambda xp: xp.zeros((2, -1))),
    (lambda xp: xp.zeros((2.0, 3))),
    (lambda xp: xp.zeros(None)),
    (lambda xp: xp.zeros(3, dtype="no such type")),
    (lambda xp: xp.zeros(3, device="no such device")),
    (lambda xp: xp.full((2, 3), [1, 2])),
    (lambda xp: xp.eye(3, k=1.5)),
    (lambda xp: xp.eye(-3)),
    (lambda xp: xp.arange()),
    (lambda xp: xp.arange(0, 10, 0)),
    (lambda xp: xp.arange(0, float("nan"))),
    (lambda xp: xp.arange(0, 1e300)),
    (lambda xp: xp.arange(5, dtype=bool)),
    (lambda xp: xp.linspace(0, 1, -1)),
    (lambda xp: xp.linspace(0, 1, 2.5)),
    (lambda xp: xp.linspace([0, 1], 1, 3, axis=4)),
    (lambda xp: xp.linspace([0, 1], [0, 1, 2], 3)),
    (lambda xp: xp.geomspace(0, 1)),
    (lambda xp: xp.meshgrid([1], indexing="yx")),
    (lambda xp: xp.vander([[1, 2]])),
    (lambda xp: xp.array([[1, 2], [3]])),
    (lambda xp: xp.array([xp.zeros((3, 2)), xp.zeros((4, 2))])),
    (lambda xp: xp.array(["a"], dtype=float)),
    (lambda xp: xp.frombuffer(b"123", dtype="f8")),
    (lambda xp: xp.asarray_chkfinite([1, np.nan])),
    (lambda xp: xp.r_["nonsense", 1]),
    (lambda xp: xp.r_[1, "0"]),
]


@pytest.mark.parametrize("call", BAD, ids=range(len(BAD)))
def test_bad_input_raises_numpys_error_everywhere(world, ranks, call):
    def program(group):
        with distarray.forbid_communication():
            assert_same_error(lambda: call(dnp), lambda: call(np))

    world.run(ranks, program)


def test_bad_placements(world, ranks):
    def program(group):
        for placements in ([Shard(2)], [Shard(0), Shard(0)], [Partial()], []):
            with pytest.raises(LayoutError):
                dnp.zeros((3, 4), placements=placements)
        with pytest.raises(LayoutError, match="objects"):
            dnp.zeros(3, dtype=object, placements=[Shard(0)])
        with pytest.raises(TypeError):
            dnp.zeros(3, placements=["rows"])
        assert_matches(dnp.zeros(3, dtype=object), np.zeros(3, dtype=object))

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
