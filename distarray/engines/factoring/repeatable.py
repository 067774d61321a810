"""Linear algebra with bitwise equal results on every mesh, for ``config.reproducible``.

The rounding of a factorization depends on its division into blocks, and in LAPACK on the number of
threads. Every rank therefore factors its own copy of a matrix, with one thread; each matrix of a
stack is factored by one rank. Products of matrices need no copies: they are computed from tiles
(:mod:`distarray.engines.contracting.tiling`).
"""

from collections.abc import Callable, Sequence
from functools import partial, wraps
from inspect import signature
from typing import Any, cast

from distarray.array import DistArray, to_layout
from distarray.array.base import sequence_like
from distarray.comm.tune import one_blas_thread
from distarray.config import config
from distarray.engines.factoring.small import at_once, read, stackwise
from distarray.typing import Function

__all__ = ["repeatable"]


def repeatable(
    numpy_function: Callable[..., Any], operands: int = 1, stacks: bool = True
) -> Callable[[Function], Function]:
    """Decorator: under ``config.reproducible`` call LAPACK on whole matrices instead.

    Parameters
    ----------
    numpy_function : callable
        The function of :mod:`numpy.linalg`, with the same signature as the decorated function.
    operands : int
        The number of leading parameters that are arrays.
    stacks : bool
        True if NumPy's result for a matrix does not depend on the other matrices of its stack. If
        False, stacks go to the decorated function, which factors each matrix of a stack whole
        anyway.

    Notes
    -----
    Costs a gather of each operand that is a single matrix. A matrix of the shape of an operand gets
    the operand's layout; other results are replicated.
    """

    def decorate(function: Function) -> Function:
        parameters = signature(function)

        @wraps(function)
        def either(*args: Any, **kwargs: Any) -> Any:
            if not config.reproducible:
                return function(*args, **kwargs)
            named = parameters.bind(*args, **kwargs).arguments
            arrays = read(*[named.pop(name) for name in list(named)[:operands]])
            alone = partial(numpy_function, **named)
            with one_blas_thread():
                if arrays[0].ndim <= 2 and (operands == 1 or arrays[1].ndim <= 2):
                    return _placed(at_once(alone, *arrays), arrays)
                if not stacks:
                    return function(*arrays, **named)
                vector = arrays[-1].ndim == 1  # one right-hand side for all matrices
                arrays[-1] = arrays[-1][:, None] if vector else arrays[-1]
                found = stackwise(alone, *arrays)
                return found[..., 0] if vector else found

        return cast(Function, either)

    return decorate


def _placed(value: Any, operands: Sequence[DistArray]) -> Any:
    """Move results of an operand's shape to the operand's layout, in memory of their own."""
    if isinstance(value, tuple):
        return sequence_like(value, [_placed(item, operands) for item in value])
    if isinstance(value, DistArray) and value.ndim == 2:
        for x in operands:
            if x.shape == value.shape and not x.layout.is_replicated:
                placed = to_layout(value, x.layout)
                return placed.like(placed.block.copy())
    return value
