"""Timelines stay short, and lose no time."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from distarray.profiling.measured import Line
from distarray.profiling.spans import Spans

A, B = Line("a.py", 1), Line("a.py", 2)


def test_a_line_after_itself_is_one_span():
    spans = Spans(10)
    spans.add(0.0, 1.0, A, "", 0.25)
    spans.add(1.0, 2.0, A, "", 0.5)
    spans.add(2.0, 3.0, B, "", 0.0)
    assert spans.listed() == [(0.0, 2.0, A, "", 0.75), (2.0, 3.0, B, "", 0.0)]


def test_what_is_far_apart_stays_apart():
    spans = Spans(10)
    spans.add(0.0, 1.0, A, "", 0.0)
    spans.add(5.0, 6.0, A, "", 0.0)
    assert len(spans.listed()) == 2


def test_several_lines_have_the_name_of_the_longest():
    spans = Spans(8)
    for step in range(100):
        spans.add(step, step + 0.2, A, "", 0.0)
        spans.add(step + 0.2, step + 1.0, B, "", 0.0)
    found = spans.listed()
    assert len(found) <= 8
    assert {span[2] for span in found} == {B}


@given(st.lists(st.floats(1e-6, 10.0), min_size=1, max_size=300), st.integers(4, 40))
def test_any_number_of_spans_is_bounded(lengths, most):
    spans, now = Spans(most), 0.0
    for number, length in enumerate(lengths):
        spans.add(now, now + length, (A, B)[number % 2], "", length / 2)
        now += length
        assert len(spans.listed()) <= most
    found = spans.listed()
    assert found[0][0] == 0.0
    assert found[-1][1] == now
    assert all(one[1] == next_one[0] for one, next_one in pairwise(found))
    assert abs(sum(span[4] for span in found) - now / 2) < 1e-6 * (1 + now)
