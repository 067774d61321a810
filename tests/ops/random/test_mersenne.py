"""MT19937 by polynomials: going far is passing over the words."""

import numpy as np
import pytest

from distarray.engines.drawing import cutting, mersenne, places
from tests.ops.random.compared import near, pair, same_numbers, same_state


@pytest.mark.parametrize("words", [1, 2, 623, 624, 625, 1248, 19_937, 20_000, 123_457, 3_000_017])
def test_going_far_is_passing_over(words):
    for first in (0, 1, 623, 624, 700):
        going, passing = np.random.MT19937(5), np.random.MT19937(5)
        for bits in (going, passing):
            bits.random_raw(first, output=False)
        passing.random_raw(words, output=False)
        mersenne.moved(going, words)
        assert repr(going.state) == repr(passing.state)
        np.testing.assert_array_equal(going.state["state"]["key"], passing.state["state"]["key"])


def test_going_very_far():
    """In parts and at once, which are other polynomials."""
    parts, whole = np.random.MT19937(7), np.random.MT19937(7)
    steps = [10**12 + 3, 5 * 10**14, 77]
    for words in steps:
        mersenne.moved(parts, words)
    mersenne.moved(whole, sum(steps))
    np.testing.assert_array_equal(whole.random_raw(2000), parts.random_raw(2000))


@pytest.mark.parametrize("method", ["random_sample", "standard_normal", "standard_gamma"])
def test_arrays(world, monkeypatch, method):
    monkeypatch.setattr(places, "_FAR", 1)
    monkeypatch.setattr(cutting, "_WORTH_PASSING", 3000)
    args = (2.5,) if method == "standard_gamma" else ()

    def program(group):
        ours, theirs = pair("MT19937", legacy=True)
        for size in (70_001, (7, 20_001), 1):
            found = getattr(ours, method)(*args, size=size)
            same_numbers(found, getattr(theirs, method)(*args, size=size))
            same_state(ours, theirs)

    world.run(near(world, 3), program)
