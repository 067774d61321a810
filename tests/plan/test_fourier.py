"""The planner of Fourier transforms: what is whole when, on meshes of any size."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distarray.layout import Layout, Replicate, Shard
from distarray.plan.fourier import Kind, Line, Local, Move, Pass, plan_transform
from distarray.plan.lengths import effort, good_length, split_length

COMPLEX = (16, 16, 16)


def steps_of(shape, mesh, placements, passes, sizes=COMPLEX, in_order=False):
    layout = Layout.chunked(shape, mesh, placements)
    passes = tuple([Pass(Kind(kind), axis, n) for kind, axis, n in passes])
    return layout, passes, plan_transform(layout, passes, sizes, in_order)


def all_of(shape, kind="fft"):
    return [(kind, axis, n) for axis, n in reversed(list(enumerate(shape)))]


def check(layout, passes, steps, in_order):
    """Every pass once, in an order that is allowed, on dimensions that are whole."""
    done = []
    for step in steps:
        if isinstance(step, Move):
            assert step.layout.shape == layout.shape
            layout = step.layout
            continue
        axis = step.step.axis
        cut = layout.cuts[axis]
        assert (cut.parts > 1) == isinstance(step, Line)
        assert not (in_order and isinstance(step, Line))
        assert step.layout.shape == (
            *layout.shape[:axis],
            step.step.given,
            *layout.shape[axis + 1 :],
        )
        if isinstance(step, Local):
            assert step.layout.placements == layout.placements
        else:
            assert step.layout.cuts[axis].mesh_dims == cut.mesh_dims
        done.append(step.step)
        layout = step.layout
    assert sorted(done, key=id) == sorted(passes, key=id) or sorted(map(str, done)) == sorted(
        map(str, passes)
    )
    halves = [(p.kind.gives_half, p.kind.takes_half) for p in done]
    assert not any(gives for gives, _ in halves[1:])
    assert not any(takes for _, takes in halves[:-1])
    if in_order:
        assert tuple(done) == passes


@settings(max_examples=60)
@given(data=st.data())
def test_any_layout(data):
    ndim = data.draw(st.integers(1, 3))
    mesh = tuple(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=2)))
    shape = tuple(data.draw(st.lists(st.integers(1, 40), min_size=ndim, max_size=ndim)))
    placements = [data.draw(st.sampled_from([Replicate(), *map(Shard, range(ndim))])) for _ in mesh]
    axes = data.draw(st.permutations(range(ndim)))[: data.draw(st.integers(1, ndim))]
    first, *others = axes
    kind = data.draw(st.sampled_from(["fft", "rfft", "irfft"]))
    passes = [("ifft" if kind == "irfft" else "fft", axis, shape[axis]) for axis in others]
    alone = (kind, first, data.draw(st.integers(1, 50)))
    passes = [*passes, alone] if kind == "irfft" else [alone, *passes]
    in_order = data.draw(st.booleans())
    check(*steps_of(shape, mesh, placements, passes, (8, 16, 16), in_order), in_order)


def test_a_slab_moves_once():
    _, _, steps = steps_of((64, 64, 64), (8,), [Shard(0)], all_of((64, 64, 64)))
    assert [type(step) for step in steps] == [Local, Local, Move, Local]
    assert steps[-1].layout.placements == (Shard(1),)


@pytest.mark.parametrize(("ranks", "moves"), [(2, 1), (64, 2)])
def test_a_pencil_moves_once_or_twice(ranks, moves):
    """All cuts at once where blocks stay long enough, one mesh dimension at a time elsewhere."""
    shape = (256, 256, 256)
    _, _, steps = steps_of(shape, (ranks, ranks), [Shard(0), Shard(1)], all_of(shape))
    assert sum([isinstance(step, Move) for step in steps]) == moves


def test_real_numbers_come_first():
    passes = [("rfft", 1, 512), ("fft", 0, 512)]
    _, _, steps = steps_of((512, 512), (4,), [Shard(1)], passes, (8, 16, 16))
    assert [type(step) for step in steps] == [Move, Local, Move, Local]
    _, _, steps = steps_of((512, 512), (4,), [Shard(0)], passes, (8, 16, 16))
    assert [type(step) for step in steps] == [Local, Move, Local]


def test_small_arrays_are_replicated_and_long_ones_stay_cut():
    _, _, steps = steps_of((1000,), (4,), [Shard(0)], all_of((1000,)))
    assert [type(step) for step in steps] == [Move, Local]
    assert steps[0].layout.is_replicated
    _, _, steps = steps_of((1 << 22,), (4,), [Shard(0)], all_of((1 << 22,)))
    assert [type(step) for step in steps] == [Line]
    _, _, steps = steps_of((1 << 22,), (4,), [Shard(0)], all_of((1 << 22,)), in_order=True)
    assert [type(step) for step in steps] == [Move, Local]


def test_many_ranks_are_planned_for_quickly():
    shape = (4096, 4096, 4096)
    start = time.perf_counter()
    _, _, steps = steps_of(shape, (256, 256), [Shard(0), Shard(1)], all_of(shape))
    assert sum([isinstance(step, Move) for step in steps]) == 2
    _, _, (line,) = steps_of((1 << 36,), (65536,), [Shard(0)], all_of((1 << 36,)))
    assert line.split.rows * line.split.columns == 1 << 36
    assert time.perf_counter() - start < 2


@given(n=st.integers(1, 5000), parts=st.integers(1, 9))
@settings(max_examples=60)
def test_lengths(n, parts):
    split = split_length(n, parts)
    if split is not None:
        assert split.rows * split.columns == n
        assert min(split.rows, split.columns) > 1
    longer = good_length(n, parts)
    assert n <= longer <= 2 * max(n, parts * parts)
    if longer > 2 * parts * parts:
        assert split_length(longer, parts) is not None
    assert effort(n) >= 0


def test_primes_have_no_split():
    assert split_length(1_000_003, 2) is None
    assert split_length(1 << 20, 4)[:2] == (1024, 1024)
