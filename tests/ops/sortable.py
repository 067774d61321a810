"""Values with what sorting is about: ties, zeros of both signs, NaN and NaT, text, fields."""

import numpy as np
from hypothesis import strategies as st

from distarray.config import config
from distarray.testing import mesh_shapes, shapes

from . import likeness
from .likeness import Case, operands

NUMBERS = ("f8", "i8", "i4", "c16", "?", "f4", "u1", "f2", "g", "u8")
OTHERS = ("S3", "U2", "M8[s]", "m8[ns]", ">f8", ">i4")
RECORD = np.dtype([("a", "i2"), ("b", "f8"), ("c", "S2")])
if config.device == "cuda":  # a GPU has no others
    NUMBERS, OTHERS = ("f8", "i8", "i4", "c16", "?", "f4", "u1", "f2", "u8"), ()
KINDS = (*NUMBERS, *OTHERS, RECORD) if OTHERS else NUMBERS
WHOLE = ("plain", "view", "transposed", "ragged")


def tied(shape, dtype, seed, span=4):
    """Values of a data type of which many are equal."""
    rng = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    if dtype.names is not None:
        values = np.empty(shape, dtype)
        for number, name in enumerate(dtype.names):
            found = tied(shape, dtype[name], seed + number, 2)
            # NumPy's comparison of records does not take NaN for equal.
            values[name] = np.nan_to_num(found) if found.dtype.kind == "f" else found
        return values
    low = 0 if dtype.kind in "ub" else -span
    values = rng.integers(low, span + 1, shape).astype(dtype)
    if dtype.kind == "c":
        values += 1j * rng.integers(-1, 2, shape)
    if dtype.kind in "fc":
        for value in (np.nan, -np.inf, -0.0, 0.0):
            values[rng.random(shape) < 0.1] = value
    if dtype.kind == "c":
        values.imag[rng.random(shape) < 0.1] = np.nan
    if dtype.kind in "mM":
        values[rng.random(shape) < 0.1] = "NaT"
    return np.asarray(values)


def check(world, case, call):
    """As :func:`likeness.check`, for calls that compare elements and give some of them."""
    likeness.check(world, case, call, by_order=True)


@st.composite
def sorting_cases(draw, world, dtypes=KINDS, count=1, min_dims=1, max_dims=3):
    """Cases of `count` operands of one shape, as :func:`likeness.cases` has them."""
    ranks = draw(st.sampled_from(world.ranks))
    mesh_shape = draw(mesh_shapes(ranks))
    shape = draw(shapes(min_dims, max_dims))
    if len(shape) == 1 and draw(st.booleans()):
        shape = (draw(st.integers(30, 150)),)
    found = []
    for _ in range(count):
        dtype = draw(st.sampled_from(dtypes))
        values = tied(shape, dtype, draw(st.integers(0, 2**16)))
        # What is folded loses the signs of zeros.
        integers = values.dtype.kind in "iu" and values.dtype.isnative
        kinds = (*WHOLE, "partial") if integers else WHOLE
        rows = values.dtype.isnative
        found.append(draw(operands(mesh_shape, values, kinds, rows)))
    return Case(ranks, mesh_shape, tuple(found), draw(st.integers(0, 3)) > 0)
