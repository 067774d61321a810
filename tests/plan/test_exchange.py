"""Plans, run on a list of blocks without any MPI: complete, minimal, balanced, cheap to make."""

import time
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distarray.errors import LayoutError
from distarray.layout import At, Layout, Partial, Replicate, Shard, view_layout
from distarray.plan import intersect, moved_elements, plan_across, plan_exchange, rank_of

meshes = st.sampled_from([(1,), (2,), (3,), (4,), (2, 2), (3, 2), (2, 2, 2)])


def coords_of(rank, mesh):
    return tuple(int(c) for c in np.unravel_index(rank, mesh))


@st.composite
def layouts(draw, shape, mesh):
    """Canonical ones, views of larger ones, and ones that live at a coordinate."""
    placements = [
        draw(st.sampled_from([Replicate(), *[Shard(d) for d in range(len(shape))]])) for _ in mesh
    ]
    if draw(st.booleans()):
        layout = Layout.chunked(shape, mesh, placements)
    else:
        margins = [(draw(st.integers(0, 3)), draw(st.integers(0, 3))) for _ in shape]
        base = Layout.chunked(
            [n + a + b for n, (a, b) in zip(shape, margins, strict=True)], mesh, placements
        )
        step = draw(st.sampled_from([1, -1]))
        views = [
            cut.view(a if step > 0 else a + n - 1, step, n)
            for cut, n, (a, _) in zip(base.cuts, shape, margins, strict=True)
        ]
        layout = base.with_cuts([v if v.mesh_dims else type(v).whole(v.extent) for v in views])
    free = [m for m, p in enumerate(layout.placements) if p == Replicate()]
    if free and draw(st.integers(0, 4)) == 0:
        mesh_dim = draw(st.sampled_from(free))
        at = At(draw(st.integers(0, mesh[mesh_dim] - 1)))
        layout = Layout.from_cuts(layout.cuts, mesh, {mesh_dim: at})
    return layout


def block_of(values, layout, coords):
    return values[tuple(slice(a, b) for a, b in layout.section(coords))]


def run(src, dst, plans, src_coords, dst_coords):
    """Carry plans out on blocks; returns the number of elements sent."""
    values = np.arange(prod(src.shape)).reshape(src.shape)
    mail, sent = {}, 0
    for rank, plan in plans.items():
        for transfer in plan.sends:
            assert (rank, transfer.peer) not in mail, "two messages for one pair of ranks"
            mail[rank, transfer.peer] = block_of(values, src, src_coords[rank])[transfer.slices]
            sent += transfer.size
    for rank, coords in dst_coords.items():
        result = np.full(dst.local_shape(coords), -1)
        for transfer in plans[rank].receives:
            result[transfer.slices] = mail.pop((transfer.peer, rank))
        if plans[rank].kept:
            ours, theirs = plans[rank].kept
            result[theirs] = block_of(values, src, src_coords[rank])[ours]
        if dst.holds(coords):
            np.testing.assert_array_equal(result, block_of(values, dst, coords))
    assert not mail, "messages that nobody receives"
    return sent


def lower_bound(src, dst, src_coords, dst_coords):
    needed = 0
    for rank, coords in dst_coords.items():
        if dst.holds(coords):
            needed += prod(dst.local_shape(coords))
            if rank in src_coords and src.holds(src_coords[rank]):
                common = intersect(dst.section(coords), src.section(src_coords[rank]))
                needed -= prod(b - a for a, b in common) if common else 0
    return needed


@settings(max_examples=400)
@given(st.data())
def test_any_layout_to_any_layout_moves_only_what_changes_owner(data):
    mesh = data.draw(meshes)
    shape = tuple(data.draw(st.lists(st.integers(0, 7), min_size=1, max_size=3)))
    src, dst = data.draw(layouts(shape, mesh)), data.draw(layouts(shape, mesh))
    places = {rank: coords_of(rank, mesh) for rank in range(prod(mesh))}
    plans = {rank: plan_exchange(src, dst, coords) for rank, coords in places.items()}
    assert run(src, dst, plans, places, places) == lower_bound(src, dst, places, places)


@settings(max_examples=200)
@given(st.data())
def test_between_two_meshes(data):
    src_mesh, dst_mesh = data.draw(meshes), data.draw(meshes)
    shape = tuple(data.draw(st.lists(st.integers(0, 7), min_size=1, max_size=2)))
    src, dst = data.draw(layouts(shape, src_mesh)), data.draw(layouts(shape, dst_mesh))
    order = st.permutations(range(9))
    src_ranks = tuple(data.draw(order)[: prod(src_mesh)])
    dst_ranks = tuple(data.draw(order)[: prod(dst_mesh)])
    src_coords = {rank: coords_of(i, src_mesh) for i, rank in enumerate(src_ranks)}
    dst_coords = {rank: coords_of(i, dst_mesh) for i, rank in enumerate(dst_ranks)}
    plans = {r: plan_across(src, dst, src_ranks, dst_ranks, r) for r in range(9)}
    sent = run(src, dst, plans, src_coords, dst_coords)
    assert sent == lower_bound(src, dst, src_coords, dst_coords)


def test_owners_change_in_one_step_and_no_replica_is_overburdened():
    """[Shard(0), Replicate()] -> [Replicate(), Shard(0)]: each rank sends to one other at most."""
    src = Layout.chunked((64, 3), (8, 8), [Shard(0), Replicate()])
    dst = Layout.chunked((64, 3), (8, 8), [Replicate(), Shard(0)])
    for rank in range(64):
        plan = plan_exchange(src, dst, coords_of(rank, (8, 8)))
        assert len(plan.sends) <= 1
        assert plan.elements_sent <= 8 * 3


def test_a_replica_is_cut_without_a_message():
    src = Layout.replicated((10, 10), (2, 3))
    dst = Layout.chunked((10, 10), (2, 3), [Shard(0), Shard(1)])
    for rank in range(6):
        plan = plan_exchange(src, dst, coords_of(rank, (2, 3)))
        assert not plan.sends
        assert not plan.receives


def test_shifted_views_move_one_row_a_boundary():
    base = Layout.chunked((20, 5), (4,), [Shard(0)])
    low = base.with_cuts([base.cuts[0].view(0, 1, 18), base.cuts[1]])
    high = base.with_cuts([base.cuts[0].view(1, 1, 18), base.cuts[1]])
    for rank in range(4):
        plan = plan_exchange(high, low, (rank,))
        assert plan.elements_sent == (5 if rank > 0 else 0)
    assert moved_elements(high, low) == pytest.approx(15)


@pytest.mark.parametrize(
    ("mesh", "src", "dst", "peers"),
    [
        ((65_536,), [Shard(0)], [Shard(0)], 1),
        ((256, 256), [Shard(0), Replicate()], [Replicate(), Shard(0)], 1),
        ((256, 256), [Replicate(), Replicate()], [Shard(0), Shard(1)], 0),
        ((256, 256), [Shard(0), Shard(1)], [Shard(0), Shard(0)], 255),
    ],
)
def test_planning_on_65536_ranks_looks_only_at_peers(mesh, src, dst, peers):
    a = Layout.chunked((1_000_003, 700), mesh, src)
    b = Layout.chunked((1_000_003, 700), mesh, dst)
    if a is b:
        b = b.with_cuts([b.cuts[0].view(1, 1, 1_000_002), b.cuts[1]])
        a = a.with_cuts([a.cuts[0].view(0, 1, 1_000_002), a.cuts[1]])
    coords = coords_of(12_345, mesh)
    plan_exchange.cache_clear()
    began = time.process_time()
    plan = plan_exchange(a, b, coords)
    assert time.process_time() - began < 0.5, "planning looks at more than its peers"
    assert len(plan.sends) <= peers
    assert len(plan.receives) <= peers


def test_pending_folds_and_other_shapes_are_refused():
    a = Layout.chunked((4,), (2,), [Shard(0)])
    with pytest.raises(LayoutError, match="shape"):
        plan_exchange(a, Layout.chunked((5,), (2,), [Shard(0)]), (0,))
    with pytest.raises(LayoutError, match="pending"):
        plan_exchange(Layout.chunked((4,), (2,), [Partial()]), a, (0,))


@given(st.data())
def test_estimated_cost_is_zero_only_where_little_moves(data):
    """Every rank computes the same estimate, and it is right about free moves."""
    mesh = data.draw(meshes)
    shape = (12, 8)
    src, dst = data.draw(layouts(shape, mesh)), data.draw(layouts(shape, mesh))
    estimate = moved_elements(src, dst)
    assert 0 <= estimate <= dst.size * prod(mesh)
    if src.is_replicated or src is dst:
        assert estimate == 0
    assert rank_of(coords_of(prod(mesh) - 1, mesh), mesh) == prod(mesh) - 1


def test_views_within_one_block_cost_nothing():
    """The estimate of a shift counted a boundary for every rank, wherever the view lay."""
    base = Layout.chunked((28, 3), (2,), [Shard(0)])
    rows = [view_layout(base, ((row, 1, 1), (0, 1, 3))) for row in (1, 2, 20)]
    assert moved_elements(rows[0], rows[1]) == 0
    assert moved_elements(rows[0], rows[2]) == 3


def test_what_is_on_one_rank_costs_what_others_lack():
    table = Layout.chunked((4, 8), (4,), [Shard(0)])
    first, third = [view_layout(table, (row, (0, 1, 8))) for row in (0, 2)]
    assert first.ats == third.ats == (0,)
    assert moved_elements(first, third) == 8
    assert moved_elements(first, Layout.replicated((8,), (4,))) == 3 * 8
    assert moved_elements(first, Layout.chunked((8,), (4,), [Shard(0)])) == 8 - 2
    halves = Layout.chunked((4, 8), (4, 2), [Shard(0), Shard(1)])
    row = view_layout(halves, (0, (0, 1, 8)))
    along = view_layout(Layout.chunked((4, 8), (4, 2), [Shard(0), Replicate()]), (0, (0, 1, 8)))
    assert moved_elements(row, along) == 8  # each of two ranks gets the other's half


@given(st.integers(1, 40), st.integers(2, 7), st.booleans(), st.data())
def test_shifted_views_cost_what_they_move(base, ranks, backwards, data):
    layout = Layout.chunked((base,), (ranks,), [Shard(0)])
    extent = data.draw(st.integers(1, base))
    starts = [data.draw(st.integers(0, base - extent)) for _ in range(2)]
    step = -1 if backwards else 1
    offsets = [start + extent - 1 if backwards else start for start in starts]
    src, dst = [view_layout(layout, ((offset, step, extent),)) for offset in offsets]
    cut = layout.cuts[0]
    moved = sum(
        cut.owner(offsets[0] + step * i) != cut.owner(offsets[1] + step * i) for i in range(extent)
    )
    assert moved_elements(src, dst) == pytest.approx(moved)
