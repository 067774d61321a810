"""Folds in NumPy: the ufunc of each :class:`Fold`, and the steps before and after the ufunc."""

import numpy as np

from distarray.layout.placement import Fold
from distarray.typing import Array

__all__ = ["UFUNCS", "averaged", "fold_rows", "prepared"]

#: AVG is a sum, which :func:`averaged` divides by the number of contributions.
UFUNCS: dict[Fold, np.ufunc] = {
    Fold.SUM: np.add,
    Fold.AVG: np.add,
    Fold.PROD: np.multiply,
    Fold.MIN: np.minimum,
    Fold.MAX: np.maximum,
    Fold.ANY: np.logical_or,
    Fold.ALL: np.logical_and,
    Fold.BAND: np.bitwise_and,
    Fold.BOR: np.bitwise_or,
    Fold.BXOR: np.bitwise_xor,
}

_LOGICAL = (Fold.ANY, Fold.ALL)


def prepared(block: Array, fold: Fold) -> Array:
    """Return the block in the dtype that is folded: native byte order; bool for ANY and ALL."""
    if fold in _LOGICAL:
        return block if block.dtype == bool else block.astype(bool)
    if not block.dtype.isnative:
        return block.astype(block.dtype.newbyteorder("="))
    return block


def fold_rows(rows: Array, fold: Fold) -> Array:
    """Fold an array along its first axis, from row 0 upwards, keeping the dtype."""
    # Without a dtype NumPy widens sums of small integers; ufuncs refuse a dtype for times.
    dtype = None if rows.dtype.kind in "mM" else rows.dtype
    ufunc = UFUNCS[fold]
    if ufunc is np.add and rows.dtype.kind in "fc":  # NumPy begins with 0.0, and -0.0 is lost
        zero = rows.dtype.type(-0.0 if rows.dtype.kind == "f" else complex(-0.0, -0.0))
        return np.asarray(ufunc.reduce(rows, axis=0, dtype=dtype, initial=zero))
    return np.asarray(ufunc.reduce(rows, axis=0, dtype=dtype))


def averaged(total: Array, count: int, fold: Fold) -> Array:
    """Return the finished fold: for AVG the sum divided by the number of contributions."""
    if fold is not Fold.AVG:
        return total
    if total.dtype.kind in "fcm":
        return (total / count).astype(total.dtype, copy=False)
    return np.true_divide(total, count)
