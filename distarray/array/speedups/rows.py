"""Rows that are grouped by the ranks that own them, and written to their places, in C.

A row is a number of bytes, whatever they mean.
"""

from collections.abc import Sequence

import numpy as np

from distarray.array.speedups import used
from distarray.typing import Array

__all__ = ["are_rows", "grouped", "scattered"]

#: Kinds of elements that are copied as bytes.
_KINDS = frozenset("biufcmMSUV")


def are_rows(rows: Array) -> bool:
    """Whether the functions here take an array."""
    plain = type(rows) is np.ndarray and rows.flags.c_contiguous
    return used is not None and plain and rows.dtype.kind in _KINDS and not rows.dtype.hasobject


def grouped(owners: Array, counts: list[int], arrays: Sequence[Array]) -> list[Array]:
    """The rows of up to four arrays ordered by owner and then by position.

    Parameters
    ----------
    owners : array of uint8
        The rank that owns each row.
    counts : list of int
        How many rows each rank owns.
    arrays : sequence of array
        In C order.
    """
    found: list[Array] = used.grouped(owners, counts, tuple(arrays))
    return found


def scattered(block: Array, places: Array, start: int, values: Array) -> None:
    """Write rows to their places, one after the other.

    Parameters
    ----------
    block : array
        The rows that are written to, in C order.
    places : array of int32 or int64
        Where each value belongs.
    start : int
        The place of the first row of the block.
    values : array
        As many rows, in C order, in other memory; or one for all places.
    """
    used.scattered(block, places, start, values)
