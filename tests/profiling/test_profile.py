"""Profiles of programs on thread ranks and under MPI: what is counted, and what must not happen."""

import sys
import threading
import time
from pathlib import Path

import numpy
import pytest

import distarray
import distarray.numpy as np
from distarray.array import deferred
from distarray.array.programs import Program
from distarray.comm import stopwatch
from distarray.comm.pending import Requested
from distarray.comm.threads import ThreadGroup
from distarray.layout.placement import Fold
from distarray.profiling import Profile, following
from distarray.profiling.measured import MOST_NOTES, Totals
from distarray.profiling.recorder import Recorder
from tests.waiting import nothing_is_watched

HERE = __file__
#: Whether this Python tells of lines.
COUNTED = sys.version_info >= (3, 12)


def number_of(text):
    """The line of this file that ends with a mark."""
    lines = Path(HERE).read_text().splitlines()
    return next(n for n, line in enumerate(lines, 1) if line.endswith(f"# {text}"))


def row_of(profile, mark):
    return next(row for row in profile.report.rows if tuple(row.line) == (HERE, number_of(mark)))


def check_untouched():
    """Nothing of a profile is left where the program talks."""
    assert not stopwatch._replaced
    assert "distarray" in ThreadGroup._exchange.__module__
    assert not hasattr(ThreadGroup._exchange, "__wrapped__")
    assert not hasattr(Requested.wait, "__wrapped__")
    assert Program.__init__.__qualname__ == "Program.__init__"
    assert not following._followed


def test_messages_and_bytes_by_line_in_both_directions(world, ranks):
    def program(group):
        up, down = (group.rank + 1) % group.size, (group.rank - 1) % group.size
        block, landing = numpy.ones(10), numpy.empty(10)
        with distarray.profile() as p:
            for _ in range(5):
                group.exchange([(up, block)], [(down, landing)])  # ring
            group.allreduce(block, Fold.SUM)  # fold
            time.sleep(0.002)
        return p

    if ranks == 1:
        return
    found = world.run(ranks, program)
    whole = next((p for p in found if p is not None and len(p.report.parts) == ranks), None)
    if whole is None:  # under mpiexec rank 0 alone has it
        return
    ring, fold = row_of(whole, "ring"), row_of(whole, "fold")
    assert ring.total("messages_out") == ring.total("messages_in") == 5 * ranks
    assert ring.total("out") == ring.total("into") == 400 * ranks
    assert fold.total("messages_out") == ranks
    assert fold.total("into") == 80 * ranks
    assert sum(ring.sending) + sum(ring.waiting) > 0
    for part in whole.report.parts:
        assert part.to == {(part.rank + 1) % ranks: [5, 400]}
        assert part.everyone == [1, 80]
    if COUNTED:
        assert (ring.calls, fold.calls) == (5, 1)


def test_rank_0_has_the_whole_and_the_others_their_part(world, ranks):
    def program(group):
        with distarray.profile() as p:
            pass
        return group.rank, [part.rank for part in p.report.parts], str(p)[:10]

    for found in world.run(ranks, program):
        if found is not None:
            rank, parts, text = found
            assert parts == ([rank] if rank else list(range(ranks)))
            assert text == "Profile of"


def test_a_late_rank_is_waited_for(world, ranks):
    def program(group):
        with distarray.profile() as p:
            if group.rank == group.size - 1:
                time.sleep(0.2)  # late
            group.barrier()  # met
        return p

    if ranks == 1:
        return
    whole = world.run(ranks, program)[0]
    if whole.report.size != len(whole.report.parts):
        return  # another rank's own part
    met = row_of(whole, "met")
    assert all(waits > 0.1 for waits in met.waiting[:-1])
    assert met.waiting[-1] < 0.1
    assert met.late[ranks - 1] == 1
    if COUNTED:
        late = row_of(whole, "late")
        assert late.computing[-1] > 0.15
        assert sum(late.computing[:-1]) < 0.1


@pytest.mark.host
def test_what_is_put_off_runs_at_the_line_that_asks(world, ranks, monkeypatch):
    monkeypatch.setattr(deferred, "is_observed", lambda: False)

    def program(group):
        x = np.ones(ranks << 20)
        with distarray.profile() as p:
            y = x + 1.0  # put off
            y = y * 2.0
            assert y.waits
            y.to_local()  # asked
        return p

    with nothing_is_watched():  # a test before may have compared calls, which is remembered
        profiles = world.run(ranks, program)
    for p in profiles:
        if p.report.size == len(p.report.parts):
            runs = row_of(p, "asked").runs
            assert number_of("put off") in runs


def test_gathers_are_shown_with_their_line(world, ranks):
    def program(group):
        x = np.arange(600.0).redistribute(placements=[distarray.Shard(0)])
        with distarray.profile() as p:
            for _ in range(3):
                x.full()  # gathered
        return p

    if ranks == 1:
        return
    whole = world.run(ranks, program)[0]
    if whole.report.size == len(whole.report.parts):
        ((text, often, nbytes),) = row_of(whole, "gathered").gathers
        assert text.startswith("[Shard(0)] -> [Replicate()] of (600,)")
        assert often == 3
        assert nbytes == 3 * 8 * (600 * (ranks - 1))


def test_arrays_at_the_end_are_seen_with_their_names(world, ranks):
    def program(group):
        cut = np.zeros((12, 5)).redistribute(placements=[distarray.Shard(0)])
        with distarray.profile() as p:
            pass
        return cut.layout, {seen.name: seen for seen in p.report.parts[0].arrays}

    for found in world.run(ranks, program):
        if found is not None:
            layout, seen = found
            assert seen["cut"].layout is layout
            assert seen["cut"].nbytes == 480


def test_profiles_may_be_nested(world, ranks):
    def program(group):
        with distarray.profile() as outer:
            with distarray.profile() as inner:
                group.barrier()
            group.barrier()
        return group.rank, outer, inner

    for found in world.run(ranks, program):
        if found is not None and found[0] == 0:
            _, outer, inner = found
            meetings = (1, 2) if ranks > 1 else (0, 0)
            assert inner.report.parts[0].everyone[0] == meetings[0]
            assert outer.report.parts[0].everyone[0] == meetings[1]
            assert inner.report.seconds < outer.report.seconds


def test_nothing_stays_behind(world, ranks):
    def program(group):
        with distarray.profile():
            group.barrier()
        group.barrier()

    world.run(ranks, program)
    check_untouched()


def test_a_report_prints_as_its_profile(world, ranks):
    def program(group):
        with distarray.profile() as p:
            float(np.ones(100_000).sum())
        assert repr(p) == f"<Profile: {repr(p.report)[1:-1]}>"
        return str(p), str(p.report), repr(p.report), p.report._repr_html_()

    for found in world.run(ranks, program):
        if found is not None:
            told, report, short, page = found
            assert report == told
            assert report.startswith("Profile of ")
            assert short.startswith(f"<Report of {ranks} rank")
            assert "\n" not in short
            assert page.startswith("<pre>Profile of ")


def test_an_error_keeps_what_was_measured(world, ranks):
    def fails(group, p):
        with p:
            group.barrier()
            time.sleep(0.02)  # before it
            raise ZeroDivisionError("no")

    def program(group):
        p = distarray.profile()
        with pytest.raises(ZeroDivisionError):
            fails(group, p)
        return group.rank, p

    for found in world.run(ranks, program):
        if found is not None and found[0] == 0:
            p = found[1]
            assert len(p.report.parts) == ranks
            assert {part.ended for part in p.report.parts} == {"ZeroDivisionError: no"}
            assert p.report.seconds > 0.01
            if COUNTED:
                assert row_of(p, "before it").seconds > 0.01
            assert "ended early: ZeroDivisionError: no" in str(p)


def test_a_rank_that_fails_alone_does_not_wait_long(own_processes):
    def program(group):
        p = distarray.profile()
        if group.rank == 0:
            with pytest.raises(ZeroDivisionError), p:
                raise ZeroDivisionError
            group.barrier()
        else:
            with p:
                group.barrier()  # rank 0 comes after its own profile
        return p

    start = time.monotonic()
    first, *_ = distarray.comm.run_threads(3, program)
    assert 1.5 < time.monotonic() - start < 8
    assert first.report.missing == [1, 2]


def test_the_page_is_written_by_rank_0(world, ranks, tmp_path_factory):
    directory = tmp_path_factory.mktemp("page")

    def program(group):
        path = group.broadcast_object(str(directory / "page.html"))
        with distarray.profile(path):
            time.sleep(0.002)
        group.barrier()
        return Path(path).read_text()[:15], [p.name for p in Path(path).parent.iterdir()]

    for found in world.run(ranks, program):
        if found is not None:
            assert found == ("<!DOCTYPE html>", ["page.html"])


def test_a_page_that_cannot_be_written_is_said_once(world, ranks, capfd):
    def program(group):
        with distarray.profile("/no/such/directory/page.html") as p:
            pass
        p.save("/no/such/directory/other.html")
        p.to_chrome_trace("/no/such/directory/trace.json")
        return len(p.report.parts)

    assert world.run(ranks, program)
    text = capfd.readouterr().err
    if text:  # of rank 0's process
        assert text.count("will not be written: there is no directory /no/such/directory") == 1
        assert text.count("other.html cannot be written: No such file or directory") == 1
        assert text.count("trace.json cannot be written") == 1


def test_misuse_is_said():
    p = Profile()
    with pytest.raises(RuntimeError, match="has not ended yet"):
        p.save("page.html")
    assert str(p) == "a profile that has not ended yet"
    with p:
        pass
    with pytest.raises(RuntimeError, match="make another one"), p:
        pass


def test_ten_thousand_steps_take_no_more_memory_than_a_few(own_processes, monkeypatch):
    monkeypatch.setattr(ThreadGroup, "world_ranks", tuple(range(1000)))
    group = ThreadGroup.__new__(ThreadGroup)
    group.rank, group.size = 0, 1000
    recorder = Recorder(group, True, following.Line("a.py", 1))
    a, b = following.Line("a.py", 2), following.Line("a.py", 3)
    now = time.perf_counter()
    for step in range(10_000):
        now += 1e-3
        recorder.moved(a if step % 2 else b, now, True)
        pairs = [(1, 8), (2, 8)]
        recorder.talked(stopwatch.Talk(group, "exchange", now, now + 1e-4, pairs, pairs, 16))
        recorder.talked(stopwatch.Talk(group, "allreduce", now, now + 1e-4, (), (), 8))
    part = recorder.part
    assert len(part.meetings) + len(part.sent) + len(part.arrivals) <= 512
    assert len(part.meetings) > 20
    assert len(part.sent) > 20
    assert len(recorder.finished().spans) <= 256
    assert len(part.talks) <= 256
    assert part.lines[a].calls == part.lines[b].calls == 5000


def test_purposes_are_bounded():
    totals = Totals()
    for number in range(100):
        totals.note(f"purpose {number}", 1)
    assert len(totals.notes) == MOST_NOTES + 1
    assert totals.notes["others"] == [100 - MOST_NOTES, 100 - MOST_NOTES]


def test_another_thread_is_not_followed():
    def work():
        for _ in range(20_000):
            pass  # elsewhere

    with distarray.profile() as p:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    lines = {row.line.number for row in p.report.rows if row.line.path == HERE}
    assert number_of("elsewhere") not in lines


@pytest.mark.skipif(not COUNTED, reason="Python tells of lines from 3.12 on")
def test_every_run_of_a_line_is_counted():
    def called(n):
        return n + 1  # inner

    def numbers():
        n = 0
        while n < 4:
            yield n  # yielded
            n += 1

    with distarray.profile() as p:
        for number in range(7):  # head
            total = (  # statement
                called(number) + called(number)
            )
            time.sleep(0.002)  # asleep
        total += sum(numbers())
    calls = {mark: row_of(p, mark).calls for mark in ("statement", "asleep", "inner", "yielded")}
    assert calls == {"statement": 7, "asleep": 7, "inner": 14, "yielded": 4}
    assert row_of(p, "head").calls == 8
    assert row_of(p, "asleep").seconds > 0.013
    assert row_of(p, "inner").seconds < 0.01
    assert sum(row.seconds for row in p.report.rows) == pytest.approx(p.report.seconds, rel=0.05)


@pytest.mark.skipif(not COUNTED, reason="Python tells of lines from 3.12 on")
def test_the_interpreter_is_asked_for_nothing_afterwards():
    with distarray.profile():
        pass
    assert all(sys.monitoring.get_tool(number) is None for number in following._NUMBERS)


def test_where_no_tool_is_free_lines_are_sampled(monkeypatch):
    monkeypatch.setattr(following, "_monitoring", None)
    with distarray.profile() as p:
        time.sleep(1.0)  # sampled
    row = row_of(p, "sampled")
    assert row.seconds > 0.1
    assert row.calls == 0
    assert "sampled" in str(p)
