"""Memory use of this process, in functions that are called often."""

import os
import resource
import sys

__all__ = ["peak", "resident"]

_UNIT = 1 if sys.platform == "darwin" else 1024
_PAGE = os.sysconf("SC_PAGE_SIZE")
_file = -1


def peak() -> int:
    """Return the peak memory of the process, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _UNIT


def resident() -> int:
    """Return the current memory, in bytes; the peak where the system does not report it."""
    global _file
    try:
        if _file < 0:
            _file = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        return int(os.pread(_file, 128, 0).split()[1]) * _PAGE
    except (OSError, IndexError, ValueError):
        return peak()


def _in_forked_child() -> None:
    global _file
    _file = -1  # the descriptor is the parent's


os.register_at_fork(after_in_child=_in_forked_child)
