"""The short ways in C: each gives what the method gives in whose place it stands."""

import gc
import subprocess
import sys
import sysconfig
from itertools import product

import numpy as np
import pytest

import distarray.numpy
from distarray.array import DistArray, distribute, speedups
from distarray.comm import DeviceMesh
from distarray.config import config
from distarray.layout import Partial, Replicate, Shard
from tests.launcher import environment
from tests.waiting import nothing_is_watched

pytestmark = [
    pytest.mark.host,
    pytest.mark.skipif(not speedups.is_built, reason="built without a compiler"),
    pytest.mark.skipif(speedups.is_built and speedups.used is None, reason="switched off"),
]

KIND = type(DistArray.__getitem__)
WAYS = {name: way for name in dir(DistArray) if type(way := getattr(DistArray, name)) is KIND}
_ARITHMETIC = "add sub mul truediv floordiv mod lshift rshift and or xor"
_OTHERS = "lt le gt ge eq ne pow matmul"
BINARY = [f"__{name}__" for name in f"{_ARITHMETIC} {_OTHERS}".split()]
BINARY += [f"__{letter}{name}__" for letter in "ri" for name in _ARITHMETIC.split()]
METHODS = {
    "reshape": [((-1,), {}), (((2, -1),), {}), ((5,), {}), ((3, 4), {"order": "F"})],
    "sum": [((), {}), ((0,), {}), ((), {"axis": 1, "keepdims": True}), ((), {"axis": 7})],
    "mean": [((), {}), ((), {"axis": 0, "dtype": "f4"})],
    "max": [((), {}), ((0,), {"initial": 3})],
    "any": [((), {}), ((0,), {})],
    "argsort": [((), {}), ((), {"kind": "stable"})],
    "astype": [((float,), {}), (("i2",), {}), ((np.dtype("f8"),), {"copy": False})],
    "clip": [((0, 2), {}), ((), {"max": 1})],
    "transpose": [((), {}), ((1, 0), {}), (((1, 0),), {})],
    "copy": [((), {}), (("F",), {})],
    "take": [(([0, 1],), {}), ((0,), {"axis": 0})],
    "nonzero": [((), {})],
    "cumsum": [((), {}), ((0,), {})],
    "squeeze": [((), {})],
    "round": [((1,), {})],
    "searchsorted": [((2,), {})],
}
KEYS = [
    *(0, -1, 9, np.int64(1), slice(1, None), slice(None, None, -1), None, Ellipsis, ()),
    *((0, 1), (slice(1, 3), 0), (Ellipsis, -1), (None, 0, slice(None)), (0, 9), (0, 0, 0)),
    *(True, [0, 1], np.array([1, 0]), "a", 1.5, (0, [1, 0]), slice("a", None)),
]
NUMBERS = [2, -1, 2.5, True, 1j, np.float32(2), np.int64(3), np.float16(1), 2**70, 0, 0.5]
OTHERS = [None, "a", [1.0, 2.0], np.arange(4.0), np.array(2.0), np.datetime64("2020")]


def operands(meshes):
    """Arrays of many types, shapes and layouts."""
    mesh, elsewhere = meshes
    plane, line = np.arange(12.0).reshape(3, 4), np.array([3.0, -1.0, 2.5, 0.5])
    whole = [
        *(plane, line, plane[:, :1], plane[1:, ::2], plane[:0], np.array([5.0]), np.array(3.0)),
        *(plane.astype(int), plane > 4, line.astype("f2"), line * 1j, plane.astype("g")),
        *(line.astype(">f8"), line.astype("U3"), line.astype(object), line.astype("M8[D]")),
        *(line.astype("m8[s]"), np.zeros(4, "i4,f8"), np.arange(4, dtype="u1")),
    ]
    found = [distribute(x.copy(), mesh, [Replicate()], src=None) for x in whole]
    locked = distribute(plane.copy(), mesh, [Replicate()], src=None)
    locked.flags.writeable = False
    cut = [distribute(x.copy(), mesh, [Shard(0)], src=None) for x in (plane, line, plane > 4)]
    pending = DistArray.from_local(line.copy(), mesh, [Partial("sum")])
    number = distarray.numpy.asarray(np.float64(2.0), mesh=mesh)
    single = distribute(line.copy(), elsewhere, src=None)
    return [*found, locked, *cut, pending, number, single, found[0][1:], found[0].T]


def outcome(call):
    try:
        return call()
    except Exception as error:
        return type(error), str(error)


def described(x):
    """What is to be equal: type, layout, mesh, and the bits here."""
    if isinstance(x, DistArray):
        padded = x.block.dtype.hasobject or x.block.dtype.char in "gG"
        bits = repr(np.asarray(x.block).tolist()) if padded else x.block.tobytes()
        flags = getattr(x.block, "flags", None)
        order = flags and (flags.c_contiguous, flags.f_contiguous, flags.writeable)
        return type(x), type(x.block), x.layout, id(x.mesh), x.block.dtype, bits, order
    if isinstance(x, np.ndarray):
        return x.shape, x.dtype, x.tolist()
    if isinstance(x, (tuple, list)):
        return type(x), [described(part) for part in x]
    return type(x), repr(x)


def assert_alike(name, make):
    """A way and its method, called with operands of their own; they are looked at afterwards."""
    found, wanted = [], []
    for act, seen in ((WAYS[name], found), (WAYS[name].__wrapped__, wanted)):
        args, kwargs = make()
        result = outcome(lambda act=act, args=args, kwargs=kwargs: act(*args, **kwargs))
        mine = [i for i, x in enumerate(args) if x is result]
        seen += [described(result), mine, [described(x) for x in args if isinstance(x, DistArray)]]
    assert found == wanted, (name, make()[0])


@pytest.fixture(autouse=True)
def _short_ways(recwarn):
    with nothing_is_watched():
        yield


def on_one(program):
    """Run a program with two meshes of one rank, on which a way may send what another does not."""
    meshes = DeviceMesh(ranks=[0]), DeviceMesh(ranks=[0])
    if meshes[0].coords is not None:
        with np.errstate(all="ignore"):
            program(meshes)


def test_every_way_is_tried():
    tried = {*BINARY, *METHODS, "__getitem__", "__setitem__", "__array_ufunc__"}
    tried |= {"__array_function__", "__neg__", "__pos__", "__abs__", "__invert__"}
    alike = "ravel flatten swapaxes diagonal prod min all std var argmax argmin cumprod trace"
    assert set(WAYS) - tried <= {*alike.split()}
    assert tried <= set(WAYS)


@pytest.mark.parametrize("name", BINARY)
def test_operators(name):
    def program(meshes):
        count = len(operands(meshes))
        for i in range(count):
            for other in [*NUMBERS, *OTHERS]:
                assert_alike(name, lambda i=i, other=other: ((operands(meshes)[i], other), {}))
        for i, j in product(range(count), repeat=2):

            def make(i=i, j=j):
                arrays = operands(meshes)
                return (arrays[i], arrays[j]), {}

            assert_alike(name, make)

    on_one(program)


@pytest.mark.parametrize("name", ["__neg__", "__pos__", "__abs__", "__invert__"])
def test_operators_of_one(name):
    def program(meshes):
        for i in range(len(operands(meshes))):
            assert_alike(name, lambda i=i: ((operands(meshes)[i],), {}))

    on_one(program)


@pytest.mark.parametrize("number", range(len(KEYS)))
def test_indexing(number):
    def program(meshes):
        key = KEYS[number]
        for i in range(len(operands(meshes))):
            assert_alike("__getitem__", lambda i=i: ((operands(meshes)[i], key), {}))
            for value in [2, 2.5, np.float32(1), np.arange(4.0), [1, 2], "b", None]:

                def set_item(i=i, value=value):
                    return (operands(meshes)[i], key, value), {}

                assert_alike("__setitem__", set_item)

            def make(i=i):
                arrays = operands(meshes)
                return (arrays[i], key, arrays[1]), {}

            assert_alike("__setitem__", make)

    on_one(program)


@pytest.mark.parametrize("name", METHODS)
def test_methods(name):
    def program(meshes):
        for i, (args, kwargs) in product(range(len(operands(meshes))), METHODS[name]):
            assert_alike(name, lambda i=i, a=args, k=kwargs: ((operands(meshes)[i], *a), k))

    on_one(program)


UFUNCS = [np.sqrt, np.add, np.maximum, np.divmod, np.power, np.logical_and, np.matmul, np.isnan]


@pytest.mark.parametrize("ufunc", UFUNCS, ids=lambda ufunc: ufunc.__name__)
def test_ufuncs(ufunc):
    def program(meshes):
        count = len(operands(meshes))
        others = [lambda _, other=other: other for other in NUMBERS + OTHERS]
        others += [lambda arrays, j=j: arrays[j] for j in range(count)]
        for i, other in product(range(count), others):

            def make(turned, i=i, other=other):
                arrays = operands(meshes)
                x, y = arrays[i], other(arrays)
                inputs = ((y, x) if turned else (x, y))[: ufunc.nin]
                return (x, ufunc, "__call__", *inputs), {}

            assert_alike("__array_ufunc__", lambda: make(False))
            assert_alike("__array_ufunc__", lambda: make(True))

    on_one(program)


CALLS = {
    "dot": lambda x, y: (np.dot, (x, y), {}),
    "where": lambda x, y: (np.where, (x, 0, y), {}),
    "sum": lambda x, y: (np.sum, (x,), {"axis": 0}),
    # NumPy 2.4 itself ends with a segmentation fault where this `out` has no dimension.
    "out": lambda x, y: (np.cumsum, (x,), {"axis": 0, "out": y if y.ndim else None}),
    "outer": lambda x, y: (np.outer, (x, y), {}),
    "roll": lambda x, y: (np.roll, (x, 1), {"axis": 0}),
    "join": lambda x, y: (np.concatenate, ((x, y),), {}),
    "put": lambda x, y: (np.put, (x, 1, 2), {}),
    "split": lambda x, y: (np.array_split, (x, 2), {}),
    "like": lambda x, y: (np.zeros_like, (x,), {"dtype": int}),
    "placed": lambda x, y: (np.zeros_like, (x,), {"placements": [Replicate()]}),
    "clip": lambda x, y: (np.clip, (x, 1, y), {}),
    "beside NumPy's": lambda x, y: (np.dot, (np.arange(4.0), x), {}),
    "no function of NumPy's": lambda x, y: (np.array_repr, (x,), {}),
    "of too much": lambda x, y: (np.einsum, ("i,j", x, y), {}),
}


@pytest.mark.parametrize("name", CALLS)
def test_functions(name):
    def program(meshes):
        count = len(operands(meshes))
        for i, j in product(range(count), repeat=2):

            def make(i=i, j=j):
                arrays = operands(meshes)
                x = arrays[i]
                function, args, kwargs = CALLS[name](x, arrays[j])
                return (x, function, (DistArray,), args, kwargs), {}

            assert_alike("__array_function__", make)

    on_one(program)


@pytest.mark.parametrize(
    "settings", [{"reproducible": True}, {"replicate_below": 40}, {"fuse": "off"}], ids=str
)
def test_settings_hold(settings):
    def program(meshes):
        with config.override(**settings):
            for i in range(len(operands(meshes))):
                for name in ("sum", "copy", "cumsum", "argmax", "__neg__"):
                    assert_alike(name, lambda i=i: ((operands(meshes)[i],), {}))

                def make(i=i):
                    arrays = operands(meshes)
                    return (arrays[i], arrays[1]), {}

                assert_alike("__matmul__", make)

    on_one(program)


def test_calls_that_no_operator_makes():
    x = distribute(np.arange(4.0), DeviceMesh(ranks=[0]), src=None)
    wrong = {"__getitem__": (), "__add__": (1, 2), "__neg__": (1,), "sum": (9,) * 20}
    for name, args in wrong.items():
        with pytest.raises((TypeError, ValueError)):
            WAYS[name](x, *args)
        with pytest.raises(TypeError):
            WAYS[name]()
    assert x.__getitem__(key=1) == 1.0
    assert DistArray.sum.__name__ == "sum" and "numpy.sum" in DistArray.sum.__doc__
    assert x.sum.__self__ is x
    with pytest.raises(ValueError, match="no way is called"):
        KIND("nowhere", len)


def test_a_key_that_changes_the_array():
    """A program's own index may write to the array, or give it another shape, when it is asked."""

    class Changing:
        def __index__(self):
            x.shape = (6, 2)
            gc.collect()
            return 0

    mesh = DeviceMesh(ranks=[0])
    if mesh.coords is not None:
        x = distribute(np.arange(12.0).reshape(3, 4), mesh, src=None)
        part = x[slice(Changing(), None)]
        assert part.shape == (3, 4) and part.full()[0, 1] == 1.0
        x = distribute(np.arange(12.0).reshape(3, 4), mesh, src=None)
        x[slice(Changing(), 1)] = -1.0
        assert (x.full().ravel()[:4] == -1).all()


def test_references_are_given_back():
    mesh = DeviceMesh(ranks=[0])
    if mesh.coords is None:
        return
    x, y = (distribute(np.arange(n).reshape(-1, 4) + 0.5, mesh, src=None) for n in (12, 4))
    wrong = distribute(np.arange(3.0), mesh, src=None)
    calls = [
        *(lambda: x[1], lambda: x[1:, ::2], lambda: x[1, 1], lambda: x[9], lambda: x["a"]),
        *(lambda: x.__setitem__(1, 2.0), lambda: x.__setitem__(1, wrong), lambda: x + x),
        *(lambda: x + y, lambda: x + 1.5, lambda: 1.5 - x, lambda: x + wrong, lambda: x == x),
        *(lambda: x & x, lambda: x**2, lambda: -x, x.sum, lambda: x.sum(axis=5)),
        *(x.copy, lambda: x @ y[0], lambda: x @ wrong, lambda: np.dot(x, y[0])),
        *(lambda: np.where(x, 0, y), lambda: np.cumsum(x, axis=0), lambda: np.sqrt(x)),
        *(lambda: np.maximum(x, 1), lambda: np.nonzero(x), lambda: np.sum(x, axis=0, out=y[0])),
        *(lambda: x.__iadd__(1.0), lambda: x.__iadd__(wrong), lambda: np.clip(x, 1, a_max=y)),
    ]
    held = [x, y, wrong, x.block, y.block, mesh, x.layout, y.layout, x[0].layout, 1.5, "a"]

    def counts():
        for call in calls:
            for _ in range(20):
                outcome(call)
        gc.collect()
        return [sys.getrefcount(each) for each in held]

    with np.errstate(all="ignore"):
        counts()
        before = counts()
        after = counts()
    assert max(abs(a - b) for a, b in zip(before, after, strict=True)) < 20


def test_another_interpreter_gets_the_same(own_processes):
    """Without the ways a program gives the same; the setting says which are used."""
    code = (
        "import distarray.numpy as np; from distarray.array import speedups;"
        "x = np.arange(12.0).reshape(3, 4); x[1] += x[0] * 2; print(x.tolist(), speedups.used)"
    )
    outputs = []
    for value in ("1", "0"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=environment() | {"DISTARRAY_SPEEDUPS": value},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout.split("]]"))
    assert outputs[0][0] == outputs[1][0]
    assert "module" in outputs[0][1] and "None" in outputs[1][1]


def test_the_lock_is_there():
    assert not sysconfig.get_config_var("Py_GIL_DISABLED")
