"""Reusing temporaries: it happens where it may, and nobody can see it otherwise."""

from __future__ import annotations

import operator
import sys
from functools import reduce
from itertools import accumulate

import numpy as np
import pytest

from distarray import Shard, distribute
from distarray.array import temporaries
from distarray.testing import assert_matches

pytestmark = pytest.mark.host

N = temporaries.LARGE
KEEPS = sys.version_info >= (3, 14)


@pytest.fixture
def pair():
    """Two arrays and their values."""
    rng = np.random.default_rng(1)
    values = rng.random(N), rng.random(N)
    return [distribute(v, placements=[Shard(0)], src=None) for v in values], values


@pytest.mark.skipif(KEEPS, reason="Python 3.14 counts a temporary like a variable")
def test_the_interpreter_tells_temporaries():
    assert temporaries._TEMPORARY


@pytest.mark.skipif(KEEPS, reason="Python 3.14 counts a temporary like a variable")
@pytest.mark.parametrize("expression", ["(a + b) * 2.0", "2.0 - (a + b)", "a - (a + b)"])
def test_a_temporary_is_reused(monkeypatch, pair, expression):
    (a, b), (x, y) = pair
    reused = []

    def watched(block):
        reused.append(plain(block))
        return reused[-1]

    plain = temporaries._own
    monkeypatch.setattr(temporaries, "_own", watched)
    # One frame more in `watched` than in `_own`: one reference more.
    monkeypatch.setattr(temporaries, "_OWN_BLOCK", temporaries._OWN_BLOCK + 1)
    found = eval(expression, {"a": a, "b": b})
    assert_matches(found, eval(expression, {"a": x, "b": y}))
    assert reused[-1]


@pytest.mark.skipif(KEEPS, reason="Python 3.14 counts a temporary like a variable")
def test_memory_of_an_expression(pair):
    import tracemalloc

    (a, b), _ = pair
    tracemalloc.start()
    try:
        result = a + b - a * 2.0 + b / 3.0
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2.5 * result.to_local().nbytes


def test_what_has_a_name_is_not_touched(pair):
    (a, b), (x, y) = pair
    total = a + b
    again = total + 1.0
    box = [a - b]
    doubled = box[0] * 2.0
    assert_matches(total, x + y)
    assert_matches(again, x + y + 1.0)
    assert_matches(box[0], x - y)
    assert_matches(doubled, (x - y) * 2.0)
    assert_matches((named := a * b) + a, x * y + x)
    assert_matches(named, x * y)


def test_what_has_a_view_is_not_touched(pair):
    (a, b), (x, y) = pair
    views = []

    def seen(array):
        views.append(array[::2])
        return array

    def shared(array):
        views.append(array.to_local())
        return array

    assert_matches(seen(a + b) * 2.0, (x + y) * 2.0)
    assert_matches(views[0], (x + y)[::2])
    assert_matches(shared(a + b) * 2.0, (x + y) * 2.0)
    np.testing.assert_array_equal(views[1], (a + b).to_local())


def test_functions_in_c_keep_their_operands(pair):
    (a, b), (x, y) = pair
    parts, values = [a, b, a - b], [x, y, x - y]
    assert_matches(reduce(operator.add, parts), reduce(operator.add, values))
    for found, wanted in zip(accumulate(parts), accumulate(values), strict=True):
        assert_matches(found, wanted)
    assert_matches(sum(parts), sum(values))
    for found, wanted in zip(parts, values, strict=True):
        assert_matches(found, wanted)


def test_types_and_signs(pair):
    (a, b), (x, y) = pair
    k, m = (a * 100.0).astype(np.int64), (x * 100.0).astype(np.int64)
    assert_matches((k + k) / 2, (m + m) / 2)
    assert_matches((k + 1) * 0.5, (m + 1) * 0.5)
    assert_matches((a + b) * 1j, (x + y) * 1j)
    assert_matches((a + b) < 1.0, (x + y) < 1.0)
    assert_matches(k - (a + b), m - (x + y))
    assert_matches((a.astype(np.float32) + 1) * b, (x.astype(np.float32) + 1) * y)
    assert_matches(1.0 - (a + b), 1.0 - (x + y))
    assert_matches(1.0 / (a + b), 1.0 / (x + y))
