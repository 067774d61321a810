"""How results of a reduction are folded across ranks, ufunc by ufunc.

Associative ufuncs fold what the ranks have made of their own blocks: by an allreduce where
:class:`~distarray.layout.Fold` has the operation, by gathering and folding rows otherwise. All
others (subtract, divide, power, ...) and everything whose order must be kept go along the axis,
rank after rank, in :mod:`distarray.engines.chains`.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from distarray.array.portable import contiguous, ufunc_method
from distarray.comm.group import Group
from distarray.layout import Fold
from distarray.typing import Array

__all__ = ["RULES", "Rule", "Ufunc", "combine", "exclusive", "fold_rows", "identity", "neutral"]

#: A `numpy.ufunc`; the stubs know less of its methods than it has.
Ufunc = Any

#: Up to this many gathered bytes every rank folds everything; above it each folds one piece.
GATHER_BELOW = 1 << 16
#: So few bytes are gathered from any number of ranks: to cut them in pieces would not pay.
SMALL = 64


class Rule(NamedTuple):
    """What an associative and commutative ufunc allows.

    Attributes
    ----------
    fold : Fold or None
        The fold that carries it out; None where there is none.
    idempotent : bool
        Whether folding a value in twice changes nothing.
    rounds : bool
        Whether its floating-point results depend on the order.
    """

    fold: Fold | None = None
    idempotent: bool = False
    rounds: bool = False


RULES: dict[Ufunc, Rule] = {
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
    np.gcd: Rule(),
    np.hypot: Rule(rounds=True),
    np.logaddexp: Rule(rounds=True),
    np.logaddexp2: Rule(rounds=True),
}


@lru_cache(maxsize=256)
def identity(ufunc: Ufunc, dtype: np.dtype[Any]) -> Any:
    """What leaves every value as it is when folded in: the contribution of an empty block."""
    if ufunc in (np.maximum, np.minimum, np.fmax, np.fmin):
        return _extreme(ufunc, dtype)
    if ufunc is np.bitwise_and:
        return np.invert(np.zeros((), dtype))[()]
    return np.asarray(ufunc.identity).astype(dtype)[()]


@lru_cache(maxsize=256)
def neutral(ufunc: Ufunc, dtype: np.dtype[Any]) -> Any:
    """The identity that leaves the sign of a zero as it is, too; NumPy's sums start from 0.0."""
    if ufunc is np.add and dtype.kind in "fc":
        return dtype.type(complex(-0.0, -0.0) if dtype.kind == "c" else -0.0)
    return identity(ufunc, dtype)


def _extreme(ufunc: Ufunc, dtype: np.dtype[Any]) -> Any:
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
        info = np.iinfo(np.int64)  # the lowest integer of all is NaT's
        return np.array(info.min + 1 if lowest else info.max, np.int64).view(dtype)[()]
    limits = np.iinfo(dtype)
    return dtype.type(limits.min if lowest else limits.max)


def combine(group: Group, block: Array, ufunc: Ufunc) -> Array:
    """Fold the ranks' blocks with an associative ufunc; every rank gets the result."""
    fold = RULES[ufunc].fold
    if fold is not None:
        return group.allreduce(block, fold)
    # Without a dtype: these keep the blocks', and NumPy takes none with a byte order or a unit.
    rows = fold_rows(group, block.reshape(-1), lambda rows: ufunc_method(ufunc, "reduce", rows, 0))
    return rows.reshape(block.shape)


def fold_rows(group: Group, block: Array, fold: Callable[[Array], Array]) -> Array:
    """Fold the ranks' blocks with a function of all of them, element by element.

    Parameters
    ----------
    group : Group
        Whose blocks; collective.
    block : array
        Elements along the first axis; equal shape and dtype on every rank.
    fold : callable
        Takes contributions stacked along a new first axis, in rank order, any number of elements
        at a time, and gives the results for these elements along its first axis.

    Returns
    -------
    array
        The results for all elements, on every rank.

    Cost
    ----
    Small blocks: one allgather. Large ones: each rank folds one piece, so that twice the block is
    sent, as in an allreduce.
    """
    if group.size == 1:
        return fold(block[None])
    if block.nbytes <= SMALL or block.nbytes * group.size <= GATHER_BELOW:
        return fold(group.allgather(block))
    pieces = np.array_split(contiguous(block), group.size)
    mine = fold(np.stack(group.alltoall_varied(pieces)))
    return np.concatenate(group.allgather_varied(mine, [len(piece) for piece in pieces]))


def exclusive(group: Group, block: Array, ufunc: Ufunc, start: Any, backwards: bool) -> Array:
    """Fold of the blocks of all lower ranks; of all higher ones if it goes backwards.

    Parameters
    ----------
    group : Group
        Whose blocks; collective.
    block : array
        Equal shape and dtype on every rank.
    ufunc : ufunc
        An associative one.
    start : scalar
        What the first one gets.
    backwards : bool
        Whether the last rank is the first of the scan, as in a view with a negative step.
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
