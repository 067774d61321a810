"""The history of measurements says what has become slower, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks import history
from benchmarks.run import Measurement

MACHINE = {"machine": "x", "processor": "y", "cores": "2", "python": "3.11", "numpy": "2.4"}


def run(ours: list[float], numpys: list[float] | None = None, **machine: Any) -> dict[str, Any]:
    found = [Measurement("triad", "distarray", 2, "", ours)]
    if numpys is not None:
        found.append(Measurement("triad", "numpy", 1, "", numpys))
    return history.entry(MACHINE | {"commit": "abc"} | machine, found)


def test_slower_by_more_than_the_spread():
    usual = [run([1.0, 1.02, 0.98])] * 2
    assert history.slower(run([1.01, 1.0, 1.0]), usual) == []
    (line,) = history.slower(run([1.3, 1.31, 1.29]), usual)
    assert line.startswith("SLOWER    triad on 2: 1.30x since abc")
    assert history.slower(run([2.0, 0.6, 1.6, 0.7]), usual) == []  # who knows
    varied = [run([1.0]), run([1.4])]
    assert history.slower(run([1.3, 1.31, 1.29]), varied) == []


def test_a_slow_machine_slows_numpy_too():
    usual = [run([1.0, 1.0], [2.0, 2.0])]
    assert history.slower(run([1.5, 1.5], [3.0, 3.0]), usual) == []
    assert len(history.slower(run([1.5, 1.5], [2.0, 2.0]), usual)) == 1
    assert history.slower(run([9.0]), usual) == []  # NumPy was not measured


def test_runs_on_other_machines_are_passed_over(tmp_path: Path):
    path = tmp_path / "deep" / "history.jsonl"
    first, other, last = run([1.0]), run([1.0], cores="8"), run([2.0])
    assert history.append(path, first) == []
    assert history.append(path, other) == []
    assert history.append(path, last) == [first]
    assert len(path.read_text().splitlines()) == 3
