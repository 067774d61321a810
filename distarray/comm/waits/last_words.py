"""The last act of a process: after the functions of `atexit` have run, and before MPI ends.

MPI ends after the interpreter, and may have to wait for the other ranks until then. This module has
nothing else in it, and none of its functions runs in a thread: so it is cleared with all modules.
"""

import os
from contextlib import suppress
from typing import Any

__all__ = ["Farewell", "say_farewell"]


class Farewell:
    """Words that are written when the interpreter gives up its modules.

    Parameters
    ----------
    words : list of (int, bytes, int)
        Descriptor, what to write, and where.
    doors : list of int
        Descriptors to be closed then.
    """

    def __init__(self, words: list[tuple[int, bytes, int]], doors: list[int]) -> None:
        self.process = os.getpid()
        self.words = words
        self.doors = doors

    def __del__(
        self,
        this: Any = os.getpid,
        write: Any = os.pwrite,
        close: Any = os.close,
        but: Any = suppress,
    ) -> None:
        if this() != self.process:
            return  # a forked child, which is no rank
        for descriptor, data, place in self.words:
            with but(OSError):
                write(descriptor, data, place)
        for descriptor in self.doors:
            with but(OSError):
                close(descriptor)


_last: Farewell | None = None


def say_farewell(words: list[tuple[int, bytes, int]], doors: list[int]) -> None:
    """Have this done at the very end."""
    global _last
    _last = Farewell(words, doors)
