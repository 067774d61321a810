"""Python objects beside cut numbers, and folds of numbers as objects: as NumPy computes them."""

from fractions import Fraction

import numpy as np
import pytest

import distarray
from distarray import DeviceMesh, Replicate, Shard
from distarray.config import config

pytestmark = pytest.mark.host

PRODUCTS = {
    "a @ i": lambda a, m, i, j: a @ i,
    "i @ a": lambda a, m, i, j: i @ a,
    "m @ j": lambda a, m, i, j: m @ j.T,
    "j @ m": lambda a, m, i, j: j @ m.T,
    "dot": lambda a, m, i, j: np.dot(i, a),
    "vdot": lambda a, m, i, j: np.vdot(a, i),
    "einsum": lambda a, m, i, j: np.einsum("ij,kj->ik", m, j),
    "inner": lambda a, m, i, j: np.inner(j, m),
    "outer": lambda a, m, i, j: np.outer(i, a),
    "tensordot": lambda a, m, i, j: np.tensordot(j, m.T, 1),
    "kron": lambda a, m, i, j: np.kron(i[:2], a[:3]),
    "vecdot": lambda a, m, i, j: np.vecdot(m, j),
    "convolve": lambda a, m, i, j: np.convolve(a, i),
    "of cast numbers": lambda a, m, i, j: i.astype(object) @ i.astype(object),
    "average": lambda a, m, i, j: np.average(a, weights=i + 1),
    "weights": lambda a, m, i, j: np.average(i, weights=a),
}
FOLDS = {
    "sum": lambda a, m, i, j: np.sum(j, dtype=object),
    "prod": lambda a, m, i, j: np.prod(i + 10**6, dtype=object),
    "axis": lambda a, m, i, j: np.add.reduce(j, axis=0, dtype=object),
    "cumsum": lambda a, m, i, j: np.cumsum(i, dtype=object),
    "out": lambda a, m, i, j: np.sum(a, initial=Fraction(1, 7)),
    "subtract": lambda a, m, i, j: np.subtract.reduce(a),
}


def fractions(shape):
    made = np.array([Fraction(n + 1, n + 2) for n in range(int(np.prod(shape)))], object)
    return made.reshape(shape)


@pytest.mark.parametrize("name", [*PRODUCTS, *FOLDS])
def test_as_numpy(world, ranks, name):
    call = (PRODUCTS | FOLDS)[name]
    values = fractions((7,)), fractions((3, 5)), np.arange(7), np.arange(15).reshape(3, 5)
    wanted = call(*values)

    def program(group):
        mesh = DeviceMesh(group)
        with config.override(replicate_below=0, fallback="allow"):
            ours = [
                distarray.distribute(
                    x, mesh, [Replicate() if x.dtype.hasobject else Shard(0)], src=None
                )
                for x in values
            ]
            found = call(*ours)
            whole = found.full() if hasattr(found, "full") else found
            assert np.shape(whole) == np.shape(wanted)
            assert np.asarray(whole, object).tolist() == np.asarray(wanted, object).tolist()

    world.run(ranks, program)
