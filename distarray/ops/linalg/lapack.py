"""The LU factorization of a panel: in the LAPACK that NumPy itself calls, or in NumPy.

NumPy has no function that gives the factors of an LU factorization, but the extension module of
``numpy.linalg`` is linked with a library that has. It is asked for the routine by its name, of
which there are few spellings; where none is found (no such library, a static link, another
platform), the same factorization is made of NumPy's operations, several times slower.
"""

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

__all__ = ["factor_panel", "row_order"]

Array = np.ndarray[Any, Any]

#: Names under which LAPACK's routines are exported: before, after, and the width of an integer.
_SPELLINGS: tuple[tuple[str, str, type], ...] = (
    ("scipy_", "_64_", ctypes.c_int64),  # the wheels of NumPy
    ("", "_64_", ctypes.c_int64),
    ("", "_", ctypes.c_int32),
)
_ROUTINES = {np.dtype(np.float64): "dgetrf", np.dtype(np.complex128): "zgetrf"}

#: Columns of a panel that are factored one by one before the rest of it is updated by a product.
_NARROW = 8


def factor_panel(columns: Array) -> Array:
    """Factor a panel of columns in place, rows exchanged so that no multiplier exceeds 1.

    Parameters
    ----------
    columns : ndarray, shape (w, m)
        The panel's columns one after another, C-contiguous, float64 or complex128, w <= m.
        Afterwards L (unit lower triangular, its diagonal not stored) and U, as LAPACK leaves them.

    Returns
    -------
    ndarray of int, shape (w,)
        The row with which each row was exchanged, in this order.

    Notes
    -----
    A column without a nonzero pivot leaves a zero on the diagonal of U, and is not divided by it.
    """
    routine = _routine(columns.dtype)
    if routine is None:
        pivots = np.empty(len(columns), np.int64)
        with np.errstate(all="ignore"):
            _factor(columns, 0, len(columns), pivots)
        return pivots
    return routine(columns)


def row_order(pivots: Array, rows: int) -> tuple[Array, Array]:
    """What exchanging rows comes to: the rows that change, and the rows they are taken from."""
    order = list(range(rows))
    for row, other in enumerate(pivots.tolist()):
        order[row], order[other] = order[other], order[row]
    places = np.asarray(order)
    changed = np.flatnonzero(places != np.arange(rows))
    return changed, places[changed]


@cache
def _routine(dtype: np.dtype[Any]) -> Callable[[Array], Array] | None:
    """LAPACK's ``getrf`` for a data type, if it can be found."""
    module = getattr(np.linalg, "_umath_linalg", None)
    path = getattr(module, "__file__", None)
    if path is None:
        return None
    try:
        library = ctypes.CDLL(path)
    except OSError:
        return None
    for before, after, integer in _SPELLINGS:
        found = getattr(library, f"{before}{_ROUTINES[dtype]}{after}", None)
        if found is not None:
            candidate = _bound(found, integer)
            return candidate if _is_right(candidate, dtype) else None
    return None


def _bound(routine: Any, integer: type) -> Callable[[Array], Array]:
    routine.restype = None

    def factor(columns: Array) -> Array:
        width, rows = columns.shape
        pivots = np.empty(width, np.dtype(integer))
        if not columns.size:
            return pivots.astype(np.int64)
        m, n, info = integer(rows), integer(width), integer(0)
        routine(
            ctypes.byref(m),
            ctypes.byref(n),
            columns.ctypes.data_as(ctypes.c_void_p),
            ctypes.byref(m),
            pivots.ctypes.data_as(ctypes.c_void_p),
            ctypes.byref(info),
        )
        return pivots.astype(np.int64) - 1  # Fortran counts from 1

    return factor


def _is_right(candidate: Callable[[Array], Array], dtype: np.dtype[Any]) -> bool:
    """Whether a routine found by its name does what it should: its integers may be others."""
    columns = np.array([[1, 4, 2], [2, 8, 6]], dtype)
    pivots = candidate(columns)
    wanted = np.array([[4, 0.5, 0.25], [8, 2, 0]], dtype)
    return pivots.tolist() == [1, 2] and np.array_equal(columns, wanted)


# -- the same in NumPy -----------------------------------------------------------------------------


def _factor(columns: Array, first: int, last: int, pivots: Array) -> None:
    """Factor columns `first` to `last`, which are up to date, by halves."""
    if last - first <= _NARROW:
        for column in range(first, last):
            _eliminate(columns, column, first, last, pivots)
        return
    middle = (first + last) // 2
    _factor(columns, first, middle, pivots)
    left, right = columns[first:middle], columns[middle:last]
    _exchange(right, pivots, first, middle)
    for row in range(first, middle):
        right[:, row + 1 : middle] -= np.outer(right[:, row], columns[row, row + 1 : middle])
    right[:, middle:] -= right[:, first:middle] @ left[:, middle:]
    _factor(columns, middle, last, pivots)
    _exchange(left, pivots, middle, last)


def _eliminate(columns: Array, column: int, first: int, last: int, pivots: Array) -> None:
    """Choose a pivot and subtract its row from those below, in a narrow strip of columns."""
    own = columns[column]
    pivot = column + int(np.argmax(np.abs(own[column:])))
    pivots[column] = pivot
    if pivot != column:
        strip = columns[first:last]
        strip[:, [column, pivot]] = strip[:, [pivot, column]]
    if own[column] != 0:
        own[column + 1 :] /= own[column]
    rest = columns[column + 1 : last]
    rest[:, column + 1 :] -= np.outer(rest[:, column], own[column + 1 :])


def _exchange(columns: Array, pivots: Array, first: int, last: int) -> None:
    for row in range(first, last):
        other = int(pivots[row])
        if other != row:
            columns[:, [row, other]] = columns[:, [other, row]]
