"""``numpy.load``: from one path that all ranks read together, or from one file per rank."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from typing import IO, Any, Literal, NamedTuple

import numpy as np
from numpy.lib import format as npy_format

from distarray.array import distribute
from distarray.comm import DeviceMesh, default_mesh
from distarray.comm.agree import agreed
from distarray.errors import DivergenceError
from distarray.io.contiguous_reading import read_by_all, read_own_file
from distarray.io.file_paths import FileLike
from distarray.io.input_files import origin_of, read_by_each
from distarray.io.memmap import mapped_file
from distarray.io.npy_header import PARSING, Header, read_header
from distarray.io.npz_archive import Archive
from distarray.io.ordinary_files import check_seekable
from distarray.io.rank_zero import found_on_rank_zero
from distarray.typing import Placements

__all__ = ["load"]

_ZIP = (b"PK\x03\x04", b"PK\x05\x06")


class _Facts(NamedTuple):
    """Kind of a file, and header of its array."""

    kind: Literal["npy", "npz", "other"]
    header: Header | None = None


def load(
    file: FileLike,
    mmap_mode: Literal["r", "r+", "c"] | None = None,
    allow_pickle: bool = False,
    fix_imports: bool = True,
    encoding: str = "ASCII",
    *,
    max_header_size: int = 10_000,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> Any:
    """Load the array of an ``.npy`` file or the archive of an ``.npz`` file, as :func:`numpy.load`.

    Parameters
    ----------
    file : path-like or file object
        A path, equal on all ranks; or a file object of each rank, with the same content.
    mmap_mode : {None, "r", "r+", "c"}
        With a mode, the call reads no elements: blocks are mapped, and pages are read on first
        use. The result then is a :class:`distarray.numpy.memmap`.
    allow_pickle, fix_imports, encoding, max_header_size
        As in NumPy. Every rank loads pickled objects by itself.
    mesh : DeviceMesh, optional
        The default mesh if not given.
    placements : sequence of Placement, optional
        As for :func:`distarray.distribute`.

    Returns
    -------
    DistArray, or an archive of them
        In Fortran order if the file is in that order.

    Raises
    ------
    OSError, ValueError, ...
        As NumPy does. An error on one rank is raised on all ranks.

    Cost
    ----
    Rank 0 reads the header and broadcasts it. Each byte is read once: by the rank that holds it, if
    blocks consist of long stretches of the file; otherwise by a rank that sends it to its holder,
    in rounds of 16 MiB per rank. From file objects every rank reads all bytes and keeps its block.
    """
    error = None
    if encoding not in ("ASCII", "latin1", "bytes"):
        error = ValueError("encoding must be 'ASCII', 'latin1', or 'bytes'")
    mesh = default_mesh() if mesh is None else mesh
    rest: dict[str, Any] = {
        "allow_pickle": allow_pickle, "fix_imports": fix_imports, "encoding": encoding,
        "max_header_size": max_header_size,
    }  # fmt: skip
    said = {**rest, "mmap_mode": mmap_mode, "placements": placements}
    origin = origin_of("numpy.load", file, mesh, said, error)
    opened: Any = file
    if hasattr(file, "read"):
        return _from_object(opened, rest, mesh, placements)
    path = os.fspath(opened)
    if not origin.one:  # one file per rank, perhaps in temporary directories
        with agreed(mesh.group, lambda: _opened(path)) as own:
            return _from_object(own, rest, mesh, placements, path)
    facts = found_on_rank_zero(lambda: _facts_of(path, rest), mesh)
    if facts.kind == "npz":
        return Archive(path, rest, mesh, placements)
    if facts.header is None or facts.header.dtype.hasobject:
        return _by_each(lambda: _by_numpy(path, rest), mesh, placements)
    if mmap_mode:
        return mapped_file(path, facts.header, mmap_mode, mesh, placements)
    return read_by_all(path, facts.header, mesh, placements)


def _opened(path: str) -> IO[bytes]:
    """Open a file for reading; raise for a pipe instead of waiting for it."""
    check_seekable(path)
    return open(path, "rb")


def _facts_of(path: str, rest: dict[str, Any]) -> _Facts:
    """Determine the kind of the file at a path."""
    with _opened(path) as file:
        return _facts(file, rest)


def _facts(file: IO[bytes], rest: dict[str, Any]) -> _Facts:
    """Determine the kind of a file; an ``.npy`` file is then positioned at its elements."""
    magic = file.read(len(npy_format.MAGIC_PREFIX))
    if not magic:
        raise EOFError("No data left in file")
    file.seek(-len(magic), 1)
    if magic.startswith(_ZIP):
        return _Facts("npz")
    if magic != npy_format.MAGIC_PREFIX:
        return _Facts("other")
    place = file.tell()
    header = read_header(file, 2**64 if rest["allow_pickle"] else rest["max_header_size"])
    if header.dtype.hasobject:
        file.seek(place)
    elif npy_format.isfileobj(file):
        found = os.fstat(file.fileno())
        if stat.S_ISREG(found.st_mode):
            header.check_size(found.st_size)
    return _Facts("npy", header)


def _by_numpy(file: str | IO[bytes], rest: dict[str, Any]) -> Any:
    with PARSING:
        return np.load(file, **rest)


def _by_each(read: Callable[[], Any], mesh: DeviceMesh, placements: Placements | None) -> Any:
    """Read a whole value on every rank, equal on all ranks; distribute an array."""
    found = read_by_each("numpy.load", read, mesh)
    if not isinstance(found, np.ndarray):
        return found
    if isinstance(found, np.ma.MaskedArray):
        return found  # a DistArray has no mask; `distarray.numpy.ma` accepts NumPy's masked arrays
    return distribute(found, mesh, None if found.dtype.hasobject else placements, src=None)


def _from_object(
    file: IO[bytes],
    rest: dict[str, Any],
    mesh: DeviceMesh,
    placements: Placements | None,
    path: str | None = None,
) -> Any:
    """Load from files that the ranks have opened; reopen an archive if a path is given."""
    facts = agreed(mesh.group, lambda: _facts(file, rest))
    _check_alike(facts, mesh)
    if facts.kind == "npz":
        opened = agreed(mesh.group, lambda: np.load(file if path is None else path, **rest))
        return Archive(opened, rest, mesh, placements)
    if facts.header is None or facts.header.dtype.hasobject:
        return _by_each(lambda: _by_numpy(file, rest), mesh, placements)
    return read_own_file(file, facts.header, mesh, placements, "numpy.load")


def _check_alike(facts: _Facts, mesh: DeviceMesh) -> None:
    """Raise on all ranks if the ranks' files do not contain the same kind of array."""
    said = mesh.group.allgather_object(f"{facts.kind} {facts.header and facts.header[:3]}")
    if len(set(said)) > 1:
        lines = "".join([f"\n    rank {rank}  {text}" for rank, text in enumerate(said)])
        raise DivergenceError(f"numpy.load: the ranks' files differ:{lines}")
