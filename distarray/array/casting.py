"""Casts of an array to another data type, without a copy where NumPy makes none."""

from typing import Any

import numpy as np

from distarray.array.base import Base
from distarray.array.deferred import put_off
from distarray.array.operations import cast_to
from distarray.array.portable import cast as cast_block
from distarray.array.storage import suits
from distarray.array.temporaries import LARGE
from distarray.comm.agree import agree

__all__ = ["cast"]

#: Memory orders that deferred operations preserve in any case.
_ORDERS = frozenset("KCA")
#: Kinds of numbers whose casts to one another lose only digits.
_CASTS = frozenset("biuf")


def _needs_no_copy(x: Base, dtype: np.dtype[Any], order: str) -> bool:
    if order.upper() == "A":
        return suits(x, dtype, "C") or suits(x, dtype, "F")
    return suits(x, dtype, order.upper())


def cast(x: Base, dtype: np.dtype[Any], order: str, casting: str, copy: bool) -> Any:
    """Cast an array to another data type; see :meth:`~distarray.array.methods.Methods.astype`."""
    own = x.dtype
    kind = own.kind
    later = _put_off(x, own, dtype, order, casting)
    if later is not None:
        return later
    if x.layout.partials and not (kind in "fc" and np.can_cast(x.block.dtype, dtype)):
        x.settle()
    if not copy and _needs_no_copy(x, dtype, order):
        return x
    if x.layout.is_lone_element:
        x = x.plain()
    if x.layout.is_replicated or not _reads_text(kind, dtype.kind):
        return x.like(cast_block(x.block, dtype, order, casting))
    error = cast = None
    try:
        cast = cast_block(x.block, dtype, order, casting)
    except Exception as found:
        error = found
    agree(x.mesh.group, error)
    return x.like(cast)


def _put_off(x: Base, own: np.dtype[Any], dtype: np.dtype[Any], order: str, casting: Any) -> Any:
    """Defer a cast of numbers and return its array; None if the cast must be done at once."""
    if x.layout.size < LARGE or own == dtype or order not in _ORDERS:
        return None
    if not _CASTS.issuperset((own.kind, dtype.kind)) or not np.can_cast(own, dtype, casting):
        return None
    return put_off(cast_to(dtype), (x,))


def _reads_text(kind: str, wanted: str) -> bool:
    """Return True if a cast may fail for elements: text without a number, a date too long."""
    if kind in "SUO":
        return wanted not in "SUO"
    return kind in "mM" and wanted in "SU"
