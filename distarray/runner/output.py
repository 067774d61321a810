"""Standard streams of the program: rank 0 writes and reads them."""

import io
import os
import sys
import threading
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TextIO

from distarray.comm import observed
from distarray.comm.processes import mpi_is_the_parents
from distarray.runner.answers import Talk

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["WARNED", "SharedInput", "install"]

#: NumPy's warnings on this rank, in order; rank 0 may lack the elements that cause them.
WARNED: dict[str, None] = {}
#: Maximum number of different warnings that a rank keeps.
_MOST = 100


def install(talk: Talk) -> None:
    """Silence all ranks but rank 0, and give all ranks the input that rank 0 reads.

    Standard output is silenced as a descriptor, so that C code and commands are silent, too.
    Standard error is silenced for Python (so warnings appear once). It stays open as a descriptor
    and as ``sys.__stderr__``, so that a crash is always printed.
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
    """Wrap ``warnings.showwarning``: keep NumPy's warnings, which may occur on some ranks only."""

    def keep_and_show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        *rest: TextIO | str | None,
    ) -> None:
        if issubclass(category, RuntimeWarning) and len(WARNED) < _MOST:
            WARNED[warnings.formatwarning(message, category, filename, lineno)] = None
        show(message, category, filename, lineno, *rest)

    observed.printers.append(keep_and_show)
    return keep_and_show


def _aloud(hook: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wrap a hook to use the real standard error, because an exception in a thread ends the job."""

    def write_aloud(details: threading.ExceptHookArgs) -> None:
        sys.stderr = sys.__stderr__ or sys.stderr
        hook(details)

    return write_aloud


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
        #: Function in which the ranks wait until rank 0 has read; at a prompt they sleep in it, and
        #: this is not reported as a wait.
        self.before: Callable[[], object] = lambda: None

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        """Read into a buffer; return the number of bytes, 0 at the end."""
        view = memoryview(buffer).cast("B")
        child = mpi_is_the_parents()
        read: bytes | OSError = b""
        if self._talk.rank == 0:
            try:
                read = os.read(self._descriptor, len(view))
            except OSError as error:
                read = error
        if not child:
            self.before()
        read = read if child else self._talk.broadcast_object(read, 0)
        if isinstance(read, OSError):
            raise read
        view[: len(read)] = read
        return len(read)
