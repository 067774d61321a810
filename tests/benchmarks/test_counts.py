"""The benchmark cases, tiny: NumPy's values, and the messages that the table promises."""

from __future__ import annotations

import ast
import os
import threading

import numpy as np
import pytest

from benchmarks.cases import CASES
from benchmarks.libraries import start_distarray, start_numpy
from benchmarks.worker import Bench
from distarray import DistArray
from distarray.comm.tune import one_blas_thread

OURS = [case for case in CASES if "distarray" in case.statements]


def threads_of_saving():
    """What goes on behind a row's back, such as an asynchronous save."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("saving")]


def value(bench: Bench, statement: str):
    """What a statement gives; of a procedure, the array it has worked on."""
    result = eval(statement, bench._names)
    return bench._names["a"] if result is None else result


@pytest.fixture(autouse=True)
def one_thread():
    """For tiny cases BLAS has no use for more: they would spin beside the thread ranks."""
    with one_blas_thread():
        yield


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """Tells all ranks, and this process, of one directory for files."""

    def share(group=None):
        name = str(tmp_path) if group is None else group.broadcast_object(str(tmp_path), 0)
        os.environ["BENCHMARKS_SCRATCH"] = name

    monkeypatch.setenv("BENCHMARKS_SCRATCH", str(tmp_path))
    return share


@pytest.mark.parametrize("case", OURS, ids=lambda case: case.name)
def test_messages(world, ranks, case, scratch):
    statement = case.statements["distarray"]

    def program(group):
        scratch(group)
        bench = Bench(start_distarray())
        bench.setup(case, True)
        bench.time(statement, 1, 8)  # as many passes as gradients that are zero are looked at
        counts = group.allgather_object(bench.messages(statement)[0])
        bench.end()
        assert not threads_of_saving()
        return max(counts)

    names = {**case.tiny, "p": ranks}
    expected = eval(case.messages, names) if ranks > 1 else 0
    assert set(world.run(ranks, program)) == {expected}


@pytest.mark.parametrize("case", [c for c in OURS if "numpy" in c.statements], ids=lambda c: c.name)
def test_values(world, ranks, case, scratch):
    scratch()
    alone = Bench(start_numpy())
    alone.setup(case, True)
    alone.prepare()
    wanted = value(alone, case.statements["numpy"])

    def program(group):
        scratch(group)
        bench = Bench(start_distarray())
        bench.setup(case, True)
        bench.prepare()
        found = value(bench, case.statements["distarray"])
        return found.full() if isinstance(found, DistArray) else found

    for found in world.run(ranks, program):
        np.testing.assert_allclose(found, wanted, rtol=1e-12)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_statements_are_python(case):
    for text in (case.setup, case.before, case.after, *case.statements.values()):
        ast.parse(text)
    names = {**case.sizes, "p": 2}
    assert eval(case.messages, names) >= 0
    assert not case.traffic or eval(case.traffic, names) > 0
    assert case.sizes.keys() == case.tiny.keys()
