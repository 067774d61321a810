"""What is in the place of an array's block: what it waits for, or a copy of its elements."""

import numpy as np
import pytest

import distarray
from distarray import DeviceMesh, DistArray, Shard
from distarray.array import mirroring
from distarray.array.base import own_block, own_layout, storage_of
from distarray.array.excerpts import Excerpt
from tests.waiting import everything_is_kept, everything_waits, nothing_is_watched

pytestmark = pytest.mark.host


@pytest.fixture(autouse=True)
def operators_are_ours():
    with nothing_is_watched():
        yield


def cut(group, values):
    return distarray.distribute(values.copy(), DeviceMesh(group, (group.size,)), [Shard(0)])


def row_of(x):
    """A row of an array, after so many that the array has been fetched."""
    for _ in range(6):
        row = x[1]
    return row


@pytest.fixture
def kept(monkeypatch):
    everything_is_kept(monkeypatch.setattr)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[1:, ::2],
        lambda x: x[::-1],
        lambda x: np.expand_dims(x, 0),
        lambda x: x[2:][:, 1:3],
    ],
)
def test_views_of_what_operations_read_wait_too(world, ranks, monkeypatch, view):
    everything_waits(monkeypatch.setattr)
    values = np.arange(24.0 * ranks).reshape(6 * ranks, 4)

    def program(group):
        x = cut(group, values)
        later = x + 1.0
        found = view(x)
        waited = x.waits and found.waits and later.waits
        found += 10.0
        return waited, later.full(), x.full()

    wanted = values.copy()
    view(wanted)[...] += 10.0
    for waited, later, whole in world.run(ranks, program):
        assert waited
        np.testing.assert_array_equal(later, values + 1.0)
        np.testing.assert_array_equal(whole, wanted)


@pytest.mark.parametrize(
    "view", [lambda x: x.T, lambda x: x.view(np.int64), lambda x: x.T[1:], lambda x: x.reshape(-1)]
)
def test_others_are_made_when_it_has_been_read(world, ranks, monkeypatch, view):
    everything_waits(monkeypatch.setattr)
    values = np.arange(24.0 * ranks).reshape(6 * ranks, 4)

    def program(group):
        x = cut(group, values)
        later = x + 1.0
        found = view(x)
        found[...] = 0
        return found.waits, later.full(), x.full()

    wanted = values.copy()
    view(wanted)[...] = 0
    for waited, later, whole in world.run(ranks, program):
        assert not waited
        np.testing.assert_array_equal(later, values + 1.0)
        np.testing.assert_array_equal(whole, wanted)


def readings(row):
    """What is read of a row, here or in NumPy."""
    found = [row + row, row - 1.0, 2.0 / row, -row, row**2, 2.0**row, row < 7.0]
    found += [np.hypot(row, row), np.sqrt(row), row.copy(), divmod(row, 3.0)[1]]
    found += [row.sum(), row.std(), row @ row, np.dot(row, row), np.where(row, row, 1)]
    return [*found, row[2], row[1:3], row[-1], row.item(3), row.tolist()]


@pytest.mark.counts(lambda ranks: ranks > 1)
def test_an_excerpt_is_an_array_like_others(world, ranks, kept):
    values = np.arange(20.0 * ranks).reshape(4 * ranks, 5)

    def program(group):
        x = cut(group, values)
        row = row_of(x)
        assert type(row) is DistArray
        assert type(storage_of(row)) is Excerpt
        assert own_block(row) is own_layout(row) is None
        assert (row.shape, row.ndim, row.size, len(row)) == ((5,), 1, 5, 5)
        assert (row.dtype, row.itemsize, row.nbytes) == (values.dtype, 8, 40)
        with distarray.forbid_communication():
            read = [*readings(row), row.full()]
        assert type(storage_of(row)) is Excerpt  # which nothing of this has changed
        return [found.full() if isinstance(found, DistArray) else found for found in read]

    for found in world.run(ranks, program):
        for one, other in zip(found, [*readings(values[1]), values[1]], strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.counts(lambda ranks: ranks > 1)
@pytest.mark.parametrize("ask", [lambda row: row.layout, lambda row: row.block, lambda row: row.T])
def test_it_becomes_the_view_when_asked(world, ranks, kept, ask):
    values = np.arange(20.0 * ranks).reshape(4 * ranks, 5)

    def program(group):
        x = cut(group, values)
        row = row_of(x)
        ask(row)
        assert type(storage_of(row)) is not Excerpt
        assert row.base is x
        row[:] = 7.0
        return x.full()

    wanted = values.copy()
    wanted[1] = 7.0
    for whole in world.run(ranks, program):
        np.testing.assert_array_equal(whole, wanted)


@pytest.mark.counts(lambda ranks: ranks > 1)
def test_it_is_read_anew_when_the_array_was_written_to(world, ranks, kept):
    values = np.arange(20.0 * ranks).reshape(4 * ranks, 5)

    def program(group):
        x = cut(group, values)
        row = row_of(x)
        other = x[1]
        np.multiply(x, 2.0, out=x)
        found = [(row + 0.0).full(), other.sum(), row[3], len(mirroring._kept.mirrors)]
        row *= 3.0
        other[2] = -1.0
        return found, x.full()

    wanted = values * 2.0
    read = wanted[1].copy()
    wanted[1] *= 3.0
    wanted[1, 2] = -1.0
    for (first, total, third, _), whole in world.run(ranks, program):
        np.testing.assert_array_equal(first, read)
        assert (total, third) == (read.sum(), read[3])
        np.testing.assert_array_equal(whole, wanted)
