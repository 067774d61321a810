"""Objects that the C fast paths read: tables and state of the corresponding Python modules."""

import warnings
from typing import Any

from distarray.array import at_hand, ladder, speedups, temporaries
from distarray.array.alike import ELEMENTWISE, SCALARS
from distarray.array.base import Base
from distarray.array.floaterrors import error_variable
from distarray.array.registry import FUNCTIONS
from distarray.array.unhashable import made_again
from distarray.comm import DeviceMesh, observed
from distarray.comm.observed import is_observed
from distarray.config import current, elsewhere
from distarray.layout import Layout

__all__ = ["adopt"]

_SLOTS = {
    Base: ("block", "layout", "mesh"),
    Layout: ("shape", "size", "is_whole", "partials", "replicas", "row"),
    DeviceMesh: ("coords",),
}


def adopt(array: type[Base]) -> None:
    """Pass the class of arrays and these objects to the C code; before that Python code runs."""
    if speedups.used is None:
        return
    objects: dict[str, Any] = {
        "array": array,
        "error_state": error_variable,
        "is_observed": is_observed,
        "observed": vars(observed),
        "warnings": vars(warnings),
        "settings": current,
        "base": elsewhere,
        "usual": ladder.usual,
        "unwatched": ladder.unwatched,
        "basic_keys": ladder.basic_keys,
        "functions": FUNCTIONS,
        "numbers": SCALARS,
        "plain": at_hand.PLAIN,
        "elementwise": ELEMENTWISE,
        "ours": at_hand.OURS,
        "temporaries": vars(temporaries),
        "given_out": at_hand.given_out,
        "made_again": made_again,
    }
    slots = {name: vars(owner)[name] for owner, names in _SLOTS.items() for name in names}
    speedups.used.adopt(objects, slots, at_hand.ELEMENTS, at_hand.MOST)
