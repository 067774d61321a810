"""Layouts: interned, checked, and exact about who holds what."""

import pickle
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distarray.errors import LayoutError
from distarray.layout import (
    LARGE,
    At,
    Cut,
    Fold,
    Layout,
    Partial,
    Replicate,
    Shard,
    local_key,
    view_layout,
    whole_view,
)


def chunked(shape, mesh, *placements):
    return Layout.chunked(shape, mesh, placements)


def test_equal_layouts_are_one_object():
    a = chunked((4, 6), (2, 2), Shard(0), Shard(-1))
    assert a is chunked((4, 6), (2, 2), Shard(0), Shard(1))
    assert pickle.loads(pickle.dumps(a)) is a


def test_local_shapes_nest_left_to_right():
    layout = chunked((5, 3), (2, 2), Shard(0), Shard(0))
    assert [layout.local_shape(c) for c in product(range(2), range(2))] == [
        (2, 3),
        (1, 3),
        (1, 3),
        (1, 3),
    ]


@pytest.mark.parametrize(
    ("placements", "message"),
    [
        ([Shard(2), Replicate()], "lacks"),
        ([Shard(0)], "one placement per mesh dimension"),
    ],
)
def test_placements_that_do_not_fit(placements, message):
    with pytest.raises(LayoutError, match=message):
        Layout.chunked((4, 6), (2, 2), placements)


def test_what_is_no_placement_is_a_type_error():
    with pytest.raises(TypeError, match="not 0"):
        Layout.chunked((4,), (2,), [0])


def test_placements_say_what_they_take():
    assert repr(Shard(np.int64(1))) == "Shard(1)"
    with pytest.raises(TypeError, match=r"dim is an integer, not 1\.0"):
        Shard(1.0)
    with pytest.raises(ValueError, match=r"Partial\('summ'\): the folds are 'sum', "):
        Partial("summ")


def test_zero_d_arrays_cannot_be_sharded():
    with pytest.raises(LayoutError, match="0-d"):
        Layout.chunked((), (2,), [Shard(0)])


def test_partial_reads_its_fold_from_text():
    assert Partial("max") == Partial(Fold.MAX)
    with pytest.raises(ValueError):
        Partial("median")


def test_an_integer_leaves_the_rest_where_its_row_is():
    layout = chunked((5, 4), (2, 2), Shard(0), Shard(1))
    row = view_layout(layout, (4, (0, 1, 4)))
    assert row.placements == (At(1), Shard(0))
    assert row.local_shape((0, 0)) == (0,)
    assert row.local_shape((1, 1)) == (2,)


def test_another_cut_of_one_dimension_keeps_what_does_not_cut():
    layout = chunked((4, 6), (2, 2), Shard(0), Partial("max"))
    assert layout.replace(0, layout.cuts[0]) is layout
    assert layout.replace(0, Cut.whole(9)) is chunked((9, 6), (2, 2), Replicate(), Partial("max"))
    columns = Cut.chunked(6, (1,), (2,))  # by the mesh dimension of the fold
    assert layout.replace(-1, columns) is chunked((4, 6), (2, 2), Shard(0), Shard(1))
    row = Layout.lone((4, 6), (2, 1), (1, 0))
    assert row.replace(1, Cut.whole(3)) is Layout.lone((4, 3), (2, 1), (1, 0))


@given(st.data())
def test_local_keys_take_the_view_out_of_the_block(data):
    mesh = data.draw(st.sampled_from([(1,), (3,), (2, 2), (2, 3)]))
    shape = data.draw(st.tuples(st.integers(1, 7), st.integers(1, 7)))
    placements = [data.draw(st.sampled_from([Replicate(), Shard(0), Shard(1)])) for _ in mesh]
    layout = Layout.chunked(shape, mesh, placements)
    values = np.arange(shape[0] * shape[1]).reshape(shape)
    entries, key = [], []
    for extent in shape:
        if data.draw(st.booleans()):
            entries.append(data.draw(st.integers(0, extent - 1)))
            key.append(entries[-1])
        else:
            step = data.draw(st.sampled_from([1, 2, -1, -2]))
            key.append(slice(data.draw(st.none() | st.integers(-8, 8)), None, step))
            bounds = key[-1].indices(extent)
            entries.append((bounds[0], step, len(range(*bounds))))
    entries.insert(1, None)
    key.insert(1, None)
    view = view_layout(layout, tuple(entries))
    expected = values[tuple(key)]
    assert view.shape == expected.shape
    if layout.is_whole:
        kinds = tuple(map(type, key))
        assert whole_view(layout, kinds, view.shape) is view
        assert whole_view(layout, (type(...), *kinds), view.shape) is view
    for coords in np.ndindex(*mesh):
        block = values[tuple(slice(a, b) for a, b in layout.section(coords))]
        local = local_key(layout, tuple(entries), coords)
        if local is not None:
            mine = tuple(slice(a, b) for a, b in view.section(coords))
            np.testing.assert_array_equal(block[local], expected[mine])


def test_replicas_are_the_replicated_layouts():
    small = Layout.replicated((3, 4), (2, 2))
    assert small.replicas[(5,)] is Layout.replicated((5,), (2, 2))
    assert small.replicas[(3, 4)] is small
    assert Layout.chunked((3, 4), (2,), [Shard(0)]).replicas is None
    assert Layout.replicated((LARGE,), (2,)).replicas is None


def test_replicas_are_forgotten_in_time():
    known = Layout.replicated((2,), (1, 3)).replicas
    for extent in range(2 * known.MOST):
        assert known[(extent,)].shape == (extent,)
        assert len(known) <= known.MOST
