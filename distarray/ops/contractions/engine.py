"""The engine of all contractions: bring the operands, multiply on each rank, fold.

:func:`distarray.plan.plan_contraction` decides where; this file does it. An operand that would
have to be whole on a rank, and is large, comes in panels: no rank ever holds more of it than it
owns itself, or :data:`PANEL_BYTES`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from distarray.array import DistArray, movement, wrap
from distarray.array.blocks import as_array
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

__all__ = ["PANEL_BYTES", "Kernel", "Program", "deliver", "execute", "program_for"]

Array = Any
#: kernel(blocks, dtype, out): the product of this rank's blocks, in `out` if that is an array.
Kernel = Callable[[Sequence[Array], np.dtype[Any], Array | None], Array]

#: An operand of fewer bytes than this comes at once, however little of it is here.
PANEL_BYTES = 1 << 25

_HALF = np.dtype(np.float16)


@dataclass(frozen=True, slots=True)
class Program:
    """A contraction that is decided down to the last message, for operands that lie so.

    Attributes
    ----------
    kernel : callable
        Multiplies blocks as `spec` says.
    spec : Contraction
        The labels.
    plan : ContractionPlan
        Where the operands and the result go.
    panels : Panels or None
        The stretches in which large operands come.
    dtype, work : dtype
        Of the result, and of the products that are folded into it.
    scalar : bool
        Whether the result is a NumPy scalar.
    direct : bool
        Whether nothing has to be said between ranks.
    rounds : bool
        Whether it is a sum of numbers that round, so that its order shows in the result.
    """

    kernel: Kernel
    spec: Contraction
    plan: ContractionPlan
    panels: Panels | None
    dtype: np.dtype[Any]
    work: np.dtype[Any]
    scalar: bool
    direct: bool
    rounds: bool


@lru_cache(maxsize=4096)
def _program(
    kernel: Kernel,
    spec: Contraction,
    layouts: tuple[Layout, ...],
    itemsizes: tuple[int, ...],
    dtype: np.dtype[Any],
    scalar: bool,
    small: int,
    panel_bytes: int,
) -> Program:
    plan = plan_contraction(spec, layouts, itemsizes, dtype.itemsize, small)
    panels = panels_of(spec, plan, layouts, itemsizes, panel_bytes)
    # Contributions in half precision could overflow where their sum does not.
    work = np.dtype(np.float32) if dtype == _HALF and plan.pending else dtype
    stays = all(have is want for have, want in zip(layouts, plan.operands, strict=True))
    direct = stays and not plan.pending and panels is None and bool(spec.out)
    scalar = scalar and not spec.out
    rounds = dtype.kind in "fc" and len(spec.out) < len(spec.extents)
    return Program(kernel, spec, plan, panels, dtype, work, scalar, direct, rounds)


def program_for(
    kernel: Kernel,
    spec: Contraction,
    layouts: Sequence[Layout],
    dtypes: Sequence[np.dtype[Any]],
    dtype: np.dtype[Any],
    scalar: bool = True,
    small: int | None = None,
) -> Program:
    """Decide a contraction of operands of these layouts and dtypes; does not communicate.

    Parameters
    ----------
    kernel : callable
        Multiplies blocks as `spec` says.
    spec : Contraction
        The labels of the operands and of the result.
    layouts : sequence of Layout
        Of the operands: plain ones, on one mesh.
    dtypes : sequence of dtype
        Of the operands.
    dtype : dtype
        Of the result.
    scalar : bool
        Whether a 0-d result is a scalar, as NumPy's functions mostly give.
    small : int, optional
        Bytes below which a result is replicated; `config.replicate_below` if not given.
    """
    itemsizes = tuple([given.itemsize for given in dtypes])
    small = config.replicate_below if small is None else small
    return _program(kernel, spec, tuple(layouts), itemsizes, dtype, scalar, small, PANEL_BYTES)


def execute(
    program: Program, operands: Sequence[DistArray], out: DistArray | None = None
) -> DistArray:
    """Carry out a contraction.

    Parameters
    ----------
    program : Program
        What to do; made for operands that lie as these do.
    operands : sequence of DistArray
        On one mesh, nothing pending.
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
    plan, kernel, dtype = program.plan, program.kernel, program.dtype
    mesh = operands[0]._mesh
    if mesh.coords is None:
        block = mesh.xp.zeros(plan.result.local_shape(None), dtype)
        return wrap(mesh.scalar(block) if program.scalar else block, plan.result, mesh)
    target = out._block if out is not None and _takes(out, plan, dtype) else None
    if program.direct:
        block = kernel([x._block for x in operands], dtype, target)
        return wrap(block, plan.result, mesh)
    if program.panels is None:
        blocks = [_brought(x, want) for x, want in zip(operands, plan.operands, strict=True)]
        block = kernel(blocks, program.work, target)
    else:
        block = _by_panels(program, operands, program.panels)
    block = _folded(block, plan, mesh)
    if block.dtype != dtype:
        block = block.astype(dtype)
    if not program.spec.out:
        block = mesh.scalar(block) if program.scalar else mesh.asarray(block)
    return wrap(block, plan.result, mesh)


def _takes(out: DistArray, plan: ContractionPlan, dtype: np.dtype[Any]) -> bool:
    """Whether a result can be computed straight into `out`."""
    return (
        out._layout is plan.result
        and not plan.pending
        and out.dtype == dtype
        and not isinstance(out._block, np.generic)
        and out.ndim > 0
    )


def _brought(x: DistArray, want: Layout) -> Array:
    return movement.moved(x._block, x._layout, want, x._mesh)


def _by_panels(program: Program, operands: Sequence[DistArray], panels: Panels) -> Array:
    """The product in stretches of one label, moving one stretch of the operands at a time."""
    mesh = operands[0]._mesh
    kernel, spec, plan, dtype = program.kernel, program.spec, program.plan, program.work
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
    block = as_array(block)
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
