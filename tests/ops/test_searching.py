"""searchsorted against NumPy: sorted array and values whole or spread, in any combination."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distarray
from distarray import DeviceMesh, Replicate, Shard
from distarray.config import config
from distarray.testing import assert_matches, assert_same_error, mesh_shapes, shapes

from .likeness import Case, check, operands
from .sortable import KINDS, NUMBERS, WHOLE, tied


@st.composite
def searches(draw, world):
    """A sorted array, an array to look up, and the permutation that sorts a third one."""
    ranks = draw(st.sampled_from(world.ranks))
    mesh_shape = draw(mesh_shapes(ranks))
    dtype = draw(st.sampled_from(KINDS))
    other = draw(st.sampled_from(NUMBERS)) if dtype in NUMBERS else dtype
    seed = draw(st.integers(0, 2**16))
    line = tied((draw(st.sampled_from([0, 1, 5, 70])),), dtype, seed)
    values = tied(draw(shapes()), other, seed + 1, 6)
    order = np.argsort(line, kind="stable")
    given = (np.sort(line), values, line, order)
    found = [draw(operands(mesh_shape, v, WHOLE, v.dtype.isnative)) for v in given]
    return Case(ranks, mesh_shape, tuple(found), draw(st.integers(0, 3)) > 0)


@settings(max_examples=100)
@given(data=st.data())
def test_searchsorted(world, data):
    case = data.draw(searches(world))
    side = data.draw(st.sampled_from(["left", "right"]))
    if data.draw(st.booleans()):
        check(world, case, lambda a, v, line, order: np.searchsorted(line, v, side, order))
    else:
        check(world, case, lambda a, v, line, order: a.searchsorted(v, side))


def test_numbers_and_lists(world, ranks):
    values = np.arange(0, 60, 3.0)

    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        for placement in (Shard(0), Replicate()):
            with config.override(replicate_below=0):
                x = distarray.distribute(values, mesh, [placement], src=None)
                for v in (7, 9.0, -1, 1e9, np.nan, [3, 4], np.float32(12), np.array(5), True):
                    assert_matches(np.searchsorted(x, v), np.searchsorted(values, v))
                assert_matches(np.searchsorted(values, x, "right"), np.arange(1, 21))
                y = distarray.distribute(np.ones((2, 3)), mesh, [placement], src=None)
                assert_matches(np.searchsorted([], y), np.zeros((2, 3), int))

    world.run(ranks, program)


def test_values_travel_and_not_the_array(world, ranks):
    values = np.arange(6000.0)
    wanted = np.arange(5999.0, -1, -1).reshape(3000, 2)

    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        many = ranks > 1
        with config.override(replicate_below=0):
            a = distarray.distribute(values, mesh, [Shard(0)], src=None)
            v = distarray.distribute(wanted, mesh, [Shard(0)], src=None)
            some = distarray.distribute(wanted[:3], mesh, [Replicate()], src=None)
            with distarray.trace() as spread:
                found = np.searchsorted(a, v)
            with distarray.trace() as counted:
                few = np.searchsorted(a, some).full()
            with distarray.trace() as one:
                place = np.searchsorted(a, 17.5)
        assert_matches(found, wanted.astype(int))
        assert found.layout is v.layout
        np.testing.assert_array_equal(few, wanted[:3].astype(int))
        assert int(place) == 18
        assert len(spread) <= 3 * many
        assert spread.bytes <= 2 * many * v.to_local().nbytes + 8
        assert len(counted) == len(one) == many
        assert one.bytes == 8 * many

    world.run(ranks, program)


BAD = [
    lambda a, v: np.searchsorted(v, a),
    lambda a, v: np.searchsorted(a, v, side="middle"),
    lambda a, v: np.searchsorted(a, v, sorter=[0, 1]),
    lambda a, v: np.searchsorted(a, v, sorter=np.full(12, 12)),
    lambda a, v: np.searchsorted(a, v, sorter=np.ones(12)),
    lambda a, v: np.searchsorted(a, v, sorter=np.ones((1, 12), int)),
    lambda a, v: np.searchsorted(a[0, ...], v),
    lambda a, v: a.searchsorted(v, "up"),
]


@pytest.mark.parametrize("number", range(len(BAD)))
def test_errors_are_numpys_on_every_rank(world, ranks, number):
    values = np.arange(12.0)

    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        with config.override(replicate_below=0):
            a = distarray.distribute(values, mesh, [Shard(0)], src=None)
            v = distarray.distribute(values.reshape(3, 4), mesh, [Shard(1)], src=None)
            assert_same_error(
                lambda: BAD[number](a, v), lambda: BAD[number](values, values.reshape(3, 4))
            )
        group.barrier()

    world.run(ranks, program)
