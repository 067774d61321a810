"""Progress bars of long operations on rank 0: `progress` for users, `stage` and `advance`."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, TextIO

from distarray.comm.roots import world_group
from distarray.lazy import needs

__all__ = ["BYTES", "advance", "is_watched", "progress", "stage", "unwatched"]

#: Prefix that users write before the functions (see :mod:`distarray.comm.waits.stacks`).
SHOWN_AS = "distarray."
#: Arguments that make tqdm show bytes.
BYTES = {"unit": "B", "unit_scale": True, "unit_divisor": 1024}


class _Shower:
    """Factory of the bars of a ``with progress():`` block."""

    def __init__(self, make: Any, after: float, file: TextIO | None) -> None:
        self._make, self._after, self._file = make, after, file

    def bar(self, what: str, total: int | None, unit: str) -> Any:
        """Make a bar that appears once the operation has taken a while."""
        units = BYTES if unit == "B" else {"unit": f" {unit}"}
        return self._make(total=total, desc=what, delay=self._after, file=self._file, **units)


_shower: ContextVar[_Shower | None] = ContextVar("distarray_progress", default=None)
#: Bar of the stage in progress; None within stages of stages, which are not shown.
_bar: ContextVar[Any] = ContextVar("distarray_bar", default=None)
_open: ContextVar[bool] = ContextVar("distarray_stage", default=False)
_NOTHING: AbstractContextManager[None] = nullcontext()


@contextmanager
def progress(after: float = 0.5, file: TextIO | None = None) -> Iterator[None]:
    """Show the progress of long operations, in a ``with`` statement: bars on rank 0, by tqdm.

    The operations are sorts, QR, singular value and eigenvalue decompositions of matrices that are
    computed by all ranks, and reading and writing of files and checkpoints. The bars count rank 0's
    share, which has the size of the other ranks' shares.

    Parameters
    ----------
    after : float
        Seconds after which an operation gets a bar; shorter operations have none.
    file : file object, optional
        Destination of the bars; by default standard error.

    Raises
    ------
    ImportError
        If tqdm is not installed; it comes with the extra ``progress``.

    Cost
    ----
    Nothing is sent for it.

    Examples
    --------
    >>> import distarray
    >>> import distarray.numpy as np
    >>> with distarray.progress():
    ...     x = np.sort(np.random.default_rng(1).random(1000))
    """
    make = needs("tqdm", "progress").tqdm
    token = _shower.set(None if world_group().rank else _Shower(make, after, file))
    try:
        yield
    finally:
        _shower.reset(token)


@contextmanager
def unwatched() -> Iterator[None]:
    """Show no progress of the code in the block, which is a dry run."""
    token = _shower.set(None)
    try:
        yield
    finally:
        _shower.reset(token)


def is_watched() -> bool:
    """Return True if bars are to be shown on this rank."""
    return _shower.get() is not None


def stage(what: str, total: int | None, unit: str = "steps") -> AbstractContextManager[None]:
    """Return a context for a stage of an operation that reports progress by :func:`advance`.

    Parameters
    ----------
    what : str
        The text before the bar.
    total : int or None
        Number of steps; None if it is not known.
    unit : str
        Unit of the steps, as a plural; "B" for bytes.
    """
    shower = _shower.get()
    return _NOTHING if shower is None else _shown(shower, what, total, unit)


@contextmanager
def _shown(shower: _Shower, what: str, total: int | None, unit: str) -> Iterator[None]:
    if _open.get():  # a nested stage
        token = _bar.set(None)
        try:
            yield
        finally:
            _bar.reset(token)
        return
    opened = _open.set(True)
    try:
        with shower.bar(what, total, unit) as bar:
            token = _bar.set(bar)
            try:
                yield
            finally:
                _bar.reset(token)
    finally:
        _open.reset(opened)


def advance(count: int = 1) -> None:
    """Report progress of the innermost stage; outside of stages do nothing."""
    bar = _bar.get()
    if bar is not None:
        bar.update(count)
