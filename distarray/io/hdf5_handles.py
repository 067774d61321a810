"""HDF5 files that are open for reading, each file once per process.

HDF5 2.0 reads freed memory if a file is opened twice and closed once, and a dataset with elements
of variable length is then read. Therefore a second opening of a file returns the same handle.
"""

import os
from collections.abc import Callable
from contextlib import ExitStack, suppress
from threading import RLock
from types import ModuleType
from typing import Any

__all__ = ["open_shared"]

_lock = RLock()
#: Handle and number of its users, by file identity and options.
_handles: dict[Any, tuple[Any, int]] = {}


def open_shared(h5py: ModuleType, path: str, **options: Any) -> tuple[Any, Callable[[], None]]:
    """Open a file for reading.

    Parameters
    ----------
    h5py : module
    path : str
    **options
        Options of `h5py.File`.

    Returns
    -------
    file : h5py.File
        The handle, shared by all openings with the same options; the caller must not close it.
    close : callable
        Function that the caller calls when it no longer needs the file.
    """
    with _lock:
        key = _key(path, options)
        file, users = _handles.get(key, (None, 0))
        if file is None:
            file = h5py.File(path, "r", **options)
        if key is not None:
            _handles[key] = file, users + 1
    closing = ExitStack()  # `close` releases the file at its first call only
    closing.callback(_released, key, file)
    return file, closing.close


def _released(key: Any, file: Any) -> None:
    with _lock:
        _, users = _handles.pop(key, (file, 1))
        if users > 1:
            _handles[key] = file, users - 1
        else:
            file.close()


def _key(path: str, options: dict[str, Any]) -> Any:
    """Return a key that is equal for openings that may share a handle; None if none may."""
    with suppress(OSError, TypeError):  # no single file has this name, or an option has no hash
        about = os.stat(path)
        identity = about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns
        key = identity, os.path.abspath(path), tuple(sorted(options.items()))
        hash(key)
        return key
    return None
