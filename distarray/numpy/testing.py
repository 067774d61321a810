"""``numpy.testing`` with comparisons that gather distributed arrays; calls are collective."""

import numpy.testing
from numpy.testing import *  # noqa: F403 - names only

from distarray.array.handing import handing

__all__ = list(numpy.testing.__all__)

#: Functions that compare arrays; the other functions call user functions with their arguments.
_COMPARING = (
    "assert_allclose", "assert_almost_equal", "assert_approx_equal", "assert_array_almost_equal",
    "assert_array_almost_equal_nulp", "assert_array_compare", "assert_array_equal",
    "assert_array_less", "assert_array_max_ulp", "assert_equal", "assert_string_equal",
    "print_assert_equal",
)  # fmt: skip

globals().update(
    {
        name: handing(getattr(numpy.testing, name), f"numpy.testing.{name}")
        for name in _COMPARING
        if hasattr(numpy.testing, name)
    }
)


def __getattr__(name: str) -> object:
    return getattr(numpy.testing, name)
