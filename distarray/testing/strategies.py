"""Hypothesis strategies for mesh shapes, array values, and layouts of an array.

The strategies draw plain data, equal on every rank; the program that the ranks run builds a
distributed array by a :class:`Recipe`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from math import prod

import numpy as np
from hypothesis import strategies as st

from distarray.array import DistArray, distribute, from_local
from distarray.comm import DeviceMesh
from distarray.layout import Layout, Partial, Placement, Replicate, Shard
from distarray.typing import Array, DTypeLike

__all__ = ["DTYPES", "Recipe", "array_values", "mesh_shapes", "recipes", "shapes"]

#: Default data types of values.
DTYPES = ("f8", "i8", "i4", "c16", "?", "f4", "u1")


def mesh_shapes(ranks: int) -> st.SearchStrategy[tuple[int, ...]]:
    """Draw shapes of 1-d and 2-d meshes of a given number of ranks.

    Examples
    --------
    >>> from hypothesis import given, settings
    >>> from distarray.testing import mesh_shapes
    >>> @settings(max_examples=5, deadline=None, database=None, derandomize=True)
    ... @given(shape=mesh_shapes(6))
    ... def test_all_ranks(shape):
    ...     assert np.prod(shape) == 6
    >>> test_all_ranks()
    """
    pairs = [(a, ranks // a) for a in range(1, ranks + 1) if ranks % a == 0]
    return st.sampled_from([(ranks,), *pairs])


@st.composite
def shapes(
    draw: st.DrawFn, min_dims: int = 0, max_dims: int = 3, max_side: int = 7, max_size: int = 200
) -> tuple[int, ...]:
    """Draw shapes with extents of 0, 1 and uneven lengths.

    Examples
    --------
    >>> from hypothesis import given, settings
    >>> from distarray.testing import shapes
    >>> @settings(max_examples=5, deadline=None, database=None, derandomize=True)
    ... @given(shape=shapes(min_dims=1, max_dims=2))
    ... def test_zeros(shape):
    ...     assert np.zeros(shape).ndim in (1, 2)
    >>> test_zeros()
    """
    ndim = draw(st.integers(min_dims, max_dims))
    shape: list[int] = []
    for _ in range(ndim):
        limit = max(1, min(max_side, max_size // max(1, prod(shape))))
        shape.append(
            draw(st.integers(0, limit) if draw(st.integers(0, 9)) == 0 else st.integers(1, limit))
        )
    return tuple(shape)


def make_values(shape: Sequence[int], dtype: DTypeLike, seed: int, special: bool = False) -> Array:
    """Make reproducible values: small integers, so that floating-point sums are exact.

    With `special`, floating-point values are arbitrary, and some values are NaN, infinite or -0.0.
    """
    rng = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    low = 0 if dtype.kind == "u" else -9
    values = rng.integers(low, 10, shape).astype(dtype)
    if dtype.kind == "c":
        values += 1j * rng.integers(-9, 10, shape)
    if special and dtype.kind in "fc":
        values = np.asarray(values * rng.standard_normal(shape)).astype(dtype)
        for value in (np.nan, np.inf, -np.inf, -0.0):
            values[rng.random(shape) < 0.06] = value
    return values


@st.composite
def array_values(
    draw: st.DrawFn,
    shape: Sequence[int] | None = None,
    dtypes: Sequence[str] = DTYPES,
    special: bool = False,
    min_dims: int = 0,
    max_dims: int = 3,
) -> Array:
    """Draw NumPy arrays of a given or drawn shape, and of a drawn dtype.

    Examples
    --------
    >>> from hypothesis import given, settings
    >>> from distarray.comm import run_threads
    >>> from distarray.testing import array_values, assert_matches
    >>> @settings(max_examples=5, deadline=None, database=None, derandomize=True)
    ... @given(values=array_values(dtypes=("f8", "i8")))
    ... def test_negative(values):
    ...     run_threads(3, lambda group: assert_matches(-distribute(values), -values))
    >>> test_negative()
    """
    if shape is None:
        shape = draw(shapes(min_dims, max_dims))
    dtype = draw(st.sampled_from(list(dtypes)))
    values = make_values(shape, dtype, draw(st.integers(0, 2**16)), special)
    return np.asarray(values)


@dataclass(frozen=True)
class Recipe:
    """Recipe that distributes an array of a known shape over a mesh.

    Attributes
    ----------
    placements : tuple of Placement
        The placements, one per mesh dimension.
    kind : str
        "plain"; "view" (a slice of a larger array); "transposed" (the transpose of an array);
        "ragged" (blocks of drawn lengths); "partial" (contributions to a sum).
    slices : tuple of (before, step, after)
        For views: elements of the base before and after the view along each dimension, and the
        step.
    counts : tuple of int
        For ragged arrays: lengths of the blocks along `dim`, which mesh dimension 0 cuts.

    Examples
    --------
    >>> import distarray
    >>> from distarray.testing import Recipe
    >>> recipe = Recipe((distarray.Shard(0),), "transposed")
    >>> x = recipe.build(np.arange(12.0).reshape(4, 3), distarray.default_mesh())
    >>> x.placements, x[1].tolist()
    ((Shard(1),), [3.0, 4.0, 5.0])
    """

    placements: tuple[Placement, ...]
    kind: str = "plain"
    slices: tuple[tuple[int, int, int], ...] = ()
    counts: tuple[int, ...] = ()
    dim: int = 0
    seed: int = field(default=0, compare=False)

    def build(self, values: Array, mesh: DeviceMesh) -> DistArray:
        """Return the distributed array of the values; every rank of the mesh must call it."""
        build: Callable[[Array, DeviceMesh], DistArray] = getattr(self, f"_{self.kind}")
        return build(values, mesh)

    def _plain(self, values: Array, mesh: DeviceMesh) -> DistArray:
        return distribute(values, mesh, self.placements, src=None)

    def _view(self, values: Array, mesh: DeviceMesh) -> DistArray:
        base_shape, key = [], []
        for extent, (before, step, after) in zip(values.shape, self.slices, strict=True):
            span = (extent - 1) * abs(step) + 1 if extent else 0
            base_shape.append(before + span + after)
            stop = before + span
            if step > 0:
                key.append(slice(before, stop, step))
            else:
                last = before - 1
                key.append(
                    slice(stop - 1, last if last >= 0 else None, step) if extent else slice(0, 0)
                )
        base = np.ones(base_shape, values.dtype)
        base[tuple(key)] = values
        view: DistArray = distribute(base, mesh, self.placements, src=None)[(*key, ...)]
        return view

    def _transposed(self, values: Array, mesh: DeviceMesh) -> DistArray:
        base = np.ascontiguousarray(values.T)
        transposed: DistArray = distribute(base, mesh, self.placements, src=None).T
        return transposed

    def _ragged(self, values: Array, mesh: DeviceMesh) -> DistArray:
        layout = Layout.chunked(values.shape, mesh.shape, self.placements)
        section = [slice(start, stop) for start, stop in layout.section(mesh.coords)]
        if mesh.coords is not None:
            bounds = (0, *accumulate(self.counts))
            section[self.dim] = slice(*bounds[mesh.coords[0] : mesh.coords[0] + 2])
        return from_local(values[tuple(section)].copy(), mesh, self.placements)

    def _partial(self, values: Array, mesh: DeviceMesh) -> DistArray:
        """Split the values into contributions of the ranks, whose sum is exact."""
        layout = Layout.chunked(values.shape, mesh.shape, self.placements)
        local = values[tuple([slice(a, b) for a, b in layout.section(mesh.coords)])]
        ranks = prod([mesh.shape[m] for m in layout.partials])
        if mesh.coords is None:
            return from_local(local, mesh, self.placements)
        number = 0
        for mesh_dim in layout.partials:
            number = number * mesh.shape[mesh_dim] + mesh.coords[mesh_dim]
        rng = np.random.default_rng(
            [self.seed, *[mesh.coords[m] for m in range(mesh.ndim) if m not in layout.partials]]
        )
        shares = [rng.integers(0, 4, local.shape).astype(local.dtype) for _ in range(ranks - 1)]
        with np.errstate(over="ignore"):  # 0-d unsigned contributions wrap around
            shares.append((local - sum(shares, np.zeros((), local.dtype))).astype(local.dtype))
        return from_local(shares[number], mesh, self.placements)


@st.composite
def recipes(
    draw: st.DrawFn,
    shape: Sequence[int],
    mesh_shape: Sequence[int],
    dtype: DTypeLike = "f8",
    kinds: Sequence[str] = ("plain", "view", "transposed", "ragged", "partial"),
) -> Recipe:
    """Draw recipes that distribute an array of a given shape over a mesh.

    Parameters
    ----------
    shape : tuple of int
        Shape of the array.
    mesh_shape : tuple of int
        Shape of the mesh.
    dtype : dtype
        Data type of the array; contributions are drawn only for numbers, not for bool.
    kinds : sequence of str
        Kinds to draw from, see :class:`Recipe`.

    Examples
    --------
    A test that holds for any layout of any array on three ranks:

    >>> from hypothesis import given, settings, strategies
    >>> from distarray.comm import DeviceMesh, run_threads
    >>> from distarray.testing import array_values, assert_matches, mesh_shapes, recipes
    >>> @settings(max_examples=5, deadline=None, database=None, derandomize=True)
    ... @given(data=strategies.data())
    ... def test_sum(data):
    ...     values = data.draw(array_values())
    ...     mesh_shape = data.draw(mesh_shapes(3))
    ...     recipe = data.draw(recipes(values.shape, mesh_shape, values.dtype))
    ...     def program(group):
    ...         x = recipe.build(values, DeviceMesh(group, mesh_shape))
    ...         assert_matches(np.sum(x), np.sum(values), exact=False)
    ...     run_threads(3, program)
    >>> test_sum()
    """
    ndim = len(shape)
    choices: list[Placement] = [Replicate(), *[Shard(d) for d in range(ndim)] * 2]
    placed = [draw(st.sampled_from(choices)) for _ in mesh_shape]
    kind = draw(st.sampled_from(list(kinds)))
    if kind == "partial" and np.dtype(dtype).kind in "iufc":
        placed[draw(st.integers(0, len(mesh_shape) - 1))] = Partial()
        return Recipe(tuple(placed), "partial", seed=draw(st.integers(0, 99)))
    if kind == "view" and ndim:
        steps = st.sampled_from([1, 1, 1, 2, 3, -1, -2])
        margins = st.integers(0, 3)
        slices = tuple([(draw(margins), draw(steps), draw(margins)) for _ in shape])
        return Recipe(tuple(placed), "view", slices)
    if kind == "transposed" and ndim > 1:
        return Recipe(tuple(placed), "transposed")
    if kind == "ragged" and ndim:
        dim = draw(st.integers(0, ndim - 1))
        cutting = [p if p != Shard(dim) else Replicate() for p in placed[1:]]
        marks = sorted([draw(st.integers(0, shape[dim])) for _ in range(mesh_shape[0] - 1)])
        bounds = [0, *marks, shape[dim]]
        counts = tuple([b - a for a, b in pairwise(bounds)])
        return Recipe((Shard(dim), *cutting), "ragged", counts=counts, dim=dim)
    return Recipe(tuple(placed), "plain")
