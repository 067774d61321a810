"""The grid of tiles: every element in one tile, the same for every section."""

from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distarray.engines.drawing.drawn_tiles import TILE, tile_count, tile_extents, tiles
from distarray.layout import Layout, Shard
from distarray.testing import shapes

SHAPES = st.one_of(
    shapes(), st.sampled_from([(40_000,), (300, 200), (3, 20_000), (20_000, 3), (30, 40, 50)])
)


@settings(max_examples=60)
@given(data=st.data())
def test_a_section_is_put_together_of_tiles(data):
    shape = data.draw(SHAPES)
    box = []
    for extent in shape:
        start = data.draw(st.integers(0, extent))
        box.append((start, data.draw(st.integers(start, extent))))
    whole = np.arange(prod(shape)).reshape(shape)
    wanted = whole[tuple([slice(*part) for part in box])]
    found = np.full(wanted.shape, -1)
    numbers = []
    for tile in tiles(shape, tuple(box)):
        numbers.append(tile.number)
        drawn = whole[
            tuple([slice(a, a + n) for a, n in zip(tile.start, tile.extents, strict=True)])
        ]
        assert drawn.shape == tile.extents
        assert tile.whole == (drawn[tile.wanted].shape == drawn.shape)
        assert np.all(found[tile.target] == -1)
        found[tile.target] = drawn[tile.wanted]
    np.testing.assert_array_equal(found, wanted)
    assert sorted(set(numbers)) == sorted(numbers)
    assert not numbers or max(numbers) < tile_count(shape)


@given(shape=SHAPES)
def test_tiles_of_a_part_are_tiles_of_the_whole(shape):
    """Number, beginning and widths do not depend on the section (all but the first extent)."""
    everything = {t.number: t for t in tiles(shape, tuple([(0, n) for n in shape]))}
    assert len(everything) == (tile_count(shape) if prod(shape) else 0)
    for dim in range(len(shape)):
        for rank in range(3):
            section = Layout.chunked(shape, (3,), [Shard(dim)]).section((rank,))
            for tile in tiles(shape, section):
                same = everything[tile.number]
                assert tile.start == same.start
                slowest = next((d for d, n in enumerate(tile_extents(shape)) if n > 1), 0)
                assert tile.extents[slowest + 1 :] == same.extents[slowest + 1 :]


@pytest.mark.parametrize(
    "shape", [(1 << 24,), (4096, 4096), (1 << 20, 8), (100, 10**6), (256, 256, 256), (2**40, 3)]
)
def test_tiles_are_of_one_size(shape):
    assert TILE // 4 <= prod(tile_extents(shape)) <= 2 * TILE
    for dim, extent in enumerate(shape[:-1]):
        assert tile_extents(shape)[dim] <= extent // 4
