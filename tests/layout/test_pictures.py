"""Pictures are SVG of any layout, and show what lies where."""

import re
from itertools import product
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distarray.layout import At, Layout, Partial, Replicate, Shard, view_layout
from distarray.layout.pictures import EMPTY, colour_of, layout_svg, mesh_svg, placement_svg


def rectangles(text):
    """Left, top, width, height and colour of all rectangles."""
    root = ElementTree.fromstring(text)
    found = [e for e in root if e.tag.endswith("rect")]
    sides = ("x", "y", "width", "height")
    return [(*[float(e.get(side)) for side in sides], e.get("fill")) for e in found]


def texts(text):
    return [e.text for e in ElementTree.fromstring(text) if e.tag.endswith("text")]


def area(boxes):
    return sum(wide * high for _, _, wide, high, _ in boxes)


def test_blocks_fill_the_array_in_the_ranks_colours():
    ground, *blocks = rectangles(layout_svg(Layout.chunked((8, 6), (4,), [Shard(0)])))
    assert [fill for *_, fill in blocks] == [colour_of(rank) for rank in range(4)]
    assert area(blocks) == pytest.approx(area([ground]), rel=0.01)
    assert ground[4] == EMPTY
    assert [top for _, top, *_ in blocks] == sorted(top for _, top, *_ in blocks)


def test_this_ranks_block_has_a_frame():
    layout = Layout.chunked((8, 6), (2, 2), [Shard(0), Shard(1)])
    *_, frame = rectangles(layout_svg(layout, (1, 0)))
    _, *blocks = rectangles(layout_svg(layout))
    left, top, wide, high, fill = frame
    assert fill == "none"
    assert (left, top) == pytest.approx([c + 1 for c in blocks[2][:2]], abs=0.2)
    assert (wide, high) == pytest.approx([c - 2 for c in blocks[2][2:4]], abs=0.2)


def test_what_all_have_is_one_block():
    text = layout_svg(Layout.chunked((8, 6), (4,), [Replicate()]))
    assert len(rectangles(text)) == 2
    assert texts(text) == ["all ranks", "6", "8"]


def test_a_rank_outside_and_a_lone_coordinate_have_no_frame():
    rows = Layout.chunked((8, 6), (4,), [Shard(0)])
    lone = view_layout(rows, (5, (0, 1, 6)))
    assert [fill for *_, fill in rectangles(layout_svg(lone, (0,)))] == [EMPTY, colour_of(2)]
    assert len(rectangles(layout_svg(lone, (2,)))) == 3


@pytest.mark.parametrize("shape", [(), (0,), (5,), (0, 3), (3, 1, 4, 5), (1, 10**9)])
def test_any_shape_can_be_drawn(shape):
    placements = [Replicate()] if not shape else [Shard(len(shape) - 1)]
    layout = Layout.chunked(shape, (3,), placements)
    for coords in [None, *product(range(3))]:
        assert rectangles(layout_svg(layout, coords))


def test_of_many_dimensions_those_are_drawn_that_are_cut():
    layout = Layout.chunked((2, 3, 4, 7), (2, 2), [Shard(1), Shard(3)])
    assert texts(layout_svg(layout))[-2:] == ["7", "3"]


def test_large_meshes_are_not_drawn_rank_by_rank():
    layout = Layout.chunked((1 << 20, 8), (65536,), [Shard(0)])
    assert len(layout_svg(layout, (77,))) < 2000
    assert len(mesh_svg((256, 256), None, (3, 7))) < 60_000


@given(st.data())
def test_every_layout_has_a_picture(data):
    shape = tuple(data.draw(st.lists(st.integers(0, 7), min_size=1, max_size=4)))
    mesh_shape = tuple(data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=2)))
    kinds = [*map(Shard, range(len(shape))), Replicate(), Partial()]
    placements = [data.draw(st.sampled_from(kinds)) for _ in mesh_shape]
    layout = Layout.chunked(shape, mesh_shape, placements)
    boxes = {layout.section(c) for c in product(*map(range, mesh_shape))}
    full = [box for box in boxes if all(start < stop for start, stop in box)]
    for coords in product(*map(range, mesh_shape)):
        assert len(rectangles(layout_svg(layout, coords))) <= len(full) + 2


def test_a_mesh_has_its_ranks_and_this_ones_frame():
    text = mesh_svg((2, 3), ("dp", "tp"), (1, 2))
    assert texts(text) == ["0", "1", "2", "3", "4", "5", "dp=2 x tp=3"]
    assert rectangles(text)[-1][4] == "none"


@pytest.mark.parametrize("placement", [Shard(0), Shard(1), Replicate(), Partial(), At(2)])
def test_placements_differ_in_their_pictures(placement):
    others = [p for p in (Shard(0), Shard(1), Replicate(), Partial(), At(2)) if p != placement]
    assert placement_svg(placement) not in map(placement_svg, others)
    html = placement._repr_html_()
    assert repr(placement) in html.replace("&#x27;", "'")
    assert html.count("<svg") == 1


def test_a_layout_shows_itself():
    html = Layout.chunked((8, 6), (4,), [Shard(0)])._repr_html_()
    assert "Shard(0)" in html
    assert "<script" not in html
    strided = view_layout(Layout.chunked((8,), (4,), [Shard(0)]), ((0, 2, 4),))
    assert re.search(r"cuts.*::2", strided._repr_html_())
