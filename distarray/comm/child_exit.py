"""Exit of a forked child, which must not end the MPI of its parent.

mpi4py ends MPI once the interpreter has shut down, in any process that has mpi4py in memory. The
parent's launcher would take that for the end of the rank. Children of ``multiprocessing`` exit by
``os._exit`` before that. A child that the program itself has forked, and that ends normally, exits
here: after Python's own shutdown, and before the exit handlers of C libraries.
"""

import atexit
import os
import sys
from contextlib import suppress
from typing import Any

from distarray.comm.processes import mpi_is_the_parents

__all__ = ["note_status"]

#: The exit status of the process so far, set by `note_status`.
_status = [0]
#: `os._exit` before `distarray.comm.hooks` replaces it by a function that needs modules.
_exit = os._exit


class _Last:
    """Object that ends the process when it is deleted with the module `sys`, the last but one."""

    def __init__(self) -> None:
        self._streams = [sys.__stdout__, sys.__stderr__]
        # The globals of this module are gone when `__del__` runs.
        self._status, self._suppress, self._exit = _status, suppress, _exit

    def __del__(self) -> None:
        for stream in self._streams:
            with self._suppress(Exception):
                stream.flush()  # type: ignore[union-attr]
        self._exit(self._status[0])


def note_status(status: int) -> None:
    """Set the exit status of the process."""
    _status[0] = status & 0xFF


def _in_forked_child() -> None:
    if not mpi_is_the_parents():
        return
    known = _last_error()

    def note_error() -> None:
        error = _last_error()
        if error is not None and error is not known:
            note_status(130 if isinstance(error, KeyboardInterrupt) else 1)

    atexit.register(note_error)
    names: Any = sys
    names._distarray_last = _Last()


def _last_error() -> Any:
    """Return the uncaught exception, once the interpreter has printed it."""
    return getattr(sys, "last_value", None)


os.register_at_fork(after_in_child=_in_forked_child)
