"""An element that one rank alone has: what lies in its place on the others is never heard of."""

import warnings

import numpy as np
import pytest

import distarray
import distarray.numpy as dnp
from distarray import DeviceMesh, Shard
from distarray.errors import PerformanceWarning

pytestmark = pytest.mark.host
WHOLE = np.arange(1.0, 13).reshape(3, 4)
#: Of the element, which is 1; NumPy reports nothing about any of them.
CALLS = {
    "log": lambda np, y: np.log(y),
    "quotient": lambda np, y: 1 / y,
    "power": lambda np, y: y**-1,
    "root": lambda np, y: y**0.5,
    "remainder": lambda np, y: y % 3,
    "floor": lambda np, y: 2 // y,
    "divmod": lambda np, y: divmod(y, 2),
    "integers": lambda np, y: y.astype(int),
    "single": lambda np, y: y.astype("f4"),
    "divided by integers": lambda np, y: 6 % y.astype(int),
    "exp": lambda np, y: np.exp(y),
    "sinc": lambda np, y: np.sinc(y),
    "ldexp": lambda np, y: np.ldexp(y, 2),
    "outer": lambda np, y: np.multiply.outer(y, y),
    "where": lambda np, y: np.where(y > 0, y, 1 / y),
    "in place": lambda np, y: y.__itruediv__(2.0),
    "to a power in place": lambda np, y: y.__ipow__(2.0),
    "out=": lambda np, y: np.log(np.float64(3), out=y),
    "assigned": lambda np, y: np.zeros(7, int).__setitem__(3, y),
    "assigned to a number": lambda np, y: np.zeros((), int).__setitem__((), y),
    "sum": lambda np, y: np.sum(y),
    "mean": lambda np, y: np.mean(y),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("how", ["raise", "warn"])
def test_nothing_is_reported_of_other_ranks(world, ranks, how, name):
    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        for rest in (0.0, np.nan, np.inf, -5.0, 1e308):
            y = distarray.distribute(WHOLE, mesh, [Shard(1)], src=None)[0, 0, ...]
            if not y.layout.holds(mesh.coords):
                y.block[...] = rest
            with warnings.catch_warnings(), np.errstate(all=how):
                warnings.simplefilter("error")
                warnings.simplefilter("ignore", PerformanceWarning)
                found = CALLS[name](dnp, y)
            wanted = CALLS[name](np, np.array(1.0))
            if wanted is not None:
                assert np.array_equal(np.asarray(found), np.asarray(wanted))

    world.run(ranks, program)


@pytest.mark.parametrize("how", ["raise", "warn"])
def test_its_own_rank_reports_to_all(world, ranks, how):
    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        y = distarray.distribute(WHOLE - 1, mesh, [Shard(1)], src=None)[0, 0, ...]
        kind = FloatingPointError if how == "raise" else RuntimeWarning
        with warnings.catch_warnings(), np.errstate(all=how):
            warnings.simplefilter("error", RuntimeWarning)
            with pytest.raises(kind, match="divide by zero"):
                np.log(y)

    world.run(ranks, program)
