"""The elementwise engine: one NumPy call on each rank, on its blocks of the operands.

Operands of another layout are redistributed to the layout that :func:`~distarray.plan.propagate`
chooses. Elements from other ranks stay in their receive buffers, and this rank's own elements are
not copied: see :mod:`distarray.engines.cells`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

from distarray.array import (
    DistArray,
    as_distarray,
    common_mesh,
    deferred,
    fall_back,
    faults,
    floaterrors,
    movement,
    single,
    wrap,
)
from distarray.array.immutable import holds_changeable
from distarray.array.pieces import Part, Pieces
from distarray.array.portable import Adapted
from distarray.comm import DeviceMesh
from distarray.comm.agree import agreed
from distarray.engines.cells import Call, evaluate
from distarray.engines.requests import NUMBERS, Request, working_layout
from distarray.layout import Box, Coords, Layout
from distarray.plan import moved_elements, plan_exchange, propagate, restrict
from distarray.typing import Array, ArrayLike, Shape

__all__ = ["apply_blockwise", "in_one_layout", "prepare"]

#: Maximum number of pieces of an operand; more are copied into one array before the call.
_MOST_PIECES = 16


def apply_blockwise(
    function: Callable[..., Any],
    inputs: Sequence[ArrayLike],
    outs: Sequence[DistArray | None] = (),
    where: ArrayLike | bool = True,
    whole: bool = False,
    **keywords: Any,
) -> Any:
    """Call an elementwise NumPy function on distributed operands, broadcasting them.

    If all operands are replicated and the result is large, it is cut: each rank computes its block.

    Parameters
    ----------
    function : callable
        A ufunc, or a function that works element by element on operands that broadcast.
    inputs : sequence
        Distributed arrays, on one mesh and without pending folds, and anything NumPy accepts.
    outs : sequence of DistArray or None
        Arrays for the results; the call is then made in their layout.
    where : array_like of bool
        Mask, as in a ufunc call.
    whole : bool
        True to keep the result of replicated operands replicated, however large it is.
    **keywords
        Keyword arguments of `function`.

    Returns
    -------
    DistArray or tuple of DistArray

    Cost
    ----
    No communication if the operands have one layout; else one message per pair of ranks for each
    operand that has to move.
    """
    if not outs and where is True:
        found = _at_once(function, inputs, keywords)
        if found is not None:
            return found
    request = Request(function, inputs, outs, where, keywords)
    layout, grown = working_layout(request, whole)
    if _has_effects(request, layout):
        return fall_back(function, tuple(inputs), _given(keywords, where, outs))
    if request.is_bare and deferred.is_late(function, request.arrays, layout):
        call, later = _put_off(request, layout)
        if later is not None:
            return later
    else:
        call = _call(request, layout)
    if grown:
        floaterrors.divide(request.mesh)
    return _results(_evaluated(call, request, layout), request, layout)


def _at_once(
    function: Callable[..., Any], inputs: Sequence[ArrayLike], keywords: dict[str, Any]
) -> Any:
    """Compute or defer the result of operands of one layout; None if this path does not apply."""
    later = None if keywords else deferred.put_off(function, tuple(inputs))
    if later is not None:
        return later
    found = in_one_layout(inputs)
    if found is None or not found[1].shape or found[2].device_type != "cpu":
        return None
    return _wrapped(function(*found[0], **keywords), found[1], found[2])


def _put_off(request: Request, layout: Layout) -> tuple[Any, Any]:
    """Defer the call; return (None, its array), or (call, None) if it cannot be deferred."""
    parts = [_late_part(x, layout) for x in request.operands]
    later = deferred.put_off_in(request.function, request.operands, parts, layout)
    if later is not None:
        return None, later
    for part in parts:
        if type(part) is Pieces:
            part.arrive()
    return _bare_call(request, layout, parts), None


# -- operands of one layout ------------------------------------------------------------------------


def in_one_layout(operands: Iterable[Any]) -> tuple[list[Any], Layout, DeviceMesh] | None:
    """Return the blocks, layout and mesh of operands of one layout; Python numbers are kept.

    Return None for other operands, if no operand is distributed, and for a single element that only
    one rank holds.
    """
    blocks: list[Any] = []
    layout: Layout | None = None
    mesh: Any = None
    for x in operands:
        kind = type(x)
        if kind is DistArray:
            if layout is None:
                layout, mesh = x.layout, x.mesh
                if layout.is_lone_element:
                    return None
            elif x.layout is not layout or x.mesh is not mesh:
                return None
            x = x.block
        elif kind not in NUMBERS:
            return None
        blocks.append(x)
    return None if layout is None else (blocks, layout, mesh)


def _wrapped(value: Any, layout: Layout, mesh: DeviceMesh) -> Any:
    if isinstance(value, tuple):
        return tuple([wrap(block, layout, mesh) for block in value])
    return wrap(value, layout, mesh)


# -- operands of any layout ------------------------------------------------------------------------


def _call(request: Request, layout: Layout) -> Call:
    """Build this rank's call; receive the operands' elements that other ranks hold.

    All ranks raise NumPy's errors before any message is sent.
    """
    mesh, dtypes = request.mesh, None
    if _is_asked(request, layout):
        dtypes = request.result_types()
    parts = [_part(x, layout) if isinstance(x, DistArray) else x for x in request.operands]
    mask: Any = None if request.mask is None else _part(request.mask, layout)
    outs = [None if out is None else _target(out, request, layout) for out in request.outs]
    shape = layout.local_shape(mesh.coords)
    in_pieces = _in_pieces(request, layout)
    return Call(_callee(request), parts, mask, outs, shape, dtypes, request.keywords, in_pieces)


def _bare_call(request: Request, layout: Layout, parts: Sequence[Any]) -> Call:
    """Build this rank's call without mask, `outs` and keywords, from received parts or blocks."""
    blocks = [x.block if isinstance(x, DistArray) else x for x in parts]
    shape = layout.local_shape(request.mesh.coords)
    in_pieces, dtypes = _in_pieces(request, layout), request.result_types()
    return Call(_callee(request), blocks, None, [], shape, dtypes, {}, in_pieces)


def _in_pieces(request: Request, layout: Layout) -> bool:
    """Return True if some rank may have an operand in several pieces; the same on all ranks."""
    return any(x.layout is not layout and _moves(x.layout, layout) for x in request.arrays)


def _is_asked(request: Request, layout: Layout) -> bool:
    """Return True if NumPy determines the data types of the results before the call.

    If all arrays have one layout, the call itself raises on all ranks. CuPy rejects fewer arguments
    than NumPy, so `outs` on a GPU need NumPy's check, too.
    """
    if request.mask is not None or (request.outs and request.mesh.device_type != "cpu"):
        return True
    for x in request.arrays:
        if x.layout is not layout:
            return True
    return bool(request.given) and any(out.layout is not layout for out in request.given)


def _callee(request: Request) -> Callable[..., Any]:
    """Return the function to call on blocks: adapted to CuPy, or with NumPy's faults avoided."""
    function = request.function
    if request.mesh.device_type != "cpu":
        return Adapted(function, request.mesh.xp)
    return faults.DETOURS.get(function, function) if isinstance(function, np.ufunc) else function


def _target(out: DistArray, request: Request, layout: Layout) -> Array:
    """Return the block to compute into: the block of `out`, or a new one if its layout differs.

    With a mask, not all elements are written, so the new block starts with the elements of `out`.
    """
    mesh = request.mesh
    if out.layout is layout or request.mask is not None:
        return movement.moved(out.block, out.layout, layout, mesh)
    fresh: Array = mesh.xp.empty(layout.local_shape(mesh.coords), out.dtype)
    return fresh


def _evaluated(call: Call, request: Request, layout: Layout) -> Any:
    """Compute the blocks of the results; an exception of a single rank is raised on all ranks."""
    if _depends(request):
        return agreed(request.mesh.group, partial(evaluate, call))
    with floaterrors.of_elements(layout, request.mesh):
        return evaluate(call)


def _given(
    keywords: dict[str, Any], where: ArrayLike | bool, outs: Sequence[DistArray | None]
) -> dict[str, Any]:
    """Return the keywords of a call as the user's program passed them."""
    mask = {} if where is True else {"where": where}
    return {**keywords, **mask, **({"out": tuple(outs)} if outs else {})}


def _has_effects(request: Request, layout: Layout) -> bool:
    """Return True if the call runs methods of objects whose side effects all ranks must see.

    Every rank holds its own copy of such objects; their methods may change these or other objects.
    """
    for x in request.arrays:
        if x.dtype.hasobject and x.layout.is_replicated and not layout.is_replicated:
            return holds_changeable(x.block)
    return False


def _depends(request: Request) -> bool:
    """Return True if a single rank may fail because of the elements that it holds.

    An object may lack the operation. An element converted to a string may be too long; a string may
    not represent a number.
    """
    for x in request.arrays:
        if x.dtype.hasobject:
            return True
    return bool(request.given) and any(out.block.dtype.kind in "SU" for out in request.given)


def _results(value: Any, request: Request, layout: Layout) -> Any:
    """Wrap the blocks of the results as arrays; results with an `out` are stored there."""
    mesh, outs = request.mesh, request.outs
    if not outs:
        if not layout.shape and _gives_scalar(request):
            several = isinstance(value, tuple)
            value = tuple(map(mesh.scalar, value)) if several else single(value, layout, mesh)
        return _wrapped(value, layout, mesh)
    values = value if isinstance(value, tuple) else (value,)
    pairs = zip(values, outs, strict=True)
    found = tuple([_finish(block, out, layout, mesh) for block, out in pairs])
    return found if isinstance(value, tuple) else found[0]


def _gives_scalar(request: Request) -> bool:
    """Return True if NumPy's result for 0-d operands is a scalar; CuPy always returns an array."""
    if isinstance(request.function, np.ufunc):
        return True
    tiny = [np.ones((), x.dtype) if isinstance(x, DistArray) else x for x in request.operands]
    with np.errstate(all="ignore"):
        return isinstance(request.function(*tiny, **request.keywords), np.generic)


def _finish(block: Array, out: DistArray | None, layout: Layout, mesh: DeviceMesh) -> DistArray:
    if out is None:
        return wrap(block, layout, mesh)
    if out.layout is not layout:
        movement.assign(out.block, out.layout, block, layout, mesh)
    return out


# -- operands redistributed to a layout ------------------------------------------------------------


def prepare(*inputs: ArrayLike) -> tuple[list[Any], Layout, DeviceMesh]:
    """Redistribute operands to one layout; return their blocks, the layout and the mesh.

    For functions that need aligned blocks but are not a single elementwise call. Numbers are
    returned unchanged; the blocks still broadcast against one another.
    """
    mesh = common_mesh(*inputs)
    operands = [x if type(x) in NUMBERS else as_distarray(x, mesh) for x in inputs]
    arrays = [x for x in operands if isinstance(x, DistArray)]
    layouts, sizes = tuple([x.layout for x in arrays]), tuple([x.itemsize for x in arrays])
    result = propagate(layouts, sizes).result
    blocks = [_assembled(x, result) if isinstance(x, DistArray) else x for x in operands]
    return blocks, result, mesh


def _assembled(x: DistArray, result: Layout) -> Array:
    """Return this rank's part of an operand as one array that broadcasts."""
    target = restrict(result, x.shape)
    block = movement.moved(x.block, x.layout, target, x.mesh)
    return block if result.holds(x.mesh.coords) else _nothing(x, result)


def _part(x: DistArray, result: Layout) -> Part:
    """Return this rank's part of an operand: one array that broadcasts, or pieces."""
    block: Array = x.block
    return block if x.layout is result else _part_of(block, x, result)


def _late_part(x: Any, result: Layout) -> Any:
    """Return an operand's part for a deferred call; numbers and arrays of `result` as they are.

    Pieces from other ranks may still be in transit.
    """
    if not isinstance(x, DistArray) or x.layout is result:
        return x
    return _part_of(deferred.read(x), x, result, late=True)


def _part_of(block: Array, x: DistArray, result: Layout, late: bool = False) -> Part:
    layout, mesh = x.layout, x.mesh
    target, holds = restrict(result, layout.shape), result.holds(mesh.coords)
    if layout is target or layout.is_replicated:
        return movement.moved(block, layout, target, mesh) if holds else _nothing(x, result)
    found = movement.bring(block, layout, target, mesh, late)
    return _joined(found, x, target, result) if holds else _nothing(x, result)


@lru_cache(maxsize=4096)
def _moves(layout: Layout, result: Layout) -> bool:
    """Return True if some rank may receive elements of an operand; False for a single element."""
    return layout.size > 1 and moved_elements(layout, restrict(result, layout.shape)) > 0


def _joined(
    brought: movement.Brought, x: DistArray, target: Layout, result: Layout
) -> Array | Pieces:
    """Return the pieces of an operand; as one array if there is one, very many, or no elements."""
    shape, found = target.local_shape(x.mesh.coords), [*brought.own, *brought.received]
    is_whole = len(found) == 1 and found[0][1].shape == shape
    if not is_whole and len(found) <= _MOST_PIECES and 0 not in shape:
        boxes = _boxes(x.layout, result, x.mesh.coords)
        several = Pieces([(box, piece) for box, (_, piece) in zip(boxes, found, strict=True)])
        several.own, several.coming = len(brought.own), brought.pending
        return several
    brought.pending.wait()
    if is_whole:
        return found[0][1]
    block: Array = x.mesh.xp.empty(shape, x.dtype)
    for slices, piece in found:
        block[slices] = piece
    return block


def _nothing(x: DistArray, result: Layout) -> Array:
    """Return the part of a rank that holds no elements of the result: an empty array of its shape.

    The operand's block may have dimensions of length 1 where the result's have length 0.
    """
    empty: Array = x.mesh.xp.empty(result.local_shape(x.mesh.coords), x.dtype)
    return empty


@lru_cache(maxsize=4096)
def _boxes(layout: Layout, result: Layout, coords: Coords | None) -> tuple[Box, ...]:
    """List the boxes of an operand's pieces in the result's block, in `movement.pieces`' order."""
    target = restrict(result, layout.shape)
    plan = plan_exchange(layout, target, coords)
    slices = [plan.kept[1]] if plan.kept else []
    slices += [transfer.slices for transfer in plan.receives]
    shape = result.local_shape(coords)
    return tuple([_lifted(part, layout.shape, result.shape, shape) for part in slices])


def _lifted(slices: Sequence[slice], shape: Shape, whole: Shape, block: Shape) -> Box:
    """Compute the box, in the result's block, of a piece of an operand that broadcasts onto it.

    Parameters
    ----------
    slices : sequence of slice
        The piece within the operand's part for this rank.
    shape, whole : tuple of int
        Shapes of the operand and of the result.
    block : tuple of int
        Shape of the result's block.
    """
    lead = len(whole) - len(shape)
    box = [(0, extent) for extent in block[:lead]]
    for part, extent, out, have in zip(slices, shape, whole[lead:], block[lead:], strict=True):
        box.append((part.start, part.stop) if extent == out else (0, have))
    return tuple(box)
