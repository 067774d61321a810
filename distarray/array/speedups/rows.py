"""Grouping of rows by the ranks that own them, and writing of rows to their places, in C.

A row is a sequence of bytes of any meaning.
"""

from collections.abc import Sequence

import numpy as np

from distarray.array.speedups import used
from distarray.typing import Array

__all__ = ["are_rows", "grouped", "scattered"]

#: Kinds of elements that can be copied as bytes.
_KINDS = frozenset("biufcmMSUV")


def are_rows(rows: Array) -> bool:
    """Return True if the functions of this module accept an array."""
    plain = type(rows) is np.ndarray and rows.flags.c_contiguous
    return used is not None and plain and rows.dtype.kind in _KINDS and not rows.dtype.hasobject


def grouped(
    keys: Array, starts: Array, arrays: Sequence[Array], into: Sequence[Array]
) -> list[int]:
    """Write the rows of up to four arrays into others, ordered by group and then by position.

    Parameters
    ----------
    keys : array of int64
        A row's group is the number of `starts` that its key has reached.
    starts : array of int64
        Ascending.
    arrays, into : sequence of array
        In C order. The arrays of `into` are in other memory, and of the same types or int32 for
        int64.

    Returns
    -------
    list of int
        Number of rows of each group.
    """
    found: list[int] = used.grouped(keys, starts, tuple(arrays), tuple(into))
    return found


def scattered(block: Array, places: Array, start: int, values: Array) -> None:
    """Write rows to their places, one after the other.

    Parameters
    ----------
    block : array
        The rows that are written to, in C order.
    places : array of int32 or int64
        The place of each value.
    start : int
        The place of the first row of the block.
    values : array
        As many rows, in C order, in other memory; or one row for all places.
    """
    used.scattered(block, places, start, values)
