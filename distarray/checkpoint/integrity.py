"""Integrity checks: the files of a checkpoint, their kinds, sizes and checksums.

The ranks share the work: each checks some of the arrays.
"""

import os
import re
import stat
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np

from distarray.checkpoint.chunk_files import ChunkFiles, wrong_size
from distarray.checkpoint.zarr_metadata import Stored
from distarray.comm.group import Group
from distarray.errors import CheckpointError

__all__ = ["check_chunks", "check_files"]

_FILE = re.compile(r"c(\.\d{1,18})+")


def check_files(root: Path, arrays: Sequence[Stored], group: Group) -> None:
    """Raise if the files of some arrays are not exactly those that were saved.

    The cost depends on the files that exist, not on those that the metadata claim.
    """
    for number, stored in enumerate(arrays):
        if number % group.size == group.rank:
            _check_directories(root, stored.name)
            _check_array(root / stored.name, stored)


def _check_directories(root: Path, name: str) -> None:
    """Raise if a directory on the way to an array is not a directory, such as a link."""
    directory = root
    for part in name.split("/"):
        directory = directory / part
        try:
            found = os.lstat(directory)
        except FileNotFoundError:
            raise CheckpointError(f"array {name!r}: {directory} is missing") from None
        if not stat.S_ISDIR(found.st_mode):
            kind = "a symbolic link" if stat.S_ISLNK(found.st_mode) else "no directory"
            raise CheckpointError(f"array {name!r}: {directory} is {kind}, which no save makes")


def _check_array(directory: Path, stored: Stored) -> None:
    found = 0
    with os.scandir(directory) as entries:
        for entry in entries:
            if not _FILE.fullmatch(entry.name):
                continue
            shard = tuple([int(part) for part in entry.name.split(".")[1:]])
            inside = len(shard) == len(stored.shape) and all(
                at < count for at, count in zip(shard, stored.grid.shards)
            )
            if not inside or entry.name != stored.file_name(shard):
                raise CheckpointError(
                    f"array {stored.name!r}: {entry.path} belongs to no part of the array"
                )
            size = stored.file_bytes(shard)
            status = entry.stat(follow_symlinks=False)
            if not stat.S_ISREG(status.st_mode) or status.st_size != size:
                raise CheckpointError(wrong_size(entry.path, stored.name, status, size))
            found += 1
    if found != stored.files:
        raise CheckpointError(
            f"array {stored.name!r}: {found} of its {stored.files} files are in {directory}; the "
            "checkpoint is damaged"
        )


def check_chunks(root: Path, arrays: Sequence[Stored], group: Group) -> None:
    """Raise if a chunk is not the one that was saved; each rank reads some of the files."""
    number = 0
    with ChunkFiles(root) as files:
        for stored in arrays:
            out = np.empty(stored.chunk_bytes if stored.nbytes else 0, np.uint8)
            for shard in product(*map(range, stored.grid.shards)) if stored.nbytes else ():
                number += 1
                if number % group.size == group.rank:
                    for chunk in stored.grid.chunks_of(shard):
                        if chunk is not None:
                            files.read(stored, chunk, out)
