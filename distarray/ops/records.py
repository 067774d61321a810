"""`==` and `!=` of structured arrays, which NumPy answers without a ufunc."""

import operator
from typing import Any

from distarray.array import Objects, implements
from distarray.engines.blockwise import apply_blockwise

__all__ = ["equal_records", "unequal_records"]


@implements(operator.eq, objects=Objects.ENGINE)
def equal_records(a: Any, b: Any) -> Any:
    """Whether records are equal, field by field; operands broadcast.

    Cost
    ----
    Nothing where the operands lie alike; else one message a pair of ranks for what has to move.
    """
    return apply_blockwise(operator.eq, (a, b))


@implements(operator.ne, objects=Objects.ENGINE)
def unequal_records(a: Any, b: Any) -> Any:
    """Whether records differ in a field; as :func:`equal_records`."""
    return apply_blockwise(operator.ne, (a, b))
