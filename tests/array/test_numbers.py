"""Results of no dimension are NumPy's scalars, whichever door they come out of."""

import contextlib
import datetime
import fractions
import json
import pickle
import sqlite3
import statistics
from decimal import Decimal

import numpy as np
import pytest

import distarray
import distarray.numpy as dnp
from distarray import config
from distarray.comm import DeviceMesh, trace
from distarray.layout import Partial, Replicate, Shard
from distarray.testing import assert_matches

VALUES = np.array([3.0, 1.5, -2.0, 8.25, 0.0, 4.0, 7.5])

#: Ways to a number, of an array of one dimension.
DOORS = {
    "a method": lambda x: x.mean(),
    "a function": np.sum,
    "a ufunc's method": np.maximum.reduce,
    "an element": lambda x: x[3],
    "an element from the end": lambda x: x[-1],
    "an element by NumPy's integer": lambda x: x[np.int64(2)],
    "an element of a reversed view": lambda x: x[::-1][1],
    "an element of a matrix": lambda x: x[:6].reshape(2, 3)[1, 2],
    "iteration": lambda x: list(x)[4],
    "flat iteration": lambda x: next(iter(x.flat)),
    "an element of flat": lambda x: x.flat[5],
    "a product": lambda x: x @ x,
    "an operator": lambda x: x[2, ...] + 1,
    "a reflected operator": lambda x: 2.0 - x[2, ...],
    "a power": lambda x: x[1, ...] ** 2,
    "a unary operator": lambda x: -x[2, ...],
    "a comparison": lambda x: x[2, ...] < 0,
    "a ufunc": lambda x: np.exp(x[2, ...]),
    "the position of the largest": lambda x: x.argmax(),
    "a truth value": lambda x: np.all(x > -3),
    "a quantile": lambda x: np.quantile(x, 0.3),
    "a norm": np.linalg.norm,
    "one of several results": lambda x: np.modf(x[3, ...])[0],
    "a named result": lambda x: np.linalg.slogdet(x[:4].reshape(2, 2)).logabsdet,
    "a trace": lambda x: np.trace(x[:4].reshape(2, 2)),
    "an interpolated value": lambda x: np.interp(0.5, np.arange(7.0), x),
}


@pytest.mark.parametrize("name", DOORS)
def test_a_door(world, ranks, name):
    wanted = DOORS[name](VALUES)

    def program(group):
        for placement in (Shard(0), Replicate()):
            x = distarray.distribute(VALUES, DeviceMesh(group), [placement], src=None)
            found = DOORS[name](x)
            assert type(found) is type(wanted)
            np.testing.assert_allclose(found, wanted, rtol=1e-14)

    world.run(ranks, program)


def in_a_table(value):
    with contextlib.closing(sqlite3.connect(":memory:")) as table:
        table.execute("create table t (x real)")
        table.execute("insert into t values (?)", (value,))
        return table.execute("select x from t").fetchall()


#: What programs do with numbers.
USES = {
    "isinstance": lambda s: isinstance(s, float),
    "json": lambda s: json.dumps({"mean": s}),
    "pickle": lambda s: pickle.loads(pickle.dumps(s)),
    "Decimal": Decimal,
    "Fraction": fractions.Fraction,
    "timedelta": lambda s: datetime.timedelta(seconds=s),
    "statistics": lambda s: statistics.fmean([s, 1.0]),
    "sqlite3": in_a_table,
    "is_integer": lambda s: s.is_integer(),
    "hex": lambda s: s.hex(),
    "repr": repr,
    "format": lambda s: f"{s:8.3f}|{s!s}",
    "a key": lambda s: {s: 1}[s],
    "a ratio": lambda s: s.as_integer_ratio(),
}


@pytest.mark.parametrize("name", USES)
def test_a_use(world, ranks, name):
    wanted = USES[name](VALUES.mean())

    def program(group):
        x = distarray.distribute(VALUES, DeviceMesh(group), [Shard(0)], src=None)
        assert USES[name](x.mean()) == wanted

    world.run(ranks, program)


def test_numbers_and_arrays(world, ranks):
    """A number of NumPy's beside an array, on either side, changes no layout and sends nothing."""

    def program(group):
        x = distarray.distribute(VALUES, DeviceMesh(group), [Shard(0)], src=None)
        for number in (np.float64(2.5), np.float32(0.5), np.int64(3), np.bool_(True), np.int8(-1)):
            with trace() as events:
                for act in (
                    lambda a, n=number: a * n,
                    lambda a, n=number: n - a,
                    lambda a, n=number: n / (a + 10),
                    lambda a, n=number: a < n,
                    lambda a, n=number: n >= a,
                    lambda a, n=number: (a + 3) ** n,
                    lambda a, n=number: np.maximum(n, a),
                ):
                    found, wanted = act(x), act(VALUES)
                    assert_matches(found, wanted)
                    assert found.layout is x.layout
            assert not events

    world.run(ranks, program)


def test_pending_folds_are_carried_out(world, ranks):
    def program(group):
        mesh = DeviceMesh(group)
        part = distarray.from_local(np.full(3, 1.0), mesh, [Partial()])
        assert type(part.sum()) is np.float64
        assert part.sum() == 3.0 * ranks
        assert part[1] == ranks

    world.run(ranks, program)


def test_records(world, ranks):
    """Of a cut array they are copies and cannot be written to; of a whole one they are views."""
    records = np.array([(1.5, 2), (2.5, 3), (0.0, 1)], [("x", "f8"), ("n", "i4")])

    def program(group):
        for placement in (Shard(0), Replicate()):
            x = distarray.distribute(records, DeviceMesh(group), [placement], src=None)
            for one in (x[1], list(x)[1]):
                assert isinstance(one, np.void)
                assert tuple(one) == (2.5, 3)
                one["n"] = 7
                assert x["n"][1] == 7
                x["n"][1] = 3

    world.run(ranks, program)


def test_ranks_outside_of_the_mesh(world):
    """They do not know the number, and keep an array of it."""

    def program(group):
        mesh = DeviceMesh(group, (1,), ranks=[0])
        x = distarray.distribute(VALUES, mesh, [Shard(0)], src=None)
        found = x.sum()
        assert isinstance(found, np.float64) == (mesh.coords is not None)

    for ranks in world.ranks:
        world.run(ranks, program)


def test_messages(world):
    """One allreduce for a reduction, one broadcast for an element; none of what is whole."""

    def program(group):
        with config.override(replicate_below=0):
            x = dnp.arange(8.0, mesh=DeviceMesh(group), placements=[Shard(0)])
            with trace() as reduction:
                x.sum()
            with trace() as element:
                x[5]
            whole = x.redistribute([Replicate()])
            with trace() as nothing:
                whole.sum(), whole[3], float(whole[2] * 2)
        kinds = [[event.kind for event in events] for events in (reduction, element, nothing)]
        assert kinds[2] == []
        return kinds[:2]

    if 2 in world.ranks:
        for kinds in world.run(2, program):
            assert [len(events) for events in kinds] == [1, 1]
