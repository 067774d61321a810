"""Functions of arrays whose result depends on data types and memory, not on elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from distarray.array import DistArray, common_mesh, implements, wrap
from distarray.array.ancestry import address_space
from distarray.array.base import is_number, raw_block
from distarray.array.geometry import in_memory, is_view, origin_of
from distarray.array.placing import plain
from distarray.layout import Fold
from distarray.typing import Array, ArrayLike, Casting, DTypeLike

__all__ = [
    "can_cast",
    "common_type",
    "iscomplexobj",
    "isrealobj",
    "isscalar",
    "may_share_memory",
    "min_scalar_type",
    "result_type",
    "shares_memory",
]

_ANY_FOLD = tuple(Fold)


def _typed(value: ArrayLike | DTypeLike) -> Any:
    """Return the data type of a distributed operand; other operands unchanged, for NumPy."""
    return value.dtype if isinstance(value, DistArray) else value


@implements(np.result_type, through=_ANY_FOLD, at=True, computes=False)
def result_type(*arrays_and_dtypes: ArrayLike | DTypeLike) -> np.dtype[Any]:
    """Return the data type that operands promote to; see :func:`numpy.result_type`."""
    return np.result_type(*[_typed(value) for value in arrays_and_dtypes])


@implements(np.can_cast, through=_ANY_FOLD, at=True, computes=False)
def can_cast(from_: ArrayLike | DTypeLike, to: DTypeLike, casting: Casting = "safe") -> bool:
    """Check whether a cast between data types is allowed; see :func:`numpy.can_cast`."""
    target: Any = to
    return np.can_cast(_typed(from_), target, casting)


@implements(np.min_scalar_type, computes=False)
def min_scalar_type(a: DistArray, /) -> np.dtype[Any]:
    """Return an array's data type, or a scalar's smallest one; see :func:`numpy.min_scalar_type`.

    Cost
    ----
    No message, except for a 0-d array that only one rank holds.
    """
    return np.min_scalar_type(plain(a)) if a.ndim == 0 else a.dtype


@implements(np.common_type, through=_ANY_FOLD, at=True, computes=False)
def common_type(*arrays: DistArray | Array) -> Any:
    """Return the inexact scalar type common to arrays; see :func:`numpy.common_type`."""
    return np.common_type(*[np.empty((0,), x.dtype) for x in arrays])


@implements(np.iscomplexobj, through=_ANY_FOLD, at=True, computes=False)
def iscomplexobj(x: DistArray) -> bool:
    """Check whether the data type is complex; see :func:`numpy.iscomplexobj`."""
    return np.iscomplexobj(x.dtype.type())


@implements(np.isrealobj, through=_ANY_FOLD, at=True, computes=False)
def isrealobj(x: DistArray) -> bool:
    """Check whether the data type is not complex; see :func:`numpy.isrealobj`."""
    return not iscomplexobj(x)


def isscalar(element: ArrayLike) -> bool:
    """Return True for a scalar, results of reductions included; see :func:`numpy.isscalar`."""
    return is_number(element) or np.isscalar(element)


@implements(np.may_share_memory, at=True, computes=False)
def may_share_memory(a: ArrayLike, b: ArrayLike, /, max_work: int = 0) -> bool:
    """Check whether the bounds of two arrays' memory overlap; see :func:`numpy.may_share_memory`.

    A read-only NumPy array may be the copy of a cut array that its `__array__` returned. Libraries
    call this function to decide whether they must copy before they write, so it returns True for
    such a pair.

    Cost
    ----
    The cost of :func:`shares_memory`.
    """
    function: Any = np.may_share_memory
    known = _in_one_memory(function, a, b, max_work)
    if known is not None:
        return known
    here = function(_memory(a), _memory(b), max_work) or _may_be_lent(a, b) or _may_be_lent(b, a)
    return _on_any_rank(here, a, b)


@implements(np.shares_memory, at=True, computes=False)
def shares_memory(a: ArrayLike, b: ArrayLike, /, max_work: int = -1) -> bool:
    """Check whether two arrays share memory; see :func:`numpy.shares_memory`.

    Cost
    ----
    None if both are known to be views of one memory; else one allreduce of a truth value, since
    the blocks may overlap on some ranks only.
    """
    function: Any = np.shares_memory
    known = _in_one_memory(function, a, b, max_work)
    if known is not None:
        return known
    return _on_any_rank(function(_memory(a), _memory(b), max_work), a, b)


def _in_one_memory(
    function: Callable[..., Any], a: ArrayLike, b: ArrayLike, max_work: int
) -> bool | None:
    """Return NumPy's result for two arrays that are views of one memory; None for other arrays."""
    if not (isinstance(a, DistArray) and isinstance(b, DistArray)):
        return None
    if a.layout.is_whole or b.layout.is_whole or not (is_view(a) or is_view(b) or a is b):
        return None
    first = origin_of(a)
    if first is not origin_of(b):
        return None
    space = address_space(*first.kind)
    places = [in_memory(x, space) for x in (a, b)]
    return any(place is None for place in places) or bool(function(*places, max_work))


def _may_be_lent(whole: ArrayLike, x: ArrayLike) -> bool:
    """Return True if `whole` can be the read-only array that `__array__` of a cut `x` returned."""
    if not (isinstance(whole, np.ndarray) and isinstance(x, DistArray)):
        return False
    return not (whole.flags.writeable or x.layout.is_replicated) and whole.nbytes == x.nbytes


def _memory(x: ArrayLike) -> Any:
    return raw_block(x) if isinstance(x, DistArray) else x  # the block of a view is a view


def _on_any_rank(here: bool, a: ArrayLike, b: ArrayLike) -> bool:
    group = common_mesh(a, b).group
    return bool(group.allreduce(np.array(here), Fold.ANY)) if group.size > 1 else here


# -- device ------------------------------------------------------------------------


@implements(DistArray.to_device, computes=False)
def _to_device(x: DistArray, device: str, /, *, stream: None = None) -> DistArray:
    kind = str(device).partition(":")[0]
    if kind not in ("cpu", "cuda"):
        raise ValueError(f"unknown device {device!r}; expected 'cpu', 'cuda' or 'cuda:N'")
    if stream is not None:
        raise ValueError(
            "The stream argument in to_device() is not supported: the copy uses the current stream"
        )
    if device in (kind, x.device) and kind == x.mesh.device_type:
        return x
    if kind == x.mesh.device_type:
        raise ValueError(f"this rank's block is on {x.device}, and the mesh has no {device!r}")
    mesh = x.mesh.on(kind)
    return wrap(mesh.asarray(x.mesh.to_host(x.block)), x.layout, mesh)
