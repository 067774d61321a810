"""Strategies for tests of indexing: keys of all kinds, and how their arrays lie."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from distarray.array import distribute
from distarray.comm import DeviceMesh
from distarray.testing import Recipe, mesh_shapes, recipes
from tests.ops.likeness import outcome


@dataclass(frozen=True)
class Spread:
    """An array that the program lays out over the mesh by a recipe."""

    values: np.ndarray
    recipe: Recipe

    def build(self, mesh):
        return self.recipe.build(self.values, mesh)


def built(entry, mesh):
    """A key, or a part of one, with its arrays laid out."""
    if isinstance(entry, tuple):
        return tuple([built(part, mesh) for part in entry])
    return entry.build(mesh) if isinstance(entry, Spread) else entry


def plainly(entry):
    """The same key for NumPy."""
    if isinstance(entry, tuple):
        return tuple([plainly(part) for part in entry])
    return entry.values if isinstance(entry, Spread) else entry


@st.composite
def spread(draw, values, mesh_shape, kinds=("plain", "view", "ragged", "transposed")):
    """An index array: a list, a NumPy array, or a DistArray of any layout."""
    how = draw(st.integers(0, 4))
    if how == 0 and values.size:
        return values.tolist()
    if how == 1:
        return values
    return Spread(values, draw(recipes(values.shape, mesh_shape, values.dtype, kinds)))


ENTRIES = ("slice", "int", "array", "array", "mask", "none", "ellipsis", "flag")


@st.composite
def keys(draw, shape, mesh_shape):
    """A key with at least one mask or index array."""
    parts: list[Any] = []
    dim, ndim = 0, len(shape)
    common = tuple(draw(st.lists(st.integers(1, 4), max_size=2)))
    if draw(st.integers(0, 11)) == 0:
        common = (0,)
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    count = draw(st.integers(0, ndim))  # dimensions that the key says something about
    used_ellipsis = False
    fancy = False
    masks = draw(st.booleans())
    while dim < count or not fancy:
        kind = draw(st.sampled_from(ENTRIES))
        if dim >= ndim:
            kind = "flag"
        if kind == "none":
            parts.append(None)
        elif kind == "ellipsis" and not used_ellipsis:
            used_ellipsis = True
            parts.append(Ellipsis)
        elif (kind == "flag" and draw(st.integers(0, 3)) == 0) or dim >= ndim:
            parts.append(draw(st.booleans()) if draw(st.booleans()) else True)
            fancy = True
        elif kind == "slice":
            parts.append(
                slice(
                    *[draw(st.none() | st.integers(-8, 8)) for _ in range(2)],
                    draw(st.sampled_from([None, 1, 2, -1, -2])),
                )
            )
            dim += 1
        elif kind == "int" and shape[dim]:
            parts.append(draw(st.integers(-shape[dim], shape[dim] - 1)))
            dim += 1
        elif kind == "mask" and masks:
            width = draw(st.integers(1, ndim - dim))
            density = draw(st.sampled_from([0.0, 0.3, 0.7, 1.0]))
            mask = rng.random(shape[dim : dim + width]) < density
            parts.append(draw(spread(mask, mesh_shape)))
            dim += width
            fancy = True
        elif shape[dim] or 0 in common:
            # A random sub-shape of the common shape, so that index arrays broadcast.
            drop = draw(st.integers(0, len(common)))
            sub = tuple([1 if e and rng.random() < 0.2 else e for e in common[drop:]])
            low = -shape[dim] if draw(st.booleans()) else 0
            dtype = "i8" if low else draw(st.sampled_from(["i8", "i4", "u1"]))
            values = rng.integers(low, max(shape[dim], low + 1), sub).astype(dtype)
            parts.append(draw(spread(values, mesh_shape)) if values.ndim else int(values))
            fancy = fancy or values.ndim > 0
            dim += 1
        else:
            parts.append(slice(None))
            dim += 1
    return tuple(parts) if len(parts) > 1 or draw(st.booleans()) else parts[0]


@st.composite
def sources(draw, ranks, dtypes=("f8", "i4"), min_dims=1, max_dims=3):
    """A mesh shape, an array, and how it lies."""
    from distarray.testing import array_values

    mesh_shape = draw(mesh_shapes(ranks))
    values = draw(array_values(dtypes=dtypes, min_dims=min_dims, max_dims=max_dims))
    recipe = draw(
        recipes(
            values.shape,
            mesh_shape,
            values.dtype,
            ("plain", "plain", "view", "ragged", "transposed"),
        )
    )
    return mesh_shape, values, recipe


def check_error(found, expected):
    """The same kind of exception with the same text as NumPy's."""
    assert isinstance(found, type(expected)), (found, expected)
    assert str(found).strip() == str(expected).strip(), (str(found), str(expected))


__all__ = [
    "DeviceMesh",
    "Spread",
    "built",
    "check_error",
    "distribute",
    "keys",
    "outcome",
    "plainly",
    "sources",
    "spread",
]
