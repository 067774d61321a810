"""The layout that a contraction works in, decided from layouts alone."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distarray.layout import Layout, Partial, Replicate, Shard
from distarray.plan import Contraction, moved_elements, panels_of, parts_of, plan_contraction

SMALL = 1 << 18


def matrices(n, k, m):
    """The contraction of an (n, k) by a (k, m) matrix."""
    return Contraction(((0, 1), (1, 2)), (0, 2), (n, k, m))


def planned(spec, mesh_shape, first, second, small=SMALL):
    layouts = tuple(
        Layout.chunked([spec.extents[label] for label in term], mesh_shape, placed)
        for term, placed in zip(spec.terms, (first, second), strict=True)
    )
    return layouts, plan_contraction(spec, layouts, (8, 8), 8, small)


@pytest.mark.parametrize(
    ("first", "second", "result"),
    [
        (Shard(0), Replicate(), Shard(0)),
        (Replicate(), Shard(1), Shard(1)),
        (Shard(1), Shard(0), Shard(0)),
    ],
)
def test_what_fits_stays(first, second, result):
    spec = matrices(2000, 3000, 2000)
    layouts, plan = planned(spec, (8,), [first], [second])
    assert plan.operands == layouts
    assert plan.moved == 0
    assert plan.result.placements == (result,)
    assert plan.pending == ((0,) if first == Shard(1) else ())


def test_a_small_sum_is_whole_and_a_large_one_is_cut():
    gram = matrices(64, 1 << 20, 64)
    _, plan = planned(gram, (4,), [Shard(1)], [Shard(0)])
    assert plan.pending == (0,)
    assert plan.local.placements == (Partial(),)
    assert plan.result.is_replicated
    _, plan = planned(matrices(1000, 9000, 1000), (4,), [Shard(1)], [Shard(0)])
    assert plan.result is Layout.chunked((1000, 1000), (4,), [Shard(0)])


def test_the_cheaper_operand_moves():
    tall = matrices(100_000, 50, 20)
    layouts, plan = planned(tall, (4,), [Shard(0)], [Shard(0)])
    assert plan.operands[0] is layouts[0]
    assert plan.operands[1].is_replicated
    wide = matrices(20, 50, 100_000)
    layouts, plan = planned(wide, (4,), [Shard(0)], [Shard(1)])
    assert plan.operands[1] is layouts[1]
    assert plan.operands[0].is_replicated


def test_blocks_times_blocks():
    spec = matrices(4000, 4000, 4000)
    blocks = [Shard(0), Shard(1)]
    _, plan = planned(spec, (4, 4), blocks, blocks)
    assert plan.operands[0].placements == (Shard(0), Replicate())
    assert plan.operands[1].placements == (Replicate(), Shard(1))
    assert plan.result.placements == tuple(blocks)


def test_three_mesh_dimensions():
    spec = matrices(4000, 4000, 4000)
    layouts, plan = planned(
        spec, (2, 2, 2), [Shard(0), Shard(1), Replicate()], [Replicate(), Shard(0), Shard(1)]
    )
    assert plan.operands == layouts
    assert plan.pending == (1,)


def test_replicated_operands():
    _, plan = planned(matrices(10, 10, 10), (4,), [Replicate()], [Replicate()])
    assert plan.result.is_replicated
    _, plan = planned(matrices(1000, 10, 1000), (4,), [Replicate()], [Replicate()])
    assert plan.moved == 0
    assert plan.result.placements == (Shard(0),)
    _, plan = planned(matrices(8, 1 << 22, 8), (4,), [Replicate()], [Replicate()])
    assert plan.pending == (0,), "the work is divided where it is worth an allreduce"
    _, plan = planned(matrices(1, 500, 500), (2,), [Replicate()], [Replicate()])
    assert not plan.pending, "a matrix of 2 MB times a vector is not"


def test_shifted_views_move_the_shift():
    base = Layout.chunked((10_000, 8), (4,), [Shard(0)])
    first = base.with_cuts([base.cuts[0].view(0, 1, 9_990), base.cuts[1]])
    second = base.with_cuts([base.cuts[0].view(10, 1, 9_990), base.cuts[1]])
    spec = Contraction(((0, 1), (0, 2)), (1, 2), (9_990, 8, 8))
    plan = plan_contraction(spec, (first, second), (8, 8), 8, SMALL)
    assert plan.pending == (0,)
    assert plan.moved <= 8 * 8 * 10 * 4


def test_stretched_dimensions_are_whole():
    spec = Contraction(((-1, 1, 2), (0, 2, 3)), (0, 1, 3), (6, 50, 40, 30))
    layouts = (
        Layout.chunked((1, 50, 40), (3,), [Shard(0)]),
        Layout.chunked((6, 40, 30), (3,), [Shard(0)]),
    )
    plan = plan_contraction(spec, layouts, (8, 8), 8, SMALL)
    assert plan.operands[0].is_replicated
    assert plan.operands[1] is layouts[1]


def test_summed_labels_are_cut_at_multiples():
    spec = matrices(8, 10_000, 8)
    layouts = [
        Layout.chunked((8, 10_000), (3,), [Shard(1)]),
        Layout.chunked((10_000, 8), (3,), [Shard(0)]),
    ]
    summed = ({0, 1, 2} - set(spec.out)).pop()
    grains = [1, 1, 1]
    grains[summed] = 512
    plan = plan_contraction(spec, tuple(layouts), (8, 8), 8, SMALL, tuple(grains))
    cut = plan.cuts[summed]
    assert plan.pending == (0,)
    assert [cut.interval(part) for part in range(3)] == [(0, 3584), (3584, 6656), (6656, 10_000)]
    grains[summed] = 0
    plan = plan_contraction(spec, tuple(layouts), (8, 8), 8, SMALL, tuple(grains))
    assert plan.cuts[summed].parts == 1 and not plan.pending
    panels = panels_of(spec, plan, tuple(layouts), (8, 8), 1000, tuple(grains))
    assert panels is None or panels.label != summed


def test_a_label_of_the_kernel_is_never_cut():
    spec = Contraction(((0, 1), (1, 2)), (0, 2, 3), (2, 9_000_000, 2, 64))
    layouts = tuple(Layout.replicated(s, (8,)) for s in ((2, 9_000_000), (9_000_000, 2)))
    plan = plan_contraction(spec, layouts, (8, 8), 8, 0)
    assert not plan.local.cuts[2].mesh_dims


@pytest.mark.parametrize("shape", [(65_536,), (256, 256), (32, 32, 64)])
def test_planning_is_cheap_on_many_ranks(shape):
    spec = matrices(200_000, 200_000, 200_000)
    placed = [Shard(0), Shard(1), Shard(0)][: len(shape)]
    layouts = tuple(Layout.chunked((200_000, 200_000), shape, placed) for _ in range(2))
    begin = time.perf_counter()
    plan = plan_contraction(spec, layouts, (8, 8), 8, SMALL)
    panels_of(spec, plan, layouts, (8, 8), 1 << 25)
    parts_of(spec, plan, layouts, (8, 8), 8, 1 << 25)
    assert time.perf_counter() - begin < 1


def test_panels_take_a_label_of_the_result_first():
    spec = matrices(1 << 13, 1 << 13, 1 << 13)
    layouts, plan = planned(spec, (16,), [Shard(0)], [Shard(0)])
    panels = panels_of(spec, plan, layouts, (8, 8), 1 << 20)
    assert panels is not None
    assert panels.label == 2, "columns of the second operand: nothing has to be added up"
    assert panels.stretches[0] == (0, 512)
    assert panels.stretches[-1][1] == 1 << 13
    assert panels_of(spec, plan, layouts, (8, 8), 1 << 30) is None


def test_panels_of_blocks_take_the_summed_label():
    spec = matrices(1 << 13, 1 << 13, 1 << 13)
    blocks = [Shard(0), Shard(1)]
    layouts, plan = planned(spec, (4, 4), blocks, blocks)
    panels = panels_of(spec, plan, layouts, (8, 8), 1 << 20)
    assert panels is not None
    assert panels.label == 1
    assert len(panels.stretches) == 4


@given(data=st.data())
def test_any_operands_have_a_plan(data):
    """What a plan says fits together, and costs no more than the obvious alternatives."""
    mesh_shape = data.draw(st.sampled_from([(1,), (3,), (2, 2), (3, 2), (2, 1), (2, 2, 2)]))
    extents = tuple(data.draw(st.lists(st.integers(0, 9), min_size=4, max_size=4)))
    spec = Contraction(((0, 1, 2), (0, 2, 3)), (3, 0, 1), extents)
    layouts = []
    for term in spec.terms:
        choices = [Replicate(), *[Shard(d) for d in range(3)]]
        placed = [data.draw(st.sampled_from(choices)) for _ in mesh_shape]
        layouts.append(Layout.chunked([extents[label] for label in term], mesh_shape, placed))
    small = data.draw(st.sampled_from([0, SMALL]))
    plan = plan_contraction(spec, tuple(layouts), (8, 4), 8, small)
    cut = [m for c in plan.cuts for m in c.mesh_dims]
    assert len(cut) == len(set(cut)), "a mesh dimension cuts one label at most"
    for term, layout in zip(spec.terms, plan.operands, strict=True):
        assert [layout.cuts[d] for d in range(3)] == [plan.cuts[label] for label in term]
    assert plan.result.shape == plan.local.shape == spec.shape
    assert plan.result.is_plain
    assert set(plan.local.partials) == set(plan.pending)
    moved = [
        size * moved_elements(have, want)
        for size, have, want in zip((8, 4), layouts, plan.operands, strict=True)
    ]
    assert plan.moved == pytest.approx(sum(moved))
