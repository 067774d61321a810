"""Helpers for tests of reductions: drawn operands, and the same call in NumPy and here."""

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

import distarray
from distarray import DeviceMesh
from distarray.testing import array_values, assert_matches, assert_same_error, mesh_shapes, recipes

REDUCTIONS = [np.sum, np.prod, np.max, np.min, np.any, np.all, np.amax, np.amin]


NAN_REDUCTIONS = [np.nansum, np.nanprod, np.nanmax, np.nanmin]


STATISTICS = [np.mean, np.var, np.std, np.nanmean, np.nanvar, np.nanstd]


EXTREMES = [np.argmax, np.argmin, np.nanargmax, np.nanargmin]


MANY = settings(max_examples=80)


def tolerances(dtype):
    """For results that are rounded otherwise."""
    if np.dtype(dtype).kind not in "fc":
        return {"exact": True}
    return {
        "exact": False,
        "rtol": 1e3 * np.finfo(dtype).eps,
        "atol": 1e-4 if dtype == "f4" else 1e-10,
    }


def tried(call):
    """What NumPy gives, or the exception that it raises."""
    try:
        return call(), None
    except Exception as error:
        return None, error


def compare(world, ranks, mesh_shape, recipe, values, function, **keywords):
    """One call on distributed values and its reference; inputs must stay as they are."""
    expected, error = tried(lambda: function(values, **keywords))

    def program(group):
        mesh = DeviceMesh(group, mesh_shape)
        x = recipe.build(values, mesh)
        if error is not None:
            assert_same_error(lambda: function(x, **keywords), lambda: function(values, **keywords))
            return
        kept = x.to_local().copy() if x.layout.is_plain else None
        # Every other example leaves its result pending, if it can be, as large ones are.
        with distarray.config.override(replicate_below=1 if values.size % 2 else 1 << 18):
            result = function(x, **keywords)
        dtype = getattr(expected, "dtype", np.dtype(int))
        assert_matches(result, expected, **tolerances(dtype))
        if kept is not None:
            np.testing.assert_array_equal(mesh.to_host(x.to_local()), mesh.to_host(kept))

    world.run(ranks, program)


@st.composite
def cases(draw, world, dtypes=("f8", "i8", "i4", "c16", "?", "f4", "u1"), special=True, min_dims=0):
    ranks = draw(st.sampled_from(world.ranks))
    mesh_shape = draw(mesh_shapes(ranks))
    values = draw(array_values(dtypes=dtypes, special=special, min_dims=min_dims))
    if values.dtype.kind == "c":
        values[np.isinf(values)] = 3  # what a product of infinite ones is depends on the order
    kinds = ("plain", "view", "transposed", "ragged", "partial")
    if special and values.dtype.kind in "fc":
        kinds = kinds[:-1]  # contributions to a sum are finite
    recipe = draw(recipes(values.shape, mesh_shape, values.dtype, kinds))
    return ranks, mesh_shape, recipe, values


@st.composite
def axes(draw, ndim):
    choices = [None, *range(-ndim, ndim)]
    if ndim > 1:
        choices += [(0, 1), (-1, 0), tuple(range(ndim))]
    return draw(st.sampled_from([*choices, ()]))


@st.composite
def masks(draw, shape):
    """A mask that broadcasts onto a shape."""
    lead = draw(st.integers(0, len(shape)))
    sides = [draw(st.sampled_from([1, n])) for n in shape[lead:]]
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    return rng.random(sides) < 0.7
