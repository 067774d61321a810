"""Floating-point errors that NumPy is told to raise are raised on all ranks, or on none."""

import operator

import numpy as np
import pytest

import distarray.ops  # noqa: F401
from distarray import Replicate, Shard, distribute, forbid_communication, trace
from distarray.comm import DeviceMesh
from distarray.testing import assert_matches

ZERO_LAST = np.array([3.0, 1.0, -2.0, 5.0, 4.0, 0.0])
HUGE = np.array([1.0, 2.0, 3.0, 1e300, 5.0, 6.0])
FLAGS = np.array([1.0, np.nan, 3.0, 4.0, 5.0, 6.0])
COUNTS = np.array([1, 2, 3, 4, 0, 6])

CALLS = {
    "divide": lambda x, y: x / y,
    "scalar first": lambda x, y: 1 / y,
    "in place": operator.itruediv,
    "in place by a scalar": lambda x, y: operator.imul(x, 1e300),
    "power": lambda x, y: x**2,
    "power in place": lambda x, y: operator.ipow(x, 3),
    "ufunc": lambda x, y: np.exp(x),
    "unary": lambda x, y: np.log(y),
    "broadcast": lambda x, y: x / y[:, None],
    "moved": lambda x, y: x[1:] / y[:-1],
    "out": lambda x, y: np.divide(1.0, y, out=x),
    "where": lambda x, y: np.log(y, where=y < 1, out=x),
    "cast": lambda x, y: np.sqrt(-y).astype(int),
    "reduced": lambda x, y: np.multiply.reduce(x * 1e100),
    "summed": lambda x, y: (x * x).sum(),
    "scanned": lambda x, y: np.multiply.accumulate(x * 1e3),
    "several": lambda x, y: np.std(x),
    "contracted": lambda x, y: np.dot(x, x),
}


def outcome(call, x, y):
    """The result or the words of the error, and the operand after it."""
    try:
        with np.errstate(all="raise", under="ignore"):
            return call(x, y), None
    except FloatingPointError as error:
        return None, str(error)


@pytest.mark.parametrize("name", CALLS)
def test_all_ranks_raise_what_numpy_raises(world, ranks, name):
    for first in (HUGE, FLAGS):
        wanted, error = outcome(CALLS[name], first.copy(), ZERO_LAST.copy())

        def program(group, first=first, wanted=wanted, error=error):
            mesh = DeviceMesh(group, (ranks,))
            x, y = (distribute(v.copy(), mesh, [Shard(0)], src=None) for v in (first, ZERO_LAST))
            result, text = outcome(CALLS[name], x, y)
            assert (text is None) == (error is None), (text, error)
            if error is None:
                assert_matches(result, wanted)
            elif name not in ("reduced", "summed", "scanned", "contracted"):
                # NumPy's standard deviation multiplies or squares, as its versions please.
                words = slice(3 if name == "several" else None)
                assert text.split()[words] == error.split()[words]
            # Nobody has been left behind.
            assert int((x == x).sum()) == int((first == first).sum()) or error is not None

        world.run(ranks, program)


def test_integers_divided_by_zero(world, ranks):
    def program(group):
        x = distribute(COUNTS, DeviceMesh(group, (ranks,)), [Shard(0)], src=None)
        with (
            np.errstate(divide="raise"),
            pytest.raises(FloatingPointError, match="divide by zero encountered in floor_divide"),
        ):
            7 // x
        assert int(x.sum()) == 16

    world.run(ranks, program)


def test_what_is_assigned(world, ranks):
    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        target = distribute(np.zeros(6, int), mesh, [Shard(0)], src=None)
        values = distribute(FLAGS, mesh, [Shard(0)], src=None)
        for key in (slice(None), COUNTS < 9, np.arange(6)):
            with (
                np.errstate(invalid="raise"),
                pytest.raises(FloatingPointError, match="invalid value encountered in cast"),
            ):
                target[key] = values
        with np.errstate(invalid="raise"):
            target[2:] = values[2:]
        assert_matches(target[2:], FLAGS[2:].astype(int))

    world.run(ranks, program)


def test_the_kind_that_numpy_looks_for_first_is_told(world, ranks):
    top = np.array([0.0, 1.0, 1.0, 1.0, 1.0, 1.0])

    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        x, y = (distribute(v, mesh, [Shard(0)], src=None) for v in (top, top[::-1] * 0))
        with np.errstate(all="raise"), pytest.raises(FloatingPointError, match="divide by zero"):
            x / y
        with np.errstate(invalid="raise", divide="ignore"), pytest.raises(FloatingPointError) as e:
            x / y
        assert str(e.value) == "invalid value encountered in divide"

    world.run(ranks, program)


def test_other_modes_and_replicated_arrays_say_nothing(world, ranks):
    heard = []

    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        x, y = (distribute(v, mesh, [Shard(0)], src=None) for v in (HUGE, ZERO_LAST))
        with forbid_communication(), np.errstate(all="ignore"):
            x / y, x**2, x.astype(int)
        whole = distribute(ZERO_LAST, mesh, [Replicate()], src=None)
        with forbid_communication(), np.errstate(all="raise"):
            with pytest.raises(FloatingPointError, match="divide by zero encountered in divide"):
                1 / whole
            assert x.T.shape == np.shape(x) and x.real[1:].shape == (5,)
            assert np.broadcast_to(x, (2, 6)).shape == np.zeros_like(x[None].repeat(2, 0)).shape
            assert np.copy(x[:, None]).shape == (6, 1) == np.tile(x, 1)[:, None].shape
        with np.errstate(divide="raise", over="call", call=lambda kind, flag: heard.append(kind)):
            x * x
        with np.errstate(all="raise"), trace() as book:
            x + y
        assert len(book) == (ranks > 1)

    world.run(ranks, program)
    assert set(heard) == {"overflow"} or not heard
