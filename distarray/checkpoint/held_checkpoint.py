"""Checkpoint whose directory is held open while it is read.

The directory of a checkpoint is renamed or removed when another save replaces the checkpoint. Files
are opened relative to the directory that a rank holds open, so that all files are of one save. A
checkpoint that gets the same name later is never read.
"""

import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path

from distarray.checkpoint.catalog import OLDER, ROOT, Catalog, read_head, read_plain
from distarray.errors import CheckpointError

__all__ = ["HeldCheckpoint"]

#: Errors of opening a directory that another job has just renamed or removed.
_GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ESTALE})
#: Seconds for which the name may be missing, if names are exchanged in two steps.
_PATIENCE = 1.0


class HeldCheckpoint:
    """Open directory of the checkpoint that a catalog describes; a context manager.

    Parameters
    ----------
    catalog : Catalog

    Attributes
    ----------
    path : Path
        The path at which the checkpoint was found, for error texts.
    checksums : mapping or None
        The checksums of the catalog.

    Raises
    ------
    CheckpointError
        If another checkpoint has replaced this checkpoint, and it is not kept any more.
    """

    def __init__(self, catalog: Catalog) -> None:
        self.path, self.checksums = catalog.path, catalog.checksums
        self._handle = _held(catalog)

    def __enter__(self) -> "HeldCheckpoint":
        return self

    def __exit__(self, *exception: object) -> None:
        os.close(self._handle)

    def open(self, name: str) -> int:
        """Open a file of the checkpoint for reading; do not follow a link or wait for a pipe."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        return os.open(name, flags, dir_fd=self._handle)

    def read(self, name: str) -> bytes:
        """Read a file of metadata."""
        return read_plain(self.path / name, name, self._handle)

    def stat(self, name: str) -> os.stat_result:
        """Return the status of an entry; of a link itself, not of its target."""
        return os.stat(name, dir_fd=self._handle, follow_symlinks=False)

    def entries(self, name: str) -> Iterator[tuple[str, os.stat_result]]:
        """Yield names and statuses of the entries of a subdirectory."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(name, flags, dir_fd=self._handle)
        try:
            with os.scandir(handle) as found:
                for entry in found:
                    yield entry.name, entry.stat(follow_symlinks=False)
        finally:
            os.close(handle)


def _held(catalog: Catalog) -> int:
    """Open the directory of a catalog: under its own name, or inside its successor."""
    until = time.monotonic() + _PATIENCE
    while True:
        for place in (catalog.path, catalog.path / OLDER):
            handle = _opened(place, catalog.head)
            if handle is not None:
                return handle
        if os.path.lexists(catalog.path) or time.monotonic() > until:
            raise CheckpointError(
                f"{catalog.path}: while it was loaded, another save has replaced the checkpoint, "
                "or it has been removed"
            )
        time.sleep(0.01)


def _opened(place: Path, head: bytes) -> int | None:
    """Open a directory if its description begins with `head`; return None otherwise."""
    try:
        handle = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in _GONE:
            return None
        raise
    same = False
    try:
        same = read_head(place / ROOT, ROOT, handle) == head
    except (CheckpointError, FileNotFoundError):
        pass
    finally:
        if not same:
            os.close(handle)
    return handle if same else None
