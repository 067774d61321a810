"""The engine of all contractions: bring the operands, multiply on each rank, fold.

:func:`distarray.plan.plan_contraction` decides where; this file does it. An operand that would
have to be whole on a rank, and is large, comes in panels: no rank ever holds more of it than it
owns itself, or :data:`PANEL_BYTES`.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from distarray.array import DistArray, movement, wrap
from distarray.comm import DeviceMesh
from distarray.config import config
from distarray.layout import Fold, Layout, view_layout
from distarray.plan import (
    Contraction,
    ContractionPlan,
    Panels,
    panels_of,
    plan_contraction,
)

__all__ = ["PANEL_BYTES", "Kernel", "contract", "deliver"]

Array = Any
#: kernel(blocks, dtype, out): the product of this rank's blocks, in `out` if that is an array.
Kernel = Callable[[Sequence[Array], np.dtype[Any], Array | None], Array]

#: An operand of fewer bytes than this comes at once, however little of it is here.
PANEL_BYTES = 1 << 25

_HALF = np.dtype(np.float16)


def contract(
    kernel: Kernel,
    spec: Contraction,
    operands: Sequence[DistArray],
    dtype: np.dtype[Any],
    *,
    scalar: bool = True,
    out: DistArray | None = None,
) -> DistArray:
    """Contract distributed operands on one mesh.

    Parameters
    ----------
    kernel : callable
        Multiplies blocks as `spec` says.
    spec : Contraction
        The labels of the operands and of the result.
    operands : sequence of DistArray
        Plain ones: nothing pending.
    dtype : dtype
        Of the result.
    scalar : bool
        Whether a 0-d result is a scalar, as NumPy's functions mostly give.
    out : DistArray, optional
        An array of the result's shape that the kernel may write into if it lies as the result
        does. It is a hint: compare the array that is returned.

    Returns
    -------
    DistArray

    Cost
    ----
    What the plan says: one exchange for each operand that has to move (one a panel if it is
    large), and one allreduce or reduce-scatter if a summed label is cut.
    """
    mesh = operands[0]._mesh
    layouts = tuple([x._layout for x in operands])
    itemsizes = tuple([x.itemsize for x in operands])
    small = config.replicate_below
    plan = plan_contraction(spec, layouts, itemsizes, dtype.itemsize, small)
    if mesh.coords is None:
        block = mesh.xp.zeros(plan.result.local_shape(None), dtype)
        return wrap(block[()] if scalar and not block.ndim else block, plan.result, mesh)
    target = out._block if out is not None and _takes(out, plan, dtype) else None
    # Contributions in half precision could overflow where their sum does not.
    work = np.dtype(np.float32) if dtype == _HALF and plan.pending else dtype
    panels = panels_of(spec, plan, layouts, itemsizes, PANEL_BYTES)
    if panels is None:
        blocks = [_brought(x, want) for x, want in zip(operands, plan.operands, strict=True)]
        block = kernel(blocks, work, target)
    else:
        block = _by_panels(kernel, spec, plan, operands, work, panels)
    block = _folded(block, plan, mesh).astype(dtype, copy=False)
    if not spec.out:
        block = np.asarray(block)[()] if scalar else mesh.asarray(block)
    return wrap(block, plan.result, mesh)


def _takes(out: DistArray, plan: ContractionPlan, dtype: np.dtype[Any]) -> bool:
    """Whether a result can be computed straight into `out`."""
    return (
        out._layout is plan.result
        and not plan.pending
        and out.dtype == dtype
        and isinstance(out._block, np.ndarray)
        and out.ndim > 0
    )


def _brought(x: DistArray, want: Layout) -> Array:
    return movement.moved(x._block, x._layout, want, x._mesh)


def _by_panels(
    kernel: Kernel,
    spec: Contraction,
    plan: ContractionPlan,
    operands: Sequence[DistArray],
    dtype: np.dtype[Any],
    panels: Panels,
) -> Array:
    """The product in stretches of one label, moving one stretch of the operands at a time."""
    mesh = operands[0]._mesh
    label = panels.label
    whole: dict[int, Array] = {}
    for position, (x, labels) in enumerate(zip(operands, spec.terms, strict=True)):
        if label not in labels:
            whole[position] = _brought(x, plan.operands[position])
    shape = plan.local.local_shape(mesh.coords)
    total = mesh.xp.zeros(shape, dtype)
    for stretch in panels.stretches:
        blocks = []
        for position, x in enumerate(operands):
            if position in whole:
                blocks.append(whole[position])
            else:
                dim = spec.terms[position].index(label)
                blocks.append(_panel(x, plan.operands[position], dim, stretch))
        if label in spec.out:
            key = [slice(None)] * len(shape)
            key[spec.out.index(label)] = slice(*stretch)
            part = total[tuple(key)]
            made = kernel(blocks, dtype, part)
            if made is not part:
                part[...] = made
        else:
            total += kernel(blocks, dtype, None)
    return total


def _panel(x: DistArray, want: Layout, dim: int, stretch: tuple[int, int]) -> Array:
    start, stop = stretch
    entries: list[Any] = [(0, 1, extent) for extent in x.shape]
    entries[dim] = (start, 1, stop - start)
    return _brought(x._view(tuple(entries)), view_layout(want, tuple(entries)))


def _folded(block: Array, plan: ContractionPlan, mesh: DeviceMesh) -> Array:
    """This rank's part of the sum of all contributions."""
    if not plan.pending:
        return block
    block = np.asarray(block) if isinstance(block, np.generic) else block
    group = mesh.subgroup(plan.pending)
    fold = Fold.ANY if block.dtype == bool else Fold.SUM
    if plan.result.cuts == plan.local.cuts:
        return group.allreduce(block, fold, (plan.local, plan.result))
    parts = [block[key] for key in _parts(plan, mesh)]
    return group.reduce_scatter(parts, fold, (plan.local, plan.result))


def _parts(plan: ContractionPlan, mesh: DeviceMesh) -> list[tuple[slice, ...]]:
    """For each rank of the fold, its part of the result within this rank's contribution."""
    assert mesh.coords is not None
    radix = tuple([mesh.shape[m] for m in plan.pending])
    origin = plan.local.section(mesh.coords)
    keys = []
    for number in np.ndindex(radix):
        coords = list(mesh.coords)
        for mesh_dim, coordinate in zip(plan.pending, number, strict=True):
            coords[mesh_dim] = coordinate
        section = plan.result.section(tuple(coords))
        keys.append(
            tuple([slice(a - o, b - o) for (a, b), (o, _) in zip(section, origin, strict=True)])
        )
    return keys


def deliver(result: DistArray, out: Any) -> Any:
    """Put a result where the caller wants it; its shape and dtype have been found to fit.

    A NumPy array given as `out` is replicated, so every rank receives everything.
    """
    if out is None or out is result:
        return result
    if isinstance(out, DistArray):
        if out._block is not result._block:
            out._assign(result)
        return out
    np.copyto(out, result.full(), casting="unsafe")
    return out
