"""packbits and unpackbits: eight elements along an axis make one byte.

If the axis is cut, the cuts are first moved to byte boundaries; then each rank packs its own block.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from distarray.array import DistArray, as_distarray, implements, to_layout, wrap
from distarray.array.one_rank import Alone
from distarray.array.portable import on_host
from distarray.array.probes import tiny
from distarray.engines.reshaping import in_line
from distarray.layout import Cut
from distarray.typing import ArrayLike, Axis

__all__ = ["packbits", "unpackbits"]


@implements(np.packbits, computes=False, alone=Alone())
def packbits(a: ArrayLike, /, axis: Axis = None, bitorder: str = "big") -> Any:
    """Pack elements as bits into bytes; see :func:`numpy.packbits`.

    Returns
    -------
    DistArray
        Cut as `a` is, evenly along the axis.

    Cost
    ----
    If the axis is cut, one message to a neighbour, with the few elements of its last or first
    byte; for ``axis=None``, also the cost of :func:`numpy.ravel`.
    """
    x, axis = _line(np.packbits, a, axis, bitorder)
    cut, mesh = x.layout.cuts[axis], x.mesh
    count = -(-cut.extent // 8)
    packed = Cut.chunked(count, cut.mesh_dims, cut.radix)
    if cut.parts > 1:
        bounds = [min(8 * packed.interval(part)[1], cut.extent) for part in range(cut.parts)]
        lengths = [stop - start for start, stop in pairwise([0, *bounds])]
        x = to_layout(x, x.layout.replace(axis, Cut.ragged(lengths, cut.mesh_dims, cut.radix)))
    block = on_host(np.packbits, x.block, axis=axis, bitorder=bitorder)
    return wrap(block, x.layout.replace(axis, packed), mesh)


@implements(np.unpackbits, computes=False, alone=Alone())
def unpackbits(
    a: ArrayLike, /, axis: Axis = None, count: int | None = None, bitorder: str = "big"
) -> Any:
    """Unpack the bits of bytes as elements; see :func:`numpy.unpackbits`.

    Returns
    -------
    DistArray
        The bits stay on the rank that holds their byte.

    Cost
    ----
    None if the axis is given; with a `count` beyond the last bit, the cost of appending zeros.
    """
    count = count if count is None else operator.index(count)
    x, axis = _line(np.unpackbits, a, axis, bitorder)
    cut = x.layout.cuts[axis]
    if cut.step < 0:
        cut = Cut.chunked(cut.extent, cut.mesh_dims, cut.radix)
        x = to_layout(x, x.layout.replace(axis, cut))
    lengths = [8 * (stop - start) for start, stop in map(cut.interval, range(cut.parts))]
    bits = Cut.ragged(lengths, cut.mesh_dims, cut.radix) if cut.parts > 1 else None
    layout = x.layout.replace(axis, bits or Cut.whole(8 * cut.extent))
    result = wrap(on_host(np.unpackbits, x.block, axis=axis, bitorder=bitorder), layout, x.mesh)
    return result if count is None else _counted(result, axis, count)


def _counted(bits: DistArray, axis: int, count: int) -> Any:
    """Return the first `count` bits along an axis; missing bits are zeros."""
    extent = bits.shape[axis]
    kept = count if count >= 0 else extent + count
    if kept < 0:
        raise ValueError("-count larger than number of elements")
    if kept <= extent:
        return bits[(slice(None),) * axis + (slice(0, kept),)]
    missing = [*bits.shape[:axis], kept - extent, *bits.shape[axis + 1 :]]
    return np.concatenate([bits, np.zeros(missing, np.uint8)], axis)


def _line(
    function: Callable[..., Any], a: ArrayLike, axis: Axis, bitorder: str
) -> tuple[DistArray, int]:
    """Return the operand and the axis to work along; raise NumPy's exceptions."""
    x = as_distarray(a)
    function(tiny(x.shape, x.dtype), axis=axis, bitorder=bitorder)
    if axis is None or not x.ndim:
        return as_distarray(in_line(x), x.mesh).plain(), 0
    return x, normalize_axis_index(axis, x.ndim)
