"""Plans of reshapes, run on a list of blocks without MPI: complete, minimal, cheap to make."""

import time
from math import prod

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from distarray.layout import Cut, Layout, Shard, regrouped_cut, reshape_groups
from distarray.plan.flat import plan_reshape

meshes = st.sampled_from([(1,), (2,), (3,), (4,), (5,), (2, 2), (3, 2)])


def coords_of(rank, mesh):
    return tuple(int(c) for c in np.unravel_index(rank, mesh))


@st.composite
def reshapes(draw):
    """A layout, and one of another shape that the engine could choose for the result."""
    factors = draw(st.lists(st.sampled_from([2, 2, 3, 4, 5]), min_size=1, max_size=5))

    def shape_of(order):
        shape = [1]
        for factor in order:
            shape = [*shape[:-1], shape[-1] * factor] if draw(st.booleans()) else [*shape, factor]
        return tuple([n for n in shape if n > 1])

    old, new = shape_of(factors), shape_of(draw(st.permutations(factors)))
    mesh = draw(meshes)
    src = Layout.chunked(old, mesh, [Shard(draw(st.integers(0, len(old) - 1))) for _ in mesh])
    groups = reshape_groups(old, new)
    cuts = []
    for a, b in groups:
        extents = new[slice(*b)]
        found = regrouped_cut(src.cuts[slice(*a)], extents)
        if found is None:
            mesh_dims = tuple(sorted([m for c in src.cuts[slice(*a)] for m in c.mesh_dims]))
            radix = tuple([mesh[m] for m in mesh_dims])
            found = [Cut.whole(n) for n in extents]
            dim = draw(st.integers(0, len(extents) - 1))
            found[dim] = Cut.chunked(extents[dim], mesh_dims, radix)
        cuts += found
    return src, src.with_cuts(cuts), groups


def block_of(values, layout, coords):
    return values[tuple(slice(a, b) for a, b in layout.section(coords))]


@settings(max_examples=200)
@given(reshapes())
def test_plans_move_every_element_once(drawn):
    src, dst, groups = drawn
    mesh = src.mesh_shape
    values = np.arange(src.size).reshape(src.shape)
    plans = {r: plan_reshape(src, dst, groups, coords_of(r, mesh)) for r in range(prod(mesh))}
    mail = {}
    for rank, plan in plans.items():
        assert len({peer for peer, _ in plan.sends}) == len(plan.sends)
        assert rank not in {peer for peer, _ in plan.sends}
        block = block_of(values, src, coords_of(rank, mesh))
        for peer, pieces in plan.sends:
            mail[rank, peer] = [block[piece.slices] for piece in pieces]
    for rank, plan in plans.items():
        coords = coords_of(rank, mesh)
        target = np.full(dst.local_shape(coords), -1)
        block = block_of(values, src, coords)
        arrived = [(mail.pop((peer, rank)), pieces) for peer, pieces in plan.receives]
        arrived.append(([block[piece.slices] for piece in plan.kept], plan.kept))
        for parts, pieces in arrived:
            for part, piece in zip(parts, pieces, strict=True):
                where = piece.landing
                boxed = target.reshape(where.flat_shape)[where.stretches].reshape(where.boxed)
                view = boxed[where.slices]
                assert np.shares_memory(view, target)
                assert (view == -1).all(), "written twice"
                view[...] = part.reshape(view.shape)
        np.testing.assert_array_equal(target, block_of(values.reshape(dst.shape), dst, coords))
    assert not mail, "messages that nobody receives"


def test_planning_on_a_large_mesh_is_cheap():
    """65536 ranks: each plans its own part without looking at all the others."""
    mesh = (65536,)
    src = Layout.chunked(((1 << 20) + 3, 1000), mesh, [Shard(0)])
    for shape, dim in (((src.size,), 0), ((8, src.size // 8), 1), ((src.size // 8, 8), 0)):
        dst = Layout.chunked(shape, mesh, [Shard(dim)])
        groups = reshape_groups(src.shape, shape)
        start = time.perf_counter()
        plan = plan_reshape(src, dst, groups, (40000,))
        assert time.perf_counter() - start < 0.5
        assert len(plan.sends) <= 10
        assert len(plan.receives) <= 10
