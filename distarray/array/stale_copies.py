"""Gathered copies of cut arrays that a library still holds when the array is written to.

A library that is given a NumPy array shares its memory. A library that is given a cut array gets a
gathered copy, which does not receive later writes. If such a copy is alive on some rank, the
program is warned at the line that writes. The ranks find this out by an allreduce at the first
write after a gather.
"""

import gc
import sys
from collections.abc import Iterator
from threading import Lock
from typing import Any
from weakref import ref

import numpy as np

from distarray.array.base import Base, storage_of
from distarray.array.passed import passed
from distarray.comm.user_lines import (
    called,
    expression,
    place,
    program_frame,
    user_frames,
    warn_program,
)
from distarray.config import in_force
from distarray.errors import StaleCopyWarning
from distarray.layout import Fold
from distarray.typing import Array

__all__ = ["Copy", "count_write", "tell", "watch"]

#: Modules that store their argument, but do not read it again.
_DONE = frozenset({"matplotlib.contour", "matplotlib.tri._tricontour"})
#: Lock held during garbage collection: a concurrent ``gc.collect`` of another thread does nothing.
_collecting = Lock()
#: Warnings that were already given: (thread, line that took the copy, line that writes).
_told: set[tuple[int, str, str]] = set()


class Copy:
    """Gathered copy, with the program's line for which it was made.

    Attributes
    ----------
    whole : weak reference to array
        The copy.
    what : str
        The function that took the copy.
    where : str
        ``file:line`` of the program.
    """

    __slots__ = ("what", "where", "whole")

    def __init__(self, whole: Array, what: str, where: str) -> None:
        self.whole, self.what, self.where = ref(whole), what, where


def watch(memory: Any, whole: Array, what: str) -> None:
    """Register a gathered copy that a library gets of an array over `memory`; on all ranks."""
    here = sys._getframe(1)
    frame = program_frame(here)
    if any(user.f_globals.get("__name__") in _DONE for user in user_frames(here)):
        return
    line = place(frame.f_code, frame.f_lasti)
    call = called(expression(frame.f_code, frame.f_lasti))
    owner = whole
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    name = call if call.replace(".", "").replace("_", "").isalnum() and "." in call else what
    memory.copies.append(Copy(owner, name, line))
    passed.watched += 1


def count_write(*arrays: Any) -> None:
    """Count a call that writes to cut arrays, then warn of stale copies as :func:`tell`."""
    passed.number += 1
    if passed.watched:
        tell(*arrays)


def tell(*arrays: Any) -> None:
    """Warn the program of copies that will not receive the write that follows; collective.

    Raises
    ------
    StaleCopyWarning
        On all ranks, under ``config.check`` or ``config.stale = "error"``.

    Cost
    ----
    One allreduce at the first write to memory that was copied since its last write; else none.
    """
    if in_force().stale == "allow":
        return
    for x in arrays:
        for memory in _memories(x):
            if memory.copies:
                _tell(x, memory)


def _memories(x: Any) -> Iterator[Any]:
    if isinstance(x, (list, tuple)):
        for item in x:
            yield from _memories(item)
    elif isinstance(x, Base) and not x.layout.is_whole:
        storage = storage_of(x)
        if storage is not None:
            yield storage.source.memory


def _tell(x: Base, memory: Any) -> None:
    copies = memory.copies
    if any(copy.whole() is not None for copy in copies):
        with _collecting:
            gc.collect()  # figures and frames are in cycles
    alive = np.array([copy.whole() is not None for copy in copies], np.int64)
    alive = x.mesh.group.allreduce(alive, Fold.MAX, "gathered copies that are alive")
    frame = program_frame(sys._getframe(1))
    line = place(frame.f_code, frame.f_lasti)
    settings = in_force()
    for copy, found in zip(list(copies), alive, strict=True):
        text = (
            f"the copy that {copy.what} took at {copy.where} does not see what {line} writes: it "
            "has the elements of a cut array as they were then. Take it again after the write, or "
            "give it a copy (x.full()) if it is not meant to see it; distarray.config.stale = "
            "'allow' does without this warning"
        )
        if found and (settings.check or settings.stale == "error"):
            raise StaleCopyWarning(text)
        copies.remove(copy)
        passed.watched -= 1
        pair = passed.number >> 40, copy.where, line
        if found and pair not in _told:
            _told.add(pair)
            warn_program(text, StaleCopyWarning)
