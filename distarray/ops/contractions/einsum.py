"""einsum and einsum_path: Einstein summation, two operands at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from distarray.array import DistArray, Objects, implements
from distarray.array.small import bounded, of_product
from distarray.array.views import permuted
from distarray.engines.contracting.contract import contract, deliver
from distarray.engines.contracting.kernels import labelled_kernel
from distarray.engines.contracting.operands import read, shadow
from distarray.engines.contracting.program import program_for
from distarray.engines.contracting.recipes import Recipe, recipe
from distarray.engines.diagonals import merged
from distarray.typing import ArrayLike, Out

__all__ = ["einsum", "einsum_path"]

#: Method by which the order of contractions is found, or the order itself.
_Path: TypeAlias = bool | str | Sequence[Any]


@implements(np.einsum, at=True, small=bounded(np.einsum, of_product), objects=Objects.GATHER)
def einsum(
    *operands: ArrayLike,
    out: Out = None,
    optimize: _Path = False,
    **kwargs: Any,
) -> Any:
    """Sum products by subscripts, as :func:`numpy.einsum`, with its keywords; integers are exact.

    More than two operands are contracted pair by pair, in the order that
    :func:`numpy.einsum_path` finds or that `optimize` states. One operand without a sum gives a
    view.

    Cost
    ----
    For each pair the cost of :func:`numpy.matmul`.
    """
    subscripts, given = _split(operands)
    arrays, _ = read(*given, out=out)
    made = recipe(
        subscripts,
        tuple([x.shape for x in arrays]),
        tuple([x.dtype for x in arrays]),
        None if out is None else (out.shape, out.dtype),
        _hashable(optimize),
        tuple(kwargs.items()),
    )
    if not made.is_view:
        arrays = [x.plain() for x in arrays]
    return deliver(_followed(made, arrays), out)


def _split(operands: Sequence[Any]) -> tuple[tuple[Any, ...], list[Any]]:
    """Return the subscripts and the arrays of a call in either form."""
    if not operands:
        np.einsum()  # type: ignore[call-overload]  # raises
    if isinstance(operands[0], str):
        return (operands[0],), list(operands[1:])
    pairs = len(operands) // 2
    lists = [tuple(labels) for labels in operands[1 : 2 * pairs : 2]]
    if len(operands) % 2:
        lists.append(tuple(operands[-1]))
    return tuple(lists), list(operands[0 : 2 * pairs : 2])


def _hashable(value: _Path) -> Any:
    return tuple([_hashable(v) for v in value]) if isinstance(value, (list, tuple)) else value


def _followed(made: Recipe, arrays: list[DistArray]) -> DistArray:
    """Compute the result of a recipe."""
    for position, pairs in enumerate(made.diagonals):
        for first, second in pairs:
            arrays[position] = merged(arrays[position], first, second)
    for step in made.steps:
        now = [arrays[p] for p in step.positions]
        for p in sorted(step.positions, reverse=True):
            del arrays[p]
        if step.spec is None:
            arrays.append(permuted(now[0], step.axes))
            continue
        last = not arrays
        layouts, dtypes = [x.layout for x in now], [x.dtype for x in now]
        # NumPy adds each product to a zero even if nothing is summed, so that no zero is negative.
        kernel = labelled_kernel(step.spec, zero=made.dtype.kind in "fc")
        scalar = made.scalar or not last
        program = program_for(kernel, step.spec, layouts, dtypes, made.dtype, scalar)
        arrays.append(contract(program, now))
    result = arrays[0]
    if made.scalar and not result.ndim and not isinstance(result.block, np.generic):
        return result.like(result.mesh.scalar(result.block))
    return result


@implements(np.einsum_path)
def einsum_path(*operands: ArrayLike, optimize: _Path = "greedy", einsum_call: bool = False) -> Any:
    """Find the order of contractions from the shapes alone, as :func:`numpy.einsum_path`."""
    stand_ins = [shadow(x) if isinstance(x, DistArray) else x for x in operands]
    return np.einsum_path(*stand_ins, optimize=optimize, einsum_call=einsum_call)  # type: ignore[arg-type]
