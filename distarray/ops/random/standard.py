"""Standard distributions, which can be drawn into a given array; integers and bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

from distarray.array import DistArray
from distarray.array.placing import as_shape
from distarray.comm import DeviceMesh, default_mesh
from distarray.engines.drawing.drawn_tiles import Tile
from distarray.engines.drawing.parameters import as_parameters
from distarray.engines.drawing.sampling import Source, fill, filled, layout_for, probe
from distarray.layout import Layout
from distarray.typing import Array, ArrayLike, DTypeLike, Placements, ShapeLike

__all__ = ["Standard"]


class Standard(Source):
    """Numbers without parameters, integers and bytes, as numpy.random.Generator has them.

    Cost
    ----
    No message, and the time that NumPy takes for this rank's part. Numbers are drawn into a
    distributed `out` of any layout where it is.
    """

    def random(
        self,
        size: ShapeLike | None = None,
        dtype: DTypeLike = np.float64,
        out: DistArray | Array | None = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Uniform numbers on [0, 1)."""
        return self._standard("random", size, dtype, out, mesh, placements)

    def standard_normal(
        self,
        size: ShapeLike | None = None,
        dtype: DTypeLike = np.float64,
        out: DistArray | Array | None = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Normal numbers of mean 0 and variance 1."""
        return self._standard("standard_normal", size, dtype, out, mesh, placements)

    def standard_exponential(
        self,
        size: ShapeLike | None = None,
        dtype: DTypeLike = np.float64,
        method: str = "zig",
        out: DistArray | Array | None = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Exponential numbers of mean 1."""
        place = (mesh, placements)
        return self._standard("standard_exponential", size, dtype, out, *place, method=method)

    def standard_cauchy(
        self,
        size: ShapeLike | None = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Samples of the standard Cauchy distribution."""
        return self._sample("standard_cauchy", (), size, mesh, placements)

    def standard_gamma(
        self,
        shape: ArrayLike,
        size: ShapeLike | None = None,
        dtype: DTypeLike = np.float64,
        out: DistArray | Array | None = None,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Samples of a gamma distribution of scale 1.

        Cost
        ----
        As :meth:`gamma`. With `out`, the result is drawn where the parameters are, and moves if
        `out` is laid out otherwise.
        """
        (parameter,) = as_parameters([shape])
        if np.ndim(parameter) == 0:
            place = (mesh, placements)
            return self._standard("standard_gamma", size, dtype, out, *place, shape=parameter)
        if out is not None:
            size, mesh, _ = _target(out, size, dtype)
        result = self._sample("standard_gamma", (shape,), size, mesh, placements, dtype=dtype)
        return result if out is None else _written(out, result)

    def integers(
        self,
        low: ArrayLike,
        high: ArrayLike | None = None,
        size: ShapeLike | None = None,
        dtype: DTypeLike = np.int64,
        endpoint: bool = False,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Integers from `low` to `high`, exclusive, or inclusive with `endpoint`.

        Cost
        ----
        None for bounds that every rank has; distributed bounds as for :meth:`poisson`.
        """
        bounds = (0, low) if high is None else (low, high)
        return self._sample(
            "integers", bounds, size, mesh, placements, dtype=dtype, endpoint=endpoint
        )

    def bytes(self, length: int | np.integer[Any]) -> bytes:
        """Random bytes, the same on all ranks."""
        if not isinstance(length, int | np.integer):
            probe("bytes", length)  # type: ignore[unreachable]
        return self._begin("bytes", self._mesh_for(None)).tile(0).bytes(int(length))

    def _standard(
        self,
        name: str,
        size: ShapeLike | None,
        dtype: DTypeLike,
        out: DistArray | Array | None,
        mesh: DeviceMesh | None,
        placements: Placements | None,
        **keywords: Any,
    ) -> Any:
        keywords["dtype"] = dtype
        probe(name, **keywords)
        method = getattr(np.random.Generator, name)
        if out is not None:
            size, mesh, layout = _target(out, size, dtype)
        elif size is None:
            return method(self._begin(name, self._mesh_for(mesh)).tile(0), **keywords)
        else:
            mesh = self._mesh_for(mesh)
            layout = layout_for(as_shape(size), dtype, mesh, placements)
        call = self._begin(name, mesh)

        def draw(generator: np.random.Generator, tile: Tile) -> Array:
            drawn: Array = method(generator, size=tile.extents, **keywords)
            return drawn

        def draw_into(generator: np.random.Generator, tile: Tile, target: Array) -> object:
            return method(generator, out=target, **keywords)

        if out is None:
            return filled(layout, mesh, dtype, call, draw, draw_into)
        if mesh.device_type == "cpu" and mesh.coords is not None:
            block = out.block if isinstance(out, DistArray) else out
            fill(block, layout.shape, layout.section(mesh.coords), call, draw, draw_into)
            return out
        return _written(out, filled(layout, mesh, dtype, call, draw, draw_into))


def _target(
    out: DistArray | Array, size: ShapeLike | None, dtype: DTypeLike
) -> tuple[tuple[int, ...], DeviceMesh, Layout]:
    """Shape, mesh and layout of an array to draw into; or NumPy's exception."""
    block = out.block if isinstance(out, DistArray) else out
    flags = getattr(block, "flags", None)
    taken = flags is not None and getattr(flags, "writeable", True) and block.dtype.isnative
    if not taken or isinstance(block, np.generic):
        raise ValueError(
            "Supplied output array must be contiguous, writable, aligned, and in machine "
            "byte-order."
        )
    if out.dtype != np.dtype(dtype):
        raise TypeError(
            f"Supplied output array has the wrong type. Expected {np.dtype(dtype)}, got {out.dtype}"
        )
    if size is not None and as_shape(size) != out.shape:
        raise ValueError("size must match out.shape when used together")
    if isinstance(out, DistArray):
        if out.layout.partials:
            out.settle()
        return out.shape, out.mesh, out.layout
    mesh = default_mesh()
    return out.shape, mesh, Layout.replicated(out.shape, mesh.shape)


def _written(out: DistArray | Array, result: DistArray) -> Any:
    out[...] = result if isinstance(out, DistArray) else result.full()
    return out
