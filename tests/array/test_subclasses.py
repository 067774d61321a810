"""Subclasses of ndarray as NumPy's documentation shows them, over distributed arrays."""

import copy
import pickle

import numpy as np
import pytest

import distarray as da
import distarray.numpy as dnp
from distarray.config import config
from tests.everywhere import check_as_numpy

pytestmark = pytest.mark.host


def realistic(m):
    class RealisticInfoArray(m.ndarray):
        def __new__(cls, input_array, info=None):
            obj = m.asarray(input_array).view(cls)
            obj.info = info
            return obj

        def __array_finalize__(self, obj):
            if obj is not None:
                self.info = getattr(obj, "info", None)

    return RealisticInfoArray


def by_shape(m):
    class InfoArray(m.ndarray):
        def __new__(subtype, shape, dtype=float, info=None):
            obj = super().__new__(subtype, shape, dtype)
            obj.info = info
            return obj

        def __array_finalize__(self, obj):
            self.info = getattr(obj, "info", None)

    return InfoArray


def logged(m):
    """A class that wraps ufuncs, in the words of NumPy's documentation."""

    class A(m.ndarray):
        def __array_ufunc__(self, ufunc, method, *inputs, out=None, **kwargs):
            args = [x.view(m.ndarray) if isinstance(x, A) else x for x in inputs]
            if out:
                kwargs["out"] = tuple(x.view(m.ndarray) if isinstance(x, A) else x for x in out)
            found = super().__array_ufunc__(ufunc, method, *args, **kwargs)
            if found is NotImplemented or method == "at":
                return found
            made = m.asarray(found).view(A) if not out else out[0]
            made.info = [i for i, x in enumerate(inputs) if isinstance(x, A)]
            return made

    return A


def shared(m):
    y = m.zeros(12)
    s = realistic(m)(y, info="x")
    y[3] = 5
    s[10:] = 2
    return y, s.sum(), s.info, type(s).__name__, m.shares_memory(s, y)


def views(m):
    s = realistic(m)(m.arange(12.0), info="x")
    found = (s[2:5], s.reshape(3, 4), s.T, s[::2], s[None], s[[1, 2]], s[s > 4], s.view(), s.copy())
    return [(type(v).__name__, v.info, v) for v in found], s.view(m.ndarray)


def operations(m):
    s = realistic(m)(m.arange(1.0, 13), info="x")
    t = s.copy()
    t += s
    found = (s + 1, 1 + s, s * s, -s, m.sqrt(s), s < 3, t, m.add(s, 1, out=t), abs(s), s.round())
    return [(type(v).__name__, v.info, v) for v in found]


def functions(m):
    s = realistic(m)(m.arange(12.0).reshape(3, 4), info="x")
    found = [
        s.sum(axis=0), m.sum(s, axis=1), m.mean(s, axis=0), m.transpose(s), m.concatenate([s, s]),
        m.vstack([s, s]), m.roll(s, 1), m.where(s > 3, s, 0), m.zeros_like(s), m.sort(s, axis=0),
        m.broadcast_to(s, (2, 3, 4)), m.broadcast_to(s, (2, 3, 4), subok=True), m.asarray(s),
        m.asanyarray(s), m.array(s, subok=True), m.array(s), m.cumsum(s, axis=0), m.ravel(s),
    ]  # fmt: skip
    return [(type(v).__name__.replace("DistArray", "ndarray"), v) for v in found]


def attributes(m):
    s = realistic(m)(m.arange(12.0), info="x")
    s.shape = (3, 4)
    return s.shape, s.dtype, s.ndim, s.size, len(s), isinstance(s, m.ndarray), [*map(sum, s)]


def made(m):
    o = by_shape(m)((3,), info="information")
    o[:] = 1
    return o, o.info, o[1:].info, (o + 1).info


def wrapping(m):
    a = m.arange(5.0).view(logged(m))
    b, c = m.sin(a), a + m.ones(1).view(type(a))
    a += b
    return (b, b.info), (c, c.info), (a, a.info)


CALLS = {
    "shared memory": shared,
    "views": views,
    "operations": operations,
    "functions": functions,
    "attributes": attributes,
    "made by shape": made,
    "own ufuncs": wrapping,
    "printed": lambda m: repr(m.arange(3).view(realistic(m))),
    "copied": lambda m: (lambda s: (copy.deepcopy(s).info, copy.copy(s).info))(
        realistic(m)(m.arange(3), info="x")
    ),
    "error: a type that is none": lambda m: m.arange(3).view(realistic(m)).view(None, 3),
    "error: shape": lambda m: setattr(m.arange(3).view(realistic(m)), "shape", (2, 2)),
}


def plain(value):
    if isinstance(value, da.DistArray):
        value = np.asarray(value.full())
    if isinstance(value, (np.ndarray, np.generic)):
        return value.dtype, value.tolist()
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("limit", [0, 1 << 16])
def test_as_numpy(world, name, limit):
    check_as_numpy(world, CALLS[name], plain, limit)


class Named(dnp.ndarray):
    """A class that a pickle can name."""


def test_pickled(world):
    def program(group):
        with config.override(replicate_below=0):
            found = pickle.loads(pickle.dumps(dnp.arange(5).view(Named)))
            return type(found) is Named, plain(found)

    for ranks in world.ranks:
        assert all(found == (True, plain(np.arange(5))) for found in world.run(ranks, program))
