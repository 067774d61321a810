"""Distributions of vectors: a tile consists of vectors, each of which is drawn whole."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any, Literal

import numpy as np

from distarray.array import DistArray, movement, wrap
from distarray.array.placing import as_shape
from distarray.comm import DeviceMesh
from distarray.engines.drawing.distributions import Distribution
from distarray.engines.drawing.drawn_tiles import TILE, Tile, tile_extents
from distarray.engines.drawing.parameters import Placed, as_parameters, common_shape
from distarray.engines.drawing.sampling import (
    Draw,
    Source,
    check_values,
    fill,
    layout_for,
    probe,
    tiled_layout,
)
from distarray.layout import Layout
from distarray.plan import propagate
from distarray.typing import Array, ArrayLike, DTypeLike, Placements, ShapeLike

__all__ = ["Vectors", "on_host"]


def on_host(value: ArrayLike) -> Any:
    """A parameter whole on every rank; a distributed one is gathered.

    A rank outside of its mesh gets its shape and data type only.
    """
    if not isinstance(value, DistArray):
        return value
    if value.mesh.coords is None:
        return np.zeros(value.shape, value.dtype)
    return value.full()


def _at_most_one(n: Array, pvals: Array) -> Any:
    return pvals[..., :-1].sum(axis=-1) <= 1.0 + 1e-13  # NumPy allows 1e-12


_MULTINOMIAL = Distribution(((0, 1 << 62), (0.0, 1.0)), related=_at_most_one)


class Vectors(Source):
    """Distributions of vectors, as numpy.random.Generator has them.

    The last dimension of the results is that of the vectors. It is cut only if `placements` cut
    it, and then each rank draws the whole of every vector that it has a part of.
    """

    def multivariate_normal(
        self,
        mean: ArrayLike,
        cov: ArrayLike,
        size: ShapeLike | None = None,
        check_valid: str = "warn",
        tol: float = 1e-8,
        *,
        method: str = "svd",
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> DistArray:
        """Normal vectors of a mean and a covariance.

        Cost
        ----
        No message. Mean and covariance are gathered if they are distributed: each rank factors
        the covariance, and multiplies its own vectors.

        Notes
        -----
        The product is summed in the same order for any number of ranks and of threads; NumPy's own
        is not.
        """
        mesh = self._mesh_for(mesh, mean, cov)
        mean, cov = np.asarray(on_host(mean)), np.asarray(on_host(cov))
        factor = cov
        if mesh.coords is not None:
            probe("multivariate_normal", mean, cov, None, check_valid, tol, method=method)
            factor = _factor(cov.astype(np.float64), method)

        lanes, width = _lanes(size), len(mean)
        rows = prod(tile_extents(lanes, _room(width)))

        def draw(generator: np.random.Generator, tile: Tile) -> Array:
            # As many as a tile has: with another shape NumPy may sum in another order.
            normals = np.zeros((rows, width))
            drawn = normals[: prod(tile.extents)]
            generator.standard_normal(out=drawn)
            vectors: Array = np.einsum("ij,jt->it", factor, np.ascontiguousarray(normals.T))
            vectors += mean[:, np.newaxis]
            return vectors.T[: len(drawn)].reshape(*tile.extents, width)

        layout = layout_for((*lanes, width), np.float64, mesh, placements)
        return self._vectors(layout, np.float64, draw, mesh)

    def dirichlet(
        self,
        alpha: ArrayLike,
        size: ShapeLike | None = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> DistArray:
        """Samples of a Dirichlet distribution.

        Cost
        ----
        No message; `alpha` is gathered if it is distributed.
        """
        mesh = self._mesh_for(mesh, alpha)
        weights = on_host(alpha)
        if mesh.coords is not None:
            probe("dirichlet", weights)
        width = len(weights)

        def draw(generator: np.random.Generator, tile: Tile) -> Array:
            return generator.dirichlet(weights, tile.extents)

        layout = layout_for((*_lanes(size), width), np.float64, mesh, placements)
        return self._vectors(layout, np.float64, draw, mesh)

    def multivariate_hypergeometric(
        self,
        colors: ArrayLike,
        nsample: int,
        size: ShapeLike | None = None,
        method: Literal["marginals", "count"] = "marginals",
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> DistArray:
        """How many of each color there are among items drawn without replacement.

        Cost
        ----
        No message; `colors` is gathered if it is distributed.
        """
        mesh = self._mesh_for(mesh, colors, nsample)
        numbers, drawn = on_host(colors), on_host(nsample)
        if mesh.coords is not None:
            probe("multivariate_hypergeometric", numbers, drawn, method=method)
        width = len(numbers)

        def draw(generator: np.random.Generator, tile: Tile) -> Array:
            return generator.multivariate_hypergeometric(numbers, drawn, tile.extents, method)

        layout = layout_for((*_lanes(size), width), np.int64, mesh, placements)
        return self._vectors(layout, np.int64, draw, mesh)

    def multinomial(
        self,
        n: ArrayLike,
        pvals: ArrayLike,
        size: ShapeLike | None = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> DistArray:
        """How often each of several outcomes occurs in `n` experiments.

        Cost
        ----
        No message if numbers and probabilities are known on all ranks. Distributed ones are
        brought to where the result is, one exchange each, and the ranks agree that all are valid;
        the vectors of tiles that a cut divides move once more.
        """
        mesh = self._mesh_for(mesh, n, pvals)
        n, pvals = as_parameters([n, pvals])
        pvals = pvals if isinstance(pvals, DistArray) else np.asarray(pvals)
        # NumPy is asked about the lengths, then about the values.
        width = probe("multinomial", 0, np.zeros(pvals.shape[-1:])).shape[-1]
        lanes = common_shape(size, np.shape(n), pvals.shape[:-1])
        near = isinstance(n, DistArray) or isinstance(pvals, DistArray)
        if placements is None and near:
            layout = _beside(n, pvals, (*lanes, width), mesh)
        else:
            layout = layout_for((*lanes, width), np.int64, mesh, placements)
        work = layout
        if near:
            work = layout.without_cut([len(lanes)])
            work = tiled_layout(work, tile_extents(lanes, _room(width)))
        own_n = Placed(n, work.with_cuts(work.cuts[:-1]), mesh)
        own_p = Placed(pvals, work, mesh)
        box = work.section(mesh.coords)
        values = [own_n.section(box[:-1]), own_p.section(box)] if near else [n, pvals]
        check_values(_MULTINOMIAL, partial(probe, "multinomial"), values, mesh if near else None)

        def draw(generator: np.random.Generator, tile: Tile) -> Array:
            chances = own_p.part(_widened(tile, width))
            return generator.multinomial(own_n.part(tile), chances, tile.extents)

        result = self._vectors(work, np.int64, draw, mesh)
        if work is layout:
            return result
        return wrap(movement.moved(result.block, work, layout, mesh), layout, mesh)

    def _vectors(self, layout: Layout, dtype: DTypeLike, draw: Draw, mesh: DeviceMesh) -> DistArray:
        """A new array of vectors along its last dimension."""
        *lanes, width = layout.shape
        block = np.empty(layout.local_shape(mesh.coords), dtype)
        call = self._begin("vectors", mesh)
        if block.size:
            *section, (start, stop) = layout.section(mesh.coords)

            def draw_part(generator: np.random.Generator, tile: Tile) -> Array:
                return draw(generator, tile)[..., start:stop]

            fill(block, tuple(lanes), tuple(section), call, draw_part, room=_room(width))
        return wrap(block if mesh.device_type == "cpu" else mesh.asarray(block), layout, mesh)


def _lanes(size: ShapeLike | None) -> tuple[int, ...]:
    return () if size is None else as_shape(size)


def _factor(cov: Array, method: str) -> Array:
    """A matrix whose product with its transpose is the covariance, by one of NumPy's methods."""
    factor: Array
    if method == "cholesky":
        factor = np.linalg.cholesky(cov)
    elif method == "eigh":
        scales, vectors = np.linalg.eigh(cov)
        factor = vectors * np.sqrt(np.abs(scales))
    else:
        vectors, scales, _ = np.linalg.svd(cov)
        factor = vectors * np.sqrt(scales)
    return factor


def _room(width: int) -> int:
    """The number of vectors in a tile."""
    return max(1, TILE // max(1, width))


def _widened(tile: Tile, width: int) -> Tile:
    """The tile with the dimension of the vectors added."""
    return tile._replace(start=(*tile.start, 0), extents=(*tile.extents, width))


def _beside(n: ArrayLike, pvals: ArrayLike, shape: tuple[int, ...], mesh: DeviceMesh) -> Layout:
    """The layout of vectors beside their distributed parameters."""
    layouts = [Layout.replicated(shape, mesh.shape)]
    if isinstance(n, DistArray):
        layouts.append(n.layout.expand(n.ndim))
    if isinstance(pvals, DistArray):
        layouts.append(pvals.layout)
    result = propagate(tuple(layouts), (0, *[8] * (len(layouts) - 1))).result
    return result.without_cut([len(shape) - 1])
