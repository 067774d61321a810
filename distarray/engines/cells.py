"""One elementwise call on a rank whose operands may each be stored in several arrays.

Elements from other ranks stay in their receive buffers. The function is called once for each cell:
a box of the result in which every operand is one array.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from distarray.array import faults
from distarray.array.pieces import Part, Pieces, cells_of, whole_box
from distarray.array.portable import Adapted, in_c_order, made_like
from distarray.typing import Array, DType, Shape

__all__ = ["Call", "evaluate"]


class Call(NamedTuple):
    """Elementwise call on one rank.

    Attributes
    ----------
    function : callable
        The function, adapted to blocks of the device.
    parts : list of Part
        This rank's parts of the operands.
    mask : array or Pieces or None
        The call's `where`.
    outs : list of array or None
        Blocks to compute into, None for results that NumPy allocates. Empty: NumPy allocates all.
    shape : tuple of int
        Shape of the results' blocks.
    dtypes : list of dtype or None
        Data types of the results, if they were determined before the call.
    keywords : dict
        Keyword arguments of `function`.
    in_c_order : bool
        True if results that NumPy allocates must be in C order, like those of ranks that compute
        in cells; else they are in the operands' memory order.
    """

    function: Callable[..., Any]
    parts: list[Part]
    mask: Array | Pieces | None
    outs: list[Array | None]
    shape: Shape
    dtypes: list[DType] | None
    keywords: dict[str, Any]
    in_c_order: bool = False

    @property
    def operands(self) -> list[Part]:
        """All arrays that the call reads: the parts, then the mask if there is one."""
        return self.parts if self.mask is None else [*self.parts, self.mask]


def evaluate(call: Call) -> Any:
    """Compute the block of the result, or a tuple of blocks."""
    for operand in call.operands:
        if type(operand) is Pieces:
            return _by_cells(call)
    keywords, outs = call.keywords, call.outs
    if call.mask is not None:
        keywords = {**keywords, "where": call.mask}
        outs = outs or [*_allocated(call)]
    if outs:
        keywords = {**keywords, "out": tuple(outs) if len(outs) > 1 else outs[0]}
    found = call.function(*call.parts, **keywords)
    if not call.in_c_order or outs:
        return found
    return tuple(map(in_c_order, found)) if isinstance(found, tuple) else in_c_order(found)


def _allocated(call: Call) -> list[Array]:
    """Allocate blocks for the results, on the device of the operands."""
    samples = [part[0][1] if isinstance(part, Pieces) else part for part in call.operands]
    like: Any = next(sample for sample in samples if hasattr(sample, "dtype"))
    dtypes = call.dtypes or []
    return [made_like(np, "empty_like", like, dtype, "C", call.shape) for dtype in dtypes]


def _by_cells(call: Call) -> Any:
    """Call the function once for each box in which every operand is one array."""
    targets = _targets(call)
    for key, views, _ in cells_of(call.operands, whole_box(call.shape)):
        where = {} if call.mask is None else {"where": views.pop()}
        found = tuple([target[key] for target in targets])
        if isinstance(call.function, (np.ufunc, Adapted, faults.Detour)):
            into = found if len(found) > 1 else found[0]
            call.function(*views, out=into, **where, **call.keywords)
        else:
            found[0][...] = call.function(*views, **call.keywords)
    for position, out in enumerate(call.outs):
        if out is not None and targets[position] is not out:
            out[...] = targets[position]
            targets[position] = out
    return tuple(targets) if len(targets) > 1 else targets[0]


def _targets(call: Call) -> list[Array]:
    """Return the arrays that the cells are computed into.

    An `out` is used unless a cell's result might overwrite elements that a later cell reads.
    """
    safe = [out is not None and not _clashes(out, call) for out in call.outs]
    if safe and all(safe):
        return [out for out in call.outs if out is not None]
    targets = _allocated(call)
    for position, out in enumerate(call.outs):
        if out is None:
            continue
        if safe[position]:
            targets[position] = out
        elif call.mask is not None:
            targets[position][...] = out
    return targets


def _clashes(out: Array, call: Call) -> bool:
    """Return True if writing one cell might overwrite elements that a later cell reads."""
    arrays: list[Any] = []
    for part in call.operands:
        arrays += [piece for _, piece in part] if isinstance(part, Pieces) else [part]
    return any(hasattr(a, "dtype") and a is not out and np.may_share_memory(a, out) for a in arrays)
