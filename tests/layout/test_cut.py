"""One array dimension, cut: every index has one owner, whatever the cut and the view."""

from itertools import pairwise
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distarray.layout import Cut

radices = st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple)
steps = st.sampled_from([1, 2, 3, -1, -2, -3])


@st.composite
def cuts(draw):
    """Chunked and ragged cuts, each with up to three strided views of it."""
    radix = draw(radices)
    mesh_dims = tuple(range(len(radix)))
    if draw(st.booleans()):
        cut = Cut.chunked(draw(st.integers(0, 20)), mesh_dims, radix)
    else:
        counts = draw(st.lists(st.integers(0, 4), min_size=prod(radix), max_size=prod(radix)))
        cut = Cut.ragged(counts, mesh_dims, radix)
    chain = [(cut, None)]
    for _ in range(draw(st.integers(0, 3))):
        selected = range(
            *slice(draw(st.none() | st.integers(-9, 9)), None, draw(steps)).indices(cut.extent)
        )
        cut = cut.view(selected.start, selected.step, len(selected))
        chain.append((cut, selected))
    return chain


@given(cuts())
def test_blocks_partition_the_indices_and_owner_agrees(chain):
    for cut, _ in chain:
        blocks = [range(*cut.interval(part)) for part in range(cut.parts)]
        if cut.parts > 1:
            assert sorted(i for block in blocks for i in block) == list(range(cut.extent))
        for index in range(cut.extent):
            assert index in blocks[cut.owner(index)]


@given(cuts())
def test_a_view_stays_where_its_base_is(chain):
    for (base, _), (view, selected) in pairwise(chain):
        if selected:
            for i, index in enumerate(selected):
                assert view.owner(i) == base.owner(index)


@given(cuts(), st.integers(1, 7))
def test_rounding_moves_boundaries_to_the_nearest_multiples(chain, grain):
    cut = chain[-1][0]
    rounded = cut.rounded(grain)
    before, after = [[c.interval(part) for part in range(c.parts)] for c in (cut, rounded)]
    assert sum(stop - start for start, stop in after) == cut.extent
    for old, new in zip(before, after, strict=True):
        for was, bound in zip(old, new, strict=True):
            assert bound % grain == 0 or bound == cut.extent
            if was not in (0, cut.extent) and cut.parts > 1:
                assert abs(bound - was) <= grain / 2 or bound == cut.extent
    for index in range(cut.extent):
        assert index in range(*after[rounded.owner(index)])


@given(cuts(), st.integers(1, 7), st.data())
def test_blocks_in_units_are_those_of_a_canonical_cut_of_the_units(chain, unit, data):
    cut = chain[-1][0]
    phase = data.draw(st.integers(0, unit - 1))
    moved = cut.in_units(unit, phase)
    units = Cut.chunked(-(-(cut.extent + phase) // unit), cut.mesh_dims, cut.radix)
    for part in range(cut.parts):
        low, high = [max(0, min(cut.extent, n * unit - phase)) for n in units.interval(part)]
        start, stop = moved.interval(part)
        assert (start, stop) == (low, high) or (low >= high and start >= stop)


@given(cuts(), st.integers(0, 20), st.integers(0, 20))
def test_owners_are_those_whose_blocks_meet_the_range(chain, start, stop):
    cut = chain[-1][0]
    start, stop = min(start, cut.extent), min(stop, cut.extent)
    meeting = {
        part
        for part in range(cut.parts)
        if set(range(*cut.interval(part))) & set(range(start, stop))
    }
    assert meeting <= set(cut.owners(start, stop))


@given(st.integers(0, 40), radices)
def test_chunks_are_those_of_array_chunking(extent, radix):
    """Nested ceil-sized blocks, left to right."""
    blocks = [np.arange(extent)]
    for size in radix:
        nested = []
        for block in blocks:
            step = -(-len(block) // size)
            nested += [block[i * step : (i + 1) * step] for i in range(size)]
        blocks = nested
    cut = Cut.chunked(extent, tuple(range(len(radix))), radix)
    for part, block in enumerate(blocks):
        assert list(range(*cut.interval(part))) == list(block)


def test_known_chunk_lengths():
    for extent, parts, lengths in [
        (7, 2, [4, 3]),
        (10, 4, [3, 3, 3, 1]),
        (5, 4, [2, 2, 1, 0]),
        (9, 8, [2, 2, 2, 2, 1, 0, 0, 0]),
    ]:
        cut = Cut.chunked(extent, (0,), (parts,))
        found = [stop - start for start, stop in map(cut.interval, range(parts))]
        assert found == lengths


def test_ragged_bounds_that_are_chunks_become_the_canonical_cut():
    assert Cut.ragged([4, 3], (0,), (2,)) == Cut.chunked(7, (0,), (2,))
    assert not Cut.ragged([3, 4], (0,), (2,)).is_canonical


@pytest.mark.parametrize("parts", [65_536])
def test_questions_do_not_depend_on_the_number_of_parts(parts):
    cut = Cut.chunked(10**12, (0, 1), (parts, 16)).view(7, -3, 0)
    assert cut.extent == 0
    cut = Cut.chunked(10**12, (0, 1), (parts, 16))
    assert cut.owner(cut.interval(123_456)[0]) == 123_456
