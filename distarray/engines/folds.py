"""Folds of the ranks' partial results by a ufunc: the rules and identities of associative ufuncs.

An associative ufunc reduces each rank's block and then folds the ranks' results: by an allreduce
if :class:`~distarray.layout.Fold` has the operation, otherwise by gathering rows and folding
them. All other ufuncs (subtract, divide, power, ...) and every operation whose order must be kept
run along the axis, rank after rank, in :mod:`distarray.engines.chains`.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from distarray.array.base import Base
from distarray.array.portable import contiguous, ufunc_method
from distarray.comm.group import Group
from distarray.layout import Fold
from distarray.typing import Array, DType

__all__ = [
    "RULES",
    "Rule",
    "are_times",
    "calls_python",
    "combine",
    "exclusive",
    "fold_with",
    "identity",
    "is_of_objects",
    "loop_dtype",
    "neutral",
]

#: Limit in gathered bytes: up to it every rank folds everything, above it each rank folds a piece.
GATHER_BELOW = 1 << 16
#: Bytes of a block up to which it is gathered from any number of ranks: cutting it does not pay.
SMALL = 64


#: Spellings of the object data type, whose sums use Python's own addition.
_OBJECTS = (object, np.object_, np.dtype(object), "O", "object")


class Rule(NamedTuple):
    """Properties of an associative and commutative ufunc.

    Attributes
    ----------
    fold : Fold or None
        The equivalent fold, if there is one.
    idempotent : bool
        True if folding in a value twice changes nothing.
    rounds : bool
        True if its floating-point results depend on the order.
    positive : bool
        True if folding in the identity makes a negative number positive. NumPy returns a negative
        initial value unchanged if there is nothing to fold.
    """

    fold: Fold | None = None
    idempotent: bool = False
    rounds: bool = False
    positive: bool = False


RULES: dict[np.ufunc, Rule] = {
    np.add: Rule(Fold.SUM, rounds=True),
    np.multiply: Rule(Fold.PROD, rounds=True),
    np.maximum: Rule(Fold.MAX, idempotent=True),
    np.minimum: Rule(Fold.MIN, idempotent=True),
    np.logical_or: Rule(Fold.ANY, idempotent=True),
    np.logical_and: Rule(Fold.ALL, idempotent=True),
    np.logical_xor: Rule(),
    np.bitwise_and: Rule(Fold.BAND, idempotent=True),
    np.bitwise_or: Rule(Fold.BOR, idempotent=True),
    np.bitwise_xor: Rule(Fold.BXOR),
    np.fmax: Rule(idempotent=True),
    np.fmin: Rule(idempotent=True),
    np.gcd: Rule(positive=True),
    np.hypot: Rule(rounds=True, positive=True),
    np.logaddexp: Rule(rounds=True),
    np.logaddexp2: Rule(rounds=True),
}


@lru_cache(maxsize=256)
def calls_python(ufunc: np.ufunc) -> bool:
    """Return True if a ufunc is from :func:`numpy.frompyfunc`, with loops on objects only."""
    loops = ufunc.types  # loops on strings are not listed
    return bool(loops) and all(set(loop) <= set("O->") for loop in loops)


def is_of_objects(ufunc: np.ufunc, source: DType, dtype: Any) -> bool:
    """Return True if a reduction, to `dtype` unless None, calls methods of Python objects."""
    if source.hasobject or (dtype is not None and dtype in _OBJECTS):
        return True
    return ufunc not in RULES and calls_python(ufunc)


@lru_cache(maxsize=256)
def identity(ufunc: np.ufunc, dtype: np.dtype[Any]) -> Any:
    """Return the identity, which changes no value when folded in: an empty block's contribution."""
    if ufunc in (np.maximum, np.minimum, np.fmax, np.fmin):
        return _extreme(ufunc, dtype)
    if ufunc is np.bitwise_and:
        return np.invert(np.zeros((), dtype))[()]
    return np.asarray(ufunc.identity).astype(dtype)[()]


@lru_cache(maxsize=256)
def neutral(ufunc: np.ufunc, dtype: np.dtype[Any]) -> Any:
    """Return the identity that also keeps the sign of a zero; NumPy's sums start from 0.0."""
    if ufunc is np.add and dtype.kind in "fc":
        return dtype.type(complex(-0.0, -0.0) if dtype.kind == "c" else -0.0)
    return identity(ufunc, dtype)


def _extreme(ufunc: np.ufunc, dtype: np.dtype[Any]) -> Any:
    """Return the identity of a maximum or minimum: the least or greatest value, or a NaN or NaT.

    The NaN or NaT is that of `fmax` and `fmin`, which ignore it.
    """
    lowest = ufunc in (np.maximum, np.fmax)
    if dtype.kind in "fc":
        if ufunc in (np.fmax, np.fmin):
            return dtype.type(np.nan)
        bound = -np.inf if lowest else np.inf
        return dtype.type(complex(bound, bound) if dtype.kind == "c" else bound)
    if dtype.kind == "b":
        return np.bool_(not lowest)
    if dtype.kind in "mM":
        if ufunc in (np.fmax, np.fmin):
            return np.array("NaT", dtype)[()]
        info = np.iinfo(np.int64)  # the lowest integer is NaT
        return np.array(info.min + 1 if lowest else info.max, np.int64).view(dtype)[()]
    limits = np.iinfo(dtype)
    return dtype.type(limits.min if lowest else limits.max)


def combine(group: Group, block: Array, ufunc: np.ufunc) -> Array:
    """Fold the ranks' blocks by an associative ufunc; every rank gets the result."""
    fold = RULES[ufunc].fold
    if fold is not None:
        return group.allreduce(block, fold)
    # No dtype argument: these ufuncs keep it, and NumPy rejects one with a byte order or a unit.
    flat = fold_with(group, block.reshape(-1), lambda rows: ufunc_method(ufunc, "reduce", rows, 0))
    return flat.reshape(block.shape)


def fold_with(group: Group, block: Array, fold: Callable[[Array], Array]) -> Array:
    """Fold the ranks' blocks, element by element, with a function of all contributions.

    Parameters
    ----------
    group : Group
        The ranks. The call is collective.
    block : array
        Elements along the first axis; equal shape and dtype on every rank.
    fold : callable
        Takes the contributions to some of the elements, stacked along a new first axis in rank
        order, and returns the results for these elements along its first axis.

    Returns
    -------
    array
        The results for all elements, on every rank.

    Cost
    ----
    Small blocks: one allgather. Large blocks: each rank folds one piece, and sends twice the size
    of its block, as in an allreduce.
    """
    if group.size == 1:
        return fold(block[None])
    if block.nbytes <= SMALL or block.nbytes * group.size <= GATHER_BELOW:
        return fold(group.allgather(block))
    pieces = np.array_split(contiguous(block), group.size)
    mine = fold(np.stack(group.alltoall_varied(pieces)))
    return np.concatenate(group.allgather_varied(mine, [len(piece) for piece in pieces]))


def exclusive(group: Group, block: Array, ufunc: np.ufunc, start: Array, backwards: bool) -> Array:
    """Fold the blocks of all lower ranks, or of all higher ranks (exclusive scan).

    Parameters
    ----------
    group : Group
        The ranks. The call is collective.
    block : array
        This rank's block, of equal shape and dtype on every rank.
    ufunc : ufunc
        An associative ufunc.
    start : scalar
        The result on the first rank of the scan.
    backwards : bool
        True if the scan starts from the last rank, as in a view with a negative step.
    """
    if backwards:
        group = group.subset(tuple(reversed(range(group.size)))) or group
    fold = RULES[ufunc].fold
    if fold is not None or group.size == 1:
        return group.exscan(block, fold or Fold.SUM, start)
    pieces = np.array_split(contiguous(block).reshape(-1), group.size)
    rows = np.stack(group.alltoall_varied(pieces))
    before = np.empty_like(rows)
    before[0] = start
    before[1:] = ufunc_method(ufunc, "accumulate", rows[:-1], 0)
    return np.concatenate(group.alltoall_varied(list(before))).reshape(block.shape)


def loop_dtype(ufunc: np.ufunc, x: Base | Array, out: Base | Array) -> Any:
    """Return the data type that NumPy computes in when there is an `out`."""
    if {x.dtype.kind, out.dtype.kind} & {"m", "M"}:
        # Integers converted to times: only differences need all 64 bits.
        return np.int64 if ufunc is np.subtract and x.dtype.kind in "iub" else None
    return ufunc.resolve_dtypes((out.dtype, x.dtype, None), casting="unsafe", reduction=True)[0]


def are_times(x: Base, out: Any) -> bool:
    """Return True if integers are reduced into a timedelta64 `out`: NumPy converts them."""
    return x.dtype.kind in "iub" and getattr(out, "dtype", x.dtype).kind == "m"
