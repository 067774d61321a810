"""BLAS and LAPACK routines for which NumPy has no function.

These are LU factorization, products subtracted in place, and triangular systems solved in place.
The extension module of ``numpy.linalg`` is linked with a library that contains these routines; they
are looked up there under the usual spellings of their names. If a routine is not found (no such
library, a static link, another platform, an array on a device), NumPy's operations compute the same
result more slowly: a panel of an LU factorization takes ten times as long.
"""

import ctypes
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from distarray.engines.rehearsing.hollow import Hollow
from distarray.typing import Array

__all__ = [
    "divide_by_adjoint",
    "factor_panel",
    "row_order",
    "solve_by_upper",
    "solve_unit_lower",
    "subtract_product",
]


#: A routine of the library, and its integer type.
_Routine = tuple[Callable[..., None], type]
#: Storage of a matrix in memory: True for column-major order, and the leading dimension in
#: elements.
_Storage = tuple[bool, int]

#: Spellings of Fortran names: a prefix, a suffix, and the integer type.
_SPELLINGS: tuple[tuple[str, str, type], ...] = (
    ("scipy_", "_64_", ctypes.c_int64),  # NumPy's wheels
    ("", "_64_", ctypes.c_int64),
    ("", "_", ctypes.c_int32),
)
_LETTERS = {np.dtype(np.float64): "d", np.dtype(np.complex128): "z"}

#: Columns of a panel that are factored one by one before a product updates the rest of the panel.
_NARROW = 8
#: Rows of a product that are computed and subtracted at a time, while they are in cache.
_TILE_ROWS = 256


def factor_panel(columns: Array) -> Array:
    """Compute the LU factorization of a panel of columns in place, with partial pivoting.

    Parameters
    ----------
    columns : ndarray, shape (w, m)
        The panel, transposed: one column per line, C-contiguous, float64 or complex128, w <= m.
        Overwritten by L (unit lower triangular, without its diagonal) and U, as by LAPACK.

    Returns
    -------
    ndarray of int, shape (w,)
        The row with which each row was exchanged, in order.

    Notes
    -----
    A column without a nonzero pivot gets a zero on the diagonal of U, and is not divided by the
    zero.
    """
    if isinstance(columns, Hollow):
        return np.arange(len(columns))
    routine = _getrf(columns.dtype)
    if routine is None:
        pivots = np.empty(len(columns), np.int64)
        with np.errstate(all="ignore"):
            _factor(columns, 0, len(columns), pivots)
        return pivots
    return routine(columns)


def row_order(pivots: Array) -> tuple[Array, Array]:
    """Combine row exchanges: return the rows that change, and the rows that replace them."""
    order: dict[int, int] = {}
    for row, other in enumerate(pivots.tolist()):
        if row != other:
            order[row], order[other] = order.get(other, other), order.get(row, row)
    return np.array(list(order), np.intp), np.array(list(order.values()), np.intp)


def subtract_product(target: Array, left: Array, right: Array) -> None:
    """Compute ``target -= left @ right`` without a large temporary, in one data type."""
    if not right.size or not target.size:
        return
    if type(target) is np.ndarray and target.strides[1] == target.itemsize:
        first, second, into = _storage(left), _storage(right), _storage(target)
        routine = _gemm(target.dtype)
        if routine is not None and first and second and into:
            routine(target, left, right, (first, second, into))
            return
    for start in range(0, len(target), _TILE_ROWS):
        tile = slice(start, start + _TILE_ROWS)
        target[tile] -= left[tile] @ right


def solve_unit_lower(columns: Array, sides: Array) -> bool:
    """Solve a system with the L of a factored panel in place; return False if BLAS cannot.

    Parameters
    ----------
    columns : ndarray, shape (w, m)
        The result of :func:`factor_panel`; L is in its first w rows.
    sides : array, shape (w, r)
        Right-hand sides, of the panel's data type; overwritten by the solution.
    """
    return _solve_in_place(b"RLTU", columns, sides)


def solve_by_upper(upper: Array, sides: Array) -> bool:
    """Solve an upper triangular system in place; return False if BLAS cannot.

    Parameters
    ----------
    upper : array, shape (w, w)
        The matrix; elements below the diagonal are not read.
    sides : array, shape (w, r)
        Right-hand sides, of the matrix's data type; overwritten by the solution.
    """
    if type(upper) is not np.ndarray or upper.dtype != sides.dtype:
        return False
    return _in_rows(upper) and _solve_in_place(b"RLNN", upper, sides)


def divide_by_adjoint(sides: Array, lower: Array) -> bool:
    """Compute ``sides @ inv(lower.conj().T)`` in place; return False if BLAS cannot.

    Parameters
    ----------
    sides : array, shape (r, w)
        The matrix to multiply, of the data type of `lower`; overwritten.
    lower : ndarray, shape (w, w)
        The triangle, C-contiguous; elements above the diagonal are not read.
    """
    return _solve_in_place(b"LUCN", lower, sides)


def _solve_in_place(how: bytes, triangle: Array, sides: Array) -> bool:
    """Solve a triangular system by :func:`_call_trsm`; return False if BLAS cannot."""
    if type(sides) is not np.ndarray or not sides.size:
        return False
    routine = _trsm(sides.dtype)
    if routine is None or not _in_rows(sides):
        return False
    routine(how, triangle, sides)
    return True


# -- routines of the library -----------------------------------------------------------------------


@cache
def _library() -> Any:
    """Load the library that ``numpy.linalg`` is linked with; return None if that fails."""
    path = getattr(getattr(np.linalg, "_umath_linalg", None), "__file__", None)
    try:
        return None if path is None else ctypes.CDLL(path)
    except OSError:
        return None


def _routine(name: str) -> _Routine | None:
    """Look up a routine by its LAPACK name; return None if the library lacks it."""
    for before, after, integer in _SPELLINGS:
        found = getattr(_library(), f"{before}{name}{after}", None)
        if found is not None:
            found.restype = None
            return found, integer
    return None


def _address(array: Array) -> ctypes.c_void_p:
    """Return the address of the first element."""
    return ctypes.c_void_p(array.ctypes.data)


@cache
def _getrf(dtype: np.dtype[Any]) -> Callable[[Array], Array] | None:
    """Return LAPACK's LU factorization for a data type, or None if a trial call fails."""
    found = _routine(f"{_LETTERS[dtype]}getrf")
    if found is None:
        return None
    factor = partial(_call_getrf, *found)
    # Under this spelling a library may have integers of another width: check a trial result.
    columns = np.array([[1, 4, 2], [2, 8, 6]], dtype)
    wanted = np.array([[4, 0.5, 0.25], [8, 2, 0]], dtype)
    right = factor(columns).tolist() == [1, 2] and np.array_equal(columns, wanted)
    return factor if right else None


def _call_getrf(routine: Callable[..., None], integer: type, columns: Array) -> Array:
    """Factor a panel by LAPACK."""
    width, rows = columns.shape
    pivots = np.empty(width, np.dtype(integer))
    if columns.size:
        m, n, info = integer(rows), integer(width), integer(0)
        by = ctypes.byref
        routine(by(m), by(n), _address(columns), by(m), _address(pivots), by(info))
    return pivots.astype(np.int64) - 1  # Fortran counts from 1


@cache
def _gemm(dtype: np.dtype[Any]) -> Callable[..., None] | None:
    """Return BLAS's matrix product for a data type, or None if a trial call fails."""
    found = _routine(f"{_LETTERS[dtype]}gemm") if dtype in _LETTERS else None
    if found is None:
        return None
    multiply = partial(_call_gemm, *found)
    left, right = np.array([[1, 2], [3, 4]], dtype), np.array([[5, 6, 7], [8, 9, 10]], dtype)
    target = np.zeros((2, 3), dtype)
    multiply(target, left, right, ((False, 2), (False, 3), (False, 3)))
    return multiply if np.array_equal(target, -(left @ right)) else None


@cache
def _trsm(dtype: np.dtype[Any]) -> Callable[[bytes, Array, Array], None] | None:
    """Return BLAS's triangular solver for a data type, or None if a trial call fails."""
    found = _routine(f"{_LETTERS[dtype]}trsm") if dtype in _LETTERS else None
    if found is None:
        return None
    solve = partial(_call_trsm, *found)
    columns, sides = (
        np.array([[9, 2, 7], [8, 9, 7]], dtype),
        np.array([[1, 2, 3], [4, 6, 8]], dtype),
    )
    solve(b"RLTU", columns, sides)
    return solve if np.array_equal(sides, [[1, 2, 3], [2, 2, 2]]) else None


def _call_trsm(
    routine: Callable[..., None], integer: type, how: bytes, triangle: Array, sides: Array
) -> None:
    """Solve for the transposed sides, since Fortran reads the rows as columns.

    The letters of `how` are BLAS's SIDE, UPLO, TRANSA and DIAG: the side from which the triangle
    multiplies, its kind (upper or lower, in Fortran's order), its transposition (and conjugation),
    and its diagonal (unit or not).
    """
    one = np.ones(1, sides.dtype)
    by = ctypes.byref
    routine(
        *(ctypes.c_char_p(how[n : n + 1]) for n in range(4)),
        by(integer(sides.shape[1])),
        by(integer(len(sides))),
        _address(one),
        _address(triangle),
        by(integer(max(1, triangle.strides[0] // triangle.itemsize))),
        _address(sides),
        by(integer(max(1, sides.strides[0] // sides.itemsize))),
    )


def _in_rows(x: Array) -> bool:
    """Return True if the matrix is stored row by row and BLAS can read it."""
    storage = _storage(x)
    return storage is not None and not storage[0]


def _storage(x: Array) -> _Storage | None:
    """Return the storage of a matrix, or None if BLAS cannot read it."""
    down, right = x.strides
    if right == x.itemsize and down >= x.shape[1] * right and not down % right:
        return False, max(1, down // right)
    if down == x.itemsize and right >= x.shape[0] * down and not right % down:
        return True, max(1, right // down)
    return None


def _call_gemm(
    routine: Callable[..., None],
    integer: type,
    target: Array,
    left: Array,
    right: Array,
    storage: tuple[_Storage, _Storage, _Storage],
) -> None:
    """Subtract a product, computed from the transposes since Fortran reads rows as columns.

    `storage` contains the storage of `left`, `right` and `target`.
    """
    (turned_left, rows_left), (turned_right, rows_right), (_, rows) = storage
    number = np.array([-1, 1], target.dtype)
    m, n, k = (integer(x) for x in (target.shape[1], target.shape[0], left.shape[1]))
    by = ctypes.byref
    routine(
        ctypes.c_char_p(b"T" if turned_right else b"N"),
        ctypes.c_char_p(b"T" if turned_left else b"N"),
        by(m),
        by(n),
        by(k),
        _address(number[:1]),
        _address(right),
        by(integer(rows_right)),
        _address(left),
        by(integer(rows_left)),
        _address(number[1:]),
        _address(target),
        by(integer(rows)),
    )


# -- NumPy's operations instead of LAPACK ----------------------------------------------------------


def _factor(columns: Array, first: int, last: int, pivots: Array) -> None:
    """Factor columns `first` to `last` by halves; earlier columns have already updated them."""
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
    """Choose a pivot, and subtract its row from the rows below in a narrow strip of columns."""
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
    """Apply the row exchanges of `pivots` to some columns."""
    for row in range(first, last):
        other = int(pivots[row])
        if other != row:
            columns[:, [row, other]] = columns[:, [other, row]]
