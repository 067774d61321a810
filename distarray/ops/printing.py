"""NumPy's functions that print arrays; none communicates unless `config.print_gathered` is set."""

from typing import Any

import numpy as np

from distarray.array import implements, printing
from distarray.layout import Fold

__all__ = ["array2string", "array_repr", "array_str"]

_ANY_FOLD = tuple(Fold)


@implements(np.array2string, through=_ANY_FOLD, at=True, computes=False)
def array2string(
    a: Any,
    max_line_width: int | None = None,
    precision: int | None = None,
    suppress_small: bool | None = None,
    separator: str = " ",
    prefix: str = "",
    *,
    formatter: Any = None,
    threshold: int | None = None,
    edgeitems: int | None = None,
    sign: Any = None,
    floatmode: Any = None,
    suffix: str = "",
    legacy: Any = None,
) -> str:
    """The elements as text; of a sharded array, the layout and this rank's block.

    See :func:`numpy.array2string`.
    """
    whole = printing.whole(a)
    text = np.array2string(
        a.to_local() if whole is None else whole, max_line_width, precision, suppress_small,
        separator, prefix, formatter=formatter, threshold=threshold, edgeitems=edgeitems,
        sign=sign, floatmode=floatmode, suffix=suffix, legacy=legacy,
    )  # fmt: skip
    return printing.local_form(a, text) if whole is None else text


@implements(np.array_repr, through=_ANY_FOLD, at=True, computes=False)
def array_repr(
    arr: Any,
    max_line_width: int | None = None,
    precision: int | None = None,
    suppress_small: bool | None = None,
) -> str:
    """What ``repr`` gives, with other settings; see :func:`numpy.array_repr`."""
    whole = printing.whole(arr)
    block = arr.to_local() if whole is None else whole
    text = np.array_repr(block, max_line_width, precision, suppress_small)
    return printing.local_form(arr, text) if whole is None else text


@implements(np.array_str, through=_ANY_FOLD, at=True, computes=False)
def array_str(
    a: Any,
    max_line_width: int | None = None,
    precision: int | None = None,
    suppress_small: bool | None = None,
) -> str:
    """What ``str`` gives, with other settings; see :func:`numpy.array_str`."""
    whole = printing.whole(a)
    block = a.to_local() if whole is None else whole
    text = np.array_str(block, max_line_width, precision, suppress_small)
    return printing.local_form(a, text) if whole is None else text
