"""Start of the library's threads, which the system may refuse for lack of memory or threads.

A rank that raised an error then would leave the other ranks waiting, so each caller continues
without its thread.
"""

import threading

__all__ = ["try_start"]


def try_start(thread: threading.Thread) -> Exception | None:
    """Start a thread; return the error if that fails."""
    try:
        thread.start()
    except (RuntimeError, MemoryError) as error:
        return error
    return None
