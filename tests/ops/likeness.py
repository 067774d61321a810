"""Helpers for the tests of one family: drawn operands, and the same call in NumPy and here."""

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from distarray.comm import DeviceMesh
from distarray.config import config
from distarray.layout import Replicate, Shard
from distarray.testing import Recipe, array_values, assert_matches, mesh_shapes, recipes

LAYOUTS = ("plain", "view", "transposed", "ragged", "partial")


@dataclass(frozen=True)
class Operand:
    """An array and how it is laid out; at one coordinate of the first mesh dimension if `row`."""

    values: np.ndarray
    recipe: Recipe
    row: int | None = None

    def build(self, mesh):
        values = self.values.copy()
        if self.row is None:
            return self.recipe.build(values, mesh)
        rows = np.stack([values] * 4)
        placements = [Shard(0)] + [_shifted(p) for p in self.recipe.placements[1:]]
        return Recipe(tuple(placements)).build(rows, mesh)[self.row, ...]


def _shifted(placement):
    return Shard(placement.dim + 1) if isinstance(placement, Shard) else Replicate()


@dataclass(frozen=True)
class Case:
    """Ranks, a mesh and operands on it."""

    ranks: int
    mesh_shape: tuple
    operands: tuple
    large: bool


@st.composite
def operands(draw, mesh_shape, values=None, kinds=LAYOUTS, rows=True, **shape):
    """One operand of drawn (or given) values."""
    if values is None:
        values = draw(array_values(**shape))
    recipe = draw(recipes(values.shape, mesh_shape, values.dtype, kinds))
    row = draw(st.integers(0, 3)) if rows and draw(st.integers(0, 6)) == 0 else None
    return Operand(values, recipe, row)


@st.composite
def cases(draw, world, given=(None,), **keywords):
    """Cases of operands with these values, or drawn ones where None is given."""
    ranks = draw(st.sampled_from(world.ranks))
    mesh_shape = draw(mesh_shapes(ranks))
    found = tuple([draw(operands(mesh_shape, values, **keywords)) for values in given])
    return Case(ranks, mesh_shape, found, draw(st.booleans()))


def outcome(call):
    """What a call gives, or the exception that it raises."""
    try:
        return call()
    except Exception as error:
        let_through(error)
        return error


def let_through(error):
    """Raise what says that a GPU has no such data type: conftest leaves the example out."""
    if str(error).startswith("Unsupported dtype"):
        raise error


def outcome_by_order(call, operands):
    """As :func:`outcome`, with float32 in the place of float16: NumPy's sorts of it may be wrong.

    For calls that compare elements and give some of them.
    """
    if all(x.dtype != np.float16 for x in operands):
        return outcome(lambda: call(*operands))
    found = outcome(lambda: call(*[x.astype("f4") if x.dtype == "f2" else x for x in operands]))
    parts = found if isinstance(found, tuple) else (found,)
    back = [x.astype("f2") if getattr(x, "dtype", None) == "f4" else x for x in parts]
    return tuple(back) if isinstance(found, tuple) else back[0]


def check(world, case, call, exact=True, after=None, by_order=False):
    """Assert that ``call(*operands)`` gives what NumPy gives, and leaves its operands alone.

    `after(found, arrays)` looks at the results further. `by_order` says that the call only compares
    elements and gives some of them.
    """
    plain = [operand.values.copy() for operand in case.operands]
    expected = outcome_by_order(call, plain) if by_order else outcome(lambda: call(*plain))

    def program(group):
        mesh = DeviceMesh(group, case.mesh_shape)
        with config.override(replicate_below=0 if case.large else 2**18):
            arrays = [operand.build(mesh) for operand in case.operands]
            found = outcome(lambda: call(*arrays))
        if isinstance(expected, Exception):
            assert isinstance(found, type(expected)), (found, expected)
            return
        if isinstance(found, Exception):
            raise found
        assert_matches(found, expected, exact=exact)
        for array, operand in zip(arrays, case.operands, strict=True):
            assert_matches(array, operand.values)
        if after is not None:
            after(found, arrays)

    world.run(case.ranks, program)
    for values, operand in zip(plain, case.operands, strict=True):
        np.testing.assert_array_equal(values, operand.values)


def check_view(world, case, call):
    """The same for a call that gives a view, in NumPy and here: writing reaches the base."""
    check(world, case, call)
    (operand,) = case.operands
    plain = operand.values.copy()
    view = outcome(lambda: call(plain))
    if isinstance(view, (Exception, np.generic)):
        return
    mark = plain.dtype.type(77)
    view[...] = mark

    def program(group):
        mesh = DeviceMesh(group, case.mesh_shape)
        array = operand.build(mesh)
        call(array)[...] = mark
        assert_matches(array, plain)

    world.run(case.ranks, program)
