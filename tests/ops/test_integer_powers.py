"""Integers to negative powers: refused on all ranks alike, save where NumPy computes in floats."""

import operator

import numpy as np
import pytest

import distarray
from distarray import DeviceMesh, Shard
from distarray.config import config
from distarray.testing import assert_matches

pytestmark = pytest.mark.host

BASES = ("u8", "u4", "u1", "i8", "i4", "?", "f8")
N = 12
EXPONENTS = {
    "int64": np.int64(-1),
    "int32": np.int32(-2),
    "Python's": -1,
    "an array": np.full(N, -1),
    "a narrow array": np.full(N, -1, "i1"),
    "one of many": np.where(np.arange(N) == 7, -1, 2),
    "none negative": np.arange(N) % 3,
    "unsigned": np.uint64(3),
    "0-d": np.array(-1),
}


def at(x, e):
    x = x.copy()
    np.power.at(x, np.arange(len(x)), e)
    return x


CALLS = {
    "**": operator.pow,
    "reflected": lambda x, e: e**x,
    "ufunc": np.power,
    "in place": lambda x, e: operator.ipow(x.copy(), e),
    "out": lambda x, e: np.power(x, e, out=np.zeros_like(x, dtype="f8")),
    "in floats": lambda x, e: np.power(x, e, dtype="f8"),
    "in integers": lambda x, e: np.power(x, e, dtype="i8", casting="unsafe"),
    "nowhere": lambda x, e: np.power(x, e, where=False, out=np.zeros_like(x, dtype="f8")),
    "an element": lambda x, e: x[3] ** e,
    "outer": lambda x, e: np.power.outer(x[:3], e),
    "at": at,
}


def outcome(call, x, e):
    try:
        return call(x, e)
    except (ValueError, TypeError, OverflowError) as error:
        return type(error)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("base", BASES)
def test_as_numpy(world, ranks, base, call):
    values = np.arange(1, N + 1).astype(base)
    wanted = {name: outcome(CALLS[call], values, e) for name, e in EXPONENTS.items()}

    def program(group):
        mesh = DeviceMesh(group)
        for below in (0, 1 << 18):
            with config.override(replicate_below=below):
                for name, e in EXPONENTS.items():
                    x = distarray.distribute(values, mesh, [Shard(0)], src=None)
                    y = e
                    if isinstance(e, np.ndarray) and e.ndim:
                        y = distarray.distribute(e, mesh, [Shard(0)], src=None)
                    found = outcome(CALLS[call], x, y)
                    if isinstance(wanted[name], type):
                        assert found is wanted[name], name
                    elif isinstance(wanted[name], np.generic):
                        assert found == wanted[name], name
                    else:
                        assert_matches(found, wanted[name], exact=False)

    world.run(ranks, program)
