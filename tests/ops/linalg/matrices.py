"""Matrices for the tests of linear algebra, and ways to treat them."""

from contextlib import contextmanager, nullcontext

import numpy as np
from hypothesis import strategies as st

from distarray import DeviceMesh
from distarray.engines.factoring import cyclic, hermitian, lu
from distarray.engines.factoring import divide_and_conquer as divide
from distarray.ops.linalg import spectra, square
from distarray.testing import mesh_shapes, recipes

#: Sides of square matrices: none, one, fewer than ranks, and with panels of every length.
SIDES = (0, 1, 2, 3, 5, 8, 13, 21)
KINDS = ("plain", "view", "transposed", "ragged")


def well(n, dtype="f8", seed=0, stack=()):
    """Matrices far from singular, whose first pivots are not on the diagonal."""
    rng = np.random.default_rng([seed, n])
    values = rng.integers(-3, 4, (*stack, n, n)).astype(dtype)
    if np.dtype(dtype).kind == "c":
        values += (1j * rng.integers(-3, 4, values.shape)).astype(dtype)
    shift = np.roll(np.eye(n), 1, axis=0) * (4 * n + 1)
    return (values + shift).astype(dtype)


def positive(n, dtype="f8", seed=0, stack=()):
    """Hermitian positive definite matrices."""
    a = well(n, dtype, seed, stack)
    return (a @ np.conjugate(np.swapaxes(a, -1, -2)) + np.eye(n)).astype(dtype)


def rounding(dtype):
    """Tolerances of a comparison in a data type."""
    single = np.dtype(dtype).char in "fF"
    return {"rtol": 2e-4 if single else 1e-9, "atol": 2e-4 if single else 1e-9}


@contextmanager
def blocked():
    """Every matrix is large; panels are narrow, and the ranks share whatever can be shared."""
    changes = [
        (square, "BLOCKED_FROM", 1),
        (spectra, "HERMITIAN_FROM", 1),
        (cyclic, "PANEL", 3),
        (lu, "FEW", 4),
        (hermitian, "WIDTH", 3),
        (divide, "SHARED_FROM", 4),
        (divide, "LEAF", 5),
    ]
    before = [(module, name, getattr(module, name)) for module, name, _ in changes]
    for module, name, value in changes:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


@st.composite
def placed(draw, world, *shapes, kinds=KINDS):
    """A number of ranks, the shape of a mesh of them, and a recipe for each shape."""
    ranks = draw(st.sampled_from(world.ranks))
    mesh_shape = draw(mesh_shapes(ranks))
    return ranks, mesh_shape, [draw(recipes(shape, mesh_shape, "f8", kinds)) for shape in shapes]


def run(world, drawn, values, check, large=False):
    """Call ``check(*arrays)`` on the values, laid out as drawn; in blocks if `large`."""
    ranks, mesh_shape, ways = drawn

    def program(group):
        mesh = DeviceMesh(group, mesh_shape)
        return check(*[way.build(v, mesh) for way, v in zip(ways, values, strict=True)])

    with blocked() if large else nullcontext():
        return world.run(ranks, program)
