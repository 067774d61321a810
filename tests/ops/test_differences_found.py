"""Differences to NumPy that random programs have found, one a line, as small as can be."""

import numpy as np
import pytest

import distarray.ops  # noqa: F401
from distarray import trace
from distarray.array import distribute
from distarray.comm import DeviceMesh
from distarray.layout import Replicate, Shard
from distarray.testing import assert_matches

LINES = np.array([[1.0, 2], [4, 5], [1, 2], [-3, 0], [4, 5]])
RECORDS = np.zeros(5, [("a", "i4"), ("b", "f8")])
SPANS = np.arange(-3, 9, dtype="m8[s]").reshape(4, 3)


def after(values, *writes):
    """A copy in which something has been written."""
    values = values.copy()
    for key, value in writes:
        values[key] = value
    return values


def flat_after(values, key, value):
    values = values.copy()
    values.flat[key] = value
    return values


def scaled_into(values, number):
    """A product with a number, in an array that is given."""
    out = np.empty_like(values)
    return np.dot(values, number, out=out)


#: Name -> values, and what is computed of them.
CALLS = {
    "a list as powers": (np.arange(5), lambda x: x ** [3, 2, 1, 0, 2]),
    "a unit of time, folded": (np.arange(10, dtype="m8[s]"), np.fmax.reduce),
    "spans by numbers": (SPANS, lambda x: np.dot(x, np.array([2, -1, 3]))),
    "spans by spans": (SPANS, lambda x: np.inner(x, x[:2])),
    "spans, summed": (SPANS, lambda x: np.vdot(x, np.arange(12).reshape(4, 3))),
    "spans by columns": (SPANS, lambda x: np.tensordot(x, np.ones((4, 2), int), ([0], [0]))),
    "all products of spans": (SPANS[0], lambda x: np.outer(x, np.array([1.5, 2.0]))),
    "a table of spans": (SPANS, lambda x: np.kron(x, np.array([[1, 2]]))),
    "the other byte order, by rows": (LINES.astype(">f8"), lambda x: np.unique(x, axis=0)),
    "a tuple is a record": (RECORDS, lambda x: after(x, (1, (3, 4.5)), (slice(3, 5), (1, 2.0)))),
    "tuples are records": (RECORDS, lambda x: after(x, (slice(1, 3), [(1, 2.0), (3, 4.0)]))),
    "a record by its position": (RECORDS, lambda x: flat_after(x, 2, (1, 2.0))),
    "records that are zero": (after(RECORDS, (2, (1, 0.0))), np.trim_zeros),
    "no negative zeros": (LINES, lambda x: np.einsum("ij,j->ij", x, [0.0, -1.0])),
    "edges of one type": (LINES, lambda x: np.histogram2d(x[:, 0].astype("f4"), x[:, 1], 3)),
    "zero times a matrix": (LINES, lambda x: np.signbit(np.dot(0.0, x))),
    "zero times a cuboid": (LINES, lambda x: np.signbit(np.dot(0.0, x[:, :, None]))),
    "a cuboid times zero, into": (LINES, lambda x: np.signbit(scaled_into(x[:, None], 0.0))),
    "a list, repeated": (np.arange(5), lambda x: ([7] * x[2], x[3] * "ab", (1,) * x.max())),
}


@pytest.mark.parametrize("name", CALLS)
def test_as_numpy(world, ranks, name):
    values, call = CALLS[name]

    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        x = distribute(values, mesh, [Shard(0)], src=None)
        assert_matches(call(x), call(values))

    world.run(ranks, program)


#: Values that every rank has, and what is computed of them.
WHOLE = {
    "a number, repeated along its only axis": (np.array(3.0), lambda x: np.repeat(x, 2, axis=0)),
    "nothing but texts": (np.zeros(0, "U3"), lambda x: np.resize(x, 4)),
    "one object": (np.array([1, 5, 3], object), np.nanmax),
}


@pytest.mark.parametrize("name", WHOLE)
def test_as_numpy_of_what_all_ranks_have(world, name):
    values, call = WHOLE[name]

    def program(group):
        x = distribute(values, DeviceMesh(group, (group.size,)), [Replicate()], src=None)
        assert_matches(call(x), call(values))

    world.run(world.ranks[-1], program)


@pytest.mark.host
def test_a_complex_number_is_no_real_one_in_flat(world, ranks):
    def program(group):
        x = distribute(LINES, DeviceMesh(group, (ranks,)), [Shard(0)], src=None)
        for key in (0, slice(2, 4)):
            with pytest.raises(TypeError, match="complex"):
                x.flat[key] = 1j
        assert_matches(x, LINES)

    world.run(ranks, program)


@pytest.mark.host
def test_what_is_made_read_only_stays_as_it_is(world, ranks):
    def program(group):
        x = distribute(LINES, DeviceMesh(group, (ranks,)), [Shard(0)], src=None)
        assert x.flags.writeable
        x.setflags(write=False)
        assert not x.flags.writeable
        for write in (lambda: x.__setitem__(0, 1.0), lambda: x[1:].__iadd__(1), x.sort):
            with pytest.raises(ValueError, match="read-only"):
                write()
        assert_matches(x, LINES)
        x.flags.writeable = True
        x[0] = 7
        assert_matches(x, after(LINES, (0, 7)))
        assert not x.sum().flags.writeable

    world.run(ranks, program)


def test_resizing_by_little_moves_little(world, ranks):
    values = np.arange(24000.0).reshape(1200, 20)

    def program(group):
        x = distribute(values, DeviceMesh(group, (ranks,)), [Shard(0)], src=None)
        with trace() as t:
            longer = np.resize(x, (1201, 20))
        assert t.bytes <= ranks * values[0].nbytes
        assert_matches(longer.redistribute(x.placements), np.resize(values, (1201, 20)))

    world.run(ranks, program)
