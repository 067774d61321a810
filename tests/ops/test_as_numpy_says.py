"""Calls of NumPy's own test suite that once came out otherwise here."""

import operator

import numpy as np
import pytest

import distarray
import distarray.numpy as dnp

A = np.arange(12.0).reshape(4, 3)


class Quantity(np.ndarray):
    """A program's own kind of array."""


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


VALUES = {
    "copy if needed": lambda np: np.array(np.array(A), copy=_MODE.IF_NEEDED, order="F"),
    "copy always": lambda np: np.array(np.array(A), copy=_MODE.ALWAYS),
    "objects into a cut array": set_objects,
    "a text into characters": set_characters,
    "linspace of a subclass": lambda np: type(np.linspace(A[0].view(Quantity), 2)),
    "logspace of a subclass": lambda np: type(np.logspace(A[0].view(Quantity), 2)),
    "geomspace of a subclass": lambda np: type(np.geomspace(A[1].view(Quantity), 2)),
    "type ==": lambda np: [operator.eq(type(x), np.ndarray) for x in (np.array(A), A, 1)],
    "a table by types": lambda np: {np.ndarray: 1}.get(type(np.array(A))),
    "__array_function__": lambda np: np.array([1.0, 2.0]).__array_function__(
        np.sum, (np.ndarray,), (np.array([1.0, 2.0]),), {}
    ),
}
_MODE = np._CopyMode

ERRORS = {
    "@= that broadcasts": lambda np: np.array(A[:3]).__imatmul__(np.ones((3, 1))),
    "outer of many dimensions": lambda np: np.add.outer(
        np.ones((1,) * 33), np.array(np.ones((1,) * 33))
    ),
    "64 index arrays": lambda np: cut(np, np.ones((1,) * 63 + (5,)))[([0],) * 64],
    "64 masks": lambda np: cut(np, np.ones((1,) * 63 + (5,)))[(True,) * 64],
    "binary fromstring": lambda np: np.fromstring(b"1234", dtype="i4"),
    "mT": lambda np: np.arange(3).mT,
    "__array_function__": lambda np: np.arange(3).__array_function__(np.sum, (), [1], {}),
}


@pytest.mark.parametrize("name", VALUES)
def test_values(world, ranks, name):
    wanted = VALUES[name](np)
    for found in world.run(ranks, lambda group: _plain(VALUES[name](dnp))):
        np.testing.assert_equal(found, _plain(wanted))


@pytest.mark.parametrize("name", ERRORS)
def test_errors(world, ranks, name):
    with pytest.raises((ValueError, IndexError, TypeError)) as wanted:
        ERRORS[name](np)

    def program(group):
        with pytest.raises(wanted.type):
            ERRORS[name](dnp)

    world.run(ranks, program)


def test_text_into_a_text_file(tmp_path):
    with open(tmp_path / "numbers", "w") as file:
        file.write("# ")
        dnp.array([1.5, 2.0]).tofile(file, sep=",")
    assert (tmp_path / "numbers").read_text() == "# 1.5,2.0"


def _plain(value):
    return value.full() if isinstance(value, distarray.DistArray) else value
