"""Programs of fixed seeds: the same at every run; ``make explore`` draws new ones."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from tests.explore.jobs import Job
from tests.explore.program import Failure, Program, draw_program, on_threads
from tests.explore.shrinking import shrunk


def _said(failure: Failure | None, program: Program) -> str:
    lines = "\n".join(program.lines)
    return f"seed {program.seed} on {program.ranks} ranks: {failure}\n{lines}"


@pytest.mark.parametrize("start", range(0, 80, 20))
def test_programs_do_as_with_numpy(start, own_processes):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(start, start + 20):
            program = draw_program(seed)
            failure = on_threads(program)
            assert failure is None, _said(failure, program)


def test_programs_do_as_with_numpy_on_processes(mpiexec):
    job = Job(3)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for seed in range(1000, 1030):
                program = draw_program(seed, ranks=3)
                failure = job.run(program)
                assert failure is None, _said(failure, program)
    finally:
        job.close()


def test_a_difference_is_found_and_made_small(own_processes, monkeypatch):
    """With a fault planted in what is compared with: NumPy's absolute values are off by one."""
    lines = (
        "v1 = lay(make((4, 3), 'f8', 1), S(0))",
        "v2 = lay(make((5,), 'i8', 2), R)",
        "v3 = np.multiply(v1, 2)",
        "v4 = np.abs(v2[::-1])",
    )
    monkeypatch.setattr("tests.explore.worlds.np", _Off())
    found = on_threads(Program(lines, 2, (2,), 0))
    assert found is not None
    assert (found.line, found.kind) == (3, "value")
    program, failure = shrunk(Program(lines, 2, (2,), 0), found, on_threads, 400)
    assert failure.kind == "value"
    assert len(program.lines) <= 2
    assert len("".join(program.lines)) < 60
    assert "abs" in program.lines[-1]


class _Off:
    """NumPy with a wrong function."""

    def __getattr__(self, name):
        return getattr(np, name)

    def abs(self, x):
        return np.abs(x) + 1


def test_ranks_that_differ_are_found(own_processes):
    """Rank 0 raises as NumPy does, and rank 1 does not."""
    lines = (
        "v1 = lay(make((4,), 'f8', 1), S(0))",
        "v2 = [0][:getattr(getattr(v1, 'mesh', None), 'rank', 0)][0]",
    )
    found = on_threads(Program(lines, 2, (2,), 0))
    assert found is not None
    assert (found.line, found.kind) == (1, "ranks differ")
