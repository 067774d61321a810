"""Functions of blocks: map_blocks, map_overlap, local_map; and operations that users register."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distarray
import distarray.numpy as dnp
from distarray import Partial, Replicate, Shard, local_map, map_blocks, map_overlap
from distarray.array import DistArray
from distarray.array.registry import FUNCTIONS
from distarray.comm import DeviceMesh
from distarray.config import config
from distarray.errors import DivergenceError, LayoutError
from distarray.testing import array_values, assert_matches, mesh_shapes, recipes, shapes

KINDS = ("plain", "view", "transposed", "ragged", "partial")
PADS = {"periodic": "wrap", "reflect": "symmetric", "mirror": "reflect", "nearest": "edge"}


# -- map_blocks ------------------------------------------------------------------------------------


@settings(max_examples=10)
@given(data=st.data())
def test_map_blocks(world, ranks, data):
    values = data.draw(array_values(dtypes=("f8", "i4", "?")))
    other = data.draw(array_values(shape=values.shape[1:], dtypes=("f8", "i8")))
    mesh_shape = data.draw(mesh_shapes(ranks))
    one, two = (data.draw(recipes(v.shape, mesh_shape, v.dtype, KINDS)) for v in (values, other))

    def program(group):
        mesh = DeviceMesh(group, mesh_shape)
        x, y = one.build(values, mesh), two.build(other, mesh)
        found = map_blocks(lambda a, b, c=0: a + b + c, x, y, c=2)
        assert_matches(found, np.asarray(values + other + 2))
        found = map_blocks(lambda a: a > 0, x, dtype="f4")
        assert_matches(found, np.asarray(values > 0, "f4"))
        assert_matches(x, values)

    world.run(ranks, program)


def test_blocks_of_other_shapes(world, ranks):
    values = np.arange(35.0).reshape(7, 5)

    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        x = distarray.distribute(values, mesh, [Shard(0)], src=None)
        assert_matches(map_blocks(lambda b: b.sum(1), x), values.sum(1))
        assert_matches(map_blocks(lambda b: b[:, :2], x), values[:, :2])
        assert_matches(map_blocks(lambda b: b[..., None], x), values[..., None])
        assert_matches(map_blocks(lambda b: b.repeat(2, 0), x), values.repeat(2, 0))
        assert_matches(map_blocks(lambda b: b.repeat(2, 0), x[::-1]), values[::-1].repeat(2, 0))
        total = map_blocks(lambda b: b.sum(0), x, placements=[Partial()])
        assert total.placements == (Partial(),)
        assert_matches(total, values.sum(0))
        counts = group.allgather_object(x.to_local().shape[0])
        ends = map_blocks(lambda b: b[-1:], x)
        assert_matches(ends, values[np.cumsum([n for n in counts if n]) - 1])
        known = map_blocks(lambda b: b.sum(1), x, shape=(7,), dtype=float)
        assert_matches(known, values.sum(1))
        sums = map_blocks(lambda b: b.sum(0), x.redistribute([Shard(1)]), placements=[Shard(0)])
        assert_matches(sums, values.sum(0))

    world.run(ranks, program)


def test_blocks_that_do_not_fit(world, ranks):
    def program(group):
        x = dnp.ones((2 * ranks, 5), mesh=DeviceMesh(group, (ranks,)), placements=[Shard(0)])
        with pytest.raises(LayoutError, match="placements="):
            map_blocks(np.sum, x)
        with pytest.raises(LayoutError, match="shape="):
            map_blocks(lambda b: b[:1], x, shape=(2 * ranks, 5))
        with pytest.raises(ValueError, match="at least one"):
            map_blocks(np.sum)
        if ranks > 1:
            rank = group.rank
            with pytest.raises(LayoutError, match="one length"):
                map_blocks(lambda b: b[:, : 1 + rank % 2], x)
            with pytest.raises(LayoutError, match="numbers of dimensions"):
                map_blocks(lambda b: b if rank else b[None], x)
            # Types may differ: the result has the one that they have together.
            mixed = map_blocks(lambda b: b.astype("i4" if rank else "f4"), x)
            assert mixed.dtype == np.float64
        group.barrier()

    world.run(ranks, program)


# -- map_overlap -----------------------------------------------------------------------------------


def windows(padded, before, after):
    """The sum over each element's neighbourhood along the first dimension."""
    n = len(padded) - before - after
    return sum([padded[k : k + n] for k in range(before + after + 1)])


@settings(max_examples=10)
@given(data=st.data())
def test_map_overlap(world, ranks, data):
    shape = data.draw(shapes(min_dims=1, max_dims=2).filter(lambda shape: 0 not in shape))
    values = data.draw(array_values(shape=shape, dtypes=("f8", "i4")))
    mesh_shape = data.draw(mesh_shapes(ranks))
    recipe = data.draw(recipes(shape, mesh_shape, values.dtype, KINDS))
    before, after = data.draw(st.integers(0, 9)), data.draw(st.integers(0, 9))
    boundary = data.draw(st.sampled_from([*PADS, 7]))
    pads = [(before, after)] + [(0, 0)] * (len(shape) - 1)
    keywords = {"constant_values": 7} if boundary == 7 else {}
    padded = np.pad(values, pads, mode=PADS.get(boundary, "constant"), **keywords)

    def program(group):
        x = recipe.build(values, DeviceMesh(group, mesh_shape))
        valid = map_overlap(windows, x, {0: (before, after)}, boundary, before=before, after=after)
        assert_matches(valid, windows(padded, before, after))
        assert_matches(map_overlap(lambda b: b * 2, x, before, boundary), values * 2)
        assert_matches(map_overlap(lambda b: b.copy(), x, (before,) * len(shape)), values)

    world.run(ranks, program)


def test_edges_and_corners(world, ranks):
    values = np.arange(30.0).reshape(6, 5)
    padded = np.pad(values, ((0, 0), (2, 1)), mode="edge")
    padded = np.pad(padded, ((1, 1), (0, 0)), mode="wrap")
    wanted = padded[:-2, 2:-1] + padded[2:, :-3] * padded[1:-1, 3:]

    def stencil(b):
        return b[:-2, 2:-1] + b[2:, :-3] * b[1:-1, 3:]

    def program(group):
        for mesh_shape in {(ranks,), (ranks, 1), (ranks // 2, 2) if ranks % 2 == 0 else (1, ranks)}:
            mesh = DeviceMesh(group, mesh_shape)
            for first in (Shard(0), Shard(1)):
                placements = [first, Shard(1)][: len(mesh_shape)]
                x = distarray.distribute(values, mesh, placements, src=None)
                found = map_overlap(stencil, x, (1, (2, 1)), ("periodic", "nearest"))
                assert_matches(found, wanted)
                seen = map_overlap(lambda b: np.full(b.shape, b.size), x, 1)
                assert seen.shape == x.shape

    world.run(ranks, program)


def test_overlap_sends_the_neighbours_rows_alone(world):
    ranks = world.ranks[-1]

    def program(group):
        x = dnp.ones((20 * ranks, 8), mesh=DeviceMesh(group, (ranks,)), placements=[Shard(0)])
        inner = 0 < group.rank < ranks - 1
        with distarray.trace() as trace:
            map_overlap(lambda b: b, x, {0: (2, 1)})
        rows = 3 if inner else (1 if group.rank else 2)
        events = [event for event in trace if event.kind == "exchange"]
        if ranks > 1:
            assert sum(event.bytes for event in events) == rows * 8 * 8
            assert sum(event.messages for event in events) == (2 if inner else 1)
            assert trace.messages == (3 if inner else 2)  # and one allreduce
        with distarray.forbid_communication():
            if ranks == 1:
                map_overlap(lambda b: b, x, 3, "periodic")

    world.run(ranks, program)


def test_overlap_of_bad_input(world, ranks):
    def program(group):
        x = dnp.ones((8, 3), mesh=DeviceMesh(group, (ranks,)), placements=[Shard(0)])
        for depth, boundary, words in (
            (-1, "none", "negative"),
            ((1, 2, 3), "none", "entries"),
            (1, "mirrored", "is not one of 'periodic'"),
            (1, [1, 2, 3], "entries"),
            (1, np.ones(3), "no single number"),
        ):
            with pytest.raises(ValueError, match=words):
                map_overlap(lambda b: b, x, depth, boundary)
        with pytest.raises(np.exceptions.AxisError):
            map_overlap(lambda b: b, x, {2: 1})
        with pytest.raises(ValueError, match="it must give one of these"):
            map_overlap(lambda b: b[:, :1], x, 1)
        with pytest.raises(ValueError, match="is empty"):
            map_overlap(lambda b: b, x[:0], 1, "periodic")
        assert map_overlap(lambda b: b, x[:0], 1).shape == (0, 3)
        group.barrier()

    world.run(ranks, program)


# -- local_map -------------------------------------------------------------------------------------


def test_local_map(world, ranks):
    values = np.arange(35.0).reshape(7, 5)

    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        x = distarray.distribute(values, mesh, [Shard(0)], src=None)
        w = distarray.distribute(values.T.copy(), mesh, [Replicate()], src=None)
        rows, whole = [Shard(0)], [Replicate()]
        product = local_map(np.matmul, rows, (rows, whole))
        assert_matches(product(x, w), values @ values.T, exact=False)
        inner = local_map(np.matmul, [Partial()], ([Shard(1)], rows), redistribute_inputs=True)
        assert_matches(inner(x, w), values @ values.T, exact=False)
        with pytest.raises(LayoutError, match="redistribute_inputs"):
            local_map(np.matmul, rows, (whole, whole))(x, w)
        with pytest.raises(LayoutError, match="3 entries"):
            local_map(np.matmul, rows, (rows, whole, None))(x, w)
        with pytest.raises(LayoutError, match="is a distributed array"):
            local_map(np.matmul, rows, (rows, None))(x, w)

        @local_map(out_placements=(rows, None, rows), in_placements=(rows, rows, None))
        def parts(pair, factor):
            return {"sum": pair[0] + pair[1], "rank": group.rank, "scaled": [pair[0] * factor]}

        found = parts((x, x), 3)
        assert_matches(found["sum"], values * 2)
        assert_matches(found["scaled"][0], values * 3)
        assert found["rank"] == group.rank
        assert local_map(lambda a: a + 1, rows)(2) == 3

    world.run(ranks, program)


def test_local_map_may_communicate(world, ranks):
    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        x = dnp.ones((2 * ranks + 1, 2), mesh=mesh, placements=[Shard(0)])
        total = local_map(
            lambda b: mesh.group.allreduce(b.sum(0), distarray.Fold.SUM), [Replicate()]
        )
        assert_matches(total(x), np.full(2, 2.0 * ranks + 1))

    world.run(ranks, program)


def test_divergence_is_noticed(world):
    """Under `config.check` the ranks compare what they are about to do."""
    calls = {
        "map_blocks": lambda x, rank: map_blocks(lambda b: b, x[rank:]),
        "map_overlap": lambda x, rank: map_overlap(lambda b: b, x, rank),
        "vectorize": lambda x, rank: dnp.vectorize(abs)(x[rank:]),
        "local_map": lambda x, rank: local_map(lambda b: b, [Shard(0)])(x[rank:]),
    }
    ranks = world.ranks[-1]

    def program(group):
        x = dnp.ones((2 * ranks, 5), mesh=DeviceMesh(group, (ranks,)), placements=[Shard(0)])
        with config.override(check=True):
            for call in calls.values():
                if ranks > 1:
                    with pytest.raises(DivergenceError, match="same call"):
                        call(x, group.rank)
                call(x, 0)

    world.run(ranks, program)


# -- operations of the user's ----------------------------------------------------------------------


@pytest.fixture
def registry():
    """The tables as they were before."""
    kept = dict(FUNCTIONS)
    yield
    FUNCTIONS.clear()
    FUNCTIONS.update(kept)


def test_registered_functions_win(world, registry):
    calls = []

    @distarray.register_function(np.sort)
    def sort(a, axis=-1, kind=None, order=None, *, stable=None):
        calls.append(axis)
        return NotImplemented if axis == 0 else "mine"

    @distarray.register_function(np.poly)
    def poly(seq):
        return "polynomial"

    def program(group):
        x = dnp.array([[3.0, 1.0], [2.0, 5.0]], mesh=DeviceMesh(group, (group.size,)))
        assert np.sort(x) == "mine"
        assert_matches(np.sort(x, axis=0), np.sort(x.full(), axis=0))
        assert np.poly(x) == "polynomial"

    world.run(world.ranks[-1], program)
    assert set(calls) == {-1, 0}


def test_registered_ufuncs_win(world, registry):
    @distarray.register_ufunc(np.add)
    def add(x, y, **keywords):
        return "sum" if isinstance(y, (int, float)) and y == 77 else NotImplemented

    @distarray.register_ufunc(np.add, "reduce")
    def reduce(x, axis=0, **keywords):
        return "reduced"

    @distarray.register_ufunc(np.power)
    def power(x, y, **keywords):
        return "power"

    @distarray.register_ufunc(np.negative)
    def negative(x, **keywords):
        return "negative"

    def program(group):
        values = np.array([1.0, 2.0, 3.0])
        x = dnp.array(values, mesh=DeviceMesh(group, (group.size,)), placements=[Shard(0)])
        assert x + 77 == "sum"
        assert np.add(x, 77) == "sum"
        assert_matches(x + x, values + values)
        assert_matches(1 + x, 1 + values)
        assert x**2 == 2**x == "power"
        assert -x == "negative"
        y, z = x.copy(), x.copy()
        y += 77
        z **= 3
        assert (y, z) == ("sum", "power")
        assert np.add.reduce(x) == "reduced"
        assert_matches(np.multiply.reduce(x), np.multiply.reduce(values))
        assert isinstance(x - x, DistArray)

    world.run(world.ranks[-1], program)
    with pytest.raises(ValueError, match="no method"):
        distarray.register_ufunc(np.add, "inner")
