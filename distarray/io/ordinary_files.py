"""Checks that a path is a regular file, not a pipe, a device or a directory.

Opening a pipe, or some devices, blocks until a writer opens them. Bytes that one rank has read from
a pipe or a device cannot be read by another rank.
"""

import os
import stat
from collections.abc import Iterable
from io import UnsupportedOperation

__all__ = [
    "ELSEWHERE",
    "check_ordinary",
    "check_seekable",
    "is_stream",
    "kind_of",
    "kind_of_mode",
    "named_elsewhere",
]

#: Remedy, for the text of errors about references to other files.
ELSEWHERE = "other files are read only if you allow it: distarray.io.open(..., external=True)"
_KINDS = (
    (stat.S_ISREG, "a file"),
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def kind_of(path: str | bytes) -> str:
    """Return the kind of file at a path, in words; "" if it does not exist or is inaccessible."""
    try:
        return kind_of_mode(os.stat(path).st_mode)
    except (OSError, ValueError):
        return ""


def kind_of_mode(mode: int) -> str:
    """Return the kind of file that a mode describes, in words."""
    return next((words for test, words in _KINDS if test(mode)), "no file")


def is_stream(path: str | bytes) -> bool:
    """Return True if a path refers to a pipe, socket or device."""
    return kind_of(path) not in ("", "a file", "a directory")


def check_seekable(path: str | bytes | None) -> None:
    """Raise NumPy's error for a pipe or socket immediately; NumPy would wait for its data first."""
    kind = "" if path is None else kind_of(path)
    if kind in ("a pipe", "a socket"):
        raise UnsupportedOperation(
            f"{os.fsdecode(path or '')} is {kind}, which is not seekable; read text from it by "
            "numpy.loadtxt, or copy what it gives to a file"
        )


def check_ordinary(path: str, directory: bool = False) -> None:
    """Raise if a path exists and is no regular file; a missing file raises when it is opened.

    Parameters
    ----------
    path : str
    directory : bool
        True if a directory is accepted as well.
    """
    kind = kind_of(path)
    if kind in ("", "a file") or (directory and kind == "a directory"):
        return
    if kind == "a directory":
        raise IsADirectoryError(f"{path} is a directory, not a file of this format")
    raise OSError(
        f"{path} is {kind}, which ranks cannot read together; copy what it gives to a file, and "
        "read that"
    )


def named_elsewhere(how: str, files: Iterable[str]) -> str:
    """Return the reason why an array is not read: its other files, and the remedy."""
    names = sorted(set(files))
    return (
        f"{how} {', '.join(map(repr, names[:3]))}{', ...' if len(names) > 3 else ''}: {ELSEWHERE}"
    )
