"""Contractions for operations: the settings select the implementation; results go to `out`."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from distarray.array import DistArray, floaterrors, to_layout, wrap
from distarray.comm.tune import one_blas_thread
from distarray.config import config
from distarray.engines.contracting import tiling
from distarray.engines.contracting.exact import exact_contraction
from distarray.engines.contracting.execution import execute
from distarray.engines.contracting.lines import takes
from distarray.engines.contracting.program import Program, program_for
from distarray.engines.contracting.sums import InOrder
from distarray.engines.reproducible import ordered_sum
from distarray.layout import Layout
from distarray.plan import Contraction
from distarray.typing import Array

__all__ = ["contract", "deliver"]


def contract(
    program: Program, operands: Sequence[DistArray], out: DistArray | None = None
) -> DistArray:
    """Carry out a contraction; bitwise equal on every mesh if ``config.reproducible`` is set.

    Parameters
    ----------
    program : Program
        The contraction, planned for operands of these layouts.
    operands : sequence of DistArray
        Arrays on one mesh, without pending folds.
    out : DistArray, optional
        An array of the result's shape that the kernel may write into if the array has the result's
        layout. `out` is a hint: the returned array may be another one.

    Returns
    -------
    DistArray

    Cost
    ----
    The cost of the plan: one exchange for each operand that has to move (one per panel if the
    operand is large), and one allreduce or reduce-scatter (one per part) if a summed label is cut.
    With ``config.reproducible``, for numbers that round, operands that are cut along a summed label
    move to the next boundary of tiles, and every rank sends up to ``2 * log2(summands / 512)``
    times as much data for the fold. For sums of elementwise products, except products of two
    vectors, the products are a temporary array. Contractions that are not matrix products, and
    contractions on a GPU, take about twenty times the arithmetic, ten times the size of the result,
    and two more small allreduces.
    """
    if not program.plan.local.is_whole and all(x.layout.is_replicated for x in operands):
        floaterrors.divide(operands[0].mesh)
    if not program.rounds or not config.settings.reproducible:
        return execute(program, operands, out)
    on_host = operands[0].mesh.device_type == "cpu"
    found = tiling.tiling_of(program.spec, tiling.SIZES) if on_host else None
    with_line = found is not None and takes(found, program.sums_in)
    if _is_sum_of_products(program.spec) and not with_line:
        return _sum_of_products(program, operands)
    return _tiled(program, found, operands) if found else exact_contraction(program, operands)


def _tiled(program: Program, tiles: tiling.Tiling, operands: Sequence[DistArray]) -> DistArray:
    """Compute a product of matrices, cut along the summed label only at boundaries of tiles."""
    layouts, dtypes = [x.layout for x in operands], [x.block.dtype for x in operands]
    program = program_for(
        program.kernel,
        program.spec,
        layouts,
        dtypes,
        program.dtype,
        program.scalar,
        grains=tiles.grains,
    )
    with one_blas_thread():
        return execute(program, operands, sums=InOrder(program, tiles))


def _is_sum_of_products(spec: Contraction) -> bool:
    """Return True if the operands are multiplied elementwise, and the products are summed."""
    first = spec.terms[0]
    kept = tuple([label for label in first if label in spec.out])
    return len(spec.terms) <= 2 and set(spec.terms) == {first} and kept == spec.out


def _sum_of_products(program: Program, operands: Sequence[DistArray]) -> DistArray:
    """Sum elementwise products in an order that does not depend on the mesh."""
    x, mesh, term = operands[0], operands[0].mesh, program.spec.terms[0]
    work = program.sums_in
    block = x.block.astype(work, copy=False)
    block = np.conjugate(block) if program.spec.conjugated and work.kind == "c" else block
    for other in operands[1:]:
        # Not by `*`, which swaps complex factors to write into a temporary, and so changes the
        # bits.
        block = np.multiply(block, to_layout(other, x.layout).block.astype(work, copy=False))
    axes = tuple([dim for dim, label in enumerate(term) if label not in program.spec.out])
    cuts = [cut for dim, cut in enumerate(x.layout.cuts) if dim not in axes]
    layout = Layout.from_cuts(cuts, x.layout.mesh_shape)
    shape = layout.local_shape(mesh.coords)
    if mesh.coords is None:
        total: Array = mesh.xp.zeros(shape, program.dtype)
    else:
        total = ordered_sum(block, axes, x.layout, mesh, work).reshape(shape).astype(program.dtype)
    return wrap(mesh.scalar(total) if program.scalar else total, layout, mesh)


def deliver(result: DistArray, out: DistArray | Array | None) -> Any:
    """Return the result, copied into `out` if `out` is given and not the result itself.

    Shapes and data types are known to fit. A NumPy array given as `out` is replicated: every rank
    receives all elements.
    """
    if out is None or out is result:
        return result
    if isinstance(out, DistArray):
        if out.block is not result.block:
            out.assign(result)
        return out
    np.copyto(out, result.full(), casting="unsafe")
    return out
