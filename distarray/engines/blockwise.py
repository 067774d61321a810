"""The elementwise engine: one NumPy call on each rank, where the operands lie.

Operands that lie elsewhere are brought to the layout that :func:`~distarray.plan.propagate`
chooses. What has to come from other ranks stays in the buffers it was received in, and the call
is made once for each cell in which every operand is one array; the part of an operand that is
here already is therefore never copied.
"""

import operator
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from math import prod
from typing import Any

import numpy as np

from distarray.array import DistArray, as_distarray, common_mesh, faults, movement, single, wrap
from distarray.array.portable import Adapted
from distarray.array.probes import (
    as_mask,
    check_shapes,
    check_writeable,
    refuse_shapes,
    result_types,
)
from distarray.comm import DeviceMesh
from distarray.comm.agree import agreed
from distarray.layout import Box, Coords, Layout
from distarray.plan import (
    intersect,
    plan_exchange,
    propagate,
    restrict,
)
from distarray.typing import Array

__all__ = ["alike", "apply_blockwise", "prepare"]

_SCALARS = frozenset({bool, int, float, complex})
#: What NumPy is asked about when shapes do not broadcast: it may find fault with the types first.
_ASKED = frozenset({operator.eq, operator.ne, np.clip, np.where, np.isclose})
#: More pieces of one operand than this are put together before the call.
_MOST_PIECES = 16


def apply_blockwise(
    function: Callable[..., Any],
    inputs: Sequence[Any],
    outs: Sequence[DistArray | None] = (),
    where: Any = True,
    **keywords: Any,
) -> Any:
    """Call an elementwise NumPy function on distributed operands, broadcasting them.

    Parameters
    ----------
    function : callable
        A ufunc, or a function that does to each element what NumPy's broadcasting rules say.
    inputs : sequence
        Distributed arrays, on one mesh and without pending folds, and anything NumPy takes.
    outs : sequence of DistArray or None
        Arrays for the results; their layout is then the one worked in.
    where : array_like of bool
        As in a ufunc call.
    **keywords
        Passed on to `function`.

    Returns
    -------
    DistArray or tuple of DistArray

    Cost
    ----
    Nothing when the operands lie alike; else one message a pair of ranks for each operand that
    has to move.
    """
    if not outs and where is True:
        found = alike(inputs)
        if found is not None and found[1].shape and found[2].device_type == "cpu":
            return _wrapped(function(*found[0], **keywords), found[1], found[2])
    mesh = common_mesh(*inputs, *outs, where)
    operands = [x if type(x) in _SCALARS else as_distarray(x, mesh) for x in inputs]
    mask = True if where is True else as_mask(where, mesh)
    arrays = [x for x in (*operands, mask) if isinstance(x, DistArray)]
    given = [out for out in outs if out is not None]
    check_writeable(given)
    try:
        result = _working_layout(arrays, given)
    except ValueError:
        if isinstance(function, np.ufunc) or function in _ASKED:
            refuse_shapes(function, operands, outs, keywords)
        raise
    types = None
    asked = bool(outs) and mesh.device_type != "cpu"  # CuPy refuses less, and otherwise
    if asked or mask is not True or any(x.layout is not result for x in (*arrays, *given)):
        # Asked of NumPy before anything is sent: what it refuses, it refuses on all ranks.
        types = result_types(function, operands, outs, keywords)
    parts: list[Any] = [_local(x, result) if isinstance(x, DistArray) else x for x in operands]
    mask = _local(mask, result) if isinstance(mask, DistArray) else mask
    blocks = _targets(outs, result, mesh, filled=mask is not True)
    scalar = not result.shape and not outs and _gives_scalar(function, operands, keywords)
    function = _adapted(function, mesh)
    asked_for = function, parts, mask, blocks, (result.local_shape(mesh.coords), types), keywords
    value = _agreed(mesh, asked_for) if _depends(arrays, given) else _evaluate(*asked_for)
    if scalar:
        several = type(value) is tuple
        value = tuple(map(mesh.scalar, value)) if several else single(value, result, mesh)
    if isinstance(value, tuple):
        given_outs = list(outs) or [None] * len(value)
        pairs = zip(value, given_outs, strict=True)
        return tuple([_finish(block, out, result, mesh) for block, out in pairs])
    return _finish(value, outs[0] if outs else None, result, mesh)


def _adapted(function: Callable[..., Any], mesh: DeviceMesh) -> Callable[..., Any]:
    """The function as it can be called on blocks, with results to write to among the arguments."""
    if mesh.device_type != "cpu":
        return Adapted(function, mesh.xp)
    if isinstance(function, np.ufunc):
        return faults.DETOURS.get(function, function)  # type: ignore[no-any-return]
    return function


def _depends(arrays: Sequence[DistArray], outs: Sequence[DistArray]) -> bool:
    """Whether elements decide if there is a result: an object may have no such operation.

    What is converted to text, or text that is converted to numbers, may be too long or no number.
    """
    for x in arrays:
        if x.block.dtype.hasobject:
            return True
    return bool(outs) and any(out.block.dtype.kind in "SU" for out in outs)


def _agreed(mesh: DeviceMesh, asked_for: tuple[Any, ...]) -> Any:
    return agreed(mesh.group, partial(_evaluate, *asked_for))


def alike(operands: Iterable[Any]) -> tuple[list[Array], Layout, DeviceMesh] | None:
    """Blocks of operands that all lie alike or are Python's numbers, their layout and mesh.

    None for others, and where none is distributed.
    """
    blocks = []
    layout: Layout | None = None
    mesh: Any = None
    for x in operands:
        kind = type(x)
        if kind is DistArray:
            if layout is None:
                layout, mesh = x.layout, x.mesh
            elif x.layout is not layout or x.mesh is not mesh:
                return None
            x = x.block
        elif kind not in _SCALARS:
            return None
        blocks.append(x)
    return None if layout is None else (blocks, layout, mesh)


def _wrapped(value: Any, layout: Layout, mesh: DeviceMesh) -> Any:
    if isinstance(value, tuple):
        return tuple([wrap(block, layout, mesh) for block in value])
    return wrap(value, layout, mesh)


def _gives_scalar(function: Callable[..., Any], operands: Sequence[Any], keywords: Any) -> bool:
    """Whether NumPy's result for 0-d operands is a scalar; what CuPy gives does not tell."""
    if isinstance(function, np.ufunc):
        return True
    tiny = [np.ones((), x.dtype) if isinstance(x, DistArray) else x for x in operands]
    with np.errstate(all="ignore"):
        return isinstance(function(*tiny, **keywords), np.generic)


def _working_layout(arrays: Sequence[DistArray], outs: Sequence[DistArray]) -> Layout:
    """The layout to compute in: the one for which least has to move."""
    if outs:
        check_shapes(arrays, outs)
    everything = [*outs, *arrays]
    first = everything[0].layout
    if all(x.layout is first for x in everything):
        return first
    layouts, sizes = [x.layout for x in everything], [x.itemsize for x in everything]
    return propagate(tuple(layouts), tuple(sizes)).result


def prepare(*inputs: Any) -> tuple[list[Any], Layout, DeviceMesh]:
    """Blocks of operands brought to one layout, that layout, and the mesh.

    For functions that need their operands side by side but not one call of one function.
    Scalars stay what they are; blocks still broadcast against one another.
    """
    mesh = common_mesh(*inputs)
    operands = [x if type(x) in _SCALARS else as_distarray(x, mesh) for x in inputs]
    arrays = [x for x in operands if isinstance(x, DistArray)]
    layouts, sizes = tuple([x.layout for x in arrays]), tuple([x.itemsize for x in arrays])
    result = propagate(layouts, sizes).result
    blocks = [_assembled(x, result) if isinstance(x, DistArray) else x for x in operands]
    return blocks, result, mesh


def _targets(
    outs: Sequence[DistArray | None], layout: Layout, mesh: DeviceMesh, filled: bool
) -> list[Array | None]:
    """Blocks to compute into: an `out`'s own, or a fresh one if it lies otherwise.

    With `filled` a fresh one begins with the elements of `out`: not all will be written.
    """
    blocks: list[Array | None] = []
    for out in outs:
        if out is None or out.layout is layout:
            blocks.append(None if out is None else out.block)
        elif filled:
            blocks.append(movement.moved(out.block, out.layout, layout, mesh))
        else:
            blocks.append(mesh.xp.empty(layout.local_shape(mesh.coords), out.dtype))
    return blocks


def _finish(block: Array, out: DistArray | None, layout: Layout, mesh: DeviceMesh) -> DistArray:
    if out is None:
        return wrap(block, layout, mesh)
    if out.layout is not layout:
        movement.assign(out.block, out.layout, block, layout, mesh)
    return out


class _Pieces(list[tuple[Box, Array]]):
    """An operand in several arrays, each with its box in the result's block."""


def _local(x: DistArray, result: Layout) -> Any:
    """This rank's part of an operand: one array that broadcasts, or pieces."""
    layout, mesh = x.layout, x.mesh
    if layout is result:
        return x.block
    target = restrict(result, layout.shape)
    absent = (mesh.coords is None or result.ats) and not result.holds(mesh.coords)
    if layout is target:
        return _nothing(x, result) if absent else x.block
    if layout.is_replicated:
        return _nothing(x, result) if absent else movement.moved(x.block, layout, target, mesh)
    found = movement.pieces(x.block, layout, target, mesh)
    if absent:
        return _nothing(x, result)
    shape = target.local_shape(x.mesh.coords)
    if len(found) == 1 and found[0][1].shape == shape:
        return found[0][1]
    if len(found) > _MOST_PIECES or not prod(shape):
        return _assemble(found, shape, x)
    boxes = _boxes(layout, result, x.mesh.coords)
    return _Pieces([(box, part) for box, (_, part) in zip(boxes, found, strict=True)])


def _assemble(found: Sequence[movement.Piece], shape: tuple[int, ...], x: DistArray) -> Array:
    block = x.mesh.xp.empty(shape, x.dtype)
    for slices, part in found:
        block[slices] = part
    return block


def _assembled(x: DistArray, result: Layout) -> Array:
    """This rank's part of an operand in one array that broadcasts."""
    target = restrict(result, x.shape)
    block = movement.moved(x.block, x.layout, target, x.mesh)
    return block if result.holds(x.mesh.coords) else _nothing(x, result)


def _nothing(x: DistArray, result: Layout) -> Array:
    """The part of a rank that holds nothing of the result: empty, and of the result's own shape.

    The operand's block may have dimensions of length 1 where the result's has none.
    """
    return x.mesh.xp.empty(result.local_shape(x.mesh.coords), x.dtype)


@lru_cache(maxsize=4096)
def _boxes(layout: Layout, result: Layout, coords: Coords) -> tuple[Box, ...]:
    """Where the pieces of an operand belong in the result's block, in `movement.pieces`' order."""
    target = restrict(result, layout.shape)
    plan = plan_exchange(layout, target, coords)
    slices = [plan.kept[1]] if plan.kept else []
    slices += [transfer.slices for transfer in plan.receives]
    local = result.local_shape(coords)
    return tuple([_lifted(part, layout.shape, result.shape, local) for part in slices])


def _lifted(
    slices: Sequence[slice], shape: tuple[int, ...], whole: tuple[int, ...], local: tuple[int, ...]
) -> Box:
    """The box, in the result's block, of a piece of an operand that broadcasts onto it."""
    lead = len(whole) - len(shape)
    box = [(0, extent) for extent in local[:lead]]
    for part, extent, out, have in zip(slices, shape, whole[lead:], local[lead:], strict=True):
        box.append((part.start, part.stop) if extent == out else (0, have))
    return tuple(box)


#: Shape of the block to compute, and data types of the results where they have been asked for.
_Wanted = tuple[tuple[int, ...], list[Any] | None]


def _evaluate(
    function: Callable[..., Any],
    parts: list[Any],
    mask: Any,
    outs: list[Array | None],
    wanted: _Wanted,
    keywords: dict[str, Any],
) -> Any:
    if any(isinstance(part, _Pieces) for part in (*parts, mask)):
        return _by_cells(function, parts, mask, outs, wanted, keywords)
    if mask is not True:
        keywords = {**keywords, "where": mask}
        if not outs:
            outs = [*_allocated(wanted, [*parts, mask])]
    if outs:
        keywords = {**keywords, "out": tuple(outs) if len(outs) > 1 else outs[0]}
    return function(*parts, **keywords)


def _allocated(wanted: _Wanted, parts: Sequence[Any]) -> list[Array]:
    """Blocks for the results, on the device that the operands are on."""
    shape, types = wanted
    samples = [part[0][1] if isinstance(part, _Pieces) else part for part in parts]
    like = next(sample for sample in samples if hasattr(sample, "dtype"))
    return [np.empty_like(like, dtype, "C", False, shape) for dtype in types or []]


def _by_cells(
    function: Callable[..., Any],
    parts: list[Any],
    mask: Any,
    outs: list[Array | None],
    wanted: _Wanted,
    keywords: dict[str, Any],
) -> Any:
    """One call for each box in which every operand is one array."""
    targets = _cell_targets(parts, mask, outs, wanted)
    operands = [*parts, mask] if mask is not True else parts
    for key, sources in _cells(tuple([_outline(operand) for operand in operands]), wanted[0]):
        views = [_at(operand, source) for operand, source in zip(operands, sources, strict=True)]
        where = {"where": views.pop()} if mask is not True else {}
        found = tuple([target[key] for target in targets])
        if isinstance(function, (np.ufunc, Adapted, faults.Detour)):
            function(*views, out=found if len(found) > 1 else found[0], **where, **keywords)
        else:
            found[0][...] = function(*views, **keywords)
    for position, out in enumerate(outs):
        if out is not None and targets[position] is not out:
            out[...] = targets[position]
            targets[position] = out
    return tuple(targets) if len(targets) > 1 else targets[0]


def _cell_targets(
    parts: list[Any], mask: Any, outs: list[Array | None], wanted: _Wanted
) -> list[Array]:
    """What the cells are computed into: an `out` where no cell's result can spoil another's."""
    if outs and not any(out is None or _clash(out, parts, mask) for out in outs):
        return list(outs)
    targets = _allocated(wanted, [*parts, mask])
    for position, out in enumerate(outs):
        if out is None:
            continue
        if not _clash(out, parts, mask):
            targets[position] = out
        elif mask is not True:
            targets[position][...] = out
    return targets


def _clash(out: Array, parts: Sequence[Any], mask: Any) -> bool:
    """Whether writing one cell might change what a later cell reads."""
    arrays = []
    for part in (*parts, mask):
        arrays += [a for _, a in part] if isinstance(part, _Pieces) else [part]
    return any(hasattr(a, "dtype") and a is not out and np.may_share_memory(a, out) for a in arrays)


#: What of an operand to take: the number of the piece, or None for an operand in one piece, and
#: the slices of it; None for a scalar, which is taken as it is.
_Source = tuple[int | None, tuple[slice, ...]] | None


def _outline(operand: Any) -> tuple[bool, Any]:
    """Whether an operand is in pieces; their boxes and shapes, or its shape (None: a scalar)."""
    if isinstance(operand, _Pieces):
        return True, tuple([(box, part.shape) for box, part in operand])
    return False, operand.shape if getattr(operand, "ndim", 0) else None


@lru_cache(maxsize=4096)
def _cells(
    outlines: tuple[tuple[bool, Any], ...], shape: tuple[int, ...]
) -> list[tuple[tuple[slice, ...], list[_Source]]]:
    """The boxes in which every operand is one array: slices of the result, and what to take."""
    whole = tuple([(0, extent) for extent in shape])
    cells: list[Box] = [whole]
    for in_pieces, outline in outlines:
        if in_pieces:
            met = [intersect(cell, box) for cell in cells for box, _ in outline]
            cells = [cell for cell in met if cell is not None]
    found = []
    for cell in cells:
        key = tuple([slice(start, stop) for start, stop in cell])
        found.append((key, [_source(cell, whole, *outline) for outline in outlines]))
    return found


def _source(cell: Box, whole: Box, in_pieces: bool, outline: Any) -> _Source:
    if not in_pieces:
        return None if outline is None else (None, _key(outline, cell, whole))
    for number, (box, shape) in enumerate(outline):
        if intersect(box, cell) == cell:
            return number, _key(shape, cell, box)
    raise AssertionError("every cell lies within one piece of each operand")


def _at(operand: Any, source: _Source) -> Any:
    """An operand's elements for a cell."""
    if source is None:
        return operand
    number, key = source
    return operand[key] if number is None else operand[number][1][key]


def _key(shape: tuple[int, ...], cell: Box, box: Box) -> tuple[slice, ...]:
    """Slices of an array that broadcasts onto `box`, for the elements of `cell`."""
    lead = len(cell) - len(shape)
    key = []
    for extent, (start, stop), (low, high) in zip(shape, cell[lead:], box[lead:], strict=True):
        stretched = extent == 1 and high - low != 1
        key.append(slice(None) if stretched else slice(start - low, stop - low))
    return tuple(key)
