"""Bringing many written files to disk.

Each fsync waits for a commit of the file system and for the disk's cache. On a local file system
of Linux one call, syncfs, brings all files to disk, and reports errors of any of them since the
file it is called with was opened. Elsewhere each file is brought to disk by an fsync of its own,
while the system already writes the others.
"""

import ctypes
import os
import re
from pathlib import Path

__all__ = ["Flusher", "syncs_at_once"]

_libc = ctypes.CDLL(None, use_errno=True)
#: Linux only.
_sync_file_range = getattr(_libc, "sync_file_range", None)
_syncfs = getattr(_libc, "syncfs", None)
_OFFSET = ctypes.c_int64
_SYNC_FILE_RANGE_WRITE = 2
#: File systems of one machine, whose syncfs covers what all its processes have written.
_LOCAL = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "tmpfs"})
#: The first kernel whose syncfs reports errors of writing.
_REPORTING = (5, 8)
#: Files that are kept open until an fsync of each.
_MOST = 64


class Flusher:
    """Brings files below a directory to disk; the end of the ``with`` block waits for all of them.

    Parameters
    ----------
    root : Path
        The directory; it exists.

    Attributes
    ----------
    at_once : bool
        Whether one call brings everything to disk, directories included.
    """

    def __init__(self, root: Path) -> None:
        self.at_once = syncs_at_once(root)
        # Opened before anything is written: errors count from then on.
        self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._open: list[int] = []

    def __enter__(self) -> "Flusher":
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        try:
            if kind is None:
                self._flush()
                if self.at_once:
                    _sync_system(self._root)
        finally:
            for handle in (*self._open, self._root):
                os.close(handle)

    def begin(self, handle: int) -> None:
        """Let the system begin to write an open file to disk, without waiting."""
        if _sync_file_range is not None:
            _sync_file_range(handle, _OFFSET(0), _OFFSET(0), _SYNC_FILE_RANGE_WRITE)

    def put(self, handle: int) -> None:
        """Take over an open file that is complete, and close it."""
        self.begin(handle)
        if self.at_once:
            os.close(handle)
            return
        self._open.append(handle)
        if len(self._open) >= _MOST:
            self._flush()

    def _flush(self) -> None:
        while self._open:
            os.fsync(self._open[0])
            os.close(self._open.pop(0))


def _sync_system(handle: int) -> None:
    """Bring the whole file system of an open file to disk."""
    if _syncfs is not None and _syncfs(handle) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def syncs_at_once(root: Path) -> bool:
    """Whether one call brings everything to disk and reports errors."""
    if _syncfs is None or not hasattr(os, "uname"):
        return False
    version = re.match(r"(\d+)\.(\d+)", os.uname().release)
    if version is None or (int(version[1]), int(version[2])) < _REPORTING:
        return False
    return _kind(root) in _LOCAL


def _kind(root: Path) -> str:
    """The type of file system that a directory is on; empty if it is not known."""
    device = os.stat(root).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    try:
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return ""
    for mount in mounts:
        before, _, after = mount.partition(" - ")
        if before.split()[2] == number:
            return after.split()[0]
    return ""
