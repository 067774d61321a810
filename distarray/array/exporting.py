"""Conversion of arrays for other libraries: gathered copies, pickles, DLPack, lists.

A cut array is gathered for them, up to ``config.gather_limit``; a large array with a warning.
"""

import sys
from collections.abc import Callable
from contextvars import ContextVar
from functools import lru_cache
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np

from distarray.array import stale_copies
from distarray.array.base import Base, lent_of
from distarray.array.memory import entered
from distarray.array.printing import summary
from distarray.array.retyping import whole_block
from distarray.array.storage import is_contiguous, stored_walk
from distarray.comm import devices, ledger
from distarray.comm.user_lines import program_frame, user_frames, warn_program
from distarray.config import config
from distarray.errors import (
    CommunicationForbidden,
    CopyRequiredError,
    GatherLimitError,
    NotDistributedError,
    PerformanceWarning,
)
from distarray.typing import Array

if TYPE_CHECKING:
    from distarray.array.core import DistArray

__all__ = [
    "CONVERSION",
    "QUIET",
    "capsule",
    "converted",
    "gathered",
    "given_out",
    "interface",
    "is_told",
    "lent",
    "reduced",
    "struct",
    "tensor_of",
    "while_in_lists",
]

#: Function that makes the tensor over an array's memory; set by `distarray.torch`.
tensor_of: list[Callable[["DistArray"], Any]] = []
#: Bytes up to which an array is gathered for other libraries without a warning.
QUIET = 1 << 20
#: Name, in messages, of a gather that NumPy causes by requesting a buffer or an array.
CONVERSION = "numpy.asarray or a buffer"
#: Lines of the program, by rank, that have been warned.
_told: set[tuple[int, str, int]] = set()

_converting: ContextVar[bool] = ContextVar("distarray_converting", default=False)


class _FoundInLists(Exception):
    """Exception raised when NumPy finds a distributed array in lists of numbers."""


def converted(lists: object, convert: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Convert lists with NumPy; return None if a distributed array is in the lists.

    NumPy itself finds the array: searching the lists first would take as long as the conversion.
    """
    token = _converting.set(True)
    try:
        return convert(lists, *args, **kwargs)
    except _FoundInLists:
        return None
    finally:
        _converting.reset(token)


def while_in_lists() -> None:
    """End the conversion of lists, if NumPy requests an array's elements in its course."""
    if _converting.get():
        raise _FoundInLists


@lru_cache(maxsize=256)
def is_told(dtype: np.dtype[Any]) -> bool:
    """Return True if a buffer of records describes their data type completely."""
    if dtype.names is None or dtype.hasobject or dtype.type is not np.void or dtype.alignment > 1:
        return False
    try:
        found = np.asarray(memoryview(np.empty(0, dtype))).dtype  # type: ignore[arg-type]
    except (ValueError, BufferError, RuntimeError):
        return False
    return repr(found) == repr(dtype)  # compares titles and gaps, too


class _Described:
    """Object with only an ``__array_interface__``."""

    def __init__(self, interface: dict[str, Any]) -> None:
        self.__array_interface__ = interface


@lru_cache(maxsize=256)
def is_described(dtype: np.dtype[Any]) -> bool:
    """Return True if NumPy's ``__array_interface__`` describes a data type completely."""
    whole = np.zeros(1, dtype)
    try:
        found = np.asarray(_Described(whole.__array_interface__)).dtype
    except (ValueError, TypeError):
        return False
    return repr(found) == repr(dtype)  # compares titles and gaps, too


def interface(x: "DistArray") -> dict[str, Any]:
    """Return NumPy's ``__array_interface__`` of an array that every rank has whole.

    Raises
    ------
    AttributeError
        For other arrays, and for records that the interface describes incompletely: with gaps, or
        overlapping fields. NumPy then requests the array itself.
    """
    while_in_lists()
    block = whole_block(x, "__array_interface__")
    is_plain = block.dtype.kind in "biufcmMSUO" or is_described(block.dtype)
    if type(block) is not np.ndarray or not is_plain:
        raise AttributeError(f"{x.summary()} has no attribute '__array_interface__'")
    given_out(x, block)
    return block.__array_interface__


def given_out(x: Base, memory: Array) -> None:
    """Keep memory alive as long as the array, since other code has the memory's address."""
    kept = lent_of(x)
    if kept is None:
        kept = x._lent = []
    if not kept or kept[-1] is not memory:
        kept.append(memory)


def struct(x: "DistArray") -> Any:
    """Return NumPy's ``__array_struct__``, which cannot describe units of times, nor records.

    Raises
    ------
    AttributeError
        As :func:`interface`, which NumPy tries next.
    """
    interface(x)
    if x.dtype.kind not in "biufcSU":
        raise AttributeError(f"{x.summary()} has no attribute '__array_struct__'")
    return x.block.__array_struct__


def capsule(
    x: "DistArray",
    block: Array,
    stream: int | None,
    max_version: tuple[int, int] | None,
    dl_device: tuple[int, int] | None,
    copy: bool | None,
) -> Any:
    """Return the DLPack capsule of an array that is whole on every rank.

    Memory that consumers are known to mishandle is exported as a copy unless ``copy=False``: torch
    crashes at negative strides, and writes to memory that is flagged as read-only.
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


def gathered(x: Base, what: str, instead: str = "Work on", aloud: bool = True) -> Array:
    """Return the whole array as a new NumPy array on every rank, for code that requires one.

    Parameters
    ----------
    x : DistArray
        The array; limits and warnings apply only if it is cut.
    what : str
        Name of the function that gathers, for the messages: "numpy.asarray".
    instead : str
        Suggested alternative for the blocks, for the messages.
    aloud : bool
        True if a warning is given; False if the program itself has requested all elements.

    Raises
    ------
    GatherLimitError
        If the array is cut, and larger than ``config.gather_limit``.
    NotDistributedError
        If the array is cut, larger than `QUIET`, and ``config.fallback`` is "error".
    """
    if not x.layout.is_whole and x.mesh.size() > 1:
        if x.nbytes > config.gather_limit:
            raise GatherLimitError(
                f"{what} would gather {x.nbytes} bytes of {summary(x)} on every rank; the limit "
                f"is config.gather_limit = {config.gather_limit} bytes. {instead} the blocks "
                "(x.to_local()), gather on one rank (x.gather(root=0)), or call x.full(), which "
                "has no limit; distarray.io and distarray.checkpoint save arrays block by block"
            )
        if aloud and x.nbytes > QUIET:
            _say(x, what)
    return _as_stored(x)


def _as_stored(x: Base) -> Array:
    """Gather the array, with strides in the order and with the signs of the blocks' strides.

    NumPy's iterators visit the elements in memory order.

    Cost
    ----
    That of :func:`~distarray.array.storage.stored_walk`, and the gather.
    """
    turned: Any = x
    order, reverse = stored_walk(x) if x.layout.size > 1 else ((), ())
    if order == tuple(range(len(order))) and not any(reverse):
        return turned.full()  # type: ignore[no-any-return]
    forward = tuple([slice(None, None, -1 if back else None) for back in reverse])
    places = sorted(range(x.ndim), key=order.__getitem__)
    whole: Array = turned[forward].transpose(order).full()
    return whole.transpose(places)[forward]


def lent(x: Base, what: str) -> Array:
    """Gather as :func:`gathered`, for code that might write to the copy: usually read-only.

    The copy is writeable if `config.writeable_copies` is set. Writes never reach the array.
    """
    whole = gathered(x, what)
    whole.flags.writeable = config.writeable_copies
    if not x.layout.is_whole and x.layout.is_plain and x.mesh.coords is not None:
        stale_copies.watch(entered(x).source.memory, whole, what)
    return whole


def _say(x: Base, what: str) -> None:
    """Warn, once per line of the program, that an array is gathered for a library; or raise."""
    frame = sys._getframe(1)
    program = program_frame(frame)
    library = next(user_frames(frame), program).f_globals.get("__name__") or ""
    whom = "" if library == program.f_globals.get("__name__") else library.partition(".")[0]
    price = f"{what} gathers {x.nbytes} bytes of {summary(x)} on every rank"
    price += f" for {whom}" if whom else ""
    if config.fallback == "error":
        raise NotDistributedError(
            f"{price}, and config.fallback is 'error'. x.full() gathers it in any case; "
            "x.to_local() is this rank's block"
        )
    place = x.mesh.rank, program.f_code.co_filename, program.f_lineno
    if config.fallback == "warn" and place not in _told:
        warn_program(f"{price}; x.full() does so without this warning", PerformanceWarning)
        _told.add(place)
    if ledger.watching:
        ledger.record("library", 0, 0, (), price)


def reduced(x: "DistArray", protocol: SupportsIndex) -> Any:
    """Reduce an array for pickling, to a NumPy array or scalar, which any process can load.

    Collective if the array is cut.

    Raises
    ------
    GatherLimitError
        If the array is cut, and larger than ``config.gather_limit``.
    """
    whole: Any
    is_array = x.ndim or isinstance(x.block, np.ndarray)  # otherwise a scalar
    if x.layout.is_whole:
        whole = x.mesh.to_host(x.block)
    else:
        try:
            whole = gathered(x, "pickling", "Pickle")
        except CommunicationForbidden as error:
            error.add_note("Pools and queues pickle in threads of their own: pass them x.full().")
            raise
        if whole.flags.fnc and not is_contiguous(x, "F"):
            whole = np.ascontiguousarray(whole)  # NumPy pickles an array with gaps in C order
    return (whole if is_array else devices.scalar(whole)).__reduce_ex__(protocol)


def _what_torch_gets_wrong(block: Array) -> str:
    if not block.flags.writeable:
        return "read-only memory, which consumers write to nevertheless"
    if any(stride < 0 for stride in block.strides):
        return f"negative strides {block.strides}, at which consumers crash"
    return ""
