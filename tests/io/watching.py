"""Whether a file is opened: the system's word for it."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_OPEN = 0x20


@contextmanager
def unopened(*paths: Path) -> Iterator[None]:
    """Fails if one of some files has been opened, by any library, when the block ends."""
    if sys.platform != "linux":
        pytest.skip("inotify is Linux's")
    libc = ctypes.CDLL(None, use_errno=True)
    handle = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    assert handle >= 0, os.strerror(ctypes.get_errno())
    try:
        for path in paths:
            assert libc.inotify_add_watch(handle, os.fsencode(path), _OPEN) >= 0, path
        yield
        with pytest.raises(BlockingIOError):
            os.read(handle, 4096)
    finally:
        os.close(handle)
