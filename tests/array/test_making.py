"""How arrays are made of what a program has, and moved from one layout to another."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distarray
import distarray.numpy as dnp
from distarray import DistArray, Fold, Partial, Replicate, Shard
from distarray.comm import DeviceMesh
from distarray.errors import (
    LayoutError,
)
from distarray.testing import (
    array_values,
    assert_matches,
    mesh_shapes,
    recipes,
)
from tests.everywhere import line, raises_everywhere

# -- making --------------------------------------------------------------------------------------


@pytest.mark.host
@settings(max_examples=30)
@given(data=st.data())
def test_distribute(world, ranks, data):
    values = data.draw(array_values())
    mesh_shape = data.draw(mesh_shapes(ranks))
    placed = data.draw(recipes(values.shape, mesh_shape, values.dtype, ("plain",))).placements
    src = data.draw(st.sampled_from([None, *range(ranks)]))
    default = data.draw(st.booleans())

    def program(group):
        mesh = DeviceMesh(group, mesh_shape)
        mine = values.copy() if src in (None, mesh.rank) else None
        where = {} if default else {"placements": placed}
        if src is None:
            with distarray.forbid_communication():
                x = distarray.distribute(mine, mesh, src=None, **where)
        else:
            x = distarray.distribute(mine, mesh, src=src, **where)
        assert_matches(x, values)
        assert (x.shape, x.dtype, x.ndim, x.size) == (
            values.shape, values.dtype, values.ndim, values.size,
        )  # fmt: skip
        assert (x.nbytes, x.itemsize, x.mesh, x.device) == (
            values.nbytes, values.itemsize, mesh, "cpu",
        )  # fmt: skip
        assert default or x.placements == placed
        if mine is not None and values.size:
            mine[...] = 1 - mine if values.dtype != bool else ~mine
            assert_matches(x, values)

    world.run(ranks, program)


def test_distribute_of_other_things(world, ranks):
    def program(group):
        mesh = line(group)
        assert distarray.distribute_tensor is distarray.distribute
        assert_matches(distarray.distribute([[1, 2], [3, 4]]), np.array([[1, 2], [3, 4]]))
        assert_matches(distarray.distribute(3.5, src=ranks - 1), np.array(3.5))
        pairs = np.array([(1, 2.5), (3, 4.5)], dtype=[("a", int), ("b", float)])
        found = distarray.distribute(pairs, mesh, Shard(0))
        assert found.full().tolist() == pairs.tolist()
        words = np.array(["a", "bcd", "ef"])
        assert_matches(distarray.distribute(words, mesh, Shard(-1)), words)
        days = np.array(["2020-01-01", "NaT"], "M8[D]")
        assert_matches(distarray.distribute(days, mesh, Shard(0)), days)
        x = distarray.distribute(np.arange(6), mesh, Shard(0))
        y = distarray.distribute(x, placements=Replicate())
        assert y.placements == (Replicate(),)
        assert distarray.distribute(x).placements == (Shard(0),)

    world.run(ranks, program)


def test_distribute_refuses(world, ranks):
    def program(group):
        mesh = line(group)
        values = np.zeros((3, 4))
        for src in (None, 0):

            def call(*where, src=src, values=values):
                return lambda: distarray.distribute(values, mesh, *where, src=src)

            raises_everywhere(group, LayoutError, call([Shard(2)]), "Shard\\(2\\)")
            raises_everywhere(group, LayoutError, call([Shard(0), Shard(1)]), "placements")
            raises_everywhere(group, LayoutError, call([Partial()]), "pending")
            raises_everywhere(group, TypeError, call(["rows"]), "placement")
            wanted = (LayoutError, TypeError)
            raises_everywhere(group, wanted, call([Shard(0)], values=np.array([None, 1])), "object")
            raises_everywhere(group, ValueError, call(None, values=[[1, 2], [3]]))
        raises_everywhere(group, ValueError, lambda: distarray.distribute(values, src=ranks), "src")
        raises_everywhere(group, ValueError, lambda: distarray.distribute(values, src=-1), "src")
        raises_everywhere(group, LayoutError, lambda: distarray.distribute(3.0, mesh, Shard(0)))
        with pytest.raises(TypeError, match=r"distarray\.distribute"):
            DistArray()
        group.barrier()

    world.run(ranks, program)


def test_an_error_on_the_source_alone_is_everybodys(world, ranks):
    def program(group):
        class Unreadable:
            def __array__(self, dtype=None, copy=None):
                raise OSError("the disk is gone")

        x = Unreadable() if group.rank == ranks - 1 else None
        raises_everywhere(group, OSError, lambda: distarray.distribute(x, src=ranks - 1), "disk")

    world.run(ranks, program)


@pytest.mark.host
@settings(max_examples=30)
@given(data=st.data())
def test_from_local_ragged(world, ranks, data):
    counts = [data.draw(st.integers(0, 4)) for _ in range(ranks)]
    values = np.arange(3.0 * sum(counts)).reshape(-1, 3)
    bounds = np.cumsum([0, *counts])

    def program(group):
        block = values[bounds[group.rank] : bounds[group.rank + 1]].copy()
        x = DistArray.from_local(block, line(group), [Shard(0)])
        assert x.to_local() is block
        assert_matches(x, values)
        assert_matches(x + x, values + values)
        assert_matches(x.redistribute(placements=Shard(1)), values)
        assert_matches(x.redistribute(placements=Shard(0)), values)
        if len(block):
            block[0, 0] = -1.0
            assert x.to_local()[0, 0] == -1.0
        assert x.layout.is_canonical or counts != [-(-len(values) // ranks)] * ranks

    world.run(ranks, program)


def test_from_local_with_a_shape(world, ranks):
    def program(group):
        mesh = line(group)
        layout = dnp.zeros((7, 2), mesh=mesh, placements=[Shard(0)]).layout
        block = np.full(layout.local_shape(mesh.coords), group.rank)
        x = DistArray.from_local(block, mesh, [Shard(0)], shape=(7, 2))
        assert x.layout is layout
        bad = np.zeros((9, 2)) if group.rank == ranks - 1 else block
        raises_everywhere(
            group, LayoutError,
            lambda: DistArray.from_local(bad, mesh, [Shard(0)], shape=(7, 2)), "rank",
        )  # fmt: skip
        y = DistArray.from_local(np.full(3, group.rank + 1.0), mesh, [Partial("max")])
        assert_matches(y, np.full(3, float(ranks)))
        z = DistArray.from_local(np.full(3, group.rank + 1.0), mesh)
        assert z.shape == (3 * ranks,)

    world.run(ranks, program)


@pytest.mark.parametrize("what", ["dtype", "ndim", "other extent", "placements", "replicas"])
def test_from_local_refuses_blocks_that_disagree(world, ranks, what):
    def program(group):
        if ranks == 1:
            return
        mesh, odd = line(group), group.rank == 1
        block, placements = np.zeros((3, 4)), [Shard(0)]
        if what == "dtype" and odd:
            block = block.astype("f4")
        if what == "ndim" and odd:
            block = np.zeros(3)
        if what == "other extent" and odd:
            block = np.zeros((3, 5))
        if what == "placements" and odd:
            placements = [Shard(1)]
        if what == "replicas":
            block, placements = np.zeros((3, 4 + odd)), [Replicate()]
        raises_everywhere(
            group, LayoutError, lambda: DistArray.from_local(block, mesh, placements), "rank|blocks"
        )

    world.run(ranks, program)


# -- moving --------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(data=st.data())
def test_redistribute_any_to_any(world, ranks, data):
    values = data.draw(array_values())
    shapes = [data.draw(mesh_shapes(ranks)) for _ in "ab"]
    recipe = data.draw(recipes(values.shape, shapes[0], values.dtype))
    placed = data.draw(recipes(values.shape, shapes[1], values.dtype, ("plain",))).placements
    same = shapes[0] == shapes[1]

    def program(group):
        mesh, other = (DeviceMesh(group, shape) for shape in shapes)
        x = recipe.build(values, mesh)
        y = x.redistribute(placements=placed) if same else x.redistribute(other, placed)
        assert y.placements == placed
        assert y.layout.is_canonical
        assert y.mesh is other
        assert_matches(y, values)
        assert_matches(x, values)
        y[...] = 0
        assert_matches(x, values)
        assert_matches(x.redistribute(), values)
        np.testing.assert_array_equal(x.full(), values)
        whole = x.gather(ranks - 1)
        assert (whole is None) is (mesh.rank != ranks - 1)
        if whole is not None:
            np.testing.assert_array_equal(whole, values)
            assert whole.flags.writeable

    world.run(ranks, program)


def test_redistribute_between_subsets_of_ranks(world, ranks):
    def program(group):
        everyone = line(group)
        some = DeviceMesh(group, (max(1, ranks - 1),), ranks=list(range(max(1, ranks - 1))))
        last = DeviceMesh(group, (1,), ranks=[ranks - 1])
        values = np.arange(35.0).reshape(7, 5)
        x = distarray.distribute(values, everyone, Shard(0))
        for mesh in (some, last):
            y = x.redistribute(mesh, Shard(1))
            assert y.mesh is mesh
            assert_matches(y, values)
            z = y.redistribute(everyone, Shard(0))
            assert_matches(z, values)
            w = y.redistribute(last, Replicate())
            assert_matches(w, values)
            inside = mesh.coords is not None
            assert inside or y.to_local().size == 0
            assert_matches(y + 1, values + 1)
            assert_matches((2 * y)[1:3, ::2], (2 * values)[1:3, ::2])
            assert repr(y)
            if inside:
                assert float(y.sum()) == values.sum()
                np.testing.assert_array_equal(y.full(), values)

    world.run(ranks, program)


def test_folded_numbers_keep_their_byte_order(world, ranks):
    def program(group):
        ones = np.ones((2, 3), ">f8")
        x = DistArray.from_local(ones, line(group), Partial())
        assert_matches(x.redistribute(placements=Shard(1)), (ranks * ones).astype(">f8"))
        assert x.full().dtype == ones.dtype

    world.run(ranks, program)


def test_redistribute_refuses(world, ranks):
    def program(group):
        x = distarray.distribute(np.zeros((3, 4)), line(group), Shard(0))
        raises_everywhere(group, LayoutError, lambda: x.redistribute(placements=Shard(2)))
        raises_everywhere(group, LayoutError, lambda: x.redistribute(placements=[]))
        raises_everywhere(
            group, LayoutError, lambda: x.redistribute(placements=Partial()), "pending"
        )
        raises_everywhere(group, TypeError, lambda: x.redistribute(placements=[0]))
        raises_everywhere(group, ValueError, lambda: x.gather(ranks), "root")
        raises_everywhere(group, ValueError, lambda: x.gather(-1), "root")
        y = DistArray.from_local(np.ones(3), line(group), [Partial()])
        assert y.redistribute(placements=Partial()).placements == (Partial(Fold.SUM),)
        raises_everywhere(group, LayoutError, lambda: y.redistribute(placements=Partial("max")))

    world.run(ranks, program)


def test_zeros_keep_their_sign(world, ranks):
    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        made = [dnp.full(4, -0.0, mesh=mesh), dnp.ones(4, mesh=mesh), dnp.ones(4, mesh=mesh)]
        made.append(distarray.distribute(np.array(-0.0), mesh, [Replicate()], src=None))
        made.append(dnp.asarray(np.float32(-0.0), mesh=mesh))
        made[1][...] = -0.0
        made[2].fill(np.float32(-0.0))
        spread = distarray.distribute(np.ones(9), mesh, [Shard(0)], src=None)
        spread[2:7], spread[8] = -0.0, np.array(-0.0)
        for x in made:
            assert np.signbit(x.full()).all()
        assert np.flatnonzero(np.signbit(spread.full())).tolist() == [2, 3, 4, 5, 6, 8]

    world.run(ranks, program)
