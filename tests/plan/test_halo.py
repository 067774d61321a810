"""Halo plans: every grown block is complete, and nothing is sent that is not asked for."""

from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from distarray.layout import Layout, Replicate, Shard
from distarray.plan import Reach, plan_halo, rank_of

MODES = {"periodic": "wrap", "reflect": "symmetric", "mirror": "reflect"}
BOUNDARIES = (*MODES, "fill", "none")


@st.composite
def problems(draw):
    shape = tuple(draw(st.lists(st.integers(1, 7), min_size=1, max_size=2)))
    mesh = draw(st.sampled_from([(1,), (2,), (3,), (4,), (2, 2), (3, 2)]))
    choices = [Replicate(), *[Shard(d) for d in range(len(shape))] * 2]
    layout = Layout.chunked(shape, mesh, [draw(st.sampled_from(choices)) for _ in mesh])
    if draw(st.booleans()):
        steps = [draw(st.sampled_from([1, 2, -1])) for _ in shape]
        cuts = []
        for cut, step in zip(layout.cuts, steps, strict=True):
            count = -(-cut.extent // abs(step))
            cuts.append(cut.view(0 if step > 0 else cut.extent - 1, step, count))
        layout = layout.with_cuts(cuts)
    depths = st.integers(0, 9)
    return layout, tuple(
        [Reach(draw(depths), draw(depths), draw(st.sampled_from(BOUNDARIES))) for _ in shape]
    )


def grown_reference(values, layout, reaches, coords):
    """The grown block of one rank, from the whole array; 0 where it is to be filled."""
    key = []
    for dim, ((start, stop), reach) in enumerate(zip(layout.section(coords), reaches)):
        pads = [(0, 0)] * values.ndim
        pads[dim] = (reach.before, reach.after)
        if reach.boundary == "none":
            key.append(slice(max(0, start - reach.before), stop + reach.after))
            continue
        values = np.pad(values, pads, mode=MODES.get(reach.boundary, "constant"))
        key.append(slice(start, stop + reach.before + reach.after))
    return values[tuple(key)]


@settings(max_examples=60)
@given(problem=problems())
def test_blocks_grow_as_numpy_pads(problem):
    layout, reaches = problem
    values = np.arange(1, 1 + layout.size).reshape(layout.shape)
    ranks = list(product(*[range(size) for size in layout.mesh_shape]))
    blocks = {r: values[tuple([slice(a, b) for a, b in layout.section(r)])] for r in ranks}
    plans = {r: plan_halo(layout, reaches, r) for r in ranks}
    mail = {}
    for r in ranks:
        for peer, patches in plans[r].sends:
            parcel = [blocks[r][patch.source] for patch in patches]
            mail[rank_of(r, layout.mesh_shape), peer] = parcel
    for r in ranks:
        plan = plans[r]
        grown = np.zeros(plan.shape, int)
        for patch in plan.kept:
            grown[patch.target][patch.reverse] = blocks[r][patch.source]
        for peer, patches in plan.receives:
            parcel = mail.pop((peer, rank_of(r, layout.mesh_shape)))
            for part, patch in zip(parcel, patches, strict=True):
                assert part.shape == patch.shape
                grown[patch.target][patch.reverse] = part
        if blocks[r].size:
            assert np.array_equal(grown, grown_reference(values, layout, reaches, r))
            assert np.array_equal(grown[plan.own], blocks[r])
    assert not mail, "nobody waits for what was sent"


def test_planning_does_not_visit_all_ranks():
    layout = Layout.chunked((1 << 22, 8), (1 << 16,), [Shard(0)])
    plan = plan_halo(layout, (Reach(1, 2, "periodic"), Reach(0, 0, "none")), (1 << 15,))
    assert [peer for peer, _ in plan.sends] == [(1 << 15) - 1, (1 << 15) + 1]
    assert sum(p.shape[0] * p.shape[1] for _, patches in plan.receives for p in patches) == 3 * 8


def test_thin_blocks_reach_beyond_the_neighbour():
    layout = Layout.chunked((6,), (6,), [Shard(0)])
    plan = plan_halo(layout, (Reach(3, 0, "none"),), (4,))
    assert [peer for peer, _ in plan.receives] == [1, 2, 3]
