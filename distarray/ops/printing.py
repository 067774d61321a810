"""NumPy's functions that print arrays; none communicates unless `config.print_gathered` is set."""

from collections.abc import Callable
from typing import Any

import numpy as np

from distarray.array import DistArray, implements, printing
from distarray.layout import Fold
from distarray.typing import Array

__all__ = ["array2string", "array_repr", "array_str"]

_ANY_FOLD = tuple(Fold)
_array2string: Any = np.array2string  # untyped here: the stubs list each keyword's values


@implements(np.array2string, through=_ANY_FOLD, at=True, computes=False, small=False)
def array2string(
    a: DistArray,
    max_line_width: int | None = None,
    precision: int | None = None,
    suppress_small: bool | None = None,
    separator: str = " ",
    prefix: str = "",
    *,
    formatter: dict[str, Callable[..., str]] | None = None,
    threshold: int | None = None,
    edgeitems: int | None = None,
    sign: str | None = None,
    floatmode: str | None = None,
    suffix: str = "",
    legacy: str | bool | None = None,
) -> str:
    """Format the elements as text; for a sharded array, the layout and this rank's block.

    See :func:`numpy.array2string`.
    """

    def text(values: Array) -> str:
        found: str = _array2string(
            values, max_line_width, precision, suppress_small, separator, prefix,
            formatter=formatter, threshold=threshold, edgeitems=edgeitems, sign=sign,
            floatmode=floatmode, suffix=suffix, legacy=legacy,
        )  # fmt: skip
        return found

    return _printed(a, text)


@implements(np.array_repr, through=_ANY_FOLD, at=True, computes=False, small=False)
def array_repr(
    arr: DistArray,
    max_line_width: int | None = None,
    precision: int | None = None,
    suppress_small: bool | None = None,
) -> str:
    """Format like ``repr``, with other settings; see :func:`numpy.array_repr`."""
    return _printed(arr, lambda x: np.array_repr(x, max_line_width, precision, suppress_small))


@implements(np.array_str, through=_ANY_FOLD, at=True, computes=False, small=False)
def array_str(
    a: DistArray,
    max_line_width: int | None = None,
    precision: int | None = None,
    suppress_small: bool | None = None,
) -> str:
    """Format like ``str``, with other settings; see :func:`numpy.array_str`."""
    return _printed(a, lambda x: np.array_str(x, max_line_width, precision, suppress_small))


def _printed(x: DistArray, text: Callable[[Array], str]) -> str:
    """Return the text of the whole array, or of this rank's block with its place in the array."""
    whole = printing.whole(x)
    return printing.local_form(x, printing.local_text(x, text)) if whole is None else text(whole)
