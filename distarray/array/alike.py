"""Fast paths of ufuncs that call NumPy on the blocks of arrays of the same layout."""

from typing import Any

import numpy as np

from distarray.array import stale_copies
from distarray.array.base import Base, own_layout
from distarray.array.faults import DETOURS
from distarray.array.floaterrors import error_state
from distarray.array.ladder import ufunc_at_once, usual
from distarray.comm.observed import is_observed
from distarray.layout import LARGE
from distarray.typing import Array

__all__ = ["ELEMENTWISE", "SCALARS", "call_at_once", "call_into"]

#: Types of numbers accepted as operands.
SCALARS = frozenset(
    {int, float, complex, bool, np.bool_, np.complex64, np.complex128}
    | {np.dtype(code).type for code in np.typecodes["AllInteger"] + "efd"}
)
#: NumPy's elementwise ufuncs with one result; not `power`, which raises for some operands.
ELEMENTWISE = frozenset(
    [f for f in vars(np).values() if isinstance(f, np.ufunc) and (f.signature, f.nout) == (None, 1)]
) - {np.power}


def call_at_once(ufunc: np.ufunc, x: Base, inputs: tuple[Any, ...]) -> Any:
    """Call a ufunc without the dispatcher, on blocks of arrays of one layout or small arrays.

    Parameters
    ----------
    ufunc : ufunc
    x : DistArray
        The first array among the inputs.
    inputs : tuple

    Returns
    -------
    DistArray, scalar or NotImplemented
        NotImplemented if not every rank has all of the inputs.
    """
    layout = x.layout
    if not layout.is_whole or ufunc not in ELEMENTWISE or error_state() is not usual[0]:
        return ufunc_at_once(ufunc, inputs)
    try:
        return _of_whole(ufunc, x, inputs)
    except TypeError:
        if isinstance(x.block, np.ndarray):
            raise
        return NotImplemented  # CuPy lacks this ufunc or loop: the dispatcher calls NumPy's


def _of_whole(ufunc: np.ufunc, x: Base, inputs: tuple[Any, ...]) -> Any:
    layout = x.layout
    if len(inputs) == 1:
        return x.computed(ufunc(x.block))
    first, second = inputs
    if first is x:
        kind = type(second)
        if kind is type(x):
            if own_layout(second) is layout and second.mesh is x.mesh:
                return x.computed(ufunc(x.block, second.block))
        elif kind in SCALARS:
            return x.computed(ufunc(x.block, second))
    elif second is x and (number := _number(first)) is not None:
        return x.computed(ufunc(number, x.block))
    return ufunc_at_once(ufunc, inputs)


def call_into(ufunc: np.ufunc, x: Base, inputs: tuple[Any, ...], out: tuple[Any, ...]) -> Any:
    """Call a ufunc with an output array of the operands' layout, without the dispatcher.

    Parameters
    ----------
    ufunc, x, inputs
        As in :func:`call_at_once`.
    out : tuple
        The output array, in the form in which NumPy passes `out`.

    Returns
    -------
    DistArray or NotImplemented
        The output array.
    """
    layout = x.layout
    if ufunc not in ELEMENTWISE or ufunc in DETOURS or error_state() is not usual[0]:
        return NotImplemented
    if not layout.is_whole and is_observed():
        return NotImplemented
    if layout.partials or layout.size >= LARGE:
        return NotImplemented
    blocks = _blocks_like(x, (*inputs, *out))
    if blocks is None or not _is_open(blocks[-1]):
        return NotImplemented
    if not layout.is_whole:
        stale_copies.count_write(*out)
    ufunc(*blocks[:-1], out=blocks[-1])
    return out[0]


def _is_open(block: Array) -> bool:
    """Return True if a block is a writable NumPy array, which needs no further check."""
    return type(block) is np.ndarray and block.flags.writeable


def _blocks_like(x: Base, values: tuple[Any, ...]) -> list[Any] | None:
    """Return numbers, and the blocks of arrays with the layout of `x`; None for other values."""
    layout, mesh, own = x.layout, x.mesh, type(x)
    found = []
    for value in values:
        kind = type(value)
        if kind is own and value.layout is layout and value.mesh is mesh:
            found.append(value.block)
            if value.block.dtype.hasobject:  # the call may fail on a single rank
                return None
        elif kind in SCALARS:
            found.append(value)
        else:
            return None
    return found


def _number(value: Any) -> Any:
    """Return a number, unwrapped from the 0-d array that NumPy makes of it in comparisons.

    Return None for other values. Devices accept no array of the host.
    """
    kind = type(value)
    if kind in SCALARS:
        return value
    single = kind is np.ndarray and not value.ndim and not value.dtype.hasobject
    return value[()] if single else None
