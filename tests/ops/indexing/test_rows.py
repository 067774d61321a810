"""Rows ordered by owner, and written to their places: in C and by NumPy they are the same."""

import contextlib
import threading

import numpy as np
import pytest

from distarray.array.speedups import rows as in_c
from distarray.engines.indexing.owners import sorted_by_owner

pytestmark = pytest.mark.host
ROWS = {
    "8 bytes": lambda n: np.arange(n) * 3,
    "4 bytes": lambda n: np.arange(n, dtype="f4") + 0.5,
    "1 byte": lambda n: np.arange(n) % 2 == 0,
    "16 bytes": lambda n: np.arange(n) * (1 + 2j),
    "text": lambda n: np.arange(n).astype("U5"),
    "records": lambda n: np.array([(i, i / 2) for i in range(n)], "i2,f8"),
    "lines": lambda n: np.arange(3.0 * n).reshape(n, 3),
    "no bytes": lambda n: np.empty((n, 0)),
    "strided": lambda n: np.arange(2 * n)[::2],
    "turned": lambda n: np.arange(2.0 * n).reshape(2, n).T,
    "swapped": lambda n: np.arange(n, dtype=">i4"),
    "objects": lambda n: np.array([str(i) for i in range(n)], object),
    "strings": lambda n: np.array([f"number {i}" * 9 for i in range(n)], np.dtypes.StringDType()),
}


class Owned:
    """What the grouping asks of an indexed array, for rows whose owners are given."""

    def __init__(self, of, size):
        self.of, self.size = of, size

    def keys(self, indices):
        """The first number of each owner's is ten times its rank."""
        return self.of * 10 + np.arange(len(self.of)) % 10, np.arange(1, self.size) * 10

    def owners(self, indices):
        return self.of


@pytest.mark.parametrize("count", [0, 1, 2, 101, 3000])
@pytest.mark.parametrize("ranks", [1, 2, 4, 5, 16, 17, 300])
def test_rows_are_ordered_by_owner(count, ranks):
    of = np.random.default_rng(count + ranks).integers(0, ranks, count)
    order = np.argsort(of, kind="stable")
    rows = {name: make(count) for name, make in ROWS.items()}
    found = []
    for pair in zip(rows, [*rows][1:], strict=False):
        parts = [np.empty_like(rows[name], order="C") for name in pair]
        counts = sorted_by_owner(Owned(of, ranks), [of], [rows[name] for name in pair], parts)
        assert counts == np.bincount(of, minlength=ranks).tolist()
        found += zip(pair, parts, strict=True)
    for name, part in found:
        np.testing.assert_array_equal(part, rows[name][order], name)


@pytest.mark.parametrize("ranks", [1, 2, 3, 300])
@pytest.mark.parametrize("name", ["8 bytes", "4 bytes", "lines", "swapped", "objects", "strings"])
def test_positions_are_written_in_fewer_bytes(ranks, name):
    of = np.random.default_rng(ranks).integers(0, ranks, 2500)
    order = np.argsort(of, kind="stable")
    positions, rows = np.arange(2500) * 7 - 50, ROWS[name](2500)
    for arrays in ([positions], [positions, rows], [rows, positions], [positions, positions]):
        into = [np.empty_like(a, np.int32 if a is positions else None) for a in arrays]
        sorted_by_owner(Owned(of, ranks), [of], arrays, into)
        for array, ordered in zip(arrays, into, strict=True):
            np.testing.assert_array_equal(ordered, array[order])


def test_what_is_copied_as_bytes():
    taken = {name for name, make in ROWS.items() if in_c.are_rows(make(3))}
    if in_c.used is None:
        assert not taken
    else:
        assert taken == {*ROWS} - {"strided", "turned", "objects", "strings"}
    assert not in_c.are_rows(np.arange(3).view(np.matrix).T)


@pytest.mark.skipif(in_c.used is None, reason="built without a compiler, or switched off")
def test_what_cannot_be_grouped_is_refused():
    keys, starts, three = np.array([0, 7, 7]), np.array([7]), np.arange(3)
    room = np.empty(3, int)
    swapped, many = keys.astype(">i8"), np.arange(256)
    for wrong in (keys.astype("i4"), keys[::-1], swapped, keys.view("u8")):
        with pytest.raises(TypeError, match="keys"):
            in_c.grouped(wrong, starts, [three], [room])
    for wrong in (starts * 1.0, many, many[:10:2]):
        with pytest.raises(TypeError, match="keys"):
            in_c.grouped(keys, wrong, [three], [room])
    with pytest.raises(ValueError, match="ascend"):
        in_c.grouped(keys, np.array([7, 3]), [three], [room])
    fixed = room.copy()
    fixed.flags.writeable = False
    cases = [
        (np.arange(4), room),
        (three, room[:2]),
        (three, np.empty(6, int)[::2]),
        (three, fixed),
    ]
    cases += [(three, np.empty(3, "i2")), (three.astype("f8"), np.empty(3, "i4"))]
    cases += [(three.astype(">i8"), np.empty(3, "i4")), (three, np.empty(3, ">i4"))]
    for rows, into in cases:
        with pytest.raises(TypeError, match="rows"):
            in_c.grouped(keys, starts, [three, rows], [room, into])
    with pytest.raises(ValueError, match="arrays"):
        in_c.grouped(keys, starts, [three], [])


@pytest.mark.skipif(in_c.used is None, reason="built without a compiler, or switched off")
@pytest.mark.parametrize("kind", ["i4", "i8"])
@pytest.mark.parametrize("name", [name for name in ROWS if in_c.are_rows(ROWS[name](3))])
def test_rows_are_written_in_order(name, kind):
    block, values = ROWS[name](50), ROWS[name](140)[20:][::-1].copy()
    places = np.random.default_rng(1).integers(1000, 1050, 120).astype(kind)
    expected = block.copy()
    for place, value in zip(places, values, strict=True):
        expected[place - 1000] = value
    in_c.scattered(block, places, 1000, values)
    np.testing.assert_array_equal(block, expected)
    in_c.scattered(block, places, 1000, values[:1])
    expected[places - 1000] = values[0]
    np.testing.assert_array_equal(block, expected)


@pytest.mark.skipif(in_c.used is None, reason="built without a compiler, or switched off")
def test_what_cannot_be_written_is_refused():
    block, places = np.zeros(3), np.array([0, 2], np.int32)
    for wrong in ([3], [-1], [0] * 40 + [3]):
        wrong = np.array(wrong, np.int32)
        with pytest.raises(IndexError):
            in_c.scattered(block, wrong, 0, np.zeros(len(wrong)))
    fixed = block.copy()
    fixed.flags.writeable = False
    cases = [
        (fixed, places, np.ones(2)),
        (block[::2], places, np.ones(2)),
        (block, places.astype("u4"), np.ones(2)),
        (block, places.astype(float), np.ones(2)),
        (block, np.arange(4, dtype="i4")[::2], np.ones(2)),
        (block, places, np.ones(2, "f4")),
        (block, places, np.ones(3)),
        (block, places, np.ones((2, 2))),
        (np.array([None] * 3), places, np.array([1, 2], object)),
    ]
    for into, where, values in cases:
        with pytest.raises((TypeError, ValueError)):
            in_c.scattered(into, where, 0, values)
    in_c.scattered(np.empty(0), np.empty(0, "i4"), 0, np.empty(0))
    assert not block.any()


def at_an_odd_byte(array):
    """The array in memory that begins one byte too late for its type."""
    memory = np.empty(array.nbytes + 1, np.uint8)[1:]
    found = memory.view(array.dtype).reshape(array.shape)
    found[...] = array
    assert not found.flags.aligned
    return found


@pytest.mark.parametrize("ranks", [2, 3, 17])
@pytest.mark.parametrize("kind", ["q", "l"])
def test_memory_begins_at_any_byte(ranks, kind):
    of = np.random.default_rng(ranks).integers(0, ranks, 2500)
    order = np.argsort(of, kind="stable")
    positions, rows = np.arange(2500, dtype=kind), np.arange(2500) / 3
    owned = Owned(of, ranks)
    keys, starts = [at_an_odd_byte(array.astype(kind)) for array in owned.keys(None)]
    owned.keys = lambda indices: (keys, starts)
    arrays = [at_an_odd_byte(positions), at_an_odd_byte(rows)]
    into = [at_an_odd_byte(positions.astype("i4")), at_an_odd_byte(rows)]
    sorted_by_owner(owned, [of], arrays, into)
    for found, array in zip(into, (positions, rows), strict=True):
        np.testing.assert_array_equal(found, array[order])


@pytest.mark.skipif(in_c.used is None, reason="built without a compiler, or switched off")
def test_places_and_rows_begin_at_any_byte():
    places = np.array([2, 0, 1, 2])
    for kind in ("i4", "l", "q"):
        block = at_an_odd_byte(np.zeros(3))
        in_c.scattered(block, at_an_odd_byte(places.astype(kind)), 0, at_an_odd_byte(places + 0.5))
        np.testing.assert_array_equal(block, [0.5, 1.5, 2.5])
    with pytest.raises(TypeError, match="places"):
        in_c.scattered(np.zeros(3), places.astype(">i8"), 0, np.zeros(4))


@pytest.mark.skipif(in_c.used is None, reason="built without a compiler, or switched off")
@pytest.mark.parametrize("start", [0, 2**62, -(2**62), 2**63 - 1, -(2**63)])
def test_no_place_is_too_far_away(start):
    places = np.array([0, 2**63 - 1, -(2**63), 2**62, *[1] * 30])
    block = np.zeros((3, 1000))
    with pytest.raises(IndexError):
        in_c.scattered(block, places, start, np.ones((1, 1000)))
    assert not block[1:].any()


@pytest.mark.skipif(in_c.used is None, reason="built without a compiler, or switched off")
@pytest.mark.parametrize("ranks", [2, 5])
@pytest.mark.parametrize("many", [1, 2])
def test_keys_that_a_thread_changes_harm_no_memory(ranks, many):
    """The rows of each part are counted first; a thread may then write to the keys."""
    keys, starts = np.zeros(200_000, int), np.arange(1, ranks)
    numbers, rows = np.arange(len(keys)), np.arange(len(keys)) / 2
    ends = np.empty(len(keys) + 2000)
    ended = threading.Event()

    def change():
        while not ended.is_set():
            keys[...] = np.random.default_rng().integers(0, ranks, len(keys))

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(30):
            ends[...] = -1
            into = [np.empty(len(keys), np.int32)][: many - 1] + [ends[1000:-1000]]
            with contextlib.suppress(RuntimeError):
                assert sum(in_c.grouped(keys, starts, [numbers, rows][-many:], into)) == len(keys)
            assert (ends[:1000] == -1).all() and (ends[-1000:] == -1).all()
    finally:
        ended.set()
        thread.join()
