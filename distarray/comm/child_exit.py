"""The end of a forked child, before MPI's: it has the MPI of its parent, which goes on.

mpi4py ends MPI when the interpreter has been taken down, in any process that has it in memory, and
the parent's launcher would take that for the end of the rank. Children of ``multiprocessing`` leave
by ``os._exit`` before that. One that the program itself has forked, and that comes to its end as
programs do, is ended here: after all that Python does at an end, and before what C libraries do.
"""

import atexit
import os
import sys
from contextlib import suppress
from typing import Any

from distarray.comm.processes import mpi_is_the_parents

__all__ = ["note_status"]

#: The exit status of the process so far; `note_status` sets it where ``sys.exit`` is called.
_status = [0]


class _Last:
    """Ends the process when it is forgotten, which is with the module `sys`, the last but one."""

    def __init__(self) -> None:
        self._streams = [sys.__stdout__, sys.__stderr__]
        # What this module has is gone by then.
        self._status, self._suppress, self._exit = _status, suppress, os._exit

    def __del__(self) -> None:
        for stream in self._streams:
            with self._suppress(Exception):
                stream.flush()  # type: ignore[union-attr]
        self._exit(self._status[0])


def note_status(status: int) -> None:
    """The process ends with this status."""
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
    """The exception that nobody has caught, once the interpreter has shown it."""
    return getattr(sys, "last_value", None)


os.register_at_fork(after_in_child=_in_forked_child)
