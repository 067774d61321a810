"""Threads of the library, which the system may refuse: the memory is short, or there are too many.

A rank that raised then would leave the others waiting, so each caller goes on without its thread.
"""

import threading

__all__ = ["try_start"]


def try_start(thread: threading.Thread) -> Exception | None:
    """Start a thread; the error if that fails."""
    try:
        thread.start()
    except (RuntimeError, MemoryError) as error:
        return error
    return None
