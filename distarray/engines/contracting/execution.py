"""Execution of contractions: bring the operands, multiply on each rank, fold.

:func:`distarray.plan.plan_contraction` decides where; this file does it. A large operand that is
needed whole on a rank comes in panels, and a large result that is a sum over ranks is computed in
parts: of either, a rank never holds more than its own share, or
:data:`~distarray.engines.contracting.program.PANEL_BYTES`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from distarray.array import DistArray, movement, wrap
from distarray.array.portable import as_array
from distarray.comm import DeviceMesh
from distarray.engines.contracting.program import Program
from distarray.layout import Fold, Layout, view_layout
from distarray.plan import ContractionPlan, Panels, Route, divided_dim
from distarray.typing import Array

__all__ = ["execute"]

Key = tuple[slice, ...]


def execute(
    program: Program, operands: Sequence[DistArray], out: DistArray | None = None
) -> DistArray:
    """Carry out a contraction, whatever ``config.reproducible`` is.

    The parameters, the result and the cost are those of
    :func:`~distarray.engines.contracting.contract.contract`.
    """
    plan, dtype, mesh = program.plan, program.dtype, operands[0].mesh
    target = None if out is None or not _takes(out, plan, dtype) else out.block
    whole = program.whole if target is None else None
    if mesh.coords is None:
        layout = whole or plan.result
        block = mesh.xp.zeros(layout.local_shape(None), dtype)
        return wrap(mesh.scalar(block) if program.scalar else block, layout, mesh)
    block = _multiplied(program, operands, target)
    if not program.direct and not program.spec.out:
        block = mesh.scalar(block) if program.scalar else mesh.asarray(block)
    if whole is not None:
        block = movement.moved(block, plan.result, whole, mesh)
    return wrap(block, whole or plan.result, mesh)


def _multiplied(program: Program, operands: Sequence[DistArray], target: Array | None) -> Array:
    """This rank's block of the result, in `target` if that is an array."""
    plan, kernel, dtype, mesh = program.plan, program.kernel, program.dtype, operands[0].mesh
    if program.direct:
        return kernel([x.block for x in operands], dtype, target)
    if program.panels is not None:
        block = _folded(program, _by_panels(program, operands, program.panels), mesh)
    else:
        blocks = [_brought(x, want) for x, want in zip(operands, plan.operands, strict=True)]
        if program.parts > 1:
            block = _by_parts(program, blocks, mesh)
        else:
            block = _folded(program, kernel(blocks, program.work, target), mesh)
    return block if block.dtype == dtype else block.astype(dtype)


def _takes(out: DistArray, plan: ContractionPlan, dtype: np.dtype[Any]) -> bool:
    """Whether a result can be computed straight into `out`."""
    return (
        out.layout is plan.result
        and not plan.pending
        and out.dtype == dtype
        and not isinstance(out.block, np.generic)
        and out.ndim > 0
    )


def _brought(x: DistArray, want: Layout) -> Array:
    """This rank's block of the operand in the layout that the plan wants."""
    return movement.moved(x.block, x.layout, want, x.mesh)


def _by_panels(program: Program, operands: Sequence[DistArray], panels: Panels) -> Array:
    """The product in stretches of one label; the operands move one stretch at a time."""
    mesh = operands[0].mesh
    kernel, spec, plan, dtype = program.kernel, program.spec, program.plan, program.work
    label = panels.label
    whole: dict[int, Array] = {}
    for position, (x, labels) in enumerate(zip(operands, spec.terms, strict=True)):
        if label not in labels:
            whole[position] = _brought(x, plan.operands[position])
    shape = plan.local.local_shape(mesh.coords)
    total: Array = mesh.xp.zeros(shape, dtype)
    for stretch in panels.stretches:
        blocks = []
        for position, x in enumerate(operands):
            if position in whole:
                blocks.append(whole[position])
            else:
                dim = spec.terms[position].index(label)
                blocks.append(_panel(x, plan.operands[position], dim, stretch))
        if label in spec.out:
            part = total[_at(spec.out, label, slice(*stretch))]
            made = kernel(blocks, dtype, part)
            if made is not part:
                part[...] = made
        else:
            total += kernel(blocks, dtype, None)
    return total


def _panel(x: DistArray, want: Layout, dim: int, stretch: tuple[int, int]) -> Array:
    """One stretch of a dimension of the operand, in the layout that the plan wants."""
    start, stop = stretch
    entries: list[Any] = [(0, 1, extent) for extent in x.shape]
    entries[dim] = (start, 1, stop - start)
    return _brought(x.sliced(tuple(entries)), view_layout(want, tuple(entries)))


def _folded(program: Program, block: Array, mesh: DeviceMesh) -> Array:
    """This rank's part of the sum of all contributions."""
    plan = program.plan
    if not plan.pending:
        return block
    block = as_array(block)
    if plan.result.cuts == plan.local.cuts:
        group, route = mesh.subgroup(plan.pending), Route(plan.local, plan.result)
        return group.allreduce(block, _fold(program), route)
    return _scattered(program, [block[key] for key in _keys(plan, mesh)], mesh)


def _scattered(program: Program, contributions: Sequence[Array], mesh: DeviceMesh) -> Array:
    """This rank's part of the sum of contributions, one for each rank of the fold."""
    group, plan = mesh.subgroup(program.plan.pending), program.plan
    return group.reduce_scatter(contributions, _fold(program), Route(plan.local, plan.result))


def _fold(program: Program) -> Fold:
    return Fold.ANY if program.work.kind == "b" else Fold.SUM


def _keys(plan: ContractionPlan, mesh: DeviceMesh) -> list[Key]:
    """For each rank of the fold, its part of the result within this rank's contribution."""
    assert mesh.coords is not None
    origin = plan.local.section(mesh.coords)
    keys = []
    for number in np.ndindex(tuple([mesh.shape[m] for m in plan.pending])):
        coords = list(mesh.coords)
        for mesh_dim, coordinate in zip(plan.pending, number, strict=True):
            coords[mesh_dim] = coordinate
        section = plan.result.section(tuple(coords))
        pairs = zip(section, origin, strict=True)
        keys.append(tuple([slice(a - o, b - o) for (a, b), (o, _) in pairs]))
    return keys


def _by_parts(program: Program, blocks: Sequence[Array], mesh: DeviceMesh) -> Array:
    """The product computed and folded in parts, so that it is never whole on a rank.

    Each part takes an equal piece of every rank's share of the result.
    """
    plan, spec = program.plan, program.spec
    dim = divided_dim(plan)
    total: Array = mesh.xp.empty(plan.result.local_shape(mesh.coords), program.work)
    filled = 0
    for part in range(program.parts):
        made = []
        for key in _keys(plan, mesh):
            start, length = key[dim].start, key[dim].stop - key[dim].start
            stretch = [start + length * n // program.parts for n in (part, part + 1)]
            rows = [
                block[_at(term, spec.out[dim], slice(*stretch))]
                for block, term in zip(blocks, spec.terms, strict=True)
            ]
            made.append(program.kernel(rows, program.work, None))
        mine = _scattered(program, made, mesh)
        stop = filled + mine.shape[dim]
        total[_at(spec.out, spec.out[dim], slice(filled, stop))] = mine
        filled = stop
    return total


def _at(labels: Sequence[int], label: int, stretch: slice) -> Key:
    """The key that takes a stretch of one label, in whichever dimension it is."""
    return tuple([stretch if own == label else slice(None) for own in labels])
