"""Linear algebra with the same bits on every mesh: ``config.reproducible``.

How a factorization rounds depends on how it is divided into blocks, and in LAPACK on the number
of threads. So every rank factors a copy of a matrix, with one thread; of a stack of matrices each
is factored by one rank. Products of matrices need no copies: they are summed without regard to
order (:mod:`distarray.engines.contracting.exact`).
"""

from collections.abc import Callable, Sequence
from functools import partial, wraps
from inspect import signature
from typing import Any, TypeVar, cast

from distarray.array import DistArray, to_layout
from distarray.comm.tune import one_blas_thread
from distarray.config import config
from distarray.engines.factoring.small import at_once, read, stackwise

__all__ = ["repeatable"]

Function = TypeVar("Function", bound=Callable[..., Any])


def repeatable(
    numpy_function: Callable[..., Any], operands: int = 1, stacks: bool = True
) -> Callable[[Function], Function]:
    """Let LAPACK on whole matrices take the place of a function where bits must not differ.

    Parameters
    ----------
    numpy_function : callable
        Of :mod:`numpy.linalg`; the signature is the decorated function's.
    operands : int
        How many of its first parameters are arrays.
    stacks : bool
        Whether of a stack NumPy gives the same for each matrix, whichever are beside it. If not,
        the decorated function treats whole matrices of a stack anyway.

    Notes
    -----
    Costs a gather of each operand that is a single matrix. Results of the shape of an operand are
    laid out as that, others are replicated.
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
    """Results of an operand's shape laid out as the operand, in memory of their own."""
    if isinstance(value, tuple):
        items = [_placed(item, operands) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if isinstance(value, DistArray) and value.ndim == 2:
        for x in operands:
            if x.shape == value.shape and not x.layout.is_replicated:
                placed = to_layout(value, x.layout)
                return placed.like(placed.block.copy())
    return value
