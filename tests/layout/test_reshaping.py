"""The rules of reshaping, against NumPy on index arrays."""

from math import prod

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from distarray.layout import (
    Cut,
    flat_boxes,
    recounted_cut,
    regrouped_cut,
    rescaled_cut,
    reshape_groups,
    stretched_cut,
)


@st.composite
def factored(draw):
    """Two shapes of equally many elements, no extent below 2."""
    factors = draw(st.lists(st.sampled_from([2, 2, 3, 5]), min_size=1, max_size=6))

    def merged(order):
        shape = [1]
        for factor in order:
            if draw(st.booleans()):
                shape[-1] *= factor
            else:
                shape.append(factor)
        return tuple([n for n in shape if n > 1])

    return merged(factors), merged(draw(st.permutations(factors)))


@st.composite
def cuts(draw, extent):
    """Cuts of a dimension by one or two mesh dimensions: canonical, views, ragged."""
    radix = draw(st.sampled_from([(1,), (2,), (3,), (4,), (2, 2), (2, 3), (6,)]))
    mesh_dims = tuple(range(len(radix)))
    kind = draw(st.sampled_from(["canonical", "view", "ragged"]))
    if kind == "canonical" or not extent:
        return Cut.chunked(extent, mesh_dims, radix)
    if kind == "ragged":
        marks = sorted([draw(st.integers(0, extent)) for _ in range(prod(radix) - 1)])
        bounds = [0, *marks, extent]
        base = Cut.ragged(np.diff(bounds).tolist(), mesh_dims, radix)
        return base.view(extent - 1, -1, extent) if draw(st.booleans()) else base
    step = draw(st.sampled_from([1, 1, 2, -1, -2]))
    span = (extent - 1) * abs(step) + 1
    before, after = draw(st.integers(0, 4)), draw(st.integers(0, 4))
    base = Cut.chunked(before + span + after, mesh_dims, radix)
    return base.view(before if step > 0 else before + span - 1, step, extent)


@given(factored())
def test_groups_pair_dimensions(shapes):
    old, new = shapes
    groups = reshape_groups(old, new)
    for position, ends in enumerate(zip(*groups, strict=True)):
        assert [d for start, stop in ends for d in range(start, stop)] == list(
            range(len(shapes[position]))
        )
    for a, b in groups:
        assert prod(old[slice(*a)]) == prod(new[slice(*b)])
        for stop in range(a[0] + 1, a[1]):  # no smaller group would do
            assert prod(old[a[0] : stop]) not in [prod(new[b[0] : s]) for s in range(*b)]


@settings(max_examples=300)
@given(data=st.data())
def test_rescaled(data):
    extent = data.draw(st.integers(1, 24))
    cut = data.draw(cuts(extent))
    times = data.draw(st.integers(1, 4))
    over = data.draw(st.sampled_from([d for d in range(1, 9) if extent * times % d == 0]))
    found = rescaled_cut(cut, times, over)
    ends = [cut.interval(part) for part in range(cut.parts)]
    whole = all(a == b or (a * times % over == 0 and b * times % over == 0) for a, b in ends)
    assert (found is not None) == (whole or times == over)
    if found is None:
        return
    assert (found.extent, found.mesh_dims) == (extent * times // over, cut.mesh_dims)
    for part, (start, stop) in enumerate(ends):
        a, b = found.interval(part)
        assert (a, b) == (start * times // over, stop * times // over) or (a == b and start == stop)
    for index in range(found.extent):
        assert index in range(*found.interval(found.owner(index)))


def test_rescaling_and_back_is_the_same_cut():
    for extent in range(1, 30):
        for parts in (1, 2, 3, 4, 6):
            cut = Cut.chunked(extent, (0,), (parts,))
            longer = rescaled_cut(cut, 6)
            assert rescaled_cut(longer, 1, 6) == cut
            assert rescaled_cut(rescaled_cut(longer, 1, 2), 1, 3) == cut
            assert longer.bounds is None


def test_scaling_stores_nothing_per_rank():
    cut = rescaled_cut(Cut.chunked(1 << 30, (0,), (65536,)), 1000)
    assert cut.bounds is None
    assert cut == Cut.chunked((1 << 30) * 1000, (0,), (65536,))
    uneven = rescaled_cut(Cut.chunked((1 << 30) + 2, (0,), (65536,)), 1000, 8)
    assert uneven.bounds is None


@given(data=st.data())
def test_stretched_and_recounted(data):
    extent = data.draw(st.integers(0, 12))
    cut = data.draw(cuts(extent))
    before, after = data.draw(st.integers(0, 5)), data.draw(st.integers(0, 5))
    found = stretched_cut(cut, before, after)
    assert found.extent == extent + before + after
    owned = np.concatenate([np.arange(*found.interval(p)) for p in range(found.parts)])
    np.testing.assert_array_equal(np.sort(owned), np.arange(found.extent))
    for part in range(cut.parts):
        start, stop = cut.interval(part)
        if start < stop:
            a, b = found.interval(part)
            assert a <= before + start
            assert b >= before + stop
    same = [b - a for a, b in map(cut.interval, range(cut.parts))]
    again = recounted_cut(cut, same)
    for part in range(cut.parts):
        a, b = cut.interval(part)
        assert again.interval(part) == (a, b) or a == b


@settings(max_examples=200)
@given(data=st.data())
def test_regrouped_cuts_keep_every_element(data):
    old, new = data.draw(factored())
    dim = data.draw(st.integers(0, len(old) - 1))
    cut = data.draw(cuts(old[dim]))
    old_cuts = [cut if d == dim else Cut.whole(n) for d, n in enumerate(old)]
    found = regrouped_cut(old_cuts, new)
    numbers = np.arange(prod(old))

    def owned(cut_list, shape, part):
        key = [slice(*c.interval(part)) if c.mesh_dims else slice(None) for c in cut_list]
        return set(numbers.reshape(shape)[tuple(key)].ravel().tolist())

    if found is None:
        assert cut.parts > 1
        lead = [sorted(owned(old_cuts, old, part)) for part in range(cut.parts)]
        row = prod(new[1:])
        runs = all(not o or o == list(range(o[0], o[-1] + 1)) for o in lead)
        assert (
            not (runs and all(not o or (o[0] % row, len(o) % row) == (0, 0) for o in lead)) or dim
        )
        return
    assert [c.extent for c in found] == list(new)
    for part in range(cut.parts):
        assert owned(found, new, part) == owned(old_cuts, old, part)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple), st.data())
def test_boxes_of_a_stretch(shape, data):
    total = prod(shape)
    start = data.draw(st.integers(0, total))
    stop = data.draw(st.integers(0, total))
    boxes = flat_boxes(start, stop, shape)
    numbers = np.arange(total).reshape(shape)
    found = [numbers[tuple([slice(*i) for i in box])].ravel() for box in boxes]
    np.testing.assert_array_equal(np.concatenate([[], *found]), np.arange(start, stop))
    assert len(boxes) <= 2 * len(shape) - 1
    assert all(part.size for part in found)


def test_a_box_of_nothing():
    assert flat_boxes(0, 0, (3, 0)) == []
    assert flat_boxes(0, 1, ()) == [()]
