"""Engine of the Fourier transforms: blocks are alternately transformed and redistributed.

:mod:`distarray.plan.fourier` plans all layouts beforehand, from the operand's layout alone.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from distarray.array import DistArray, default_layout, empty, movement, wrap
from distarray.config import config
from distarray.engines.reducing import write
from distarray.engines.transforming import whole_line
from distarray.engines.transforming.cut_line import transformed_line
from distarray.engines.transforming.passes import Request
from distarray.plan.fourier import Kind, Line, Move, Pass, plan_transform
from distarray.typing import Array

__all__ = ["transform"]

#: Data types whose pending sums can be transformed: casts to the result's type neither round nor
#: wrap.
_SUMMABLE = "fdgFDG"


def transform(x: DistArray, request: Request, out: DistArray | Array | None = None) -> Any:
    """Compute the requested transform of an array, in `out` if `out` is given.

    Parameters
    ----------
    x : DistArray
        The operand, in any layout. An array at one coordinate, or a small pending sum, is
        transformed in its layout if no element has to move.
    request : Request
        The passes in NumPy's order, checked.
    out : DistArray or ndarray, optional
        The array that receives the result.
    """
    if not request.passes:  # NumPy returns the operand, as an array
        return x.like(x.mesh.asarray(x.block)) if isinstance(x.block, np.generic) else x
    result = _result(x, request)
    return result if out is None else write(result.block, result.layout, result.mesh, out)


def _result(x: DistArray, request: Request) -> DistArray:
    """Compute the transform, in the request's data type."""
    shape = request.shape_of(x.shape)
    if not x.size or 0 in shape:
        return _zeros(shape, request.dtype, x)
    if not x.layout.is_plain and not _stays(x, request.passes):
        x = x.plain()
    strict = config.settings.reproducible
    if x.dtype == np.float16 and not strict:
        return _half_precision(x, request)
    sizes = x.itemsize, request.between.itemsize, request.dtype.itemsize
    mesh, layout, block = x.mesh, x.layout, x.block
    for step in plan_transform(layout, request.passes, sizes, strict):
        if isinstance(step, Move):
            block = movement.moved(block, layout, step.layout, mesh)
            layout = step.layout
            continue
        half = step.step.kind.takes_half
        dtype = request.dtype if half else request.between
        if isinstance(step, Line):
            block = transformed_line(wrap(block, layout, mesh), step, request.norm, dtype)
        else:
            held = step.layout.local_shape(mesh.coords)
            block = whole_line.transformed(block, step.step, request.norm, held, dtype, mesh.xp)
        layout = step.layout
    return wrap(block, layout, mesh)


def _half_precision(x: DistArray, request: Request) -> DistArray:
    """Transform in single precision, and scale by a factor of half precision, as NumPy does.

    NumPy rounds the factor of the first pass in NumPy's order to half precision, whichever pass the
    plan executes first.
    """
    kinds = {step.kind for step in request.passes}
    forward = bool(kinds & {Kind.FFT, Kind.RFFT, Kind.HFFT})
    single = request._replace(norm="backward" if forward else "forward")
    if single.dtype == np.float16:
        single = single._replace(dtype=np.dtype(np.float32))
    result = _result(x.like(x.block.astype(np.float32)), single)
    if request.norm == "ortho" or forward == (request.norm == "forward"):
        precision: Any = np.float16
        for step in request.passes:
            length: Any = step.length
            if request.norm == "ortho":
                length = np.sqrt(length, dtype=precision)
            result.block *= np.float32(np.reciprocal(length, dtype=precision))
            precision = np.float32
    return result.like(result.block.astype(request.dtype, copy=False))


def _stays(x: DistArray, passes: Sequence[Pass]) -> bool:
    """Return True if an array that is not plain is transformed in its layout.

    A large pending sum is folded and cut first: otherwise every rank would transform all of it.
    """
    layout = x.layout
    if any(layout.cuts[step.axis].parts > 1 for step in passes):
        return False
    if not layout.partials:
        return True
    small = x.nbytes < config.replicate_below
    return small and x.dtype.char in _SUMMABLE and not config.settings.reproducible


def _zeros(shape: tuple[int, ...], dtype: np.dtype[Any], x: DistArray) -> DistArray:
    """Return the transform of an array without elements: empty, or zeros if it is padded."""
    result = empty(default_layout(shape, dtype.itemsize, x.mesh), dtype, x.mesh)
    result.block[...] = 0
    return result
