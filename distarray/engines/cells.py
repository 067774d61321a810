"""One elementwise call on a rank whose operands may each lie in several arrays.

What other ranks have sent stays in the buffers it was received in. The call is made once for each
cell, a box of the result in which every operand is one array.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from distarray.array import faults
from distarray.array.portable import Adapted
from distarray.layout import Box
from distarray.plan import intersect
from distarray.typing import Array, DType, Shape

__all__ = ["Call", "Part", "Pieces", "evaluate"]


class Pieces(list[tuple[Box, Array]]):
    """An operand in several arrays, each with its box in the result's block."""


#: A rank's part of an operand: an array that broadcasts, pieces of one, or a number.
Part: TypeAlias = Array | Pieces | complex


class Call(NamedTuple):
    """An elementwise call on one rank.

    Attributes
    ----------
    function : callable
        As blocks of the device take it.
    parts : list of Part
        Of the operands.
    mask : array or Pieces or None
        The call's `where`.
    outs : list of array or None
        Blocks to compute into, None for results that NumPy makes. Empty: NumPy makes all.
    shape : tuple of int
        Of the results' blocks.
    dtypes : list of dtype or None
        Of the results, where they were asked for.
    keywords : dict
        For `function`.
    """

    function: Callable[..., Any]
    parts: list[Part]
    mask: Array | Pieces | None
    outs: list[Array | None]
    shape: Shape
    dtypes: list[DType] | None
    keywords: dict[str, Any]

    @property
    def operands(self) -> list[Part]:
        """All that the call reads: the parts, then the mask if there is one."""
        return self.parts if self.mask is None else [*self.parts, self.mask]


def evaluate(call: Call) -> Any:
    """The block of the result, or a tuple of blocks."""
    for operand in call.operands:
        if type(operand) is Pieces:
            return _by_cells(call)
    keywords, outs = call.keywords, call.outs
    if call.mask is not None:
        keywords = {**keywords, "where": call.mask}
        outs = outs or [*_allocated(call)]
    if outs:
        keywords = {**keywords, "out": tuple(outs) if len(outs) > 1 else outs[0]}
    return call.function(*call.parts, **keywords)


def _allocated(call: Call) -> list[Array]:
    """Blocks for the results, on the device that the operands are on."""
    samples = [part[0][1] if isinstance(part, Pieces) else part for part in call.operands]
    like: Any = next(sample for sample in samples if hasattr(sample, "dtype"))
    return [np.empty_like(like, dtype, "C", False, call.shape) for dtype in call.dtypes or []]


def _by_cells(call: Call) -> Any:
    """One call for each box in which every operand is one array."""
    targets, operands = _targets(call), call.operands
    whole = tuple([(0, extent) for extent in call.shape])
    for key, sources in _cells(tuple([_outline(x, whole) for x in operands]), whole):
        views = [_at(operand, source) for operand, source in zip(operands, sources, strict=True)]
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
    """The arrays that cells are computed into.

    An `out` is one of them where no cell's result can spoil what another cell reads.
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
    """Whether writing one cell might change what a later cell reads."""
    arrays: list[Any] = []
    for part in call.operands:
        arrays += [piece for _, piece in part] if isinstance(part, Pieces) else [part]
    return any(hasattr(a, "dtype") and a is not out and np.may_share_memory(a, out) for a in arrays)


#: The arrays that an operand lies in: the box and the shape of each. Scalars have none.
_Outline: TypeAlias = tuple[tuple[Box, Shape], ...]
#: The array of an operand that a cell takes, by number, and its slices; None for a scalar.
_Source: TypeAlias = tuple[int, tuple[slice, ...]] | None


def _outline(operand: Any, whole: Box) -> _Outline:
    if isinstance(operand, Pieces):
        return tuple([(box, piece.shape) for box, piece in operand])
    return ((whole, operand.shape),) if getattr(operand, "ndim", 0) else ()


@lru_cache(maxsize=4096)
def _cells(
    outlines: tuple[_Outline, ...], whole: Box
) -> list[tuple[tuple[slice, ...], list[_Source]]]:
    """The boxes in which every operand is one array: slices of the result, and of each operand."""
    cells = [whole]
    for outline in outlines:
        if outline:
            met = [intersect(cell, box) for cell in cells for box, _ in outline]
            cells = [cell for cell in met if cell is not None]
    found = []
    for cell in cells:
        key = tuple([slice(start, stop) for start, stop in cell])
        found.append((key, [_source(cell, outline) for outline in outlines]))
    return found


def _source(cell: Box, outline: _Outline) -> _Source:
    if not outline:
        return None
    for number, (box, shape) in enumerate(outline):
        if intersect(box, cell) == cell:
            return number, _key(shape, cell, box)
    raise AssertionError("every cell lies within one array of each operand")


def _key(shape: Shape, cell: Box, box: Box) -> tuple[slice, ...]:
    """Slices of an array that broadcasts onto `box`, for the elements of `cell`."""
    lead = len(cell) - len(shape)
    key = []
    for extent, (start, stop), (low, high) in zip(shape, cell[lead:], box[lead:], strict=True):
        stretched = extent == 1 and high - low != 1
        key.append(slice(None) if stretched else slice(start - low, stop - low))
    return tuple(key)


def _at(operand: Any, source: _Source) -> Any:
    """An operand's elements for a cell."""
    if source is None:
        return operand
    number, key = source
    return operand[number][1][key] if isinstance(operand, Pieces) else operand[key]
