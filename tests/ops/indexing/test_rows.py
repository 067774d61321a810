"""Rows ordered by owner, and written to their places: in C and by NumPy they are the same."""

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


@pytest.mark.parametrize("count", [0, 1, 2, 101])
@pytest.mark.parametrize("ranks", [1, 2, 4, 5, 16, 17, 300])
@pytest.mark.parametrize("kind", ["u1", "i8"])
def test_rows_are_ordered_by_owner(count, ranks, kind):
    if kind == "u1" and ranks > 256:
        kind = "u2"
    numbers = np.random.default_rng(count + ranks)
    of = numbers.integers(0, ranks, count).astype(kind)
    of = np.repeat(of, 2)[::2]
    order = np.argsort(of, kind="stable")
    rows = {name: make(count) for name, make in ROWS.items()}
    found = []
    for pair in zip(rows, [*rows][1:], strict=False):
        parts, counts = sorted_by_owner(of, ranks, [rows[name] for name in pair])
        assert counts == np.bincount(of, minlength=ranks).tolist()
        found += zip(pair, parts, strict=True)
    for name, part in found:
        assert part.dtype == rows[name].dtype
        np.testing.assert_array_equal(part, rows[name][order], name)


def test_what_is_copied_as_bytes():
    taken = {name for name, make in ROWS.items() if in_c.are_rows(make(3))}
    if in_c.used is None:
        assert not taken
    else:
        assert taken == {*ROWS} - {"strided", "turned", "objects", "strings"}
    assert not in_c.are_rows(np.arange(3).view(np.matrix).T)


@pytest.mark.skipif(in_c.used is None, reason="built without a compiler, or switched off")
def test_counts_of_other_owners_are_refused():
    of = np.array([0, 1, 1], np.uint8)
    for counts in ([1, 1], [-1, 4], [1, 3], ["a"], [1, 2**70]):
        with pytest.raises((ValueError, TypeError, OverflowError)):
            in_c.grouped(of, counts, [np.arange(3)])
    with pytest.raises(TypeError, match="owners"):
        in_c.grouped(of.astype(int), [1, 2], [np.arange(3)])
    with pytest.raises(TypeError, match="rows"):
        in_c.grouped(of, [1, 2], [np.arange(3), np.arange(4)])


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
