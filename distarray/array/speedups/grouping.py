"""Rows grouped by the ranks that own them, in C: without an array of their positions."""

import numpy as np

from distarray.array.speedups import used
from distarray.typing import Array

__all__ = ["can_group", "grouped"]

#: Kinds of elements that are copied as bytes.
_KINDS = frozenset("biufcmMSUV")


def can_group(rows: Array) -> bool:
    """Whether :func:`grouped` takes these rows."""
    plain = type(rows) is np.ndarray and rows.flags.c_contiguous
    return used is not None and plain and rows.dtype.kind in _KINDS and not rows.dtype.hasobject


def grouped(owners: Array, counts: list[int], rows: Array) -> Array:
    """Rows ordered by owner and then by position.

    Parameters
    ----------
    owners : array of uint8
        The rank that owns each row.
    counts : list of int
        How many rows each rank owns.
    rows : array
        In C order.
    """
    found: Array = used.grouped(owners, counts, rows)
    return found
