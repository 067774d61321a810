"""NumPy's names of the function in which a floating-point error occurred, by NumPy function.

Implementations compute otherwise than NumPy: products of blocks are `matmul` where NumPy reports
`dot`, and sums are folds. Their reports use the names that NumPy would use.
"""

from collections.abc import Hashable
from typing import Any

import numpy as np

__all__ = ["are_ours", "words_of"]

_linalg: Any = np.linalg
_Words = str | dict[str, str] | None
#: A name for all errors, or a mapping of some of this library's names; None: NumPy reports nothing.
_WORDS: dict[Any, _Words] = {
    **dict.fromkeys([np.sum, np.prod, np.nansum, np.nanprod, np.trace], "reduce"),
    **dict.fromkeys([np.cumsum, np.cumprod, np.nancumsum, np.nancumprod], "accumulate"),
    **dict.fromkeys([np.cumulative_sum, np.cumulative_prod], "accumulate"),
    **dict.fromkeys([np.dot, np.inner, np.tensordot], "dot"),
    **dict.fromkeys([np.matmul, _linalg.matmul, _linalg.matrix_power], "matmul"),
    **dict.fromkeys([np.vecdot, _linalg.vecdot], "vecdot"),
    **dict.fromkeys([np.vdot, np.einsum, np.bincount, np.histogram, np.interp], None),
    **dict.fromkeys([np.convolve, np.correlate, np.polymul], None),
    **dict.fromkeys([_linalg.inv, _linalg.solve, _linalg.cholesky, _linalg.qr, _linalg.svd], None),
    **dict.fromkeys([_linalg.eig, _linalg.eigh, _linalg.eigvals, _linalg.eigvalsh], None),
    _linalg.det: "det",
    _linalg.slogdet: "slogdet",
    np.outer: "multiply",
    _linalg.norm: {"matmul": "dot"},
    _linalg.vector_norm: {"matmul": "dot"},
    _linalg.multi_dot: {"matmul": "dot"},
    np.nanvar: {"square": "multiply"},
    np.nanstd: {"square": "multiply"},
}
_AS_THEY_ARE: dict[str, str] = {}
_METHODS = {"reduce": "reduce", "accumulate": "accumulate", "reduceat": "reduceat"}


def words_of(key: Hashable) -> _Words:
    """Return the name of all errors of a call, or names to replace; None if NumPy reports none.

    Parameters
    ----------
    key : function, or (ufunc, method)
    """
    if isinstance(key, tuple):
        ufunc, method = key
        return _AS_THEY_ARE if method == "__call__" else _METHODS.get(method, ufunc.__name__)
    try:
        return _WORDS.get(key, _AS_THEY_ARE)
    except TypeError:  # not every function has a hash
        return _AS_THEY_ARE


def are_ours(key: Hashable) -> bool:
    """Return True if errors of a call need other names than NumPy's, also on one rank."""
    return words_of(key) is not _AS_THEY_ARE
