"""What all ranks have to know of results that each made by itself."""

from typing import Any

import numpy as np

from distarray.comm import DeviceMesh
from distarray.comm.agree import agree
from distarray.layout import Fold

__all__ = ["concluded"]

#: Types by their number, which is equal on all ranks; others are told by name.
_NUMBERED: dict[int, np.dtype[Any]] = {
    np.dtype(char).num: np.dtype(char) for char in np.typecodes["All"] if char not in "SUVMm"
}
_NAMED = 1 << 20
_NONE = -1


def concluded(
    mesh: DeviceMesh, error: Exception | None, dtype: Any, differs: bool = False
) -> tuple[np.dtype[Any], bool]:
    """Raise what any rank raised; else the type that all results have together.

    Parameters
    ----------
    mesh : DeviceMesh
        Collective over its ranks.
    error : exception or None
        What went wrong on this rank.
    dtype : dtype or None
        Of this rank's result; None if it has none.
    differs : bool
        Something that any rank may find.

    Returns
    -------
    dtype : dtype
        The common type, float64 if no rank has a result.
    differs : bool
        Whether any rank found it.

    Cost
    ----
    One allreduce of three integers; an allgather of names where types differ, or are none of
    NumPy's numbers.
    """
    number = _NONE if dtype is None else dtype.num
    if number >= 0 and _NUMBERED.get(number) != dtype:
        number = _NAMED
    group = mesh.group
    mine = np.array(
        [-number, number if number != _NONE else _NAMED + 1, -(error is not None), -differs]
    )
    low = (
        group.allreduce(mine, Fold.MIN, "agreement on results").tolist()
        if group.size > 1
        else mine.tolist()
    )
    if low[2]:
        agree(group, error)
    highest, lowest = -low[0], low[1]
    if highest == _NONE:
        return np.dtype(float), bool(low[3])
    if highest == lowest and highest != _NAMED:
        return _NUMBERED[highest], bool(low[3])
    texts = group.allgather_object(None if dtype is None else dtype, "types of results")
    return np.result_type(*[d for d in texts if d is not None]), bool(low[3])
