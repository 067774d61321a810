"""Trees of sums: ranges are covered by few pieces, and NumPy's tree is NumPy's."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distarray.plan import Tree


def added(tree, values, start=0, stop=None):
    """The sum of a node as the tree says."""
    stop = tree.length if stop is None else stop
    if tree.is_leaf(start, stop):
        return np.add.reduce(values[start:stop])
    middle = tree.middle(start, stop)
    return added(tree, values, start, middle) + added(tree, values, middle, stop)


@pytest.mark.parametrize("dtype", ["f8", "f4", "c16"])
@given(length=st.integers(0, 5000))
def test_the_tree_of_memory_is_numpys(dtype, length):
    values = np.random.default_rng(length).standard_normal(length).astype(dtype)
    values *= np.exp2(np.random.default_rng(1).integers(-20, 20, length)).astype(dtype)
    tree = Tree(length, 2 if dtype == "c16" else 1)
    assert added(tree, values) == np.add.reduce(values)


@given(
    length=st.integers(1, 3000),
    ends=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    width=st.sampled_from([0, 1, 2]),
)
def test_a_range_is_covered_by_few_pieces(length, ends, width):
    tree = Tree(length, width)
    start, stop = sorted(int(end * length) for end in ends)
    pieces = tree.pieces(start, stop)
    if start == stop:
        assert pieces == []
        return
    assert [piece.start for piece in pieces] == [start, *[piece.stop for piece in pieces[:-1]]]
    assert pieces[-1].stop == stop
    assert sum(piece.is_node for piece in pieces) <= 2 * length.bit_length()
    loose = [piece for piece in pieces if not piece.is_node]
    assert all(piece in (pieces[0], pieces[-1]) for piece in loose)
    assert sum(piece.values for piece in pieces) <= 2 * length.bit_length() + 2 * 127


def test_a_tree_of_very_many_summands_is_not_walked():
    tree = Tree(10**15, 1)
    assert len(tree.pieces(10**14 + 3, 9 * 10**14 + 5)) < 120
