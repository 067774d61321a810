"""Paths of files: conversion of the caller's paths, and detection of Zarr stores."""

import os
from typing import IO, Any, TypeAlias

__all__ = ["ZARR_MARKS", "FileLike", "PathLike", "absolute_path", "is_zarr", "local_path"]

PathLike: TypeAlias = str | bytes | os.PathLike[Any]
#: File argument of NumPy's functions: a path, or a file object that each rank has opened.
FileLike: TypeAlias = PathLike | IO[Any]

#: Names of files that mark a directory as a Zarr store.
ZARR_MARKS = ("zarr.json", ".zgroup", ".zarray")


def local_path(given: PathLike) -> str:
    """Return a path without ``file://``: every format reads and writes files of this machine."""
    path = os.fsdecode(given)
    for scheme in ("file://", "local://"):
        path = path.removeprefix(scheme)
    return path


def absolute_path(path: str) -> str:
    """Return the absolute path, which a change of directory does not affect; a URL unchanged."""
    return path if "://" in path else os.path.abspath(path)


def is_zarr(path: str) -> bool:
    """Return True if a path is a directory that is marked as a Zarr store."""
    return any(os.path.isfile(os.path.join(path, mark)) for mark in ZARR_MARKS)
