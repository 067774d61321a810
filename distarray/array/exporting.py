"""Distributed arrays for others: DLPack, pickles, and what NumPy finds in lists."""

from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np

from distarray.array.retyping import whole_block
from distarray.comm import devices
from distarray.config import config
from distarray.errors import CommunicationForbidden, CopyRequiredError, GatherLimitError
from distarray.typing import Array

if TYPE_CHECKING:
    from distarray.array.core import DistArray

__all__ = ["capsule", "converted", "interface", "reduced", "while_in_lists"]

_converting: ContextVar[bool] = ContextVar("distarray_converting", default=False)


class _FoundInLists(Exception):
    """NumPy has come upon a distributed array in lists of numbers."""


def converted(lists: Any, convert: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """``convert(lists, ...)`` by NumPy; None if a distributed array is in the lists.

    NumPy itself finds it. To look through the lists before takes as long as the conversion.
    """
    token = _converting.set(True)
    try:
        return convert(lists, *args, **kwargs)
    except _FoundInLists:
        return None
    finally:
        _converting.reset(token)


def while_in_lists() -> None:
    """End the conversion of lists in which NumPy asks a distributed array for its elements."""
    if _converting.get():
        raise _FoundInLists


def interface(x: "DistArray") -> dict[str, Any]:
    """NumPy's ``__array_interface__`` of an array of numbers or text that every rank has whole.

    Raises
    ------
    AttributeError
        For other arrays, which NumPy then asks for a copy.
    """
    while_in_lists()
    block = whole_block(x, "__array_interface__")
    if block.dtype.kind not in "biufcmMSU" or type(block) is not np.ndarray:
        raise AttributeError(f"{x.summary()} has no attribute '__array_interface__'")
    lent = getattr(x, "_lent", None)
    if lent is None:
        lent = x._lent = []
    if not lent or lent[-1] is not block:
        lent.append(block)
    return block.__array_interface__  # type: ignore[no-any-return]


def capsule(
    x: "DistArray",
    block: Array,
    stream: int | None,
    max_version: tuple[int, int] | None,
    dl_device: tuple[int, int] | None,
    copy: bool | None,
) -> Any:
    """The DLPack capsule of an array of which every rank holds the whole.

    What consumers are known to get wrong is exported as a copy unless that is ruled out: torch
    ends the process at negative strides, and writes to memory that is flagged as read-only.
    """
    if not x.layout.is_replicated:
        raise BufferError(
            f"{x.summary()} is partitioned; export this rank's block, x.to_local(), "
            "or the whole array, x.full()"
        )
    if copy is not True and not devices.on_device(block):
        why = _what_torch_gets_wrong(block)
        if why and copy is False:
            raise CopyRequiredError(f"{x.summary()} has {why}; export a copy (copy=True)")
        copy = True if why else copy
    asked: dict[str, Any] = {
        "stream": stream,
        "max_version": max_version,
        "dl_device": dl_device,
        "copy": copy,
    }
    return block.__dlpack__(**{name: value for name, value in asked.items() if value is not None})


def reduced(x: "DistArray", protocol: SupportsIndex) -> Any:
    """Reduce an array for a pickle, to a NumPy array or scalar, which any process can load.

    Collective if the array is cut.

    Raises
    ------
    GatherLimitError
        If it is cut, and larger than ``config.gather_limit``.
    """
    whole: Any
    if x.layout.is_replicated:
        whole = x.mesh.to_host(x.block)
    elif x.nbytes > config.gather_limit:
        raise GatherLimitError(
            f"pickling would gather {x.nbytes} bytes of {x.summary()} on every rank; the limit is "
            f"config.gather_limit = {config.gather_limit} bytes. Pickle a block (x.to_local()), or "
            "x.full(), which has no limit; distarray.io and distarray.checkpoint save arrays by "
            "their parts"
        )
    else:
        try:
            whole = x.full()
        except CommunicationForbidden as error:
            error.add_note("Pools and queues pickle in threads of their own: hand them x.full().")
            raise
    return (whole if x.ndim else devices.scalar(whole)).__reduce_ex__(protocol)


def _what_torch_gets_wrong(block: Array) -> str:
    if not block.flags.writeable:
        return "read-only memory, which consumers write to all the same"
    if any(stride < 0 for stride in block.strides):
        return f"negative strides {block.strides}, at which consumers crash"
    return ""
