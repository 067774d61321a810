"""The verdict on waiting ranks, for simulated programs: healthy ones, and parted ones."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from distarray.comm.waits.report_text import full_report
from distarray.comm.waits.verdict import (
    LONG,
    SLOWEST,
    Entry,
    Report,
    first_difference,
    grouped,
    hopeless,
    spans,
)

LIMIT = 60.0


@dataclass(frozen=True)
class Step:
    """A conversation of a program: who takes part, whether all of a group do, and its kind."""

    members: tuple[int, ...]
    together: bool = True
    kind: str = "allreduce"
    #: Ranks that need wait for nobody, as the root of a broadcast.
    roots: frozenset[int] = frozenset()

    @property
    def group(self) -> str:
        return str(self.members) if self.together else "all"


@dataclass
class Player:
    """A rank that plays its part of a program."""

    rank: int
    steps: list[Step]
    at: int = 0
    waits: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    entries: list[Entry] = field(default_factory=list)
    needs: tuple[int, ...] = ()

    def arrive(self) -> None:
        step = self.steps[self.at]
        self.counts[step.group] += step.together
        kind = step.kind if step.together else "exchange"
        what = "" if step.together else str(step.members)
        number = self.counts[step.group]
        self.entries.append(Entry(step.group, number, step.together, kind, "f", "a.py:1", what))
        self.needs, self.waits = step.members, True

    def go_on(self) -> None:
        self.at, self.waits = self.at + 1, False

    def report(self, age: float = 2 * LIMIT) -> Report:
        over = self.at == len(self.steps)
        return Report(
            self.rank,
            "waits" if self.waits else "left" if over else "computes",
            age,
            "f",
            path=("a.py:1",),
            entry=self.entries[-1] if self.waits else None,
            needs=spans(self.needs),
            counts={"all": 0} | self.counts,
            recent=tuple(self.entries[-64:]),
            whole=len(self.entries) < 64,
        )


def arrived(player: Player, step: Step, number: int) -> bool:
    """Whether a rank has come to a conversation, and takes it for the same."""
    found = [e for e in player.entries if e.group == step.group and e.together == step.together]
    if step.together:
        return any((e.number, e.kind) == (number, step.kind) for e in found)
    return sum(e.what == str(step.members) for e in found) >= number


def may_leave(player: Player, players: list[Player]) -> bool:
    step = player.steps[player.at]
    if player.rank in step.roots:
        return True
    number = player.counts[step.group]
    if not step.together:
        number = sum(e.what == str(step.members) and not e.together for e in player.entries)
    return all(arrived(players[rank], step, number) for rank in step.members)


@st.composite
def programs(draw, size):
    """Conversations of all ranks, of some, and between two."""
    steps = []
    for _ in range(draw(st.integers(1, 7))):
        some = draw(st.sets(st.integers(0, size - 1), min_size=2))
        members = tuple(sorted(some)) if draw(st.booleans()) else tuple(range(size))
        if draw(st.integers(0, 2)) == 0:
            steps.append(Step(members[:2], together=False))
            continue
        roots = frozenset(draw(st.sets(st.sampled_from(members), max_size=1)))
        kind = draw(st.sampled_from(["allreduce", "barrier", "allgather"]))
        steps.append(Step(members, True, "broadcast" if roots else kind, roots))
    return steps


def part_of(steps: list[Step], rank: int) -> list[Step]:
    return [step for step in steps if rank in step.members]


@settings(max_examples=300)
@given(data=st.data())
def test_a_program_that_is_well_is_never_hopeless(data):
    """However far ranks are from one another, and however long that takes."""
    size = data.draw(st.integers(2, 5))
    steps = data.draw(programs(size))
    players = [Player(rank, part_of(steps, rank)) for rank in range(size)]
    for player in players:
        player.counts.update(dict.fromkeys([step.group for step in player.steps], 0))
    for rank in data.draw(st.lists(st.integers(0, size - 1), max_size=60)):
        player = players[rank]
        if player.waits:
            if may_leave(player, players):
                player.go_on()
        elif player.at < len(player.steps):
            player.arrive()
        reports = {player.rank: player.report() for player in players}
        assert not hopeless(reports, LIMIT, rest=float("inf")), full_report(reports, None)


@settings(max_examples=300)
@given(data=st.data())
def test_a_program_that_has_parted_is(data):
    """One rank leaves out a conversation, or makes another instead; all go as far as they can."""
    size = data.draw(st.integers(2, 5))
    steps = data.draw(programs(size))
    players = [Player(rank, part_of(steps, rank)) for rank in range(size)]
    astray = players[data.draw(st.integers(0, size - 1))]
    if astray.steps:
        place = data.draw(st.integers(0, len(astray.steps) - 1))
        if data.draw(st.booleans()):
            del astray.steps[place]
        else:
            astray.steps[place] = Step(tuple(range(size)), True, "alltoall")
    moved = True
    while moved:
        moved = False
        for player in players:
            if not player.waits and player.at < len(player.steps):
                player.arrive()
                moved = True
            if player.waits and may_leave(player, players):
                player.go_on()
                moved = True
    reports = {player.rank: player.report(LONG * LIMIT) for player in players}
    stuck = any(player.waits for player in players)
    assert hopeless(reports, LIMIT) == stuck, full_report(reports, None)


def waits(rank, number=5, kind="allreduce", age=70.0, needs=(0, 1, 2), **more):
    entry = Entry("g", number, kind != "exchange", kind, "np.sum", "a.py:4", more.pop("what", ""))
    fields = {
        "call": "np.sum",
        "path": ("a.py:4",),
        "entry": entry,
        "counts": {"g": number},
        "recent": (entry,),
    }
    return Report(rank, "waits", age, needs=spans(needs), **fields | more)


def those(*reports):
    return {report.rank: report for report in reports}


def test_who_computes_may_come():
    late = Report(2, "computes", 500.0, "time.sleep(9)", path=("a.py:3",), counts={"g": 4})
    assert not hopeless(those(waits(0), waits(1), late), LIMIT)
    assert not hopeless(those(waits(0), waits(1), late._replace(doing="silent")), LIMIT)


def test_two_that_are_in_different_calls_do_not_meet():
    """Whatever others do."""
    late = Report(2, "computes", 500.0, counts={"g": 4})
    assert hopeless(those(waits(0), waits(1, kind="barrier"), late), LIMIT)
    assert hopeless(those(waits(0, what="(3,)"), waits(1, what="(4,)"), late), LIMIT)
    past = late._replace(counts={"g": 6}, recent=(waits(2, kind="barrier").entry,))
    assert hopeless(those(waits(0), Report(1, "computes"), past), LIMIT)


def test_who_has_left_does_not():
    left = Report(2, "left", 1.0, counts={"g": 4})
    assert hopeless(those(waits(0), waits(1), left), LIMIT)
    assert not hopeless(those(waits(0, age=30.0), waits(1, age=30.0), left), LIMIT)
    done = left._replace(counts={"g": 5}, recent=waits(2).recent)
    assert not hopeless(those(waits(0), Report(1, "computes"), done), LIMIT)


def test_a_thread_that_waits_says_nothing_of_the_main_one():
    left = Report(2, "left", 1.0, counts={"g": 4})
    assert not hopeless(those(waits(0, aside=True), waits(1, aside=True), left), LIMIT)


def test_much_data_takes_its_time():
    sending = {"kind": "exchange", "what": "rows", "needs": (0, 1)}
    big = int(SLOWEST * 1000)
    reports = those(
        waits(0, age=400.0, size=big, **sending),
        waits(1, age=400.0, size=big, **sending),
        waits(2, number=6, age=400.0),
    )
    assert not hopeless(reports, LIMIT)
    small = {rank: report._replace(size=8) for rank, report in reports.items()}
    assert not hopeless(small, LIMIT)  # two that are together are not stuck


def test_a_file_system_takes_its_time():
    writes = waits(0, kind="_write_all", age=900.0)
    others = [waits(rank, number=6, age=900.0) for rank in (1, 2)]
    known = [other._replace(recent=(writes.entry, *other.recent)) for other in others]
    assert not hopeless(those(writes, *known), LIMIT)


def test_the_first_difference_is_found():
    def report(rank, *lines):
        entries = [
            Entry("g", n, True, "allreduce", "np.sum", line) for n, line in enumerate(lines, 3)
        ]
        return Report(rank, "waits", recent=tuple(entries))

    same = first_difference(those(report(0, "a:1", "a:2"), report(1, "a:1", "a:2")))
    assert same is None
    number, who = first_difference(
        those(report(0, "a:1", "a:2", "a:3"), report(1, "a:1", "a:5", "a:3"))
    )
    assert (number, who) == (4, {"np.sum at a:2": [0], "np.sum at a:5": [1]})


def test_words():
    left = Report(3, "left", 1.0, "sys.exit(0)", path=("a.py:9",))
    other = waits(2, kind="barrier", call="np.sort", path=("b.py:1", "a.py:8"))
    text = full_report(
        those(waits(0), waits(1), other, left), True, lambda report: 10 + report.rank
    )
    assert text.splitlines()[0] == (
        "2 of 4 ranks wait in np.sum at a.py:4; rank 12 is in np.sort at b.py:1; "
        "rank 13 has left by sys.exit(0) at a.py:9"
    )
    assert "rank 12 is in np.sort at b.py:1, from a.py:8 (conversation 5), for 70 s" in text
    assert "signals" not in text


def test_a_stopped_rank_is_told_and_waited_for():
    found = those(waits(0), waits(1), Report(2, "stopped"))
    assert not hopeless(found, LIMIT)
    assert full_report(found, None).startswith(
        "2 of 3 ranks wait in np.sum at a.py:4; rank 2 is stopped (by a signal or a debugger; "
    )


def test_signals_that_the_program_has_handled_are_told():
    flagged = [waits(rank, handled="SIGTERM at a.py:7") for rank in (0, 2)]
    text = full_report(those(*flagged, waits(1), waits(3, handled="SIGINT at a.py:8")), None)
    assert "The program has handled signals." in text
    assert "    ranks 0, 2: SIGTERM at a.py:7\n    rank 3: SIGINT at a.py:8\n" in text


def test_calls_that_look_alike_are_told_apart():
    one = waits(0, arguments="float64 (3,)", path=("a.py:4", "a.py:20"))
    two = waits(1, arguments="float64 (3,)", path=("a.py:4", "a.py:30"))
    text = full_report(those(one, two), None)
    assert "1 of 2 ranks waits in np.sum(float64 (3,)) at a.py:4, from a.py:20" in text
    assert "rank 1 is in np.sum(float64 (3,)) at a.py:4, from a.py:30" in text


def test_thousands_of_ranks_are_judged_in_no_time():
    one = waits(0)._replace(needs=spans(range(20_000)))
    reports = {rank: one._replace(rank=rank) for rank in range(19_999)}
    reports[19_999] = Report(19_999, "left", counts={"g": 4})
    begun = time.process_time()
    assert hopeless(reports, LIMIT)
    assert len(grouped(reports)) == 2
    assert time.process_time() - begun < 5


@given(st.lists(st.integers(0, 200)))
def test_ranks_are_written_short(ranks):
    found = [rank for span in spans(ranks) for rank in range(*span)]
    assert found == sorted(set(ranks))
