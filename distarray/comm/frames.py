"""Frames in which the threads of this process run."""

import gc
import os
import sys
from threading import Lock
from types import FrameType

__all__ = ["current_frames"]

#: In Python 3.11, `sys._current_frames` may start a garbage collection while it holds a lock of the
#: interpreter. If another thread starts or ends at that moment, the process hangs for ever
#: (https://github.com/python/cpython/issues/106883). Later Pythons collect at another moment.
_COLLECTS_WITHIN = sys.version_info < (3, 12)

_lock = Lock()
#: True while this module has switched garbage collection off.
_stopped = False


def current_frames() -> dict[int, FrameType]:
    """Return the innermost frame of each thread, by the thread's identifier."""
    global _stopped
    if not _COLLECTS_WITHIN:
        return sys._current_frames()
    with _lock:
        _stopped = gc.isenabled()
        gc.disable()
        try:
            return sys._current_frames()
        finally:
            if _stopped:
                gc.enable()
            _stopped = False


def _in_forked_child() -> None:
    """Renew the lock: a thread that was within `current_frames` does not exist in the child."""
    global _lock, _stopped
    _lock = Lock()
    if _stopped:
        gc.enable()
    _stopped = False


os.register_at_fork(after_in_child=_in_forked_child)
