"""Common data type of results that each rank has computed independently."""

from typing import Any

import numpy as np

from distarray.comm import DeviceMesh
from distarray.comm.agree import agree
from distarray.layout import Fold
from distarray.typing import DType

__all__ = ["common_dtype"]

#: Data types by their number, which is equal on all ranks; other types are sent as objects.
_NUMBERED: dict[int, np.dtype[Any]] = {
    np.dtype(char).num: np.dtype(char) for char in np.typecodes["All"] if char not in "SUVMm"
}
_UNNUMBERED = 1 << 20
_NONE = -1


def common_dtype(
    mesh: DeviceMesh, error: Exception | None, dtype: DType | None, differs: bool = False
) -> tuple[DType, bool]:
    """Return the common data type of all ranks' results; raise any rank's error on all ranks.

    Parameters
    ----------
    mesh : DeviceMesh
        The mesh. The call is collective over its ranks.
    error : exception or None
        The exception of this rank.
    dtype : dtype or None
        Data type of this rank's result; None if it has no result.
    differs : bool
        A flag for the caller's purposes.

    Returns
    -------
    dtype : dtype
        The common type, float64 if no rank has a result.
    differs : bool
        True if any rank set the flag.

    Cost
    ----
    One allreduce of four integers; an allgather of the types if they differ or have no number.
    """
    number = _NONE if dtype is None else dtype.num
    if number >= 0 and _NUMBERED.get(number) != dtype:
        number = _UNNUMBERED
    group = mesh.group
    lowest = _UNNUMBERED + 1 if dtype is None else number
    found = np.array([-number, lowest, -(error is not None), -differs])
    if group.size > 1:
        found = group.allreduce(found, Fold.MIN, "agreement on results")
    highest, lowest, failed, differing = -int(found[0]), int(found[1]), found[2], bool(found[3])
    if failed:
        agree(group, error)
    if highest == _NONE:
        return np.dtype(float), differing
    if highest == lowest and highest != _UNNUMBERED:
        return _NUMBERED[highest], differing
    dtypes = group.allgather_object(dtype, "types of results")
    return np.result_type(*[d for d in dtypes if d is not None]), differing
