"""Ordinary files: what is opened to be read, unlike pipes, devices and directories.

A pipe is waited for when it is opened, and so are some devices; what a rank has read from them no
other rank can read.
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

#: The cure of everything that leads to another file.
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
    """What a path leads to, in words; empty if that is nothing, or cannot be seen."""
    try:
        return kind_of_mode(os.stat(path).st_mode)
    except (OSError, ValueError):
        return ""


def kind_of_mode(mode: int) -> str:
    """What a file's mode says that it is, in words."""
    return next((words for test, words in _KINDS if test(mode)), "no file")


def is_stream(path: str | bytes) -> bool:
    """Whether a path leads to a pipe, socket or device."""
    return kind_of(path) not in ("", "a file", "a directory")


def check_seekable(path: str | bytes | None) -> None:
    """Raise NumPy's error of a pipe or socket at once, where NumPy waits for what it gives."""
    kind = "" if path is None else kind_of(path)
    if kind in ("a pipe", "a socket"):
        raise UnsupportedOperation(
            f"{os.fsdecode(path or '')} is {kind}, which is not seekable; read text from it by "
            "numpy.loadtxt, or copy what it gives to a file"
        )


def check_ordinary(path: str, directory: bool = False) -> None:
    """Raise if a path leads to anything but a file; what is missing is left to who opens it.

    Parameters
    ----------
    path : str
    directory : bool
        Whether a directory will do as well.
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
    """Why an array is not read: the other files that it is stored in, and the cure."""
    names = sorted(set(files))
    return (
        f"{how} {', '.join(map(repr, names[:3]))}{', ...' if len(names) > 3 else ''}: {ELSEWHERE}"
    )
