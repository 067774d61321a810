"""HDF5 files that are open for reading, each of them once in a process.

HDF5 2.0 reads what is freed if a file is opened twice, closed once, and asked for a dataset whose
elements vary in length. So who opens a file that is open already is given the same handle.
"""

import os
from collections.abc import Callable
from contextlib import ExitStack, suppress
from threading import RLock
from types import ModuleType
from typing import Any

__all__ = ["open_shared"]

_lock = RLock()
#: Handle and number of its users, by the file's identity and the options.
_handles: dict[Any, tuple[Any, int]] = {}


def open_shared(h5py: ModuleType, path: str, **options: Any) -> tuple[Any, Callable[[], None]]:
    """Open a file for reading.

    Parameters
    ----------
    h5py : module
    path : str
    **options
        For `h5py.File`.

    Returns
    -------
    file : h5py.File
        Also that of others who have opened the file with the same options, and not to be closed.
    close : callable
        Called when the file is no longer needed.
    """
    with _lock:
        key = _key(path, options)
        file, users = _handles.get(key, (None, 0))
        if file is None:
            file = h5py.File(path, "r", **options)
        if key is not None:
            _handles[key] = file, users + 1
    closing = ExitStack()  # calls it once only
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
    """What two openings have in common that may share a handle; None if there is no such thing."""
    with suppress(OSError, TypeError):  # no single file of this name, or options without a hash
        about = os.stat(path)
        identity = about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns
        key = identity, os.path.abspath(path), tuple(sorted(options.items()))
        hash(key)
        return key
    return None
