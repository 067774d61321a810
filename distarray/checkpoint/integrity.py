"""Integrity checks of the files of a checkpoint: kinds, sizes, checksums and positions.

The ranks share the work: each rank checks some of the arrays.
"""

import re
import stat
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from itertools import product

import numpy as np

from distarray.checkpoint import background
from distarray.checkpoint.catalog import ROOT, Catalog, members_of
from distarray.checkpoint.chunk_files import ChunkFiles, wrong_size
from distarray.checkpoint.generations import of_one_generation
from distarray.checkpoint.held_checkpoint import HeldCheckpoint
from distarray.checkpoint.matching import Match
from distarray.checkpoint.zarr_metadata import Stored
from distarray.comm import DeviceMesh, default_mesh
from distarray.comm.agree import agreed
from distarray.comm.group import Group
from distarray.comm.user_lines import warn_program
from distarray.errors import CheckpointError
from distarray.io.file_paths import PathLike

__all__ = ["check_files", "verify"]

_FILE = re.compile(r"c(\.\d{1,18})+")
_UNLISTED = (
    "was saved by an early distarray 0.1, which kept no list of chunks: damage is found, but not "
    "whether a whole chunk is of another checkpoint or place; load it, and save it again"
)


def verify(path: PathLike, *, step: int | None = None, mesh: DeviceMesh | None = None) -> int:
    """Read a whole checkpoint and verify all checksums, without loading it; collective.

    Parameters
    ----------
    path, step, mesh
        As for :func:`load`.

    Returns
    -------
    int
        Size of the arrays in bytes.

    Raises
    ------
    CheckpointError
        As for :func:`load`.

    Cost
    ----
    Each rank reads its share of the chunks; 8 MiB of memory.

    Examples
    --------
    >>> import tempfile, distarray
    >>> with tempfile.TemporaryDirectory() as mine:  # of which all ranks take rank 0's
    ...     path = distarray.default_mesh().group.broadcast_object(mine + "/run")
    ...     saving = distarray.checkpoint.save(path, {"x": distarray.numpy.arange(6.0)})
    ...     print(verify(path), "bytes are what they were")
    48 bytes are what they were
    """
    mesh = default_mesh() if mesh is None else mesh
    background.settle(mesh)
    group = mesh.group

    def act(catalog: Catalog) -> int:
        match = Match(catalog.arrays, lambda whole, kind: None)
        agreed(group, lambda: match.value(catalog.node, None, "state"))
        _check(catalog, group)
        if catalog.checksums is None:
            warn_program(f"{catalog.path} {_UNLISTED}", UserWarning)
        return sum(stored.nbytes for stored in catalog.arrays.values())

    return of_one_generation(group, path, step, "checkpoint.verify", act)


def _check(catalog: Catalog, group: Group) -> None:
    """Raise if the files differ from those that were saved; collective."""
    arrays = list(catalog.arrays.values())
    with ExitStack() as stack:
        held = agreed(group, lambda: stack.enter_context(HeldCheckpoint(catalog)))
        for check in (check_files, _check_members, _check_chunks):  # each relies on earlier ones
            agreed(group, partial(check, held, arrays, group))


def check_files(held: HeldCheckpoint, arrays: Sequence[Stored], group: Group) -> None:
    """Raise if the files of the arrays are not exactly those that were saved.

    The cost depends on the files that exist, not on the metadata, which may be hostile.
    """
    for number, stored in enumerate(arrays):
        if number % group.size == group.rank:
            _check_directories(held, stored.name)
            _check_array(held, stored)


def _check_directories(held: HeldCheckpoint, name: str) -> None:
    """Raise if a component of an array's path is missing or not a directory, such as a link."""
    parts = name.split("/")
    for end in range(1, len(parts) + 1):
        part = "/".join(parts[:end])
        directory = held.path / part
        try:
            found = held.stat(part)
        except FileNotFoundError:
            raise CheckpointError(f"array {name!r}: {directory} is missing") from None
        if not stat.S_ISDIR(found.st_mode):
            kind = "a symbolic link" if stat.S_ISLNK(found.st_mode) else "no directory"
            raise CheckpointError(f"array {name!r}: {directory} is {kind}, which no save makes")


def _check_array(held: HeldCheckpoint, stored: Stored) -> None:
    found, directory = 0, held.path / stored.name
    for name, status in held.entries(stored.name):
        if not _FILE.fullmatch(name):
            continue
        shard = tuple([int(part) for part in name.split(".")[1:]])
        inside = len(shard) == len(stored.shape) and all(
            at < count for at, count in zip(shard, stored.grid.shards)
        )
        if not inside or name != stored.file_name(shard):
            raise CheckpointError(
                f"array {stored.name!r}: {directory / name} belongs to no part of the array"
            )
        size = stored.file_bytes(shard)
        if not stat.S_ISREG(status.st_mode) or status.st_size != size:
            raise CheckpointError(wrong_size(f"{directory / name}", stored.name, status, size))
        found += 1
    if found != stored.files:
        raise CheckpointError(
            f"array {stored.name!r}: {found} of its {stored.files} files are in {directory}; the "
            "checkpoint is damaged"
        )


def _check_members(held: HeldCheckpoint, arrays: Sequence[Stored], group: Group) -> None:
    """Raise if the arrays' own metadata, for other readers of Zarr, differ from those saved.

    Loading uses only the checkpoint's description.
    """
    for number, (name, text) in enumerate(members_of(arrays).items()):
        file = f"{name}/{ROOT}"
        if number % group.size == group.rank and held.read(file) != text.encode():
            raise CheckpointError(
                f"array {name!r}: {held.path / file} is not what was saved; the file is damaged"
            )


def _check_chunks(held: HeldCheckpoint, arrays: Sequence[Stored], group: Group) -> None:
    """Raise if a chunk differs from the saved chunk; each rank reads some of the files."""
    number = 0
    with ChunkFiles(held) as files:
        for stored in arrays:
            out = np.empty(stored.chunk_bytes if stored.nbytes else 0, np.uint8)
            for shard in product(*map(range, stored.grid.shards)) if stored.nbytes else ():
                number += 1
                if number % group.size == group.rank:
                    for chunk in stored.grid.chunks_of(shard):
                        if chunk is not None:
                            files.read(stored, chunk, out)
