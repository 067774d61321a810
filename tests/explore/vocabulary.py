"""The words of the statements: kinds of arrays, data types, numbers, ufuncs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

NUMBERS = "biufc"
KINDS: dict[str, Callable[[np.ndarray], Any]] = {
    "any": lambda v: True,
    "num": lambda v: v.dtype.kind in NUMBERS,
    "real": lambda v: v.dtype.kind in "biuf",
    "signed": lambda v: v.dtype.kind in "ifc",
    "int": lambda v: v.dtype.kind in "iu",
    "square": lambda v: v.ndim == 2 and v.shape[0] == v.shape[1],
    "eight": lambda v: v.dtype.kind in NUMBERS and v.dtype.itemsize == 8,
    "u1": lambda v: v.dtype == np.uint8,
    "float": lambda v: v.dtype.kind == "f",
    "complex": lambda v: v.dtype.kind == "c",
    "bool": lambda v: v.dtype.kind == "b",
    "text": lambda v: v.dtype.kind == "U",
    "date": lambda v: v.dtype.kind in "mM",
    "rec": lambda v: v.dtype.names is not None,
    "plain": lambda v: v.dtype.names is None,
    "ordered": lambda v: v.dtype.kind in "biufcmMU" and v.dtype != np.float16,
    "d1": lambda v: v.ndim == 1,
    "d2": lambda v: v.ndim == 2,
    "nd": lambda v: v.ndim >= 1,
    "dd": lambda v: v.ndim >= 2,
    "some": lambda v: v.size > 0,
    "small": lambda v: v.size <= 24,
    "exact": lambda v: exact(v, 1 << 10),
    "near": lambda v: exact(v, 1 << 10) and _largest(v) <= 1 << 20,  # nor is it rounded by mean()
    "tiny": lambda v: exact(v, 9) and v.size <= 12,
}
DTYPES = ("f8", "f8", "i8", "i4", "i1", "u1", "f4", "c16", "?", "f2", "u2", "c8")
OTHERS = ("U3", "M8[D]", "m8[s]", "rec")
SCALARS = (
    "2", "-1", "0", "1", "3", "1.5", "True", "(1+2j)", "300", "-7", "numpy.int8(3)", "2.0",
    "numpy.float32(0.5)", "numpy.uint8(200)", "numpy.array(2)", "numpy.float64(-2.0)",
)  # fmt: skip
BINARY = (
    "add", "subtract", "multiply", "maximum", "minimum", "true_divide", "floor_divide", "remainder",
    "power", "bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift", "logical_and",
    "logical_or", "equal", "less", "greater_equal", "not_equal", "fmax", "fmin", "copysign", "gcd",
    "fmod", "arctan2", "heaviside", "lcm",
)  # fmt: skip
UNARY = (
    "negative", "positive", "absolute", "sqrt", "square", "sign", "floor", "rint", "conjugate",
    "invert", "logical_not", "isfinite", "isnan", "reciprocal", "signbit", "trunc",
)  # fmt: skip
FOLDING = (
    "add", "multiply", "maximum", "minimum", "logical_and", "logical_or", "bitwise_and",
    "bitwise_or", "bitwise_xor", "subtract", "true_divide", "floor_divide", "remainder", "fmax",
    "fmin", "gcd", "logical_xor", "fmod", "equal", "less", "power",
)  # fmt: skip
CASTINGS = ("no", "equiv", "safe", "same_kind", "unsafe")


class Misfit(Exception):
    """There is nothing that fits a place of a statement."""


def exact(values: Any, most: float) -> bool:
    """Whether sums of the values are the same in any order: whole numbers, and not too large."""
    if values.dtype.kind not in NUMBERS:
        return False
    if values.dtype.kind in "biu" or not values.size:
        return True
    if values.dtype == np.float16:
        most = min(most, 44)  # products of two are exact as well
    parts = (values.real, values.imag) if values.dtype.kind == "c" else (values,)
    with np.errstate(all="ignore"):
        for part in parts:
            total = np.abs(part.astype("f8")).sum()
            if not np.isfinite(total) or total > most or (part != np.floor(part)).any():
                return False
    return True


def _largest(values: Any) -> float:
    return float(np.abs(values.astype("c16")).max(initial=0))


def family(x: Any) -> str:
    """The kinds of arrays that belong beside x."""
    if x.dtype.kind in NUMBERS:
        return "num"
    return {"U": "text", "m": "date", "M": "date"}.get(x.dtype.kind, "rec")


def dtype_text(dtype: Any) -> str:
    """A data type as the lines write it."""
    if dtype.names:
        return "rec"
    if dtype.kind == "V":
        raise Misfit
    return str(dtype.str[1:] if dtype.str[0] in "<|=" else dtype.str)


def fits(shape: Sequence[int], target: Sequence[int]) -> bool:
    """Whether an array of a shape broadcasts to another."""
    pairs = zip(reversed(shape), reversed(target), strict=False)
    return len(shape) <= len(target) and all(a in (b, 1) for a, b in pairs)
