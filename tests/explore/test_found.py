"""Small programs that once went otherwise than with NumPy, or not alike on all ranks."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import distarray as da
from tests.everywhere import raises_everywhere
from tests.explore.found_aliases import ALIASES
from tests.explore.found_operations import OPERATIONS
from tests.explore.found_views import VIEWS
from tests.explore.found_writes import WRITES
from tests.explore.program import THRESHOLDS, Program, follow

PROGRAMS = VIEWS | WRITES | OPERATIONS | ALIASES


@pytest.mark.parametrize("below", THRESHOLDS[:2])
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_with_numpy(world, ranks, name, below):
    lines = tuple([line.strip() for line in PROGRAMS[name].strip().splitlines()])

    def program(group):
        at = [0]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return follow(Program(lines, group.size, (group.size,), below), group, at)

    failures = [f for f in world.run(ranks, program) if f is not None]
    assert not failures, f"{lines[failures[0].line]}: {failures[0].kind}: {failures[0].text}"


def test_at_refuses_what_is_read_only_by_any_key(world, ranks):
    """Also by positions, with which NumPy writes to it."""

    def program(group):
        mesh = da.DeviceMesh(group, (group.size,))
        x = da.distribute(np.arange(20).reshape(5, 4), mesh, [da.Shard(0)], src=None)
        for view in (x.diagonal(), np.broadcast_to(x, (2, 5, 4))):
            raises_everywhere(group, ValueError, lambda v=view: np.add.at(v, [0, 1], 1))
        return x.full()

    for found in world.run(ranks, program):
        np.testing.assert_array_equal(found, np.arange(20).reshape(5, 4))


def test_numpys_arrays_are_joined_on_the_mesh_of_out(world, ranks):
    def program(group):
        mesh = da.DeviceMesh(group, (1, group.size))
        parts = [np.arange(6.0).reshape(2, 3)] * 2
        joined = da.distribute(np.zeros((4, 3)), mesh, [da.Shard(0)] * 2, src=None)
        np.concatenate(parts, out=joined)
        stacked = da.distribute(np.zeros((2, 2, 3)), mesh, [da.Shard(1)] * 2, src=None)
        np.stack(parts, out=stacked)
        return joined.full(), stacked.full()

    for joined, stacked in world.run(ranks, program):
        np.testing.assert_array_equal(joined, [*np.arange(6.0).reshape(2, 3)] * 2)
        np.testing.assert_array_equal(stacked, [np.arange(6.0).reshape(2, 3)] * 2)


@pytest.mark.parametrize("name", ALIASES)
def test_as_with_numpy_where_nobody_looks_in_between(world, ranks, name):
    lines = tuple([line.strip() for line in ALIASES[name].strip().splitlines()])

    def program(group):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return follow(Program(lines, group.size, (group.size,), 0, aliases=True), group, [0])

    failures = [f for f in world.run(ranks, program) if f is not None]
    assert not failures, f"{lines[failures[0].line]}: {failures[0].kind}: {failures[0].text}"
