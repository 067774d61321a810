"""Calls of NumPy's own test suite that once came out otherwise here."""

import operator
from typing import NamedTuple

import numpy as np
import pytest
from numpy.lib import recfunctions

import distarray
import distarray.numpy as dnp
from distarray.config import config

A = np.arange(12.0).reshape(4, 3)
NUMBER, PAIR = np.zeros(()), np.zeros(2)
RECORDS = np.array([(1, 2.0), (3, 4.0), (5, 6.0)], [("a", int), ("b", float)])


class Quantity(np.ndarray):
    """A program's own kind of array."""


class Place(NamedTuple):
    """A program's own kind of tuple."""

    row: object
    column: object


def set_objects(np):
    x = cut(np, np.arange(5).astype(object))
    x[:4] = [1, (1, 2), 3, None]
    return x


def set_characters(np):
    x = cut(np, np.zeros((5, 2), "c").T)
    x[0] = "asdfg"
    return x


def cut(np, x):
    """The array, cut along its last dimension where it is distributed."""
    if np is not dnp:
        return x
    return x.redistribute(placements=[distarray.Shard(x.ndim - 1)])


def set_lists(np):
    x = cut(np, np.zeros((2, 2), object))
    x.flat[2] = (1, 2, 3)
    x.flat[-1] = [4]
    x.flat[0] = 5
    return x


def set_by_name(np):
    x = cut(np, np.array(A))
    x[Place(1, 2)] = -1.0
    x[Place([0, 3], [1, 1])] = -2.0
    np.add.at(x, Place(2, 0), 5.0)
    return x


def weighted(np, weights):
    """A quantile of each line, where the lines are cut, too."""
    values = cut(np, np.array(A.T[:, :3]))
    given = cut(np, np.array([weights, [0.5] * 3, [0.5] * 3]))
    with np.errstate(all="ignore"):  # NumPy's sum warns before it is refused
        return np.quantile(values, 0.5, weights=given, method="inverted_cdf", axis=1)


VALUES = {
    "records with gaps, resized": lambda np: np.resize(cut(np, np.array(RECORDS))[["b"]], (2, 1)),
    "order of an array of a list": lambda np: np.array([cut(np, np.array(A)).T]).flatten("K"),
    "order of an array of lists": lambda np: np.asarray(
        ([cut(np, np.array(A)).T],), order="A"
    ).ravel("K"),
    "a named tuple is an element": lambda np: cut(np, np.array(A))[Place(1, 2)],
    "a named tuple of lists": lambda np: cut(np, np.array(A))[Place([0, 3], [1, 2])],
    "named tuples assigned to": set_by_name,
    "a named tuple of axes": lambda np: cut(np, np.array(A)).sum(axis=Place(0, 1)),
    "a named shape": lambda np: cut(np, np.array(A)).reshape(Place(2, 6)),
    "texts added": lambda np: np.add.reduce(cut(np, np.array(["a", "b"], _TEXT)), initial="x"),
    "as texts of any length": lambda np: str(np.add.reduce(np.array(["a", "b"]), dtype=_TEXT)),
    "records alone": lambda np: recfunctions.merge_arrays(cut(np, np.array(RECORDS))),
    "records alone, stacked": lambda np: recfunctions.stack_arrays(cut(np, np.array(RECORDS))),
    "copy if needed": lambda np: np.array(np.array(A), copy=_MODE.IF_NEEDED, order="F"),
    "copy always": lambda np: np.array(np.array(A), copy=_MODE.ALWAYS),
    "objects into a cut array": set_objects,
    "lists by position": set_lists,
    "a text into characters": set_characters,
    "linspace of a subclass": lambda np: type(np.linspace(A[0].view(Quantity), 2)),
    "logspace of a subclass": lambda np: type(np.logspace(A[0].view(Quantity), 2)),
    "geomspace of a subclass": lambda np: type(np.geomspace(A[1].view(Quantity), 2)),
    "type ==": lambda np: [operator.eq(type(x), np.ndarray) for x in (np.array(A), A, 1)],
    "a table by types": lambda np: {np.ndarray: 1}.get(type(np.array(A))),
    "texts of nothing": lambda np: np.ndarray(4, dtype=_NOTHING).itemsize,
    "weights that sum to the largest number": lambda np: weighted(np, [_LARGEST, 1.0, 1.0]),
    "__array_function__": lambda np: np.array([1.0, 2.0]).__array_function__(
        np.sum, (np.ndarray,), (np.array([1.0, 2.0]),), {}
    ),
}
_MODE = np._CopyMode
_NOTHING = np.dtype("S0")
_LARGEST = np.finfo(float).max
_TEXT = np.dtypes.StringDType


ERRORS = {
    "@= that broadcasts": lambda np: np.array(A[:3]).__imatmul__(np.ones((3, 1))),
    "outer of many dimensions": lambda np: np.add.outer(
        np.ones((1,) * 33), np.array(np.ones((1,) * 33))
    ),
    "64 index arrays": lambda np: cut(np, np.ones((1,) * 63 + (5,)))[([0],) * 64],
    "64 masks": lambda np: cut(np, np.ones((1,) * 63 + (5,)))[(True,) * 64],
    "a class as a data type": lambda np: np.array(cut(np, np.ones(3)), dtype=np.dtype),
    "a class to cast to": lambda np: cut(np, np.ones(3)).astype(np.dtype),
    "another device": lambda np: setattr(np.arange(3), "device", "other"),
    "binary fromstring": lambda np: np.fromstring(b"1234", dtype="i4"),
    "mT": lambda np: np.arange(3).mT,
    "a shape that needs a copy": lambda np: setattr(np.array(A)[:, :2], "shape", (8,)),
    "no loop, out of another shape": lambda np: np.bitwise_xor(
        cut(np, np.ones(0)), cut(np, np.ones(0)), out=NUMBER
    ),
    "no loop for numbers, out of another shape": lambda np: np.heaviside(
        cut(np, np.ones(3)), 1j, out=PAIR
    ),
    "product into what is read-only": lambda np: np.matmul(
        "f4", np.ones(()), out=np.imag(np.ones(3))
    ),
    "__array_function__": lambda np: np.arange(3).__array_function__(np.sum, (), [1], {}),
}
if np.lib.NumpyVersion(np.__version__) >= "2.4.0":  # before, NumPy gives a number
    ERRORS |= {
        "weights whose sum is infinite": lambda np: weighted(np, [_LARGEST] * 3),
    }

#: Errors that say what NumPy's say.
ALIKE = {
    "no loop, out of another shape",
    "a class as a data type",
    "weights whose sum is infinite",
    "another device",
}


@pytest.mark.parametrize("name", VALUES)
def test_values(world, ranks, name):
    wanted = VALUES[name](np)
    with config.override(fallback="allow"):
        results = world.run(ranks, lambda group: _plain(VALUES[name](dnp)))
    for found in results:
        np.testing.assert_equal(found, _plain(wanted))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of shapes set in place, by NumPy 2.5
@pytest.mark.parametrize("name", ERRORS)
def test_errors(world, ranks, name):
    with pytest.raises((ValueError, IndexError, TypeError, AttributeError)) as wanted:
        ERRORS[name](np)

    def program(group):
        with pytest.raises(wanted.type) as found:
            ERRORS[name](dnp)
        if name in ALIKE:
            assert str(found.value) == str(wanted.value)

    world.run(ranks, program)


def test_text_into_a_text_file(tmp_path):
    with open(tmp_path / "numbers", "w") as file:
        file.write("# ")
        dnp.array([1.5, 2.0]).tofile(file, sep=",")
    assert (tmp_path / "numbers").read_text() == "# 1.5,2.0"


def _plain(value):
    return value.full() if isinstance(value, distarray.DistArray) else value
