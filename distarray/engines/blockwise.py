"""The elementwise engine: one NumPy call on each rank, where the operands lie.

Operands that lie elsewhere are brought to the layout that :func:`~distarray.plan.propagate`
chooses. The parts that other ranks send stay in the buffers they are received in, and this rank's
own part is not copied: see :mod:`distarray.engines.cells`.
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

#: More pieces of one operand than this are put together before the call.
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

    What replicated operands broadcast to is cut if it is large: each rank computes its part.

    Parameters
    ----------
    function : callable
        A ufunc, or a function that works element by element on operands that broadcast.
    inputs : sequence
        Distributed arrays, on one mesh and without pending folds, and anything NumPy takes.
    outs : sequence of DistArray or None
        Arrays for the results; the call is then made in their layout.
    where : array_like of bool
        As in a ufunc call.
    whole : bool
        Whether what replicated operands broadcast to is replicated, however large it is.
    **keywords
        For `function`.

    Returns
    -------
    DistArray or tuple of DistArray

    Cost
    ----
    Nothing when the operands have one layout; else one message a pair of ranks for each operand
    that has to move.
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
    """The result of operands that lie alike, which may be put off; None if they do not."""
    later = None if keywords else deferred.put_off(function, tuple(inputs))
    if later is not None:
        return later
    found = in_one_layout(inputs)
    if found is None or not found[1].shape or found[2].device_type != "cpu":
        return None
    return _wrapped(function(*found[0], **keywords), found[1], found[2])


def _put_off(request: Request, layout: Layout) -> tuple[Any, Any]:
    """The array of a call that is put off; or the call, if it has to be made at once."""
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
    """Blocks of operands that have one layout or are Python's numbers, their layout and mesh.

    None for others, where no operand is distributed, and for an element that one rank alone has.
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
    """This rank's call, with the parts of the operands that other ranks send.

    NumPy's errors are raised before anything is sent, on all ranks.
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
    """This rank's call, of operands alone, whose parts are there or blocks of arrays."""
    blocks = [x.block if isinstance(x, DistArray) else x for x in parts]
    shape = layout.local_shape(request.mesh.coords)
    in_pieces, dtypes = _in_pieces(request, layout), request.result_types()
    return Call(_callee(request), blocks, None, [], shape, dtypes, {}, in_pieces)


def _in_pieces(request: Request, layout: Layout) -> bool:
    """Whether some rank may have an operand in several parts; the same on all ranks."""
    return any(x.layout is not layout and _moves(x.layout, layout) for x in request.arrays)


def _is_asked(request: Request, layout: Layout) -> bool:
    """Whether NumPy is asked for the data types of the results before the call.

    Where all arrays have one layout, the call itself raises on all ranks; but CuPy refuses less.
    """
    if request.mask is not None or (request.outs and request.mesh.device_type != "cpu"):
        return True
    for x in request.arrays:
        if x.layout is not layout:
            return True
    return bool(request.given) and any(out.layout is not layout for out in request.given)


def _callee(request: Request) -> Callable[..., Any]:
    """The function as it takes blocks, and blocks for results."""
    function = request.function
    if request.mesh.device_type != "cpu":
        return Adapted(function, request.mesh.xp)
    return faults.DETOURS.get(function, function) if isinstance(function, np.ufunc) else function


def _target(out: DistArray, request: Request, layout: Layout) -> Array:
    """A block to compute into: an `out`'s own, or a fresh one if that lies otherwise.

    With a mask not all elements will be written: a fresh one begins with those of `out`.
    """
    mesh = request.mesh
    if out.layout is layout or request.mask is not None:
        return movement.moved(out.block, out.layout, layout, mesh)
    fresh: Array = mesh.xp.empty(layout.local_shape(mesh.coords), out.dtype)
    return fresh


def _evaluated(call: Call, request: Request, layout: Layout) -> Any:
    """The blocks of the results; what one rank alone raises is raised on all."""
    if _depends(request):
        return agreed(request.mesh.group, partial(evaluate, call))
    with floaterrors.of_elements(layout, request.mesh):
        return evaluate(call)


def _given(
    keywords: dict[str, Any], where: ArrayLike | bool, outs: Sequence[DistArray | None]
) -> dict[str, Any]:
    """The keywords of a call as a program gives them."""
    mask = {} if where is True else {"where": where}
    return {**keywords, **mask, **({"out": tuple(outs)} if outs else {})}


def _has_effects(request: Request, layout: Layout) -> bool:
    """Whether methods of objects are to be called whose effects all ranks have to see.

    Every rank has such objects themselves; their methods may change them, or others.
    """
    for x in request.arrays:
        if x.dtype.hasobject and x.layout.is_replicated and not layout.is_replicated:
            return holds_changeable(x.block)
    return False


def _depends(request: Request) -> bool:
    """Whether a rank may fail by itself, for elements that it holds.

    An object may lack the operation; converted to a string, or from one, an element may be too
    long or no number.
    """
    for x in request.arrays:
        if x.dtype.hasobject:
            return True
    return bool(request.given) and any(out.block.dtype.kind in "SU" for out in request.given)


def _results(value: Any, request: Request, layout: Layout) -> Any:
    """The blocks of the results as arrays, those of `outs` among them."""
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
    """Whether NumPy's result for 0-d operands is a scalar; CuPy's always is an array."""
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


# -- operands brought to a layout ------------------------------------------------------------------


def prepare(*inputs: ArrayLike) -> tuple[list[Any], Layout, DeviceMesh]:
    """Blocks of operands brought to one layout, that layout, and the mesh.

    For functions that need their operands side by side but not one call of one function.
    Numbers stay as they are; blocks still broadcast against one another.
    """
    mesh = common_mesh(*inputs)
    operands = [x if type(x) in NUMBERS else as_distarray(x, mesh) for x in inputs]
    arrays = [x for x in operands if isinstance(x, DistArray)]
    layouts, sizes = tuple([x.layout for x in arrays]), tuple([x.itemsize for x in arrays])
    result = propagate(layouts, sizes).result
    blocks = [_assembled(x, result) if isinstance(x, DistArray) else x for x in operands]
    return blocks, result, mesh


def _assembled(x: DistArray, result: Layout) -> Array:
    """This rank's part of an operand in one array that broadcasts."""
    target = restrict(result, x.shape)
    block = movement.moved(x.block, x.layout, target, x.mesh)
    return block if result.holds(x.mesh.coords) else _nothing(x, result)


def _part(x: DistArray, result: Layout) -> Part:
    """This rank's part of an operand: one array that broadcasts, or pieces."""
    block: Array = x.block
    return block if x.layout is result else _part_of(block, x, result)


def _late_part(x: Any, result: Layout) -> Any:
    """As :func:`_part`; but an array itself if it lies well, and numbers.

    Pieces of others may still have to come.
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
    """Whether some rank may have parts of an operand from several ranks; one element has none."""
    return layout.size > 1 and moved_elements(layout, restrict(result, layout.shape)) > 0


def _joined(
    brought: movement.Brought, x: DistArray, target: Layout, result: Layout
) -> Array | Pieces:
    """The pieces of an operand, in one array if they are one, very many, or empty."""
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
    """The part of a rank that holds nothing of the result: empty, and of the result's own shape.

    The operand's block may have dimensions of length 1 where the result's has none.
    """
    empty: Array = x.mesh.xp.empty(result.local_shape(x.mesh.coords), x.dtype)
    return empty


@lru_cache(maxsize=4096)
def _boxes(layout: Layout, result: Layout, coords: Coords | None) -> tuple[Box, ...]:
    """The boxes of an operand's pieces in the result's block, in `movement.pieces`' order."""
    target = restrict(result, layout.shape)
    plan = plan_exchange(layout, target, coords)
    slices = [plan.kept[1]] if plan.kept else []
    slices += [transfer.slices for transfer in plan.receives]
    shape = result.local_shape(coords)
    return tuple([_lifted(part, layout.shape, result.shape, shape) for part in slices])


def _lifted(slices: Sequence[slice], shape: Shape, whole: Shape, block: Shape) -> Box:
    """The box, in the result's block, of a piece of an operand that broadcasts onto it.

    Parameters
    ----------
    slices : sequence of slice
        Of the operand's part for this rank.
    shape, whole : tuple of int
        Of the operand and of the result.
    block : tuple of int
        Of the result's block.
    """
    lead = len(whole) - len(shape)
    box = [(0, extent) for extent in block[:lead]]
    for part, extent, out, have in zip(slices, shape, whole[lead:], block[lead:], strict=True):
        box.append((part.start, part.stop) if extent == out else (0, have))
    return tuple(box)
