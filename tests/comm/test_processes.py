"""Children of ranks are worlds of their own: with right numbers, and without the parent's MPI."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.launcher import SETTINGS

ROOT = Path(__file__).resolve().parents[2]
METHODS = ("fork", "spawn", "forkserver")
SUM = 4999950000
SUMS = [SUM, SUM + 1, SUM + 2]
ARRIVED = ["numpy", [100_000], float(SUM)]


def job(mpiexec, ranks, directory, *argv, timeout=240):
    settings = dict(os.environ, PYTHONPATH=str(ROOT), PYTHONWARNINGS="", **SETTINGS)
    settings.pop("DISTARRAY_RANK", None)
    done = subprocess.run(
        [*([*mpiexec, "-n", str(ranks)] if mpiexec else []), sys.executable, *argv],
        cwd=directory,
        env=settings,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done


def seen_by_ranks(mpiexec, ranks, directory, *arguments):
    """What the ranks of `children.py` have seen."""
    program = Path(__file__).with_name("children.py")
    job(mpiexec, ranks, directory, str(program), *arguments)
    return [json.loads((directory / f"rank-{r}.json").read_text()) for r in range(ranks)]


def test_children_of_ranks_compute_alone(mpiexec, tmp_path):
    for seen in seen_by_ranks(mpiexec, 2, tmp_path, "after MPI", *mpiexec):
        assert seen["ranks"] == 2
        assert [seen[method] for method in METHODS] == [SUMS] * 3
        assert seen["carried by forkserver"] == ARRIVED
        for method in METHODS[:2]:
            by_process, whole, cut, back, refused = seen[f"carried by {method}"]
            assert by_process == ("refused" if method == "fork" else ARRIVED)
            assert whole == ["numpy", [5], 10.0]
            assert cut == ARRIVED
            assert back == ["numpy", 100_000.0]
            assert "pass them x.full()" in refused
        assert seen["program"] == ["1", str(SUM), "1", "1"]
        assert seen["mpi4py"] == ["1"]
        # A job that a rank starts is none of its children. Its ranks may write between two others.
        assert "".join(seen["job"]) == "22"
        assert seen["communicator"] == 1
        assert seen["ended"] == [0, 3, 1, 1, 130]
        assert seen["inherited"] == {
            "mesh": 1,
            "whole": [[1, 2, 3, 4, 5], 10, 10],
            "vectorized": [1, 2, 3, 4, 5],
            "mixed": [0, 0, 2, 3, 4, 1, 1],
            "saved": [0, 0, 2, 3, 4],
            "grid": 20,
            "block": True,
            **dict.fromkeys(
                ["sum", "element", "asarray", "beside", "joined", "assigned"], "refused"
            ),
            "made": 200_000,
            "drawn": True,
        }


def test_children_of_ranks_that_have_not_started_mpi(mpiexec, tmp_path):
    """They had what the launcher tells a rank, took themselves for it, and MPI was lost."""
    for seen in seen_by_ranks(mpiexec, 2, tmp_path, "before MPI"):
        assert "main thread" in seen["threads"]
        assert (seen["fork"], seen["spawn"]) == (SUMS, SUMS)
        assert seen["program"] == ["1", str(SUM), "1", "1"]
        assert seen["ranks"] == 2


def test_threads_of_one_process_start_it_together(own_processes, tmp_path):
    """Where one rank has everything, whichever thread is first makes the group of the world."""
    source = """
        from concurrent.futures import ThreadPoolExecutor
        from threading import Barrier
        import distarray.numpy as np
        together = Barrier(8)
        def total(k):
            together.wait()
            return int((np.arange(100_000) + k).sum())
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(total, range(8)))
        assert found == [4999950000 + 100_000 * k for k in range(8)], found
    """
    (tmp_path / "program.py").write_text(textwrap.dedent(source))
    job((), 1, tmp_path, "program.py")


LOKY = """
    import sys
    import joblib
    import distarray
    import distarray.numpy as np

    def total(k):
        return int(np.arange(100_000).sum()) + k * distarray.default_mesh().size()

    if __name__ == "__main__":
        cut, whole = np.arange(100_000), np.arange(5)
        found = joblib.Parallel(n_jobs=2)(joblib.delayed(total)(k) for k in range(6))
        sums = joblib.Parallel(n_jobs=2)(joblib.delayed(np.sum)(x) for x in (whole, cut.full()))
        everybodys = cut.mesh.group.allgather_object((found, [int(s) for s in sums]))
        if cut.mesh.rank == 0:
            print(everybodys)
"""


def test_joblib(mpiexec, tmp_path):
    """Its workers are started by ``exec``, with what is in ``os.environ``."""
    if importlib.util.find_spec("joblib") is None:
        pytest.skip("joblib is not installed; it comes with scikit-learn")
    (tmp_path / "program.py").write_text(textwrap.dedent(LOKY))
    done = job(mpiexec, 2, tmp_path, "program.py")
    assert done.stdout == f"{[([SUM + k for k in range(6)], [10, SUM])] * 2}\n", done.stderr
