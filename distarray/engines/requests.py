"""Operands of an elementwise call on one mesh, and the layout of its result."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from distarray.array import DistArray, as_distarray, common_mesh, grown_layout
from distarray.array.probes import (
    as_mask,
    check_shapes,
    check_writeable,
    refuse_shapes,
    result_types,
)
from distarray.layout import Layout
from distarray.plan import propagate
from distarray.typing import ArrayLike, DType

__all__ = ["NUMBERS", "Request", "working_layout"]

#: Types of Python numbers, which are passed to NumPy unchanged.
NUMBERS = frozenset({bool, int, float, complex})
#: Functions that may check types first: NumPy raises their error if shapes do not broadcast.
_ASKED = frozenset({operator.eq, operator.ne, np.clip, np.where, np.isclose})


class Request:
    """Elementwise call with its operands on one mesh; raises NumPy's errors about mask and `outs`.

    Attributes
    ----------
    operands : list of DistArray or number
        The inputs.
    mask : DistArray or None
        The call's `where`.
    arrays : list of DistArray
        The distributed arrays among the inputs, and the mask.
    given : list of DistArray
        The arrays for results that the caller passed.
    mesh : DeviceMesh
        The common mesh.
    """

    __slots__ = (
        "_types",
        "arrays",
        "function",
        "given",
        "keywords",
        "mask",
        "mesh",
        "operands",
        "outs",
    )

    def __init__(
        self,
        function: Callable[..., Any],
        inputs: Sequence[ArrayLike],
        outs: Sequence[DistArray | None],
        where: ArrayLike | bool,
        keywords: dict[str, Any],
    ) -> None:
        self.function, self.outs, self.keywords = function, outs, keywords
        self.mesh = mesh = common_mesh(*inputs, *outs, where)
        self.operands: list[Any] = [
            x if type(x) in NUMBERS else as_distarray(x, mesh) for x in inputs
        ]
        self.arrays = [x for x in self.operands if isinstance(x, DistArray)]
        self.mask: DistArray | None = None
        if where is not True:
            self.mask = as_mask(where, mesh)
            self.arrays.append(self.mask)
        self.given = [out for out in outs if out is not None]
        self._types: list[DType] | None = None
        check_writeable(self.given)

    @property
    def is_bare(self) -> bool:
        """True if the call has inputs only: no mask, no `outs`, no keywords."""
        return not self.keywords and not self.outs and self.mask is None

    def result_types(self) -> list[DType]:
        """Return the data types of the results; raise NumPy's errors about the operands' types."""
        if self._types is None:
            is_unmixed = len(self.arrays) == len(self.operands) and type(self.function) is np.ufunc
            if self.is_bare and is_unmixed:
                self._types = _ufunc_types(self.function, tuple([x.dtype for x in self.arrays]))
            else:
                self._types = result_types(self.function, self.operands, self.outs, self.keywords)
        return self._types

    def width(self) -> int:
        """Return the bytes per element of the widest result; 0 for objects, which are not moved."""
        return max([0 if kind.hasobject else kind.itemsize for kind in self.result_types()])


@lru_cache(maxsize=1024)
def _ufunc_types(ufunc: np.ufunc, dtypes: tuple[DType, ...]) -> list[DType]:
    return result_types(ufunc, [np.empty(0, dtype) for dtype in dtypes], (), {})


def working_layout(request: Request, whole: bool) -> tuple[Layout, bool]:
    """Return the layout to compute in, and True if it cuts the result of replicated operands.

    The layout is that of an `out`, or the layout for which the fewest bytes move.
    """
    layout, may_be_cut = _layout_of_all(request)
    if whole or not may_be_cut:
        return layout, False
    layout = grown_layout(layout.shape, request.width(), request.mesh, request.arrays)
    return layout, not layout.is_replicated


def _layout_of_all(request: Request) -> tuple[Layout, bool]:
    """Return the common layout of operands and `outs`, and True if it may be cut.

    Raises NumPy's errors about shapes.
    """
    try:
        if request.given:
            check_shapes(request.arrays, request.given)
        return _chosen_layout([*request.given, *request.arrays])
    except ValueError:
        if isinstance(request.function, np.ufunc) or request.function in _ASKED:
            refuse_shapes(request.function, request.operands, request.outs, request.keywords)
        raise


def _chosen_layout(arrays: Sequence[DistArray]) -> tuple[Layout, bool]:
    """Return the layout for which the fewest bytes move; True if it may be cut without messages."""
    first = arrays[0].layout
    for x in arrays:
        if x.layout is not first:
            layouts, sizes = [x.layout for x in arrays], [x.itemsize for x in arrays]
            result, _, may_be_cut = propagate(tuple(layouts), tuple(sizes))
            return result, may_be_cut
    return first, False
