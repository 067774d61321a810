"""Floating-point errors in folds over ranks, which MPI does not report.

``inf + -inf`` is invalid also if the two numbers are on different ranks. While the program can
observe such errors (:mod:`distarray.comm.observed`, :func:`numpy.errstate`), a listener is set
here: a fold whose result has an infinity or NaN is repeated by NumPy, which reports the error. The
result remains MPI's.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from distarray.comm import algorithms
from distarray.layout.placement import Fold
from distarray.typing import Array

if TYPE_CHECKING:
    from distarray.comm.transport import Transport

__all__ = ["allreduce", "are_heard", "exscan", "heard", "reduce_scatter"]

Listener = Callable[[str, int], None]
#: Number of threads with a listener; other threads need no check.
listening = 0
_lock = Lock()
_listener: ContextVar[Listener | None] = ContextVar("distarray_fold_errors", default=None)
#: Folds that compute: NumPy reports no errors of other folds either.
_COMPUTING = frozenset({Fold.SUM, Fold.PROD, Fold.AVG})


@contextmanager
def heard(listener: Listener) -> Iterator[None]:
    """Pass the errors in folds to a function, with NumPy's word for each error and a number."""
    token = _listener.set(listener)
    _count(1)
    try:
        yield
    finally:
        _count(-1)
        _listener.reset(token)


def _count(more: int) -> None:
    global listening
    with _lock:
        listening += more


def are_heard(block: Any, fold: Fold) -> bool:
    """Return True if this thread has a listener, and the fold may have errors."""
    if _listener.get() is None or fold not in _COMPUTING:
        return False
    return type(block) is np.ndarray and block.dtype.kind in "fc"


def allreduce(group: "Transport", block: Array, fold: Fold) -> Array:
    """Fold as :meth:`Group.allreduce`, and report floating-point errors."""
    with np.errstate(all="ignore"):
        total = group._allreduce(block, fold)
    if _is_doubtful(total, fold):  # the same on all ranks
        _again(algorithms.allreduce, group, block, fold)
    return total


def reduce_scatter(group: "Transport", blocks: Sequence[Array], fold: Fold) -> Array:
    """Fold as :meth:`Group.reduce_scatter`, and report floating-point errors.

    Cost
    ----
    One more allreduce of a truth value.
    """
    with np.errstate(all="ignore"):
        total = group._reduce_scatter(blocks, fold)
    if _is_doubtful_anywhere(group, total, fold):
        _again(algorithms.reduce_scatter, group, blocks, fold)
    return total


def exscan(group: "Transport", block: Array, fold: Fold, identity: complex | Array) -> Array:
    """Fold as :meth:`Group.exscan`, and report floating-point errors.

    Cost
    ----
    As for :func:`reduce_scatter`.
    """
    with np.errstate(all="ignore"):
        total = group._exscan(block, fold, identity)
    if _is_doubtful_anywhere(group, total, fold):
        _again(algorithms.exscan, group, block, fold, identity)
    return total


def _again(act: Callable[..., Any], *args: Any) -> None:
    listener: Any = _listener.get()
    with np.errstate(all="call", call=listener):
        act(*args)


def _is_doubtful_anywhere(group: "Transport", total: Array, fold: Fold) -> bool:
    here = np.array(_is_doubtful(total, fold))
    return bool(group._allreduce(here, Fold.ANY)) if group.size > 1 else False


def _is_doubtful(total: Array, fold: Fold) -> bool:
    """Return True if a result may come from an error."""
    if not np.isfinite(total).all():
        return True
    return fold is Fold.PROD and bool((np.abs(total) < np.finfo(total.dtype).tiny).any())
