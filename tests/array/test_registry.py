"""Dispatch: how arguments are prepared before an implementation sees them."""

import numpy as np
import pytest

from distarray import DeviceMesh, Shard, distribute


@pytest.mark.parametrize("give", ["by name", "by position"])
def test_an_out_that_is_a_view_of_one_coordinate_is_written_through(world, ranks, give):
    """`out` was settled like an operand, so that results went into a copy of the view."""

    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        base = distribute(np.zeros((7, 3)), mesh, [Shard(0)], src=None)
        a = distribute(np.arange(9.0).reshape(3, 3), mesh, [Shard(0)], src=None)
        for row in range(7):
            if give == "by name":
                np.dot(a, np.full(3, row), out=base[row])
            else:
                np.dot(a, np.full(3, row), base[row])
        return base.full()

    expected = np.outer(np.arange(7.0), np.arange(9.0).reshape(3, 3).sum(1))
    for found in world.run(ranks, program):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("key", [3, (slice(None), 3), (slice(None, None, 2), 1)])
def test_a_view_of_one_coordinate_stays_a_view_when_it_is_used(world, ranks, key):
    """An operand that lives at one coordinate was replicated in place: it lost its base."""

    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        for dim in (0, 1):
            values = np.arange(42.0).reshape(7, 6)
            x = distribute(values, mesh, [Shard(dim)], src=None)
            view, expected = x[key], values[key]
            placements = view.placements
            np.delete(view, 0)
            np.cumsum(view)
            np.mean(view)
            assert view.placements == placements
            x[...] = 2 * x
            values *= 2
            np.testing.assert_array_equal(view.full(), expected)
            view[1:] = -1
            expected[1:] = -1
            np.testing.assert_array_equal(x.full(), values)

    world.run(ranks, program)


def test_one_element_moves_between_ranks(world, ranks):
    """A 0-d array that one rank holds was received into a scalar, which cannot be written to."""

    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        x = distribute(np.arange(7.0), mesh, [Shard(0)], src=None)
        for index in range(7):
            assert float(np.copy(x[index, ...])) == index
            assert np.stack([x[index, ...]]).full() == [index]

    world.run(ranks, program)
