"""Functions of `numpy.strings` and `numpy.char` that are not ufuncs.

Each rank computes its own elements. Then the ranks agree on the width of the text, which the
longest element on any rank determines.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeGuard

import numpy as np
import numpy.char
import numpy.strings

from distarray.array import DistArray, implements, wrap
from distarray.array.portable import on_host
from distarray.comm import DeviceMesh
from distarray.comm.agree import agree
from distarray.engines.blockwise import prepare
from distarray.layout import Fold, Layout
from distarray.typing import Array, ArrayLike, DType, DTypeLike

__all__ = [
    "by_element",
    "capitalize",
    "center",
    "decode",
    "encode",
    "expandtabs",
    "ljust",
    "lower",
    "mod",
    "multiply",
    "partition",
    "replace",
    "rjust",
    "rpartition",
    "swapcase",
    "title",
    "translate",
    "upper",
    "zfill",
]


def by_element(
    function: Callable[..., Any], operands: Sequence[ArrayLike], types: Sequence[DTypeLike]
) -> list[DistArray]:
    """Apply a function to the elements of operands that broadcast, each rank to its own.

    Parameters
    ----------
    function : callable
        Takes blocks that broadcast, one for each operand; returns an array, or a tuple of them.
    operands : sequence
        Arrays, which are redistributed to one layout, and single texts and numbers.
    types : sequence of dtype
        Data types of the results; if one is text, the ranks agree on its length.

    Returns
    -------
    list of DistArray
        One array for each of the types.

    Raises
    ------
    Exception
        The function's exception on any rank, raised on all ranks.
    """
    arrays = [x for x in operands if not _is_single(x)]
    blocks, layout, mesh = prepare(*arrays)
    pieces = iter(blocks)
    taken: list[Any] = [x if _is_single(x) else next(pieces) for x in operands]
    shape = layout.local_shape(mesh.coords)
    found, error = None, None
    if mesh.coords is not None and (0 not in shape or not layout.size):
        try:
            value = on_host(function, *taken)
            found = list(value) if isinstance(value, tuple) else [value]
        except Exception as caught:
            error = caught
    agree(mesh.group, error)
    agreed = _agreed(types, found, layout, mesh)
    if found is None:
        found = [np.zeros(shape, dtype) for dtype in agreed]
    return [
        wrap(part if part.dtype == dtype else _widened(part, dtype), layout, mesh)
        for part, dtype in zip(found, agreed, strict=True)
    ]


def _is_single(x: ArrayLike) -> TypeGuard[str | bytes | int]:
    """Return True if an operand is a Python text or number."""
    return isinstance(x, (str, bytes, int)) and not isinstance(x, np.generic)


def _agreed(
    types: Sequence[Any], found: Sequence[Array] | None, layout: Layout, mesh: DeviceMesh
) -> list[DType]:
    """Return the data types of the results, with the length of the longest text on any rank."""
    kinds = [np.dtype(kind) for kind in types]
    if mesh.coords is None or not any(kind.kind in "US" for kind in kinds):
        return [part.dtype for part in found] if found is not None else kinds
    if found is not None and not layout.sharded_dims:
        return [part.dtype for part in found]
    own = [0] * len(kinds) if found is None else [part.dtype.itemsize for part in found]
    widths = mesh.group.allreduce(np.array(own), Fold.MAX) if layout.sharded_dims else own
    return [
        _text(kind, int(width)) if kind.kind in "US" else kind
        for kind, width in zip(kinds, widths, strict=True)
    ]


def _text(kind: DType, width: int) -> DType:
    return np.dtype((kind.type, width // np.dtype((kind.type, 1)).itemsize))


def _widened(part: Any, dtype: DType) -> Any:
    """Return a text block with room for longer texts; any other block, or a scalar, unchanged."""
    if isinstance(part, np.generic) or part.dtype.kind not in "US":
        return part
    result = np.empty(part.shape, dtype)
    result[...] = part
    return result


def _texts(function: Callable[..., Any], a: ArrayLike, *others: ArrayLike, kind: str = "") -> Any:
    """Make one text for each element of `a`; of the kind of `a` unless another is given."""
    a = a if hasattr(a, "dtype") else np.asarray(a)
    return by_element(function, [a, *others], [kind or a.dtype.kind])[0]


def _operand(x: ArrayLike) -> Any:
    """Return an operand with lists as arrays; single values and arrays stay unchanged."""
    return x if _is_single(x) or hasattr(x, "dtype") else np.asarray(x)


# -- one text made of another ---------------------------------------------------------------------


@implements(np.strings.capitalize)
def capitalize(a: ArrayLike) -> Any:
    """Write the first character upper case, others lower; see :func:`numpy.strings.capitalize`."""
    return _texts(np.strings.capitalize, a)


@implements(np.strings.lower)
def lower(a: ArrayLike) -> Any:
    """Convert to lower case; see :func:`numpy.strings.lower`."""
    return _texts(np.strings.lower, a)


@implements(np.strings.swapcase)
def swapcase(a: ArrayLike) -> Any:
    """Exchange upper and lower case; see :func:`numpy.strings.swapcase`."""
    return _texts(np.strings.swapcase, a)


@implements(np.strings.title)
def title(a: ArrayLike) -> Any:
    """Write words with capitals; see :func:`numpy.strings.title`."""
    return _texts(np.strings.title, a)


@implements(np.strings.upper)
def upper(a: ArrayLike) -> Any:
    """Convert to upper case; see :func:`numpy.strings.upper`."""
    return _texts(np.strings.upper, a)


@implements(np.strings.expandtabs)
def expandtabs(a: ArrayLike, tabsize: ArrayLike = 8) -> Any:
    """Replace tabs by spaces; see :func:`numpy.strings.expandtabs`."""
    return _texts(np.strings.expandtabs, a, _operand(tabsize))


@implements(np.strings.center)
def center(a: ArrayLike, width: ArrayLike, fillchar: ArrayLike = " ") -> Any:
    """Place text in the middle of a line; see :func:`numpy.strings.center`."""
    return _texts(np.strings.center, a, _operand(width), _operand(fillchar))


@implements(np.strings.ljust)
def ljust(a: ArrayLike, width: ArrayLike, fillchar: ArrayLike = " ") -> Any:
    """Place text at the left of a line; see :func:`numpy.strings.ljust`."""
    return _texts(np.strings.ljust, a, _operand(width), _operand(fillchar))


@implements(np.strings.rjust)
def rjust(a: ArrayLike, width: ArrayLike, fillchar: ArrayLike = " ") -> Any:
    """Place text at the right of a line; see :func:`numpy.strings.rjust`."""
    return _texts(np.strings.rjust, a, _operand(width), _operand(fillchar))


def _zero_filled(a: ArrayLike, width: ArrayLike) -> Array:
    """Add leading zeros to texts; NumPy reads and writes past the end of an empty text."""
    texts, widths = np.asarray(a), np.asarray(width)
    is_empty = np.strings.str_len(texts) == 0
    if texts.dtype.kind not in "US" or not is_empty.any():
        return np.strings.zfill(texts, widths)
    zero = np.array("0").astype(texts.dtype.char)
    filled: Array = np.strings.zfill(np.where(is_empty, zero, texts), widths)
    return np.where(is_empty & (widths <= 0), np.zeros((), filled.dtype), filled)


@implements(np.strings.zfill, small=_zero_filled)
def zfill(a: ArrayLike, width: ArrayLike) -> Any:
    """Write numbers with leading zeros; see :func:`numpy.strings.zfill`."""
    return _texts(_zero_filled, a, _operand(width))


@implements(np.strings.multiply)
def multiply(a: ArrayLike, i: ArrayLike) -> Any:
    """Repeat text several times; see :func:`numpy.strings.multiply`."""
    return _texts(np.strings.multiply, a, _operand(i))


@implements(np.strings.mod)
def mod(a: ArrayLike, values: ArrayLike) -> Any:
    """Fill values into text; see :func:`numpy.strings.mod`."""
    return _texts(np.strings.mod, a, _operand(values))


@implements(np.strings.replace)
def replace(a: ArrayLike, old: ArrayLike, new: ArrayLike, count: ArrayLike = -1) -> Any:
    """Replace substrings of text; see :func:`numpy.strings.replace`."""
    a = a if hasattr(a, "dtype") else np.asarray(a)
    parts = [_operand(part) for part in (old, new)]
    # NumPy truncates texts without a data type of their own to the length of the elements of `a`.
    parts = [
        part.astype(a.dtype) if given is not part else part
        for given, part in zip((old, new), parts, strict=True)
    ]
    return _texts(np.strings.replace, a, *parts, _operand(count))


@implements(np.strings.translate)
def translate(a: ArrayLike, table: str, deletechars: str | None = None) -> Any:
    """Replace characters by a table; see :func:`numpy.strings.translate`."""
    return _texts(lambda block: np.strings.translate(block, table, deletechars), a)


@implements(np.strings.encode)
def encode(a: ArrayLike, encoding: str | None = None, errors: str | None = None) -> Any:
    """Encode text as bytes; see :func:`numpy.strings.encode`."""
    return _texts(lambda block: np.strings.encode(block, encoding, errors), a, kind="S")


@implements(np.strings.decode)
def decode(a: ArrayLike, encoding: str | None = None, errors: str | None = None) -> Any:
    """Decode bytes as text; see :func:`numpy.strings.decode`."""
    return _texts(lambda block: np.strings.decode(block, encoding, errors), a, kind="U")


# -- several texts made of one --------------------------------------------------------------------


@implements(np.strings.partition)
def partition(a: ArrayLike, sep: ArrayLike) -> Any:
    """Split text before, at and after the first separator; see :func:`numpy.strings.partition`."""
    return _parted(np.strings.partition, a, sep)


@implements(np.strings.rpartition)
def rpartition(a: ArrayLike, sep: ArrayLike) -> Any:
    """Split text before, at and after the last separator; see :func:`numpy.strings.rpartition`."""
    return _parted(np.strings.rpartition, a, sep)


def _parted(function: Callable[..., Any], a: ArrayLike, sep: ArrayLike) -> Any:
    a = a if hasattr(a, "dtype") else np.asarray(a)
    return tuple(by_element(function, [a, _operand(sep)], [a.dtype.kind] * 3))


# -- comparisons, of text without trailing blanks --------------------------------------------------


@implements(np.char.equal)
def _equal(x1: ArrayLike, x2: ArrayLike) -> Any:
    return _compared(np.char.equal, x1, x2)


@implements(np.char.not_equal)
def _not_equal(x1: ArrayLike, x2: ArrayLike) -> Any:
    return _compared(np.char.not_equal, x1, x2)


@implements(np.char.greater)
def _greater(x1: ArrayLike, x2: ArrayLike) -> Any:
    return _compared(np.char.greater, x1, x2)


@implements(np.char.greater_equal)
def _greater_equal(x1: ArrayLike, x2: ArrayLike) -> Any:
    return _compared(np.char.greater_equal, x1, x2)


@implements(np.char.less)
def _less(x1: ArrayLike, x2: ArrayLike) -> Any:
    return _compared(np.char.less, x1, x2)


@implements(np.char.less_equal)
def _less_equal(x1: ArrayLike, x2: ArrayLike) -> Any:
    return _compared(np.char.less_equal, x1, x2)


def _compared(function: Callable[..., Any], x1: ArrayLike, x2: ArrayLike) -> Any:
    return by_element(function, [_operand(x1), _operand(x2)], [np.bool_])[0]
