"""What is said of runs: laws from few thread ranks hold on many, and each end is named."""

import json
from xml.etree import ElementTree

import numpy
import pytest

import distarray
import distarray.numpy as np
from distarray import Shard
from distarray.comm import run_threads
from distarray.layout import Layout
from distarray.layout.placement import Fold
from distarray.plan import Route
from distarray.profiling.figures import figures
from distarray.profiling.measured import Line
from distarray.profiling.scaling.machine import Machine
from distarray.profiling.scaling.page import page
from distarray.profiling.scaling.report import table, values
from distarray.profiling.scaling.runs import Failure, Measured, Run, run_of
from distarray.profiling.scaling.study import COUNTS, Study

MACHINE = Machine(2e-6, 1e10, 1e10)


def program(group):
    """Each way in which ranks talk: neighbours, all, each other, from one to the next."""
    with distarray.config.override(replicate_below=1), distarray.profile() as p:
        u = np.zeros((256, 64)).redistribute(placements=[Shard(0)])
        for _ in range(5):
            u[1:-1] += 0.1 * (u[:-2] - 2 * u[1:-1] + u[2:])
        assert float(u.sum()) == 0
        v = u.redistribute(placements=[Shard(1)])
        w = u @ u.T
        x = np.random.default_rng(3).random(1 << 14)
        c = np.cumsum(x)
        h = np.histogram(x, 10)
        t = np.fft.fft2(u)
        g = u.full()
        j = np.concatenate([x, x])
        assert all(len(each) for each in (v, w, c, h, t, g, j))
        group.exchange(
            [((group.rank + 1) % group.size, numpy.ones(8))],
            [((group.rank - 1) % group.size, numpy.empty(8))],
        )
        group.allreduce(numpy.ones(4), Fold.SUM)
    return figures(p.report)


@pytest.fixture(scope="module")
def thread_runs(own_processes):
    return [run_of(run_threads(n, program, timeout=120)[0]) for n in (1, 2, 4, 8, 16, 32)]


@pytest.mark.parametrize("what", ["all_messages", "all_bytes"])
def test_one_to_eight_ranks_foretell_16_and_32(thread_runs, what):
    study = Study("program", thread_runs[:4])
    assert sum(any(study.values(line, what)) for line in study.lines) >= 9
    for run in thread_runs[4:]:
        total = sum(getattr(found, what) for found in run.lines.values())
        told = sum(getattr(study.laws(line), what)(run.ranks) for line in study.lines)
        assert told == pytest.approx(total, rel=0.05)
        assert study.deviation(run, what) < 0.05


def test_a_gather_by_a_collective_on_few_ranks_is_a_collective(own_processes):
    """Counted as messages to each other rank it would be more than there were."""

    def program(group):
        with distarray.config.override(replicate_below=1), distarray.profile() as p:
            x = np.arange(64.0)
            group.allgather_varied(x.block, None, Route(x.layout, whole_of(x.layout)))
        return figures(p.report)

    found = run_of(run_threads(4, program)[0])
    assert sum(line.collectives for line in found.lines.values()) == 4
    assert all(min(line[6:17]) >= 0 for line in found.lines.values())


def whole_of(layout):
    return Layout.replicated(layout.shape, layout.mesh_shape)


def test_the_check_is_in_the_report(thread_runs):
    study = Study("program", thread_runs[:4], machine=MACHINE, here=MACHINE, cores=8)
    assert study.check.ranks == 8
    assert max(study.check.messages, study.check.nbytes) < 0.05
    assert "the laws foretell each line's messages on 8 within 0.0 %" in table(study)


# -- made up runs ----------------------------------------------------------------------------------

WORK, TALK = Line("program.py", 3), Line("program.py", 4)
ALL = 8.0


def run(ranks, talking=0.0, scale=1.0, peak=1 << 30):
    """Work that is shared, and a line with one collective and `talking` bytes a rank."""
    work = Measured("work()", scale * ALL / ranks, slowest=scale * ALL / ranks)
    talk = Measured(
        "talk()",
        collectives=1000 * ranks,
        busiest_collectives=1000,
        busiest_bytes=int(talking),
        all_messages=1000 * ranks,
        all_bytes=int(talking) * ranks,
        collective_bytes=int(talking) * ranks,
        temporary=ranks << 20,
    )
    return Run(ranks, scale * ALL / ranks, peak, {WORK: work, TALK: talk})


def study_of(*runs, **more):
    given = {"machine": MACHINE, "here": MACHINE, "cores": 64, "limit": 4 << 30} | more
    return Study("program.py", runs, **given)


def test_the_line_that_ends_the_scaling_is_named():
    study = study_of(*map(run, (1, 2, 4, 8)))
    assert [found.ranks for found in study.predictions] == list(COUNTS)
    assert study.end.line == TALK
    assert study.end.sends
    # 8 / P falls below 2 us x 1000 x log2 P between 256 and 1,024 ranks.
    assert 256 <= study.end.ranks <= 1024
    assert "It is program.py:4  talk() that ends it, by what it sends" in table(study)
    first = study.predictions[0]
    assert first.seconds == pytest.approx(ALL / 64 + 6 * 1000 * 2e-6, rel=1e-3)
    assert first.worst == WORK
    assert study.predictions[-1].worst == TALK


def test_a_machine_with_less_memory_bandwidth_computes_longer():
    here = study_of(*map(run, (1, 2, 4, 8))).predicted(64)
    there = study_of(*map(run, (1, 2, 4, 8)), machine=Machine(2e-6, 1e10, 2.5e9)).predicted(64)
    assert there.seconds - there.sending == pytest.approx(4 * (here.seconds - here.sending))


def test_where_memory_runs_out():
    growing = study_of(*[run(n, peak=(n << 20) + (1 << 28)) for n in (1, 2, 4, 8)])
    assert growing.full == (4096, TALK)
    assert "Memory does not suffice on 4,096 ranks (extrapolated)" in table(growing)
    assert study_of(*map(run, (1, 2, 4))).full is None
    small = study_of(*map(run, (1, 2, 4)), limit=1000.0)
    assert "Memory does not suffice on 1 ranks (measured)" in table(small)


def test_seconds_of_crowded_ranks_are_left_out():
    late = Run(8, 80.0, 1 << 30, {WORK: Measured("work()", 80.0, slowest=80.0)})
    study = study_of(*map(run, (1, 2, 4)), late, cores=4)
    assert study.crowded == [8]
    assert study.laws(WORK).slowest(8) == pytest.approx(1.0)
    assert "more ranks than cores, of which there are 4" in table(study)


def test_a_short_program_is_not_extrapolated():
    study = study_of(*[run(n, scale=1e-3) for n in (1, 2, 4, 8)])
    assert study.predictions == []
    text = table(study)
    assert "seconds are not extrapolated" in text
    assert "EXTRAPOLATED" not in text


def test_one_number_of_ranks_says_nothing_about_growth():
    study = study_of(run(4))
    text = table(study)
    assert "nothing is extrapolated" in text
    assert study.check is None
    assert study.predictions == []
    assert page(study).count("<svg") == 0


def test_the_page_loads_nothing_and_escapes(thread_runs):
    failed = Failure(16, "exit status 1", ["<b>boom</b>"])
    study = study_of(*map(run, (1, 2, 4, 8)), failures=[failed])
    text = page(study)
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "<b>boom" not in text
    assert "On 16 ranks it failed: exit status 1" in text
    picture = text[text.index("<svg") : text.index("</svg>") + 6]
    tree = ElementTree.fromstring(picture)
    assert len(tree.findall("{*}circle")) >= 4
    assert tree.findall("{*}polyline")
    assert "<svg" in page(study_of(*thread_runs))


def test_the_figures_are_json(thread_runs):
    found = json.loads(json.dumps(values(study_of(*map(run, (1, 2)))), allow_nan=False))
    assert found["measured"][1]["efficiency"] == pytest.approx(1.0)
    assert found["lines"][0]["seconds grows"] == {"exponent": pytest.approx(-1.0), "error": None}
    assert [each["ranks"] for each in found["extrapolated"]] == list(COUNTS)
    again = json.loads(json.dumps(values(study_of(*thread_runs)), allow_nan=False))
    assert again["check"]["ranks"] == 32
