"""Paths of files: what callers give, and what marks a directory as a Zarr store."""

import os
from typing import IO, Any, TypeAlias

__all__ = ["ZARR_MARKS", "FileLike", "PathLike", "absolute_path", "is_zarr", "local_path"]

PathLike: TypeAlias = str | bytes | os.PathLike[Any]
#: What NumPy's functions for files take: a path, or a file object that each rank has opened.
FileLike: TypeAlias = PathLike | IO[Any]

#: Files by which a directory is known as a Zarr store.
ZARR_MARKS = ("zarr.json", ".zgroup", ".zarray")


def local_path(given: PathLike) -> str:
    """A path without ``file://``: any format reads and writes files of this machine."""
    path = os.fsdecode(given)
    for scheme in ("file://", "local://"):
        path = path.removeprefix(scheme)
    return path


def absolute_path(path: str) -> str:
    """A path that stays the same when the program changes its directory; a URL as it is."""
    return path if "://" in path else os.path.abspath(path)


def is_zarr(path: str) -> bool:
    """Whether a path is a directory that is marked as a Zarr store."""
    return any(os.path.isfile(os.path.join(path, mark)) for mark in ZARR_MARKS)
