"""Functions that leave something behind: on every rank what NumPy leaves, called as NumPy calls."""

# ruff: noqa: PLW0108, SIM115 - the lambdas are what is judged

import functools
import itertools
import math
import random
import warnings
from dataclasses import dataclass

import numpy as np
import pytest

import distarray
import distarray.numpy as dnp
from distarray import DeviceMesh, Replicate, Shard
from distarray.engines.mapping.effects import judge
from distarray.errors import NotDistributedError, PerformanceWarning

pytestmark = [
    pytest.mark.host,
    pytest.mark.filterwarnings("ignore::distarray.errors.PerformanceWarning"),
]
VALUES = np.arange(20.0).reshape(4, 5)


class Counted:
    """A number whose methods count their calls."""

    def __init__(self, value, log):
        self.value, self.log = value, log

    def __add__(self, other):
        self.log.append(("add", self.value))
        return Counted(self.value + getattr(other, "value", other), self.log)

    __radd__ = __add__

    def __lt__(self, other):
        self.log.append(("lt", self.value))
        return self.value < other.value

    def __float__(self):
        return float(self.value)


def objects(log):
    return np.array([Counted(float(7 * n % 5), log) for n in range(5)], dtype=object)


#: Calls of a function that notes in `log`, by NumPy's names of a module, on an array.
CALLS = {
    "vectorize": lambda m, log, x: m.vectorize(lambda v: log.append(v) or v)(x),
    "types": lambda m, log, x: m.vectorize(lambda v: log.append(v) or v, otypes="d")(x),
    "kept": lambda m, log, x: m.vectorize(lambda v: log.append(v) or v, cache=True)(x),
    "method": lambda m, log, x: m.vectorize(log.append, otypes=[object])(x),
    "two": lambda m, log, x: m.vectorize(lambda v, w: (v, log.append(w) or w))(x, x[0])[1],
    "excluded": lambda m, log, x: m.vectorize(fill, excluded=[1])(x, log),
    "excluded name": lambda m, log, x: m.vectorize(fill, excluded={"log"})(x, log=log),
    "lines": lambda m, log, x: m.vectorize(
        lambda r: log.append(tuple(r)) or r[::-1], signature="(n)->(n)"
    )(x),
    "along 0": lambda m, log, x: np.apply_along_axis(lambda r: log.append(r[0]) or r, 0, x),
    "along 1": lambda m, log, x: np.apply_along_axis(lambda r: log.append(r[0]) or r.sum(), 1, x),
    "argument": lambda m, log, x: np.apply_along_axis(fill, 1, x[:, :1], log),
    "frompyfunc": lambda m, log, x: np.frompyfunc(fill_of(log), 1, 1)(x).astype(float),
    "where": lambda m, log, x: np.frompyfunc(fill_of(log), 1, 1)(
        x, where=x > 3, out=0 * x, casting="unsafe"
    ),
    "reduce": lambda m, log, x: np.frompyfunc(adding(log), 2, 1).reduce(x, 1).astype(float),
    "accumulate": lambda m, log, x: np.frompyfunc(adding(log), 2, 1).accumulate(x, 1).astype(float),
    "reduceat": lambda m, log, x: (
        np.frompyfunc(adding(log), 2, 1).reduceat(x[:, 0], [0, 2]).astype(float)
    ),
    "outer": lambda m, log, x: np.frompyfunc(adding(log), 2, 1).outer(x[0], x[:, 0]).astype(float),
    "pad": lambda m, log, x: np.pad(x, 1, lambda v, w, axis, kw: log.append(v.tolist())),
    "pad, argument": lambda m, log, x: np.pad(x, 1, noting, log=log),
    "piecewise": lambda m, log, x: np.piecewise(
        x, [x > 3], [lambda v: log.append(v.size) or v, lambda v: log.append(v.size) or -v]
    ),
    "over axes": lambda m, log, x: np.apply_over_axes(
        lambda a, axis: log.append(axis) or np.sum(a, axis), x, (0, 1)
    ),
    "methods": lambda m, log, x: (objects(log) + x[0]).astype(float),
    "methods of lines": lambda m, log, x: (x + objects(log)).astype(float),
}


def fill(value, log):
    log.append(float(np.sum(value)))
    return value


def fill_of(log):
    return functools.partial(lambda log, v: log.append(v) or v, log)


def adding(log):
    return lambda a, b: log.append((a, b)) or a + b


def noting(vector, widths, axis, given):
    given["log"].append(axis)


@pytest.mark.parametrize("name", CALLS)
def test_effects_are_numpys(world, ranks, name):
    log = []
    wanted, calls = CALLS[name](np, log, VALUES), log

    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        for placement in (Shard(0), Shard(1), Replicate()):
            mine = []
            x = distarray.distribute(VALUES, mesh, [placement], src=None)
            found = CALLS[name](dnp, mine, x)
            whole = found.full() if isinstance(found, distarray.DistArray) else found
            assert mine == calls
            assert np.asarray(whole).tolist() == np.asarray(wanted).tolist()

    world.run(ranks, program)


def test_arrays_that_the_function_fills(world, ranks):
    def program(group):
        x = distarray.distribute(np.arange(7), DeviceMesh(group, (ranks,)), [Shard(0)], src=None)
        filled, cut, counts = np.zeros(7), x * 0, {}

        def function(n):
            filled[n] = cut[n] = n * n
            counts[n % 2] = counts.get(n % 2, 0) + 1
            return x[n] + x.sum()  # which communicates

        found = dnp.vectorize(function, otypes=[int])(x).full()
        assert found.tolist() == [n + 21 for n in range(7)]
        assert filled.tolist() == cut.full().tolist() == [n * n for n in range(7)]
        assert counts == {0: 4, 1: 3}

    world.run(ranks, program)


@pytest.mark.parametrize("axis", [0, 1])
def test_lines_that_the_function_changes(world, ranks, axis):
    def change(line):
        line[::2] = -1
        return line.sum()

    values = VALUES.copy()
    wanted = np.apply_along_axis(change, axis, values)

    def program(group):
        for placement in (Shard(0), Shard(1), Replicate()):
            x = distarray.distribute(VALUES, DeviceMesh(group, (ranks,)), [placement]).copy()
            found = np.apply_along_axis(change, axis, x)
            assert found.full().tolist() == wanted.tolist()
            assert x.full().tolist() == values.tolist()

    world.run(ranks, program)


def test_errors_come_at_numpys_call(world, ranks):
    def fails(log):
        return lambda v: log.append(v) or 1 / (v - 11)

    log = []
    with pytest.raises(ZeroDivisionError):
        np.vectorize(fails(log))(VALUES)

    def program(group):
        for placement in (Shard(0), Shard(1), Replicate()):
            mine = []
            x = distarray.distribute(VALUES, DeviceMesh(group, (ranks,)), [placement], src=None)
            with pytest.raises(ZeroDivisionError):
                dnp.vectorize(fails(mine))(x)
            assert mine == log

    world.run(ranks, program)


def test_objects_that_may_change_are_on_every_rank(world, ranks):
    def program(group):
        x = distarray.distribute(np.arange(7), DeviceMesh(group, (ranks,)), [Shard(0)], src=None)
        listing = dnp.vectorize(lambda n: [n], otypes=[object])
        for made in (np.frompyfunc(lambda n: [n], 1, 1)(x), listing(x)):
            made[5].append("here")
            assert len(made[x % 7][5]) == len(made[5]) == len(made[::-1][1])
        log = []
        things = dnp.empty_like(x, dtype=object)
        things[:5] = objects(log)
        assert float(things[:5].sum()) == 10.0
        assert len(log) == 4
        assert [thing.value for thing in np.sort(things[:5])] == [0, 1, 2, 3, 4]

    world.run(ranks, program)


@pytest.mark.counts(lambda ranks: ranks > 1)
def test_the_price_is_said(world, ranks):
    log = []

    def program(group):
        x = distarray.distribute(VALUES, DeviceMesh(group, (ranks,)), [Shard(0)], src=None)
        call = dnp.vectorize(lambda v: log.append(v) or v, otypes=[object])
        with distarray.config.override(fallback="error"):
            with pytest.raises(NotDistributedError, match=r"`log`.*list.*distarray\.pure"):
                call(x)
            dnp.vectorize(distarray.pure(lambda v: log.append(v) or v))(x)
        with distarray.trace() as trace:
            dnp.vectorize(lambda v: v * 2, otypes="d")(x)
        assert trace.messages <= 1

    world.run(ranks, program)
    with pytest.warns(PerformanceWarning, match="160 bytes"):
        world.run(ranks, lambda group: _warned(group, log))


@pytest.mark.counts(lambda ranks: ranks > 1)
def test_of_what_every_rank_has_there_is_no_price(world, ranks):
    log = []

    def program(group):
        x = distarray.distribute(VALUES, DeviceMesh(group, (ranks,)), [Replicate()], src=None)
        return dnp.vectorize(lambda v: log.append(v) or v, otypes="d")(x).full().tolist()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = world.run(ranks, program)
    assert all(one == VALUES.tolist() for one in found)


def _warned(group, log):
    x = distarray.distribute(VALUES, DeviceMesh(group, (group.size,)), [Shard(0)], src=None)
    dnp.vectorize(lambda v: log.append(v) or v)(x)


@pytest.mark.counts(lambda ranks: ranks > 1)
def test_ranks_that_judge_differently_agree(world, ranks):
    """A program's own rank 0 keeps a list, the others keep nothing."""

    def program(group):
        x = distarray.distribute(VALUES, DeviceMesh(group, (ranks,)), [Shard(0)], src=None)
        log = [] if group.rank == 0 else None

        def function(v):
            if log is not None:
                log.append(v)
            return v

        assert dnp.vectorize(function, otypes="d")(x).full().tolist() == VALUES.tolist()
        assert log is None or log == VALUES.ravel().tolist()

    world.run(ranks, program)


@pytest.mark.parametrize("read", [dnp.loadtxt, dnp.genfromtxt])
def test_converters(world, ranks, read, tmp_path):
    path = tmp_path / "numbers.txt"
    path.write_text("".join([f"{n} {n * n}\n" for n in range(100_000)]))

    def program(group):
        log = []
        mesh = DeviceMesh(group, (ranks,))
        found = read(path, converters={1: lambda t: log.append(t) or float(t)}, mesh=mesh)
        assert len(log) in (100_000, 100_001)  # genfromtxt tries the first line
        assert found.shape == (100_000, 2)

    world.run(ranks, program)


# -- judging ---------------------------------------------------------------------------------------

LIST, TABLE, LIMIT, FROZEN, COUNT = [], {0: 1}, 3, np.arange(3.0), itertools.count()
FROZEN.flags.writeable = False


@dataclass
class Point:
    x: float

    def norm(self):
        return abs(self.x)


class Shared:
    seen = []  # noqa: RUF012 - which is what is found

    def note(self):
        self.seen.append(1)


def counting():
    count = 0

    def function(v):
        nonlocal count
        count += 1
        return count

    return function


def with_attribute(v):
    with_attribute.calls += 1


def assigning(v):
    global LIMIT
    LIMIT = v


def factorial(n):
    return 1 if n < 2 else n * factorial(n - 1)


def with_own_list(v):
    found = []

    def add(u):
        found.append(u)

    add(v)
    return found


@distarray.pure
def marked(v):
    return TABLE[v]


with_attribute.calls = 0
PURE = {
    "arithmetic": lambda v: v * LIMIT + 2,
    "numpy": lambda v: np.sin(v) + dnp.linalg.norm(v) + np.fft.fft(v)[0],
    "builtin": max, "math": math.sin, "type": str, "descriptor": str.upper, "method": ",".join,
    "recursion": factorial, "inner list": with_own_list, "class": lambda v: Point(v).norm(),
    "ufunc": np.add, "python ufunc": np.frompyfunc(lambda v: v + 1, 1, 1), "numpy's": np.ptp,
    "partial": functools.partial(pow, 2), "vectorize": np.vectorize(lambda v: v),
    "raises": lambda v: v or ValueError("no"), "generator": lambda v: sum(u for u in range(9)),
    "own generator": lambda seed: dnp.random.default_rng(int(seed)).random(),
    "frozen array": lambda v: FROZEN[int(v)], "marked": marked, "calls marked": lambda v: marked(v),
    "product": lambda v: list(itertools.product([v], repeat=2)),
}  # fmt: skip
IMPURE = {
    "list": lambda v: LIST.append(v), "bound": LIST.append, "dictionary": lambda v: TABLE[v],
    "nonlocal": counting(), "global": assigning, "attribute": with_attribute, "class": lambda v: (
        Shared().note()), "default": lambda v, seen=[]: seen, "print": lambda v: print(v),
    "open": lambda v: open(v), "random": lambda v: random.random(), "eval": lambda v: eval("v"),
    "numpy.random": lambda v: np.random.rand(), "module": lambda v, xp=np: xp.sin(v),
    "cache": functools.lru_cache(lambda v: v), "iterator": lambda v: next(COUNT),
    "partial": functools.partial(lambda a, b: a, []), "ufunc": np.frompyfunc(LIST.append, 1, 1),
    "vectorize": np.vectorize(LIST.append), "inner": lambda v: [LIST.append(u) for u in range(3)],
    "array": lambda v: VALUES[0, 0], "import": lambda v: __import__("os"), "id": lambda v: id(v),
    "instance": Shared(), "load": lambda v: np.load(v), "settings": lambda v: np.seterr(all="warn"),
    "scan": lambda v: np.frompyfunc(lambda a: LIST.append(a), 1, 1)(v),
}  # fmt: skip


@pytest.mark.parametrize("name", PURE)
def test_pure_functions(name):
    assert judge(PURE[name]).effect is None


@pytest.mark.parametrize("name", IMPURE)
def test_functions_with_effects(name):
    assert judge(IMPURE[name]).effect


def test_arguments_may_change():
    assert judge(fill, [3.0]).effect is None
    assert judge(fill, [[3.0]]).effect
    assert judge(np.convolve, [np.ones(3)]).effect is None


def test_marks_of_what_takes_no_attributes():
    assert judge(distarray.pure(LIST.append)).effect is None
    assert distarray.pure(factorial) is factorial


#: With one index of a dimension on a rank, or few.
FEW = [(2, 2), (3, 2), (1, 3), (2, 2, 2), (3, 1, 2), (3, 3, 3)]


@pytest.mark.parametrize("shape", FEW, ids=str)
@pytest.mark.parametrize("order", "CF")
def test_calls_follow_the_memory_of_views_of_few_elements(world, shape, order):
    """NumPy walks along the memory of a view; blocks of one element must not hide where it is."""
    whole = np.asarray(np.arange(float(np.prod(shape))).reshape(shape), order=order)
    dims = range(len(shape))
    views = list(itertools.product(itertools.permutations(dims), [(), (0,), (1,), (0, 1)]))

    def walked(numpy, values, axes, turned):
        view, calls = numpy.flip(numpy.transpose(values, axes), turned), []
        return numpy.vectorize(lambda t, u: calls.append(u) or len(calls))(view, view)

    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        for dim in dims:
            x = distarray.distribute(whole.copy(order="K"), mesh, [Shard(dim)], src=None)
            for axes, turned in views:
                found = walked(dnp, x, axes, turned)
                wanted = walked(np, whole.copy(order="K"), axes, turned)
                assert np.array_equal(found.full(), wanted), (dim, axes, turned)
            wide = [numpy.broadcast_to(y, (2, *shape)) for numpy, y in ((dnp, x), (np, whole))]
            if order == "C":  # of a single row NumPy's broadcast forgets where the next one lies
                found = walked(dnp, wide[0], range(len(shape) + 1), (0,)).full()
                assert np.array_equal(found, walked(np, wide[1], range(len(shape) + 1), (0,))), dim
            found = walked(dnp, x[0], range(len(shape) - 1), ())  # which one rank alone may have
            wanted = walked(np, whole.copy(order="K")[0], range(len(shape) - 1), ())
            assert np.array_equal(found.full(), wanted), dim

    world.run(world.ranks[-1], program)
