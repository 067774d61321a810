"""`==` and `!=` of structured arrays, which NumPy computes without a ufunc."""

import operator
from typing import Any

from distarray.array import Objects, implements
from distarray.engines.blockwise import apply_blockwise
from distarray.typing import ArrayLike

__all__ = ["equal_records", "unequal_records"]


@implements(operator.eq, objects=Objects.ENGINE)
def equal_records(a: ArrayLike, b: ArrayLike) -> Any:
    """Compare records for equality, field by field; operands broadcast.

    Cost
    ----
    Nothing if the operands have the same layout; else one message per pair of ranks, with the
    elements that move.
    """
    return apply_blockwise(operator.eq, (a, b))


@implements(operator.ne, objects=Objects.ENGINE)
def unequal_records(a: ArrayLike, b: ArrayLike) -> Any:
    """Compare records for a difference in any field; see :func:`equal_records`."""
    return apply_blockwise(operator.ne, (a, b))
