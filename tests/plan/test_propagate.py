"""The layout an elementwise operation works in."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distarray.layout import Cut, Layout, Replicate, Shard
from distarray.plan import broadcast_shapes, propagate, restrict


def rows(offset, extent, base=20, columns=6, ranks=4):
    layout = Layout.chunked((base, columns), (ranks,), [Shard(0)])
    return layout.with_cuts([layout.cuts[0].view(offset, 1, extent), layout.cuts[1]])


def test_equal_layouts_stay():
    layout = rows(0, 20)
    assert propagate((layout, layout), (8, 8)).result is layout


def test_shifted_views_meet_in_the_middle():
    """u[:-2] + u[2:] works where u[1:-1] is, so that the interior is written without a message."""
    middle = rows(1, 18)
    assert propagate((rows(0, 18), rows(2, 18)), (8, 8)).result is middle
    assert propagate((rows(0, 18), middle), (8, 8)).result is middle
    assert propagate((rows(2, 18), middle), (8, 8)).result is middle


def test_views_shifted_by_blocks_stay_where_one_of_them_is():
    """Half way between, every element of both would change rank."""
    halves = rows(0, 10), rows(10, 10)
    found = propagate(halves, (8, 8)).result
    assert found in halves
    assert propagate((rows(0, 18), rows(2, 18)), (8, 1)).result is rows(0, 18)


def test_shifted_views_are_planned_alike_on_any_number_of_ranks(monkeypatch):
    """No block by block comparison: a first call took longer the more ranks there were."""
    seen = []
    interval = Cut.interval
    monkeypatch.setattr(
        Cut, "interval", lambda self, part: seen.append(part) or interval(self, part)
    )
    counts = []
    for ranks in (2, 8, 64):
        seen.clear()
        pair = rows(3, 18_000, 20_001 + ranks, 7, ranks), rows(4, 18_000, 20_001 + ranks, 7, ranks)
        propagate(pair, (8, 8))
        propagate(pair, (8, 4))
        counts.append(len(seen))
    assert counts[0] == counts[1] == counts[2]


def test_wide_stencils_meet_in_the_middle_too():
    views = tuple(rows(offset, 16) for offset in range(5))
    assert propagate(views, (8,) * 5).result is rows(2, 16)


def test_disjoint_mesh_dimensions_combine_without_a_message():
    x = Layout.chunked((10, 1), (2, 2), [Shard(0), Replicate()])
    y = Layout.chunked((1, 7), (2, 2), [Replicate(), Shard(1)])
    found = propagate((x, y), (8, 8))
    assert found.result is Layout.chunked((10, 7), (2, 2), [Shard(0), Shard(1)])
    assert found.operands == (x, y)


def test_the_smaller_operand_moves():
    matrix = Layout.chunked((100, 50), (2,), [Shard(0)])
    row = Layout.chunked((50,), (2,), [Shard(0)])
    found = propagate((row, matrix), (8, 8))
    assert found.result is matrix
    assert found.operands[0].is_replicated


def test_replicated_operands_follow():
    matrix = Layout.chunked((100, 50), (2,), [Shard(1)])
    found = propagate((Layout.replicated((50,), (2,)), matrix), (8, 8))
    assert found.result is matrix
    assert found.operands[0] is Layout.chunked((50,), (2,), [Shard(0)])


shapes = st.lists(st.integers(0, 4), max_size=4).map(tuple)


@given(st.lists(shapes, min_size=1, max_size=3))
def test_broadcasting_is_numpys(drawn):
    try:
        expected = np.broadcast_shapes(*drawn)
    except ValueError:
        with pytest.raises(ValueError, match="could not be broadcast together"):
            broadcast_shapes(*drawn)
    else:
        assert broadcast_shapes(*drawn) == expected


def test_restriction_keeps_what_broadcasts():
    layout = Layout.chunked((4, 6), (2, 3), [Shard(0), Shard(1)])
    assert restrict(layout, (6,)) is Layout.chunked((6,), (2, 3), [Replicate(), Shard(0)])
    assert restrict(layout, (4, 1)) is Layout.chunked((4, 1), (2, 3), [Shard(0), Replicate()])
