"""Contractions as operations call them: in the way that the settings ask for, and into `out`."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from distarray.array import DistArray
from distarray.config import config
from distarray.engines.contracting.exact import exact_contraction
from distarray.engines.contracting.execution import execute
from distarray.engines.contracting.program import Program
from distarray.typing import Array

__all__ = ["contract", "deliver"]


def contract(
    program: Program, operands: Sequence[DistArray], out: DistArray | None = None
) -> DistArray:
    """Carry out a contraction; with the same bits on every mesh if ``config.reproducible`` is set.

    Parameters
    ----------
    program : Program
        The contraction, planned for operands of these layouts.
    operands : sequence of DistArray
        On one mesh, without pending folds.
    out : DistArray, optional
        An array of the result's shape that the kernel may write into if it has the result's
        layout. It is a hint: the array that is returned may be another one.

    Returns
    -------
    DistArray

    Cost
    ----
    That of the plan: one exchange for each operand that has to move (one a panel if it is large),
    and one allreduce or reduce-scatter (one a part) if a summed label is cut. With
    ``config.reproducible``, for numbers that round, about ten times the arithmetic and the size of
    the result, and two more small allreduces.
    """
    if program.rounds and config.settings.reproducible:
        return exact_contraction(program, operands)
    return execute(program, operands, out)


def deliver(result: DistArray, out: DistArray | Array | None) -> Any:
    """The result, copied into `out` if that is given and not the result itself.

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
