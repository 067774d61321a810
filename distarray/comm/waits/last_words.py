"""Final report of a process, written after the handlers of `atexit` and before MPI ends.

MPI ends after the interpreter, and may wait for the other ranks until then. The report is written
when the interpreter clears this module; therefore none of its functions runs in a thread.
"""

import os
from collections.abc import Callable
from contextlib import suppress

__all__ = ["LastWords", "leave_words"]


class LastWords:
    """Bytes that are written when the interpreter deletes its modules.

    Parameters
    ----------
    words : list of (int, bytes, int)
        Descriptor, bytes, and their offset in the file.
    doors : list of int
        Descriptors that are then closed.
    """

    def __init__(self, words: list[tuple[int, bytes, int]], doors: list[int]) -> None:
        self.process = os.getpid()
        self.words = words
        self.doors = doors

    def __del__(
        self,
        this: Callable[[], int] = os.getpid,
        write: Callable[[int, bytes, int], int] = os.pwrite,
        close: Callable[[int], None] = os.close,
        but: type[suppress] = suppress,
    ) -> None:
        if this() != self.process:
            return  # a forked child, which is no rank
        for descriptor, data, place in self.words:
            with but(OSError):
                write(descriptor, data, place)
        for descriptor in self.doors:
            with but(OSError):
                close(descriptor)


_last: LastWords | None = None


def leave_words(words: list[tuple[int, bytes, int]], doors: list[int]) -> None:
    """Write bytes and close descriptors at the very end of the process."""
    global _last
    _last = LastWords(words, doors)
