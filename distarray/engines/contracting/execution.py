"""Execution of contractions: redistribute the operands, multiply on each rank, fold.

:func:`distarray.plan.plan_contraction` decides where each block is computed; this module executes
the plan. A large operand that is needed whole on a rank is sent in panels, and a large result that
is a sum over ranks is computed in parts. Of such an operand or result, a rank never holds more than
its own share, or :data:`~distarray.engines.contracting.program.PANEL_BYTES`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from distarray.array import DistArray, movement, wrap
from distarray.comm import DeviceMesh
from distarray.engines.contracting.arrivals import Arrived
from distarray.engines.contracting.program import Program
from distarray.engines.contracting.sums import InAnyOrder, Sums, peers
from distarray.layout import Interval, Layout, view_layout
from distarray.plan import ContractionPlan, Panels, divided_dim
from distarray.typing import Array

__all__ = ["execute"]

Key = tuple[Any, ...]


def execute(
    program: Program,
    operands: Sequence[DistArray],
    out: DistArray | None = None,
    sums: Sums | None = None,
) -> DistArray:
    """Carry out a contraction, regardless of ``config.reproducible``.

    The other parameters, the result and the cost are those of
    :func:`~distarray.engines.contracting.contract.contract`.

    Parameters
    ----------
    program, operands, out
        The contraction, its operands, and an array for the result.
    sums : Sums, optional
        The strategy that multiplies and adds up; by default the program's kernel and any order.
    """
    plan, dtype, mesh = program.plan, program.dtype, operands[0].mesh
    target = None if out is None or not _takes(out, plan, dtype) else out.block
    whole = program.whole if target is None else None
    if mesh.coords is None:
        layout = whole or plan.result
        block = mesh.xp.zeros(layout.local_shape(None), dtype)
        return wrap(mesh.scalar(block) if program.scalar else block, layout, mesh)
    block = _multiplied(program, operands, target, sums)
    if not program.direct and not program.spec.out:
        block = mesh.scalar(block) if program.scalar else mesh.asarray(block)
    if whole is not None:
        block = movement.moved(block, plan.result, whole, mesh)
    return wrap(block, whole or plan.result, mesh)


def _multiplied(
    program: Program, operands: Sequence[DistArray], target: Array | None, sums: Sums | None
) -> Array:
    """Compute this rank's block of the result, in `target` if `target` is an array."""
    plan, dtype, mesh = program.plan, program.dtype, operands[0].mesh
    if program.direct and sums is None:
        return program.kernel([x.block for x in operands], dtype, target)
    sums = sums or InAnyOrder(program)
    if program.panels is not None:
        block = _folded(program, sums, _by_panels(program, operands, program.panels, sums), mesh)
    elif program.parts > 1:
        blocks = [_brought(x, want) for x, want in zip(operands, plan.operands, strict=True)]
        block = _by_parts(program, blocks, mesh, sums)
    else:
        block = _folded(program, sums, _at_once(program, operands, target, sums), mesh)
    return block if block.dtype == dtype else block.astype(dtype)


def _takes(out: DistArray, plan: ContractionPlan, dtype: np.dtype[Any]) -> bool:
    """Return True if a result can be computed directly into `out`."""
    return (
        out.layout is plan.result
        and not plan.pending
        and out.dtype == dtype
        and not isinstance(out.block, np.generic)
        and out.ndim > 0
    )


def _brought(x: DistArray, want: Layout) -> Array:
    """Return this rank's block of the operand in the layout that the plan requires."""
    return movement.moved(x.block, x.layout, want, x.mesh)


def _at_once(
    program: Program, operands: Sequence[DistArray], target: Array | None, sums: Sums
) -> Array:
    """Multiply this rank's blocks.

    If only the boundaries of tiles move, this rank already stores most of an operand in the
    required layout. That part is multiplied without a copy, and only tiles with elements from
    several ranks are copied.
    """
    plan, mesh = program.plan, operands[0].mesh
    box, label = _box(plan, mesh), sums.label
    pairs = list(zip(operands, plan.operands, strict=True))
    if label is None or all(x.layout is want for x, want in pairs):
        return sums.product([_brought(*pair) for pair in pairs], box, target)
    start, dims = box[label][0], [term.index(label) for term in program.spec.terms]
    arrived = [Arrived.of(*pair, dim) for pair, dim in zip(pairs, dims, strict=True)]
    ready = [a.longest for a in arrived]
    low, high = max([r[0] for r in ready]), min([r[1] for r in ready])
    total: Any = None
    for stretch in sums.stretches(box, (start + low, start + high)):
        local = stretch[0] - start, stretch[1] - start
        blocks = [a.stretch(*local) for a in arrived]
        made = sums.product(blocks, (*box[:label], stretch, *box[label + 1 :]), None)
        total = made if total is None else sums.joined(total, made, stretch, start)
    found: Array = total
    return found


def _by_panels(
    program: Program, operands: Sequence[DistArray], panels: Panels, sums: Sums
) -> Array:
    """Compute the product range by range of one label; the operands move one range at a time."""
    mesh, spec, plan, label = operands[0].mesh, program.spec, program.plan, panels.label
    whole: dict[int, Array] = {}
    for position, (x, labels) in enumerate(zip(operands, spec.terms, strict=True)):
        if label not in labels:
            whole[position] = _brought(x, plan.operands[position])
    box = _box(plan, mesh)
    total: Any = None
    if label in spec.out:
        total = sums.room(plan.local.local_shape(mesh.coords), box, mesh)
    for stretch in panels.stretches:
        blocks = [
            whole[n] if n in whole else _panel(program, operands, n, label, stretch)
            for n in range(len(operands))
        ]
        here = (*box[:label], stretch, *box[label + 1 :])
        if label in spec.out:
            part = total[(..., *_at(spec.out, label, slice(*stretch)))]
            made = sums.product(blocks, here, part)
            if made is not part:
                part[...] = made
        else:
            made = sums.product(blocks, here, None)
            total = made if total is None else sums.joined(total, made, stretch)
    found: Array = total
    return found


def _panel(
    program: Program, operands: Sequence[DistArray], number: int, label: int, stretch: Interval
) -> Array:
    """Return one range of a label of an operand, in the layout that the plan requires."""
    x, want = operands[number], program.plan.operands[number]
    dim = program.spec.terms[number].index(label)
    start, stop = stretch
    entries: list[Any] = [(0, 1, extent) for extent in x.shape]
    entries[dim] = (start, 1, stop - start)
    return _brought(x.sliced(tuple(entries)), view_layout(want, tuple(entries)))


def _box(plan: ContractionPlan, mesh: DeviceMesh) -> tuple[Interval, ...]:
    """Return, for each label, the range of indices that this rank multiplies."""
    assert mesh.coords is not None
    return tuple([cut.interval(cut.part(mesh.coords)) for cut in plan.cuts])


def _folded(program: Program, sums: Sums, block: Array, mesh: DeviceMesh) -> Array:
    """Return this rank's part of the sum of all contributions."""
    plan = program.plan
    if not plan.pending:
        return sums.alone(block)
    if plan.result.cuts == plan.local.cuts:
        return sums.everywhere(block, mesh)
    return sums.scattered([block[(..., *key)] for key in _keys(plan, mesh)], mesh)


def _keys(plan: ContractionPlan, mesh: DeviceMesh) -> list[Key]:
    """Return, for each rank of the fold, the key of its part within this rank's contribution."""
    assert mesh.coords is not None
    origin = plan.local.section(mesh.coords)
    keys = []
    for coords in peers(plan.pending, mesh):
        pairs = zip(plan.result.section(coords), origin, strict=True)
        keys.append(tuple([slice(a - o, b - o) for (a, b), (o, _) in pairs]))
    return keys


def _by_parts(program: Program, blocks: Sequence[Array], mesh: DeviceMesh, sums: Sums) -> Array:
    """Compute and fold the product in parts, so that the product is never whole on a rank.

    Each part takes an equal fraction of every rank's share of the result.
    """
    plan, spec, box = program.plan, program.spec, _box(program.plan, mesh)
    dim = divided_dim(plan)
    label, origin = spec.out[dim], box[spec.out[dim]][0]
    total: Array = mesh.xp.empty(plan.result.local_shape(mesh.coords), program.work)
    filled = 0
    for part in range(program.parts):
        made = []
        for key in _keys(plan, mesh):
            start, length = key[dim].start, key[dim].stop - key[dim].start
            low, high = [start + length * n // program.parts for n in (part, part + 1)]
            rows = [
                block[_at(term, label, slice(low, high))]
                for block, term in zip(blocks, spec.terms, strict=True)
            ]
            here = (*box[:label], (origin + low, origin + high), *box[label + 1 :])
            made.append(sums.product(rows, here, None))
        mine = sums.scattered(made, mesh)
        stop = filled + mine.shape[dim]
        total[_at(spec.out, label, slice(filled, stop))] = mine
        filled = stop
    return total


def _at(labels: Sequence[int], label: int, stretch: slice) -> Key:
    """Return the key that selects a range of one label, in whichever dimension the label is."""
    return tuple([stretch if own == label else slice(None) for own in labels])
