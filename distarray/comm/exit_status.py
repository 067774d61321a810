"""A nonzero exit status for a process whose program has ended already.

Python prints errors of `atexit` handlers, but does not change the exit status. It does exit with
status 120 if the standard streams cannot be flushed at the very end, when all handlers have run.
That is used here: unlike ``os._exit`` and MPI_Abort it cuts short neither handlers nor other ranks,
which MPI_Finalize waits for.
"""

import sys
import traceback
from typing import Any, TextIO, cast

__all__ = ["end_with_status"]


class _Failing:
    """A standard stream that cannot be flushed when the interpreter ends."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def flush(self) -> None:
        """Flush it; raise if the interpreter itself calls, which does so from no Python frame."""
        self._stream.flush()
        if sys._getframe(0).f_back is None:
            raise OSError("the program has ended with an error, which has been printed")


def end_with_status(error: BaseException) -> None:
    """Print an error, and have this process, which is about to end, exit with status 120.

    Parameters
    ----------
    error : BaseException
        An error that nobody can catch any more.
    """
    stream = sys.stderr if sys.stderr is not None else sys.__stderr__
    if stream is None:
        return
    told = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    stream.write(f"\ndistarray: an error after the end of the program:\n{told}")
    if not isinstance(stream, _Failing):
        sys.stderr = cast("TextIO", _Failing(stream))
