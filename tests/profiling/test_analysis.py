"""From the ranks' parts to the figures: who waited for whom, and what is said about it."""

import json
import re
from xml.etree import ElementTree

import pytest

from distarray.layout import Layout, Replicate, Shard
from distarray.plan import Route
from distarray.profiling import Report
from distarray.profiling.advice import advice, time_text
from distarray.profiling.analysis import is_gather
from distarray.profiling.chrome import events
from distarray.profiling.measured import Line, Moves, Part, Seen, Totals
from distarray.profiling.meeting import CLOCKS
from distarray.profiling.page import page
from distarray.profiling.table import table

ROWS = Layout.chunked((8, 6), (3,), [Shard(0)])
WHOLE = Layout.chunked((8, 6), (3,), [Replicate()])


@pytest.fixture
def lines(tmp_path):
    path = tmp_path / "program.py"
    path.write_text("a = f()\nb = g(a)\nc = h(b)\nimport json\n")
    return [Line(str(path), number) for number in range(1, 5)]


def part(rank, size=3, **more):
    found = Part(rank, size, seconds=1.0, peak=1 << 20, offset=float(rank))
    for name, value in more.items():
        setattr(found, name, value)
    return found


def report_of(totals, line, size=3, **more):
    """A report of one line; `totals` by rank."""
    parts = {r: part(r, size, lines={line: t}, **more) for r, t in enumerate(totals)}
    return Report(parts)


def said(report):
    return [sentence for _, sentence in advice(report)]


def test_a_profile_within_a_profile_is_no_fault_of_the_program(lines):
    totals = Totals(talking=0.5, out=88, messages_out=11, notes={CLOCKS: (11, 88)})
    assert said(report_of([totals] * 3, lines[0])) == [
        "Begins a profile within this one, for which the ranks compare their clocks: that is what "
        "measuring costs, and not the program."
    ]


def test_ranks_wait_in_a_collective_for_the_last(lines):
    parts = {}
    for rank, start in enumerate((0.0, 0.2, 0.5)):
        meeting = ((7, 1), lines[0], start - rank, 0.6 - rank)  # by clocks that differ
        totals = Totals(talking=0.6 - start)
        parts[rank] = part(rank, lines={lines[0]: totals}, meetings=[meeting])
    (row,) = Report(parts).rows
    assert row.waiting == pytest.approx([0.5, 0.3, 0.0])
    assert row.sending == pytest.approx([0.1, 0.1, 0.1])
    assert row.late == {2: 1}


def test_a_receiver_waits_for_the_sender(lines):
    late = part(0, 2, lines={lines[0]: Totals(talking=0.1)}, sent={(0, 1, 1): 0.4})
    waits = part(1, 2, lines={lines[0]: Totals(talking=0.5)})
    waits.arrivals = [(lines[0], 0.0 - 1, 0.5 - 1, ((0, 1, 1),))]
    (row,) = Report({0: late, 1: waits}).rows
    assert row.waiting == pytest.approx([0.0, 0.4])
    assert row.late == {0: 1}


def test_what_was_compared_stands_for_the_rest(lines):
    parts = {}
    for rank, start in enumerate((0.0, 0.5)):
        parts[rank] = part(
            rank,
            2,
            lines={lines[0]: Totals(talking=10.0)},
            meetings=[((7, 1), lines[0], start - rank, 1.0 - rank)],
        )
    (row,) = Report(parts).rows
    assert row.waiting == pytest.approx([5.0, 0.0])


def test_a_line_that_a_rank_never_came_to_counts_nothing_there(lines):
    report = Report({0: part(0, lines={lines[0]: Totals(3, 0.5)}), 2: part(2)})
    (row,) = report.rows
    assert row.calls == 3
    assert row.seconds == 0.25
    assert row.imbalance == 2.0
    assert report.missing == [1]
    assert "Rank 1 did not come to the end" in table(report)


@pytest.mark.parametrize(
    "note, gathers",
    [
        (str(Route(ROWS, WHOLE)), True),
        (str(Route(WHOLE, ROWS)), False),
        (str(Route(ROWS, ROWS)), False),
        ("numpy.asarray or a buffer gathers 80 bytes of DistArray(...) for scipy", True),
        ("allreduce", False),
    ],
)
def test_gathers_are_known_by_their_purpose(note, gathers):
    assert is_gather(note) is gathers


def test_work_of_one_rank_alone(lines):
    report = report_of([Totals(1, 0.001), Totals(1, 0.9), Totals(1, 0.002)], lines[0])
    assert said(report)[0].startswith("Only rank 1 computes here, 900 ms")


def test_loops_over_elements(lines):
    report = report_of([Totals(10_000, 0.1)] * 3, lines[0])
    assert said(report)[0].startswith("Runs 10,000 times for 10 us each")


def test_small_messages(lines):
    each = Totals(100, 0.1, 0.4, out=80_000, messages_out=10_000)
    assert "30,000 messages of 8 B" in said(report_of([each] * 3, lines[0]))[0]


def test_gathers_name_the_library(lines):
    each = Totals(2, 0.5)
    each.note("numpy.asarray or a buffer gathers 80 bytes of DistArray(...) for scipy", 0)
    assert "for scipy" in said(report_of([each] * 3, lines[0]))[0]


def test_redistributions_to_and_fro(lines):
    columns = Layout.chunked((8, 6), (3,), [Shard(1)])
    there, back = Totals(1, 0.2), Totals(1, 0.3)
    there.note(str(Route(ROWS, columns)), 10)
    back.note(str(Route(columns, ROWS)), 10)
    parts = {r: part(r, lines={lines[0]: there, lines[1]: back}) for r in range(3)}
    found = said(Report(parts))
    assert "line 1 moves it back" in found[0]
    assert "line 2 moves it back" in found[1]


def test_a_rank_that_is_always_late(lines):
    parts = {}
    for rank in range(3):
        meetings = [
            ((7, n), lines[0], n + 0.5 * (rank == 1) - rank, n + 0.6 - rank) for n in range(20)
        ]
        talking = 2.0 if rank == 1 else 12.0
        parts[rank] = part(rank, lines={lines[0]: Totals(20, 0.1, talking)}, meetings=meetings)
    assert said(Report(parts))[0].startswith("Rank 1 comes last 100 % of the time")


def test_uneven_work(lines):
    report = report_of([Totals(1, 0.9), Totals(1, 0.3), Totals(1, 0.3)], lines[0])
    assert said(report)[0].startswith("Rank 0 computes 1.8 times as long")


def test_imports_and_computing(lines):
    assert said(report_of([Totals(1, 0.5)] * 3, lines[3]))[0].startswith("Imports")
    assert said(report_of([Totals(1, 0.5)] * 3, lines[0]))[0].startswith("Computes")
    much = Totals(1, 0.1, 0.5, out=1 << 30, messages_out=4)
    assert said(report_of([much] * 3, lines[0]))[0].startswith("Sends 3.0 GiB in all")


def test_sampled_seconds_do_not_tell_ranks_apart(lines):
    totals = [Totals(0, 0.001), Totals(0, 0.05), Totals(0, 0.002)]
    assert said(report_of(totals, lines[0], counted=False))[0].startswith("Computes")


def test_seconds_in_words():
    assert [time_text(s) for s in (0, 2e-5, 0.0031, 1.234, 250.0)] == [
        *("0", "20 us", "3.1 ms", "1.23 s", "250 s")
    ]


@pytest.fixture
def whole_report(lines):
    """Every part of a page."""
    parts = {}
    for rank in range(3):
        totals = Totals(5, 0.3, 0.2, 100, 200, 4, 5, 1 << 20, 1 << 24)
        totals.note(str(Route(ROWS, WHOLE)), 99)
        totals.runs.add(lines[1])
        found = part(rank, lines={lines[0]: totals, Line("", 0): Totals(0, 0.1)})
        found.begun = 1.0 - rank
        found.spans = [
            (1.0 - rank, 1.5 - rank, lines[0], "", 0.2),
            (1.5 - rank, 2.0 - rank, Line("", 0), "", 0.0),
        ]
        found.talks = [(1.3 - rank, 1.6 - rank, lines[0], "allreduce", 0.3)]
        found.to = {(rank + 1) % 3: [4, 100]}
        found.everyone = [1, 8]
        found.arrays = [Seen("u<v", "float64", 384, ROWS), Seen("w", "int64", 384, WHOLE)]
        found.routes = {Route(ROWS, WHOLE): Moves(lines[0], 3), Route(ROWS, ROWS): Moves(lines[1])}
        parts[rank] = found
    return Report(parts)


def test_the_page_is_whole_and_loads_nothing(whole_report):
    text = page(whole_report)
    for heading in ("What to do", "Lines", "Time, by rank", "Who sends to whom", "Gathered"):
        assert f"<h2>{heading}</h2>" in text
    assert "u&lt;v (float64)" in text
    assert "and what was put off at 2" in text
    outside = re.findall(r"(?:src|href)=|https?://[^\"]*|@import|<script", text)
    assert set(outside) <= {"http://www.w3.org/2000/svg"}
    pictures = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(pictures) == 2 + 2 + 3
    for picture in pictures:
        ElementTree.fromstring(picture)


def test_the_table_has_every_line(whole_report):
    text = table(whole_report)
    assert text.startswith("Profile of 3 ranks, 1.00 s; 300 B sent in 12 messages")
    assert "program.py:1  a = f()" in text
    assert "(outside of the program's lines)" in text


def test_the_trace_is_chromes_with_a_lane_for_each_rank(whole_report):
    found = json.loads(events(whole_report))["traceEvents"]
    lanes = {e["tid"]: e["args"]["name"] for e in found if e["name"] == "thread_name"}
    assert lanes == {0: "rank 0", 1: "rank 1", 2: "rank 2"}
    spans = [e for e in found if e["ph"] == "X"]
    assert all({"name", "ts", "dur", "pid", "tid"} <= set(e) for e in spans)
    assert {e["ts"] for e in spans} == {0.0, 300_000.0, 500_000.0}, "clocks are aligned"
    for rank in range(3):
        check_nested([(e["ts"], e["ts"] + e["dur"]) for e in spans if e["tid"] == rank])


def check_nested(spans):
    """Spans of a lane are apart or one within the other, as the format demands."""
    for a, b in spans:
        for c, d in spans:
            assert b <= c or d <= a or (a <= c and d <= b) or (c <= a and b <= d)


def test_many_ranks_are_drawn_together():
    line = Line("missing.py", 1)
    parts = {
        r: part(r, 300, lines={line: Totals(1, 0.5)}, to={(r + 1) % 300: [1, 8]})
        for r in range(300)
    }
    text = page(Report(parts))
    assert len(text) < 2_000_000
    assert text.count("<th>rank ") == 16
