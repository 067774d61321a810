"""Transforms along a dimension that is cut: by the four steps, or by Bluestein's algorithm."""

import numpy as np

from distarray.array import DistArray, to_layout
from distarray.array.views import permuted
from distarray.engines.transforming.bluestein import transformed_awkward
from distarray.engines.transforming.four_steps import Grid, conjugate, fitted
from distarray.plan.fourier import Kind, Line, Pass
from distarray.typing import Array, DType

__all__ = ["transformed_line"]

#: The `norm` of the complex transform that computes a Hermitian one, in the opposite direction.
_OPPOSITE: dict[str | None, str] = {"forward": "backward", "ortho": "ortho"}


def transformed_line(x: DistArray, line: Line, norm: str | None, dtype: DType) -> Array:
    """Compute this rank's block of the transform of `x` along a dimension that is cut.

    Parameters
    ----------
    x : DistArray
        The operand, without pending folds.
    line : Line
        The transform, and the layout of the result.
    norm : str or None
        The normalization, as in NumPy.
    dtype : dtype
        The data type of the result.
    """
    step = line.step
    axis, last = step.axis, x.ndim - 1
    order = [dim for dim in range(x.ndim) if dim != axis] + [axis]
    back = [dim if dim < axis else dim - 1 for dim in range(x.ndim)]
    back[axis] = last
    complex_dtype = np.result_type(dtype, np.complex64)
    turned = permuted(x, order)
    if step.kind in (Kind.HFFT, Kind.IHFFT):
        norm = _OPPOSITE.get(norm, "forward")
    if line.split is None:
        result = transformed_awkward(turned, step.kind, step.length, norm, complex_dtype)
    else:
        cut = x.layout.cuts[axis]
        grid = Grid(line.split.rows, line.split.columns, cut.mesh_dims, cut.radix)
        result = _in_steps(turned, step, grid, norm, complex_dtype)
    block: Array = to_layout(permuted(result, back), line.layout).block
    return block.astype(dtype, copy=False)


def _in_steps(x: DistArray, step: Pass, grid: Grid, norm: str | None, dtype: DType) -> DistArray:
    """Transform along the last dimension by the four steps."""
    kind = step.kind
    if kind.takes_half:
        given = _cast(x, dtype)
        if kind is Kind.HFFT:
            given = given.like(np.conjugate(given.block))
        half = grid.half_spectrum(given, step.taken)
        return grid.flattened(grid.backward(half, Kind.IRFFT, norm))
    # No name here refers to an intermediate array, since each is as large as the operand.
    if not kind.gives_half:
        x = grid.forward(grid.by_rows(_cast(fitted(x, grid.length, grid.flat), dtype)), kind, norm)
        return grid.in_order(x)
    real = np.zeros(0, dtype).real.dtype
    x = grid.by_rows(_cast(fitted(x, grid.length, grid.flat), real))
    x = grid.half_in_order(grid.forward(x, Kind.RFFT, norm), step.given)
    if kind is Kind.IHFFT:
        conjugate(x.block)
    return x


def _cast(x: DistArray, dtype: DType) -> DistArray:
    return x if x.dtype == dtype else x.like(x.block.astype(dtype))
