"""Arrays beside scipy's sparse arrays and matrices, of every format."""

import operator

import numpy as np
import pytest

import distarray
from distarray import DeviceMesh, Shard
from distarray.config import config

sparse = pytest.importorskip("scipy.sparse")

pytestmark = pytest.mark.host

DENSE = np.array([[1.0, 2.0, 0.0], [3.0, 0.0, 4.0], [0.0, 5.0, 6.0], [7.0, 0.0, 0.0]])
OTHER = np.array([[1.0, 0.0, 0.0], [3.0, 2.0, 4.0], [0.0, 5.0, 1.0], [0.0, 0.0, 0.0]])
BINARY = ("eq", "ne", "lt", "le", "gt", "ge", "add", "sub")


def refused(call):
    def answer(a, d):
        try:
            return call(a, d)
        except TypeError:  # of scipy's arrays, not of its matrices
            return np.array("refused")

    return answer


def reflected(name):
    return lambda a, d: getattr(operator, name)(d, a)


CALLS = {
    **{name: getattr(operator, name) for name in BINARY},
    **{f"{name}, reflected": reflected(name) for name in BINARY},
    "a / d": lambda a, d: a / (d + 1),
    "d / a": refused(lambda a, d: d / a),
    "a @ d": lambda a, d: a @ d.T,
    "d @ a": lambda a, d: d @ a.T,
    "a @ line": lambda a, d: a @ d[0],
    "line @ a": lambda a, d: d[:, 0] @ a,
    "a + line": lambda a, d: a + d[0],
    "a == line": lambda a, d: a == d[0],
    "d * a": lambda a, d: d * (a.T if isinstance(a, sparse.spmatrix) else a),
    "a * number": lambda a, d: a * d[0, 1],
    "number * a": lambda a, d: d[0, 1] * a,
    "d += a": lambda a, d: operator.iadd(d.copy(), a),
    "d -= a": lambda a, d: operator.isub(d.copy(), a),
    "a += d": operator.iadd,
    "asarray": lambda a, d: type(a)(d),
}


def plain(found):
    return found.toarray() if sparse.issparse(found) else np.asarray(found)


@pytest.mark.parametrize("kind", ["array", "matrix"])
@pytest.mark.parametrize("layout", ["csr", "csc", "coo", "bsr", "dia", "lil", "dok"])
@pytest.mark.filterwarnings("ignore")
def test_operators(world, ranks, layout, kind):
    made = getattr(sparse, f"{layout}_{kind}")
    wanted = {name: CALLS[name](made(OTHER), DENSE) for name in CALLS}

    def program(group):
        for below in (0, 1 << 18) if layout == "csr" else (0,):
            with config.override(replicate_below=below), np.errstate(all="ignore"):
                for name, found in wanted.items():
                    d = distarray.distribute(DENSE, DeviceMesh(group), [Shard(0)], src=None)
                    ours = CALLS[name](made(OTHER), d)
                    assert sparse.issparse(ours) == sparse.issparse(found), name
                    np.testing.assert_array_equal(plain(ours), plain(found), name)

    world.run(ranks, program)
