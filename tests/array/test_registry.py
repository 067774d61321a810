"""What dispatch does to arguments before an implementation sees them."""

import numpy as np
import pytest

from distarray import DeviceMesh, Shard, distribute


@pytest.mark.parametrize("give", ["by name", "by position"])
def test_an_out_that_is_a_view_of_one_coordinate_is_written_through(world, ranks, give):
    """`out` was settled like an operand, so that results went into a copy of the view."""

    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        base = distribute(np.zeros((3, 7)), mesh, [Shard(1)], src=None)
        a = distribute(np.arange(9.0).reshape(3, 3), mesh, [Shard(0)], src=None)
        for column in range(7):
            if give == "by name":
                np.dot(a, np.full(3, column), out=base[:, column])
            else:
                np.dot(a, np.full(3, column), base[:, column])
        return base.full()

    expected = np.outer(np.arange(9.0).reshape(3, 3).sum(1), np.arange(7.0))
    for found in world.run(ranks, program):
        np.testing.assert_array_equal(found, expected)
