"""Creation: NumPy's bits, each rank making only its own part, and nothing sent."""

import numpy as np
import pytest
from hypothesis import given, settings
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
from tests.ops.placed import DTYPES, keywords, places, silently


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


@pytest.mark.filterwarnings("ignore:Cannot convert float safely:DeprecationWarning")
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
        m, rows = x.reshape(5, 2), np.arange(10.0).reshape(5, 2)
        assert_matches(dnp.array([m[4], m.sum(axis=0)]), np.array([rows[4], rows.sum(axis=0)]))
        assert_matches(dnp.fromiter([x.max(), x[3]], float), np.array([9.0, 3.0]))
        assert_matches(dnp.array(x.sum()), np.array(45.0))
        assert_matches(dnp.asarray(3.5), np.asarray(3.5))
        assert_matches(dnp.array([]), np.array([]))
        assert_matches(dnp.full(dnp.array(3), x[4]), np.full(3, 4.0))
        assert_matches(dnp.zeros((x[2].astype(int), 3)), np.zeros((2, 3)))
        assert_matches(dnp.arange(x[1], x[7], x[2]), np.arange(1.0, 7.0, 2.0))

    with config.override(replicate_below=0):
        world.run(ranks, program)


@pytest.mark.host
def test_lists_of_objects_that_ask_a_distributed_array_themselves(world, ranks):
    class Holder:
        def __init__(self, x):
            self.x = x

        def __array__(self, dtype=None, copy=None):
            return np.asarray(self.x, dtype)

    def program(group):
        values = np.arange(6.0)
        x = distarray.distribute(values, placements=[Shard(0)], src=None)
        assert_matches(dnp.array([Holder(x), Holder(x)]), np.array([values, values]))
        assert_matches(dnp.array([[1.0] * 6, Holder(x)]), np.array([[1.0] * 6, values]))
        assert np.array_equal(np.array([x, x]), [values, values]), "the mark is taken away"

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


WRITES = [
    lambda xp, x: x.__setitem__(0, 1),
    lambda xp, x: x.__setitem__(x > 3, 0),
    lambda xp, x: x[-3:].fill(1),
    lambda xp, x: x.sort(),
    lambda xp, x: x.__iadd__(1),
    lambda xp, x: np.add(x, 1, out=x),
    lambda xp, x: np.add(x[::-1], x, out=x),
    lambda xp, x: np.cumsum(x, out=x),
    lambda xp, x: np.sum(x[None], axis=0, out=x),
    lambda xp, x: np.copyto(x, x + 1),
    lambda xp, x: np.put(x, [1], 2),
]


@pytest.mark.host
@pytest.mark.parametrize("write", WRITES, ids=range(len(WRITES)))
def test_memory_that_is_not_to_be_written_is_refused_on_every_rank(world, ranks, write):
    def program(group):
        raw = np.arange(10.0).tobytes()
        with pytest.raises(ValueError, match="read-only"):
            write(np, np.frombuffer(raw))
        x = dnp.frombuffer(raw)
        with pytest.raises(ValueError, match="read-only"):
            write(dnp, x)
        assert_matches(x, np.arange(10.0))

    with config.override(replicate_below=0):
        world.run(ranks, program)


def test_where_arrays_go(world, ranks):
    def program(group):
        assert dnp.zeros((1 << 16) - 1).layout.is_replicated
        assert dnp.zeros(1 << 16).placements == (Shard(0),)
        assert dnp.zeros((4, (1 << 16) - 1)).layout.is_replicated  # with dimensions, four times
        assert dnp.zeros((4, 1 << 16)).placements == (Shard(0 if ranks < 5 else 1),)
        assert dnp.zeros((1, 1 << 18)).placements == (Shard(1 if ranks > 1 else 0),)
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
    (lambda xp: xp.fft.fftfreq(-3)),
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
