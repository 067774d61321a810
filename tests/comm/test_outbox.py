"""Rows for other ranks: by messages and in shared memory they arrive alike."""

import numpy as np
import pytest

from distarray import Fold, trace
from distarray.comm import outbox as boxes


def part(source, target, dtype, width):
    """Up to two rows that a rank sends to another, with numbers of their own."""
    rows = (source + 2 * target) % 3
    return np.full((rows, *width), 10 * source + target).astype(dtype)


@pytest.mark.parametrize("often", [1, 3])
@pytest.mark.parametrize("least", [0, 1 << 17], ids=["shared memory", "messages"])
@pytest.mark.parametrize("dtypes", [["i4"], ["i8", "f8"], ["i2,f8", "?", "M8[s]"], ["i8", "c16"]])
def test_rows_arrive(world, ranks, monkeypatch, least, dtypes, often):
    monkeypatch.setattr(boxes, "_FROM", least)

    def program(group):
        size, me = group.size, group.rank
        for turn in range(often):
            widths = [(turn + 1,) * number for number in range(len(dtypes))]
            sent = [
                [part(me, target, *kind) for target in range(size)] for kind in zip(dtypes, widths)
            ]
            whole = [np.concatenate(parts) for parts in sent]
            counts = [len(rows) for rows in sent[0]]
            with group.outbox(3 * size, whole) as outbox:
                rooms = [outbox.empty(rows, len(rows)) for rows in whole]
                for room, rows in zip(rooms, whole, strict=True):
                    room[...] = rows
                found = outbox.send(rooms, counts, "a test")
                assert len(found) == size
                for source, arrays in enumerate(found):
                    for rows, *kind in zip(arrays, dtypes, widths, strict=True):
                        np.testing.assert_array_equal(rows, part(source, me, *kind))
            # Nobody writes to the memory while another rank still reads it.
            block = np.full(1 << 15, float(me))
            assert group.allreduce(block, Fold.SUM)[0] == sum(range(size))

    world.run(ranks, program)


def test_nothing_is_sent_by_anyone(world, ranks):
    def program(group):
        empty = np.empty((0, 3))
        with trace() as book, group.outbox(0, [empty]) as outbox:
            found = outbox.send([outbox.empty(empty, 0)], [0] * group.size, "a test")
        assert [rows.shape for [rows] in found] == [(0, 3)] * group.size
        assert [event.kind for event in book] == ["alltoall"] * (group.size > 1)

    world.run(ranks, program)


def test_more_than_the_memory_holds_goes_as_messages(world, ranks):
    def program(group):
        size, me = group.size, group.rank
        rows = np.arange(5_000_000.0) + me
        counts = [len(rows)] + [0] * (size - 1)
        with group.outbox(len(rows), [rows]) as outbox:
            room = outbox.empty(rows, len(rows))
            room[...] = rows
            found = outbox.send([room], counts)
        for source, [got] in enumerate(found):
            assert len(got) == (len(rows) if me == 0 else 0)
            assert me > 0 or got[-1] == len(rows) - 1 + source

    world.run(ranks, program)
