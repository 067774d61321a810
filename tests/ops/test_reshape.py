"""reshape and ravel: NumPy's elements everywhere, views where they can be, exact messages."""

import itertools
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distarray.ops  # noqa: F401
from distarray.array import distribute, from_local
from distarray.comm import DeviceMesh
from distarray.comm.ledger import forbid_communication, trace
from distarray.layout import Replicate, Shard
from distarray.testing import array_values, assert_matches, mesh_shapes

from .likeness import cases, check, outcome


@st.composite
def factorings(draw, size):
    """A shape of `size` elements; now and then one that does not fit, or has a -1."""
    shape, rest = [], size
    while rest > 1 and draw(st.booleans()):
        factor = draw(st.sampled_from([d for d in range(1, rest + 1) if rest % d == 0]))
        shape.append(factor)
        rest //= factor
    shape.insert(draw(st.integers(0, len(shape))), rest)
    if not size:
        shape += draw(st.lists(st.integers(0, 3), max_size=2))
    kind = draw(st.integers(0, 7))
    if kind == 0:
        shape[draw(st.integers(0, len(shape) - 1))] = -1
    elif kind == 1:
        shape = draw(st.lists(st.integers(-2, 6), max_size=4))
    elif size == 1 and kind == 2:
        shape = []
    return tuple(shape)


@settings(max_examples=180)
@given(data=st.data())
def test_reshape(world, data):
    shape = tuple(data.draw(st.lists(st.sampled_from([1, 2, 2, 3, 4, 6, 0]), max_size=4)))
    values = data.draw(array_values(shape))
    case = data.draw(cases(world, given=[values]))
    wanted = data.draw(factorings(prod(shape)))
    order = data.draw(st.sampled_from("CCF"))
    check(world, case, lambda x: np.reshape(x, wanted, order=order))
    if order == "C":
        check(world, case, lambda x: x.reshape(wanted, copy=True))


@settings(max_examples=120)
@given(data=st.data())
def test_large_reshapes(world, data):
    """Extents that leave no rank empty, so that every pair of ranks has something to say."""
    factors = data.draw(st.permutations([2, 2, 3, 4, 5]))
    marks = sorted(data.draw(st.sets(st.integers(1, 4), max_size=3)))
    ends = [0, *marks, 5]
    shape = tuple([prod(factors[a:b]) for a, b in itertools.pairwise(ends)])
    again = data.draw(st.permutations(factors))
    marks = sorted(data.draw(st.sets(st.integers(1, 4), max_size=3)))
    ends = [0, *marks, 5]
    wanted = tuple([prod(again[a:b]) for a, b in itertools.pairwise(ends)])
    case = data.draw(cases(world, given=[np.arange(240).reshape(shape)]))
    check(world, case, lambda x: np.reshape(x, wanted))


@settings(max_examples=60)
@given(data=st.data())
def test_views_are_views_on_all_ranks_or_on_none(world, data):
    shape = tuple(data.draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), max_size=3)))
    values = data.draw(array_values(shape))
    case = data.draw(cases(world, given=[values]))
    (operand,) = case.operands
    wanted = data.draw(factorings(prod(shape)))
    if isinstance(outcome(lambda: values.reshape(wanted)), Exception):
        return
    mark = values.dtype.type(77)
    written = np.full_like(values, mark)

    def program(group):
        mesh = DeviceMesh(group, case.mesh_shape)
        x = operand.build(mesh)
        x.reshape(wanted)[...] = mark
        whole = x.full()
        return bool((whole == written).all()), bool((whole == values).all())

    found = world.run(case.ranks, program)
    assert all(all_written or untouched for all_written, untouched in found)
    assert len(set(found)) == 1


@settings(max_examples=72)
@given(data=st.data())
def test_ravel(world, data):
    case = data.draw(cases(world, kinds=("plain", "view", "ragged", "partial")))
    order = data.draw(st.sampled_from(["C", "F", "A", "K", "X"]))
    if order in "AK" and case.ranks > 1:
        # Blocks with one index along a dimension do not tell in which order they are stored.
        order = "C"
    check(world, case, lambda x: np.ravel(x, order))


def test_storage_order(world, ranks):
    """Orders "A" and "K" go by how the blocks are stored, also where some leave it open."""

    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        values = np.arange(7 * 6.0).reshape(7, 6)
        x = distribute(values, mesh, [Shard(0)], src=None)
        for view, expected in ((x, values), (x.T, values.T), (x[:, 1:5].T, values[:, 1:5].T)):
            for order in "AK":
                assert_matches(np.ravel(view, order), np.ravel(expected, order))
            assert_matches(
                view.reshape((expected.size,), order="A"),
                expected.reshape((expected.size,), order="A"),
            )
        assert_matches(x[::-1].ravel("K"), values[::-1].ravel("K"))

    world.run(ranks, program)


def test_copy_argument(world, ranks):
    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        values = np.arange(24.0).reshape(6, 4)
        x = distribute(values, mesh, [Shard(0)], src=None)
        same = np.reshape(x, (24,), copy=False)
        assert np.shares_memory(same.to_local(), x.to_local()) or not x.to_local().size
        assert not np.shares_memory(np.reshape(x, (24,), copy=True).to_local(), x.to_local())
        y = distribute(values, mesh, [Shard(1)], src=None)
        line = np.reshape(y, (24,), copy=False)
        line[5] = -1
        assert y.full()[1, 1] == -1
        with pytest.raises(ValueError, match="Unable to avoid creating a copy"):
            np.reshape(x.T, (24,), copy=False)

    world.run(ranks, program)


def test_one_row_blocks_do_not_make_a_view_of_a_copy(world, ranks):
    """A transposed array of 10 rows on 4 ranks: the last has one, which NumPy alone could view."""

    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        values = np.arange(50.0).reshape(5, 10)
        x = distribute(values, mesh, [Shard(1)], src=None).T
        flat = x.reshape(50)
        flat[...] = -1
        assert_matches(x, values.T)

    world.run(ranks, program)


VIEWS = [
    ((24, 5), (120,), 0),
    ((24, 5), (4, 6, 5), 0),
    ((24, 2, 3), (24, 6), 0),
    ((4, 6, 5), (4, 30), 0),
    ((4, 12), (4, 3, 4), 0),
    ((24, 5), (24, 5, 1), 1),
    ((1, 24, 5), (24, 5), 1),
    ((2, 3, 24), (6, 24), 2),
    ((13, 4), (52,), 0),
]


@pytest.mark.parametrize(("old", "new", "dim"), VIEWS)
def test_views_send_nothing_and_write_through(world, ranks, old, new, dim):
    if new == (4, 6, 5) and 24 // ranks % 6:
        pytest.skip("here the boundaries fall within an index of the new leading dimension")

    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        values = np.arange(prod(old)).reshape(old)
        x = distribute(values, mesh, [Shard(dim)], src=None)
        with forbid_communication():
            view = x.reshape(new)
            back = view.reshape(old)
        assert_matches(view, values.reshape(new))
        assert back.layout is x.layout
        view[1:] = 0
        values.reshape(new)[1:] = 0
        assert_matches(x, values)

    world.run(ranks, program)


@pytest.mark.parametrize(
    ("old", "new", "dim"),
    [((24, 10), (240,), 1), ((24, 10), (10, 24), 0), ((6, 40), (40, 6), 1), ((8, 30), (2, 120), 0)],
)
def test_a_copy_sends_what_changes_owner(world, ranks, old, new, dim):
    """Bytes sent are those of the elements that a rank lacks, counted one by one."""

    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        numbers = np.arange(prod(old)).reshape(old)
        x = distribute(numbers, mesh, [Shard(dim)], src=None)
        same = distribute(numbers, mesh, [Shard(dim)], src=None)  # whose blocks may be handed out
        had = set(same.to_local().ravel().tolist())
        with trace() as t:
            result = x.reshape(new)
        assert_matches(result, numbers.reshape(new))
        assert result.layout.is_canonical
        lacks = len(set(result.to_local().ravel().tolist()) - had)
        return t.bytes, 8 * lacks, t.messages

    found = world.run(ranks, program)
    if len(found) == ranks:  # thread ranks: all of them are here
        # Whether the cut moves; or whose blocks are out.
        asked = {0, 8 * ranks, 2 * ranks}
        assert sum([sent - lack for sent, lack, _ in found]) in asked
    assert all(messages <= 4 * (ranks - 1) for _, _, messages in found)


def test_batch_dimension_stays_cut(world, ranks):
    """On a 2-d mesh only the dimension that must be cut anew is: no message along the other."""
    rows = 2 if ranks % 2 == 0 else 1

    def program(group):
        mesh = DeviceMesh(group, (rows, group.size // rows))
        values = np.arange(6 * 4 * 6).reshape(6, 4, 6)
        x = distribute(values, mesh, [Shard(0), Shard(2)], src=None)
        with trace() as t:
            result = x.reshape(6, 24)
        assert_matches(result, values.reshape(6, 24))
        assert result.placements == (Shard(0), Shard(1))
        along = {r for r in range(group.size) if mesh.coords_of(r)[0] == mesh.coords[0]}
        moved = [event for event in t if event.kind == "exchange"]  # besides votes
        assert all(set(event.peers) <= along for event in moved)

    world.run(ranks, program)


def test_a_short_leading_dimension_is_not_cut(world, ranks):
    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        values = np.arange(480).reshape(240, 2)
        x = distribute(values, mesh, [Shard(0)], src=None)
        result = x.reshape(2, 240)
        assert_matches(result, values.reshape(2, 240))
        blocks = [np.prod(result.layout.local_shape((r,))) for r in range(group.size)]
        assert max(blocks) <= 2 * 480 / group.size

    world.run(ranks, program)


@settings(max_examples=40)
@given(data=st.data())
def test_unlike_storage_on_ranks(world, data):
    """Blocks in C order on some ranks and in Fortran order on others."""
    ranks = data.draw(st.sampled_from(world.ranks))
    mesh_shape = data.draw(mesh_shapes(ranks))
    fortran = data.draw(st.lists(st.booleans(), min_size=ranks, max_size=ranks))
    values = np.arange(12 * 4).reshape(12, 4)

    def program(group):
        mesh = DeviceMesh(group, mesh_shape)
        placements = [Shard(0)] + [Replicate()] * (len(mesh_shape) - 1)
        block = distribute(values, mesh, placements, src=None).to_local()
        block = block.copy(order="F") if fortran[group.rank] else block
        x = from_local(block, mesh, placements)
        assert_matches(x.reshape(48), values.reshape(48))
        assert_matches(x.reshape(6, 8), values.reshape(6, 8))

    world.run(ranks, program)
