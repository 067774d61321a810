"""Exponents and laws: what is found in exact counts, in noise, and from few values."""

from math import inf, isnan

import numpy
import pytest

from distarray.profiling.scaling.laws import Law, count_law, growth, memory_law, seconds_law

COUNTS = [1, 2, 4, 8]


@pytest.mark.parametrize(
    "count",
    [
        lambda p: 2 * (p - 1),
        lambda p: 8e6 * (p - 1) / p,
        lambda p: p * (p - 1),
        lambda p: p * (p - 1) + 2 * (p - 1),
        lambda p: 5 * p * (p > 1),
        lambda p: 7 * (p > 1),
        lambda p: 0,
    ],
    ids=["neighbours", "transpose", "each other", "both", "collective", "once", "nothing"],
)
def test_counts_of_ranks_that_talk_are_foretold_exactly(count):
    law = count_law(COUNTS, [count(p) for p in COUNTS])
    for ranks in (16, 32, 1024):
        assert law(ranks) == pytest.approx(count(ranks), rel=1e-6)


def test_collectives_need_two_ranks():
    """One rank has none; with it they would look like a logarithm."""
    assert count_law([1, 2, 4], [0, 2, 4], together=True)(64) == pytest.approx(64)
    assert count_law([1, 2, 4], [0, 2, 4])(64) == pytest.approx(12)


def test_counts_never_become_negative():
    law = count_law(COUNTS, [0, 82312, 127296, 164272])
    assert all(law(1 << power) > 0 for power in range(1, 15))


def test_an_exponent_has_its_uncertainty():
    rng = numpy.random.default_rng(1)
    ranks = [1, 2, 4, 8, 16, 32]
    values = [3.0 / p * rng.normal(1, 0.02) for p in ranks]
    found = growth(ranks, values)
    assert abs(found.exponent + 1) < 3 * found.error
    assert 0.001 < found.error < 0.02
    assert str(growth([2, 4, 8], [4.0, 8.0, 16.0])) == "P^1.00 ± 0.00"


def test_two_values_have_no_uncertainty_and_one_has_no_exponent():
    found = growth([1, 2, 4], [0, 3.0, 6.0])
    assert found.exponent == pytest.approx(1.0)
    assert isnan(found.error)
    assert str(found) == "P^1.00"
    assert growth([1, 2], [0, 3.0]) is None


def test_seconds_are_shared_and_serial_parts():
    law = seconds_law([1, 2, 4, 8], [0.1 + 4 / p for p in COUNTS])
    assert law(1000) == pytest.approx(0.104)
    assert law.error(1000) < 1e-9
    noisy = seconds_law([1, 2, 4, 8], [4.1, 2.05, 1.15, 0.58])
    assert 0 < noisy.error(64) < 0.1
    assert isnan(seconds_law([1, 2], [4.1, 2.1]).error(64))


def test_seconds_that_grow_are_told_so():
    law = seconds_law([2, 4, 8, 16], [2e-3, 4.1e-3, 7.9e-3, 16e-3])
    assert law(1024) == pytest.approx(1.0, rel=0.1)
    assert seconds_law([1, 2], [0.0, 0.0]) == Law()


def test_memory_does_not_grow_by_noise():
    law = memory_law([1, 2, 4, 8], [121.3, 97.5, 85.3, 81.4])
    assert "P" not in law.terms
    assert law(16384) == pytest.approx(75, abs=4)
    grows = memory_law([1, 2, 4, 8], [50 + 100 / p + 3 * p for p in COUNTS])
    assert grows(1024) == pytest.approx(50 + 3 * 1024, rel=0.01)


def test_a_law_says_what_it_is():
    assert str(Law(("1", "P"), (-2.0, 2.5))) == "-2 +2.5·P"
    assert str(Law()) == "0"
    assert count_law([4], [12.0]).misfit < inf
