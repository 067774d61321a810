"""What the program learns from warnings and error states is the same on every rank."""

import logging
import subprocess
import sys
import warnings
from collections import Counter
from contextlib import contextmanager

import numpy as np
import pytest

import distarray.ops  # noqa: F401
from distarray import Shard, distribute, forbid_communication, trace
from distarray.array import deferred, temporaries
from distarray.comm import DeviceMesh, observed
from tests.waiting import nothing_is_watched

pytestmark = [pytest.mark.host, pytest.mark.filterwarnings("ignore")]
INF = np.inf
#: Bad for most functions, on the last rank alone, or on the first and the last together.
VALUES = {
    "zero": np.array([1.0, 2, 3, 4, 5, 6, 0]),
    "infinities": np.array([INF, 1, 2, 3, 4, 5, -INF]),
    "huge": np.array([1.7e308, 1, 2, 3, 4, 5, 1.7e308]),
    "few": np.array([3.0, 0.0]),
    "singles": np.array([1, 2, 3, 4, 5, 6, 3e38], "f4"),
    "integers": np.array([1, 2, 3, 4, 5, 6, 0]),
    "nans": np.full(5, np.nan),
}
UNARY = {
    u for u in vars(np).values() if isinstance(u, np.ufunc) and (u.nin, u.signature) == (1, None)
}
CALLS = {
    "1 / x": lambda x: 1 / x,
    "x / x": lambda x: x / x,
    "x % 0": lambda x: x % 0,
    "x // 0": lambda x: x // 0,
    "x ** 2": lambda x: x**2,
    "x ** -1": lambda x: x**-1.0,
    "moved": lambda x: x[1:] - x[:-1],
    "in place": lambda x: x.__imul__(x),
    "out": lambda x: np.multiply(x, x, out=x),
    "grown": lambda x: x[:, None] * x,
    "divmod": lambda x: divmod(7, x),
    "cast": lambda x: x.astype(int),
    "assigned": lambda x: np.zeros_like(x, dtype=int).__setitem__(slice(None), x),
    "copied": lambda x: np.copyto(np.zeros_like(x, dtype=int), x, casting="unsafe"),
    "sum": np.sum,
    "sum of rows": lambda x: np.sum(x.reshape(-1, 1), axis=0),
    "prod": np.prod,
    "mean": np.mean,
    "mean of nothing": lambda x: np.mean(x[:0]),
    "std": np.std,
    "too few": lambda x: np.std(x, ddof=len(x)),
    "cumsum": np.cumsum,
    "cumprod": np.cumprod,
    "multiply.reduce": np.multiply.reduce,
    "subtract.reduce": np.subtract.reduce,
    "hypot.reduce": np.hypot.reduce,
    "multiply.accumulate": np.multiply.accumulate,
    "add.reduceat": lambda x: np.add.reduceat(x, [0, 1]),
    "multiply.outer": lambda x: np.multiply.outer(x, x),
    "dot": lambda x: np.dot(x, -x[::-1]),
    "matmul": lambda x: x @ -x[::-1],
    "vdot": lambda x: np.vdot(x, -x[::-1]),
    "einsum": lambda x: np.einsum("i,i", x, x),
    "outer": lambda x: np.outer(x, x),
    "norm": np.linalg.norm,
    "trapezoid": np.trapezoid,
    "nansum": np.nansum,
    "nanmean": np.nanmean,
    "nanmax": np.nanmax,
    "nanmedian": np.nanmedian,
    "nanvar": np.nanvar,
    "fft": np.fft.fft,
    "where": lambda x: np.where(x > 0, 1 / x, 0),
    "lines": lambda x: np.apply_along_axis(lambda v: 1 / v, 1, x.reshape(-1, 1)),
}


@pytest.fixture(autouse=True)
def nothing_waits_that_is_observed(monkeypatch):
    """As in programs, also where earlier tests deferred everything or overrode operators."""
    monkeypatch.setattr(deferred, "is_observed", observed.is_observed)
    with nothing_is_watched():
        yield


def cut(group, values):
    mesh = DeviceMesh(group, (group.size,))
    return distribute(values.copy(), mesh, [Shard(0)], src=None)


@contextmanager
def recorded():
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        yield said


def texts(said):
    return Counter((w.category, str(w.message)) for w in said)


def raised(call, x):
    """What a call raises, where all errors are to be raised."""
    try:
        with np.errstate(all="raise", under="ignore"):
            call(x)
    except FloatingPointError as error:
        return str(error)
    return None


def each_rank(world, ranks, said):
    """What one rank has recorded: ranks that are threads share a record."""
    times = ranks if world.name == "threads" else 1
    counted = texts(said)
    assert all(count % times == 0 for count in counted.values()), counted
    return Counter({key: count // times for key, count in counted.items()})


def outcomes(values, calls):
    """What each call raises; what they warn of is recorded elsewhere."""
    for call in calls.values():
        call(values())
    return {words: raised(call, values()) for words, call in calls.items()}


@pytest.mark.parametrize("name", VALUES)
def test_all_ranks_record_and_raise_what_numpy_does(world, ranks, name):
    values = VALUES[name]
    calls = CALLS | {u.__name__: u for u in UNARY if takes(u, values)}
    with recorded() as said:
        wanted = outcomes(values.copy, calls)
    with recorded() as heard:
        found = world.run(ranks, lambda group: outcomes(lambda: cut(group, values), calls))
    for errors in found:
        assert [pair for pair in errors.items() if pair not in wanted.items()] == []
    assert each_rank(world, ranks, heard) == texts(said)


def takes(ufunc, values):
    try:
        ufunc(values)
    except TypeError:
        return False
    return True


def test_a_filter_that_raises_raises_on_all_ranks(world, ranks):
    def program(group):
        x = cut(group, VALUES["zero"])
        with pytest.raises(RuntimeWarning, match="divide by zero encountered in divide"):
            1 / x
        with pytest.raises(np.exceptions.ComplexWarning, match="imaginary"):
            cut(group, np.array([1j, 2])).astype(float)
        return float(x.sum())  # nobody has been left behind

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert set(world.run(ranks, program)) == {21.0}


def test_what_is_called_and_logged_is_so_on_all_ranks(world, ranks, capfd):
    class Log(list):
        write = list.append

    def program(group):
        x, far = cut(group, VALUES["zero"]), cut(group, VALUES["infinities"])
        called, log = [], Log()
        with np.errstate(all="call", call=lambda *what: called.append(what)):
            1 / x
            np.log(-x)
            far.sum()
            0 / x
        with np.errstate(all="log", call=log):
            1 / x
            np.cumsum(far)
        with np.errstate(all="print"):
            1 / x
        return called, log

    wanted = program_of_one(program)
    capfd.readouterr()
    for found in world.run(ranks, program):
        assert found == wanted
    printed = capfd.readouterr().err
    times = ranks if world.name == "threads" else 1
    assert printed == "Warning: divide by zero encountered in divide\n" * times


def program_of_one(program):
    """The result of a program where NumPy has the whole arrays."""
    from distarray.comm import run_threads

    (found,) = run_threads(1, program)
    return found


def test_nothing_is_sent_where_nobody_can_tell(world, ranks):
    def program(group):
        x = cut(group, VALUES["zero"])
        with forbid_communication():
            _ = 1 / x, np.log(x), x * x, x.astype("f4"), -x, x**2
            x[2:] = 4.0
        with trace() as book:
            x.sum()
        assert len(book) == (ranks > 1)

    with warnings.catch_warnings(record=True):
        warnings.simplefilter("ignore")  # nothing is recorded
        world.run(ranks, program)


def test_what_is_observed_costs_one_small_message(world, ranks):
    def program(group):
        x = cut(group, VALUES["zero"])
        with trace() as book:
            x + 1
        assert len(book) == (ranks > 1)
        with forbid_communication():
            np.transpose(x), x[1:]  # what does not compute

    with recorded():
        world.run(ranks, program)


def test_what_records_and_what_only_prints():
    assert not observed.is_observed()  # by the harness, which is disregarded
    with recorded():
        assert observed.is_observed()
        warnings.simplefilter("ignore")
        assert not observed.is_observed()
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        assert not observed.is_observed()
        warnings.filterwarnings("error", "divide")
        assert observed.is_observed()
    with pytest.warns(UserWarning, match="any True"):
        warnings.warn(f"any {observed.is_observed()}", stacklevel=1)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        logging.captureWarnings(True)
        assert observed.is_observed()
        logging.captureWarnings(False)
    assert not observed.is_observed()


def test_what_is_put_off_belongs_to_its_line(world, ranks, monkeypatch):
    from distarray.array import operators

    for module in (operators, temporaries):
        monkeypatch.setattr(module, "LARGE", 0)
    monkeypatch.setattr(deferred, "LEAST", 0)

    def program(group):
        x = cut(group, np.zeros(4 * group.size))
        if group.rank == 0:
            early.append(1 / x)
        else:
            1 / x
        return x

    early = []
    arrays = world.run(ranks, program)
    with recorded() as said:
        del arrays
        for y in early:
            assert y.waits
            y.to_local()  # belongs to a line before the record
        world.run(ranks, lambda group: 1 / cut(group, np.zeros(4 * group.size)))
    assert each_rank(world, ranks, said) == {
        (RuntimeWarning, "divide by zero encountered in divide"): 1
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ignored = world.run(ranks, lambda group: 1 / cut(group, np.zeros(4 * group.size)))
    assert all(y.waits for y in ignored)
    with recorded() as said:
        for y in ignored:
            y.to_local()
    assert not said


def test_warnings_of_functions_of_the_program(world, ranks):
    class Mine(UserWarning):
        pass

    def warn(line):
        state = np.geterr()["divide"]
        if line[0] > 3:
            warnings.warn(f"large, {state}", Mine, stacklevel=1)
        return line

    def program(group):
        with np.errstate(divide="raise"):
            np.apply_along_axis(warn, 1, cut(group, np.arange(7.0)).reshape(-1, 1))

    with recorded() as wanted, np.errstate(divide="raise"):
        np.apply_along_axis(warn, 1, np.arange(7.0).reshape(-1, 1))
    with recorded() as said:
        world.run(ranks, program)
    assert [str(w.message) for w in wanted] == ["large, raise"] * 3
    said = [w for w in said if "large" in str(w.message)]  # one more says what the calls cost
    assert len(said) == 3 * (ranks if world.name == "threads" else 1)
    assert {(str(w.message), w.filename, w.lineno) for w in said} == {
        (str(w.message), w.filename, w.lineno) for w in wanted
    }


PROGRAM = """
import warnings, numpy as np
x = np.ones(100_000); x[70_000] = 0
with warnings.catch_warnings(record=True) as w:
    warnings.simplefilter("always"); y = 1 / x
print(len(w), w[0].lineno, w[0].filename.endswith("program.py"))
for action in ("default", "once", "module", "always"):
    with warnings.catch_warnings(record=True) as w:
        warnings.simplefilter(action)
        for i in range(3):
            y = 1 / x
        y = 1 / x
    print(action, len(w))
caught = []
warnings.showwarning = lambda *what: caught.append(str(what[0]))
1 / x, x.sum(), (x - np.inf).sum()
warnings.showwarning = warnings._showwarning_orig
print(caught)
warnings.simplefilter("error")
try:
    np.log(x)
except RuntimeWarning as error:
    print(error)
with np.errstate(all="ignore"):
    np.log(x)
try:
    np.concatenate([x * np.inf, -x * np.inf]).sum()
except RuntimeWarning as error:
    print(error)
"""


@pytest.mark.launches
def test_programs_go_on_alike(mpiexec, tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    wanted = subprocess.run(
        [sys.executable, path], capture_output=True, text=True, check=True, timeout=120
    )
    found = subprocess.run(
        [*mpiexec, "-n", "3", sys.executable, "-m", "distarray", path],
        capture_output=True,
        text=True,
        timeout=180,
        env=None,
    )
    assert (found.returncode, found.stdout) == (0, wanted.stdout), found.stderr
