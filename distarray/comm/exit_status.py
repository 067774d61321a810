"""A status other than zero for a process whose program has come to its end.

What goes wrong in handlers of `atexit` is printed by Python, and the status stays what it was. But
Python ends with status 120 if the standard streams cannot be flushed at the very end, when all
handlers have run. That is used here: neither handlers nor other ranks, which MPI_Finalize waits
for, are cut short, as they would be by ``os._exit`` and MPI_Abort.
"""

import sys
import traceback
from typing import Any

__all__ = ["end_with_status"]


class _Failing:
    """A standard stream that cannot be flushed when the interpreter ends."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def flush(self) -> None:
        """Flush it; the interpreter itself, which calls this from no Python frame, is refused."""
        self._stream.flush()
        if sys._getframe(0).f_back is None:
            raise OSError("the program has ended with an error that has been told")


def end_with_status(error: BaseException) -> None:
    """Print an error, and have this process, which is about to end, do so with status 120.

    Parameters
    ----------
    error : BaseException
        What has gone wrong where nobody could catch it any more.
    """
    stream = sys.stderr if sys.stderr is not None else sys.__stderr__
    if stream is None:
        return
    told = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    stream.write(f"\ndistarray: after the end of the program something has failed:\n{told}")
    if not isinstance(stream, _Failing):
        sys.stderr = _Failing(stream)
