"""Nonzero exit status for a process whose program has already ended.

Python prints errors of `atexit` handlers, but does not change the exit status. It does exit with
status 120 if the standard streams cannot be flushed at the very end, when all handlers have run.
This module makes the flush fail. Unlike ``os._exit`` and MPI_Abort, that interrupts neither
handlers nor other ranks, which MPI_Finalize waits for.
"""

import sys
import traceback
from typing import Any, TextIO, cast

__all__ = ["end_with_status"]


class _Failing:
    """Standard stream that cannot be flushed when the interpreter ends."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def flush(self) -> None:
        """Flush the stream; raise if the interpreter itself calls, which has no Python frame."""
        self._stream.flush()
        if sys._getframe(0).f_back is None:
            raise OSError("the program has ended with an error, which has been printed")


def end_with_status(error: BaseException) -> None:
    """Print an error, and make this process, which is about to end, exit with status 120.

    Parameters
    ----------
    error : BaseException
        An error that no code can catch any more.
    """
    stream = sys.stderr if sys.stderr is not None else sys.__stderr__
    if stream is None:
        return
    told = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    stream.write(f"\ndistarray: an error after the end of the program:\n{told}")
    if not isinstance(stream, _Failing):
        sys.stderr = cast("TextIO", _Failing(stream))
