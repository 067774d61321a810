"""Messages of records: only the fields of a view are written, not the gaps between them.

In a view of several fields (``a[["x", "z"]]``) the gaps hold the other fields of the same records.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from distarray.typing import DType

if TYPE_CHECKING:
    from distarray.comm.group import Group
    from distarray.comm.transport import Pair

__all__ = ["exchange", "has_gaps"]


def exchange(group: "Group", sends: Sequence["Pair"], receives: Sequence["Pair"]) -> None:
    """Exchange views as `Group._exchange`; records with gaps are received aside and copied."""
    aside = [
        (peer, np.empty(view.shape, view.dtype) if has_gaps(view.dtype) else view)
        for peer, view in receives
    ]
    group._exchange(sends, aside)
    for (_, view), (_, received) in zip(receives, aside, strict=True):
        if received is not view:
            view[...] = received


def has_gaps(dtype: DType) -> bool:
    """Return True if a data type is of records with bytes that belong to no field."""
    fields = dtype.fields
    return fields is not None and dtype.itemsize > sum([f[0].itemsize for f in fields.values()])
