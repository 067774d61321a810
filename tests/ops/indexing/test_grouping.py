"""Rows ordered by owner: in C and by NumPy they are the same."""

import numpy as np
import pytest

from distarray.array.speedups import grouping
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
    found, counts = sorted_by_owner(of, ranks, [*rows.values()])
    assert counts == np.bincount(of, minlength=ranks).tolist()
    for name, part in zip(rows, found, strict=True):
        assert part.dtype == rows[name].dtype
        np.testing.assert_array_equal(part, rows[name][order], name)


def test_what_is_copied_as_bytes():
    taken = {name for name, make in ROWS.items() if grouping.can_group(make(3))}
    if grouping.used is None:
        assert not taken
    else:
        assert taken == {*ROWS} - {"strided", "turned", "objects", "strings"}
    assert not grouping.can_group(np.arange(3).view(np.matrix).T)


@pytest.mark.skipif(grouping.used is None, reason="built without a compiler, or switched off")
def test_counts_of_other_owners_are_refused():
    of = np.array([0, 1, 1], np.uint8)
    for counts in ([1, 1], [-1, 4], [1, 3], ["a"], [1, 2**70]):
        with pytest.raises((ValueError, TypeError, OverflowError)):
            grouping.grouped(of, counts, np.arange(3))
    with pytest.raises(TypeError, match="owners"):
        grouping.grouped(of.astype(int), [1, 2], np.arange(3))
    with pytest.raises(TypeError, match="rows"):
        grouping.grouped(of, [1, 2], np.arange(4))
