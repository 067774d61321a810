"""Flush of many written files to disk.

Each fsync waits for a commit of the file system and for the disk's cache. On a local file system
of Linux one call, syncfs, brings all files to disk. It reports the errors of all files since its
file descriptor was opened. On other file systems each file is brought to disk by its own fsync,
while the system already writes the next files.
"""

import ctypes
import os
import re
from pathlib import Path

__all__ = ["Flusher", "syncs_at_once"]

_libc = ctypes.CDLL(None, use_errno=True)
#: Functions that only Linux has; None elsewhere.
_sync_file_range = getattr(_libc, "sync_file_range", None)
_syncfs = getattr(_libc, "syncfs", None)
_OFFSET = ctypes.c_int64
_SYNC_FILE_RANGE_WRITE = 2
#: Local file systems, whose syncfs covers the writes of all processes of the machine.
_LOCAL = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "tmpfs"})
#: First Linux version whose syncfs reports write errors.
_REPORTING = (5, 8)
#: Maximum number of files that stay open until each gets its fsync.
_MOST = 64


class Flusher:
    """Flusher of the files below a directory; the end of the ``with`` block waits for all files.

    Parameters
    ----------
    root : Path
        The directory, which must exist.

    Attributes
    ----------
    at_once : bool
        True if one call brings all files to disk, directories included.
    """

    def __init__(self, root: Path) -> None:
        self.at_once = syncs_at_once(root)
        # Opened before the first write: syncfs reports the errors since this descriptor was opened.
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
        """Start writing an open file to disk, without waiting."""
        if _sync_file_range is not None:
            _sync_file_range(handle, _OFFSET(0), _OFFSET(0), _SYNC_FILE_RANGE_WRITE)

    def put(self, handle: int) -> None:
        """Take over an open file that is complete; flush it, now or later, and close it."""
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
    """Bring the whole file system that contains an open file to disk."""
    if _syncfs is not None and _syncfs(handle) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def syncs_at_once(root: Path) -> bool:
    """Return True if one call brings all files to disk and reports errors."""
    if _syncfs is None or not hasattr(os, "uname"):
        return False
    version = re.match(r"(\d+)\.(\d+)", os.uname().release)
    if version is None or (int(version[1]), int(version[2])) < _REPORTING:
        return False
    return _kind(root) in _LOCAL


def _kind(root: Path) -> str:
    """Return the type of a directory's file system; an empty text if it is not known."""
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
