"""The ways in C harm no memory, whatever a program does to arrays, types and settings meanwhile."""

import gc
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from distarray.array import DistArray, distribute, speedups
from distarray.array.speedups import compiled
from distarray.comm import DeviceMesh
from distarray.config import config
from tests.waiting import nothing_is_watched

pytestmark = [
    pytest.mark.host,
    pytest.mark.skipif(not speedups.is_built, reason="built without a compiler"),
    pytest.mark.skipif(speedups.is_built and speedups.used is None, reason="switched off"),
]

CALLS = {
    "item": lambda x: x[1],
    "rows": lambda x: x[1:, ::2],
    "set": lambda x: x.__setitem__(0, 1.0),
    "add": lambda x: x + x,
    "number": lambda x: 2.5 * x,
    "equal": lambda x: x == x,
    "power": lambda x: x**3,
    "negative": lambda x: -x,
    "in place": lambda x: x.__iadd__(1.0),
    "product": lambda x: x @ x.T,
    "method": lambda x: x.sum(),
    "function": lambda x: np.sum(x, axis=0),
    "ufunc": np.sqrt,
}


@pytest.fixture
def x():
    mesh = DeviceMesh(ranks=[0])
    if mesh.coords is None:
        pytest.skip("on rank 0")
    with nothing_is_watched():
        yield distribute(np.arange(12.0).reshape(3, 4), mesh, src=None)


def failure(call, *args):
    """The exception of a call; None if there is none."""
    try:
        call(*args)
    except Exception as error:
        return error
    return None


@pytest.mark.parametrize("value", [None, 5, "a", np.arange(3.0), object, ()], ids=repr)
@pytest.mark.parametrize("name", ["layout", "mesh", "block"])
@pytest.mark.parametrize("call", CALLS)
def test_attributes_of_other_types(x, call, name, value):
    setattr(x, name, value)
    error = failure(CALLS[call], x)
    assert not isinstance(error, SystemError)


@pytest.mark.parametrize("name", ["layout", "mesh", "block"])
@pytest.mark.parametrize("call", CALLS)
def test_attributes_that_are_deleted(x, call, name):
    delattr(x, name)
    error = failure(CALLS[call], x)  # some calls need no mesh
    assert isinstance(error, (AttributeError, TypeError)) or (name == "mesh" and error is None)


class Emptying:
    """An index that deletes what an array is made of, when it is asked."""

    def __init__(self, x):
        self.x = x

    def __index__(self):
        for name in ("block", "layout", "mesh"):
            if hasattr(self.x, name):
                delattr(self.x, name)
        gc.collect()
        return 0


def test_an_index_that_empties_the_array(x):
    part = x[slice(Emptying(x), 2), 1]
    assert part.full().tolist() == [1.0, 5.0]
    assert isinstance(failure(lambda: x.shape), AttributeError)


def test_an_index_that_empties_what_is_written(x):
    block = x.block
    x[slice(Emptying(x), 2)] = -1.0
    assert (block[:2] == -1).all() and block[2, 0] == 8


WARNING = {
    "ufunc": lambda x: np.sqrt(x).to_local(),
    "power": lambda x: x**0.5,
    "operator": lambda x: (x / 0).to_local(),
    "in place": lambda x: x.__itruediv__(0),
    "function": lambda x: np.cumprod(x, axis=0),
    "method": lambda x: x.prod(axis=1),
    "product": lambda x: x @ x.T,
}


@pytest.mark.filterwarnings("always")
@pytest.mark.parametrize("call", WARNING)
def test_a_warning_that_empties_the_array(x, call, monkeypatch):
    """Floating-point errors are told to a program's function in the midst of a call."""
    x[...] = -1e200
    asked = []
    monkeypatch.setattr(warnings, "showwarning", lambda *_: asked.append(Emptying(x).__index__()))
    error = failure(WARNING[call], x)
    assert asked
    assert not isinstance(error, SystemError)


class Running(type):
    """A metaclass that empties the array when types are hashed or compared."""

    x = None

    def __hash__(cls):
        if Running.x is not None:
            Emptying(Running.x).__index__()
        return hash(float)

    def __eq__(cls, other):
        hash(cls)
        return False


class Float(metaclass=Running):
    def __array__(self, dtype=None, copy=None):
        return np.array(2.5)


WITH = {
    "operator": lambda x, y: x + y,
    "reflected": lambda x, y: y - x,
    "in place": lambda x, y: x.__iadd__(y),
    "equal": lambda x, y: x == y,
    "item": lambda x, y: x[y],
    "set": lambda x, y: x.__setitem__(0, y),
    "method": lambda x, y: x.sum(y),
    "function": lambda x, y: np.sum(x, axis=y),
    "ufunc": np.add,
}


@pytest.mark.parametrize("call", WITH)
def test_a_metaclass_that_runs_something(x, call):
    Running.x = x
    try:
        error = failure(WITH[call], x, Float())
    finally:
        Running.x = None
    assert not isinstance(error, SystemError)


@pytest.mark.parametrize("value", [2**70, -(2**70), 0.5, float("inf")])
def test_settings_that_are_no_sizes(x, value):
    with config.override(replicate_below=value):
        for call in (lambda: x.sum(axis=0), lambda: x @ x.T, lambda: np.cumsum(x), lambda: x[1]):
            assert failure(call) is None


def test_broadcast_arrays_larger_than_any_memory(x):
    vast = np.broadcast_to(True, (2**31, 2**31))
    assert isinstance(failure(np.dot, x, vast), ValueError)
    assert isinstance(failure(np.dot, x.T, np.broadcast_to(True, (5, 2**60))), ValueError)


def test_a_dictionary_that_a_call_changes(x, monkeypatch):
    """Named arguments of a call of NumPy's protocol, in a dictionary that the program keeps."""
    named = {"axis": 0, "out": distribute(np.zeros(4), x.mesh, src=None)}
    monkeypatch.setattr(warnings, "showwarning", lambda *_: named.clear())
    x[...] = 1e200
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        found = DistArray.__array_function__(x, np.prod, (DistArray,), (x,), named)
    assert not named and found.full().tolist() == [np.inf] * 4


def test_calls_without_arguments():
    for name in ("__pow__", "__add__", "__getitem__", "__array_ufunc__", "sum"):
        with pytest.raises(TypeError):
            getattr(DistArray, name)()


def test_a_ufunc_that_cannot_be_hashed(x):
    for name in ("__array_ufunc__", "__array_function__"):
        error = failure(getattr(DistArray, name), x, [], "__call__", (x,), {})
        assert not isinstance(error, SystemError)
    error = failure(DistArray.__array_function__, x, np.sum, (DistArray,), (x,), {1: 2})
    assert isinstance(error, TypeError)


def test_ways_go_with_their_class():
    """A class whose ways were garbage would be kept for ever."""
    kind = type(DistArray.__getitem__)

    gone = []

    def make():
        class Holder:
            def method(self):
                return Holder

            way = kind("unary", method, np.negative)
            token = type("Token", (), {"__del__": lambda self: gone.append(1)})()

        Holder.way.noted = Holder

    make()
    gc.collect()
    assert gone


class TestSteps:
    """Operations that are run together trust neither arrays nor numbers."""

    def steps(self, *constants, numbers=(0, 1, 2), buffers=(8,), between=(-1, -1, -1)):
        capsule, _ = compiled._loop(np.add, (np.dtype(float),) * 2, np.dtype(float))
        return speedups.used.Steps(((capsule, numbers),), constants, between, buffers)

    def test_what_is_run(self):
        out = np.empty(3)
        assert self.steps().run([np.ones(3), np.ones(3), out]) == []
        assert out.tolist() == [2, 2, 2]

    @pytest.mark.parametrize(
        "given",
        [
            {"numbers": ()},
            {"numbers": (0, 1, 9)},
            {"numbers": (0, -1, 2)},
            {"numbers": ("a", 1, 2)},
            {"numbers": (0, 2**80, 2)},
            {"buffers": (-8,)},
            {"buffers": (2**62,)},
            {"buffers": ("a",)},
            {"buffers": (4,), "between": (-1, 0, -1)},
            {"between": (-1, 7, -1)},
            {"between": (-1, "a", -1)},
            {"between": ()},
        ],
        ids=str,
    )
    def test_what_cannot_be_made(self, given):
        with pytest.raises((TypeError, ValueError, IndexError, OverflowError)):
            self.steps(**given)

    @pytest.mark.parametrize("constant", [np.zeros(2), np.float32(1), np.array(1, "f4"), 1.0])
    def test_what_is_no_constant(self, constant):
        with pytest.raises(TypeError):
            self.steps(constant, numbers=(0, -1, 2))

    def test_a_constant_is_not_written(self):
        with pytest.raises(TypeError):
            self.steps(np.array(1.0), numbers=(0, 1, -1))

    def test_what_cannot_be_taken(self):
        steps, line, fixed = self.steps(), np.ones(3), np.ones(3)
        fixed.flags.writeable = False
        odd = np.empty(25, np.uint8)[1:].view(float)
        for wrong in (line.astype("f4"), line.astype(">f8"), odd, fixed, line[:2], 1.0, None):
            with pytest.raises((TypeError, ValueError)):
                steps.run([line, line, wrong])
        with pytest.raises(TypeError):
            steps.run([line, line])
        assert steps.run([fixed, line, line]) == []

    def test_one_thread_at_a_time(self):
        """Each run has all of the places; of two at once one is refused."""
        steps, million = self.steps(), np.ones(1_000_000)

        def run(_):
            out = np.zeros_like(million)
            error = failure(steps.run, [million, million, out])
            assert isinstance(error, RuntimeError) or (out == 2).all()

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(run, range(60)))
