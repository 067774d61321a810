"""Rank 0 speaks and listens: the program's standard streams."""

import io
import os
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

from distarray.comm.processes import mpi_is_the_parents
from distarray.runner.answers import Talk

__all__ = ["WARNED", "SharedInput", "install"]

#: What NumPy warned of on this rank, in order: the elements that ask for it may all be elsewhere.
WARNED: dict[str, None] = {}
#: How many different warnings a rank keeps.
_MOST = 100


def install(talk: Talk) -> None:
    """Silence the ranks but the first, and let all of them read what the first reads.

    Standard output is silenced as a descriptor, so that C code and commands are quiet too.
    Standard error is silenced for Python (warnings come once) and stays open as a descriptor and
    as ``sys.__stderr__``: a crash is always heard.
    """
    if talk.rank == 0:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(line_buffering=True)
    else:
        _redirect_descriptor(1)
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - for good
        threading.excepthook = _aloud(threading.excepthook)
    if talk.size > 1:
        warnings.showwarning = _kept(warnings.showwarning)
        raw = SharedInput(talk)
        sys.stdin = io.TextIOWrapper(io.BufferedReader(raw), encoding="utf-8")


def _kept(show: Callable[..., None]) -> Callable[..., None]:
    """What shows warnings, and keeps those of computing, which not all ranks need have met."""

    def told(message: Any, category: Any, filename: Any, lineno: Any, *rest: Any) -> None:
        if issubclass(category, RuntimeWarning) and len(WARNED) < _MOST:
            WARNED[warnings.formatwarning(message, category, filename, lineno)] = None
        show(message, category, filename, lineno, *rest)

    return told


def _aloud(hook: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A hook that is heard: an exception in a thread ends the job, on whichever rank."""

    def told(details: Any) -> None:
        sys.stderr = sys.__stderr__ or sys.stderr
        hook(details)

    return told


def _redirect_descriptor(descriptor: int) -> None:
    sys.stdout.flush()
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, descriptor)
    os.close(null)


class SharedInput(io.RawIOBase):
    """Standard input as rank 0 reads it; reading is collective."""

    name = "<stdin>"
    mode = "rb"

    def __init__(self, talk: Talk, descriptor: int = 0) -> None:
        super().__init__()
        self._talk = talk
        self._descriptor = descriptor

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read what is there into a buffer; 0 at the end."""
        view = memoryview(buffer).cast("B")
        child = mpi_is_the_parents()
        read: bytes | OSError = b""
        if self._talk.rank == 0:
            try:
                read = os.read(self._descriptor, len(view))
            except OSError as error:
                read = error
        read = read if child else self._talk.broadcast_object(read, 0)
        if isinstance(read, OSError):
            raise read
        view[: len(read)] = read
        return len(read)
