"""Saving of several arrays as NumPy does: ``numpy.savez`` and ``numpy.savez_compressed``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Any, TypeAlias
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

import numpy as np

from distarray.array import DistArray, as_distarray, common_mesh
from distarray.comm import DeviceMesh
from distarray.comm.files import SharedFile
from distarray.io.contiguous import ALONE, Sum, pieces, sum_of, whole, write_body
from distarray.io.file_errors import tried
from distarray.io.file_paths import FileLike
from distarray.io.numpy_save import parts_of
from distarray.io.output_files import Part, Target, size_of, target_for, write_file
from distarray.io.zip_structure import combined, directory, local_header, placed
from distarray.typing import Array, ArrayLike

__all__ = ["savez", "savez_compressed", "write_archive"]

Members: TypeAlias = Mapping[str, Sequence[Part]]


def savez(file: FileLike, *args: ArrayLike, allow_pickle: bool = True, **kwds: ArrayLike) -> None:
    """Save several arrays in an ``.npz`` file, with the same bytes as :func:`numpy.savez`.

    Parameters
    ----------
    file : path-like or file object
        As for :func:`numpy.save` of distributed arrays.
    *args, **kwds : DistArray or array_like
        Arrays that are not distributed must be equal on all ranks.
    allow_pickle : bool
        True if arrays of Python objects may be saved; the objects are pickled, as in NumPy.

    Cost
    ----
    For each array the cost of :func:`numpy.save`. All ranks write at the same time, and each rank
    computes the checksums of its stretches.
    """
    _save("numpy.savez", file, args, kwds, allow_pickle)


def savez_compressed(
    file: FileLike, *args: ArrayLike, allow_pickle: bool = True, **kwds: ArrayLike
) -> None:
    """Save several arrays compressed, with the same bytes as :func:`numpy.savez_compressed`.

    Parameters are those of :func:`numpy.savez`.

    Cost
    ----
    Rank 0 gathers and compresses 16 MiB at a time: the format has one compressed stream per array,
    which can only be written from beginning to end. Zarr compresses in parallel.
    """
    _save("numpy.savez_compressed", file, args, kwds, allow_pickle)


def write_archive(target: Target, members: Members, compressed: bool, mesh: DeviceMesh) -> None:
    """Write an archive; collective.

    Parameters
    ----------
    target : Target
    members : mapping of str to sequence of Part
        The parts of each member, by its name; equal on all ranks.
    compressed : bool
        If True, compress the members.
    mesh : DeviceMesh
        The mesh whose ranks write.
    """
    if mesh.coords is None:
        return
    compression = ZIP_DEFLATED if compressed else ZIP_STORED

    def write(file: IO[Any] | None, everywhere: bool) -> Exception | None:
        return _compressed(file, members, compression, everywhere)

    total = sum([size_of(part) for parts in members.values() for part in parts])
    if compressed or total <= ALONE:
        write_file(target, mesh, write)
        return
    plan = _Plan(members)
    write_file(target, mesh, write, lambda file: plan.write(file, mesh), plan.size)


def _save(
    call: str,
    file: FileLike,
    args: Sequence[ArrayLike],
    kwds: Mapping[str, ArrayLike],
    allow_pickle: bool,
) -> None:
    """Write an archive of arrays, in rank 0's order of their names; collective."""
    named: dict[str, ArrayLike] = dict(kwds)
    for number, value in enumerate(args):
        key = f"arr_{number}"
        if key in named:
            raise ValueError(f"Cannot use un-named variables and keyword {key}")
        named[key] = value
    mesh = common_mesh(*named.values())
    said = {"allow_pickle": allow_pickle}
    target = target_for(call, file, named, mesh, said, ending=".npz")
    members = {}
    for key in target.order:
        value = named[key]
        x = value if isinstance(value, DistArray) else as_distarray(np.asanyarray(value), mesh)
        members[f"{key}.npy"] = parts_of(x, allow_pickle)
    write_archive(target, members, call == "numpy.savez_compressed", mesh)


def _compressed(
    file: IO[Any] | None, members: Members, compression: int, everywhere: bool
) -> Exception | None:
    """Write an archive to this rank's file, if it has one; return the exception or None."""
    archive, error = None, None
    try:
        archive = None if file is None else ZipFile(file, "w", compression)
    except Exception as caught:
        error = caught
    for name, parts in members.items():
        found = _member(archive if error is None else None, name, parts, everywhere)
        error = error or found
    closing = None if archive is None else tried(archive.close)
    return error or closing


def _member(
    archive: ZipFile | None, name: str, parts: Sequence[Part], everywhere: bool
) -> Exception | None:
    """Write a member, or only take part in gathering it; return the exception or None."""
    left = (
        piece
        for part in parts
        for piece in ([part] if isinstance(part, bytes) else pieces(part, everywhere))
    )
    error = None if archive is None else tried(_write_member, archive, name, left)
    for _ in left:  # also after an error: the other ranks still send
        pass
    return error


def _write_member(archive: ZipFile, name: str, pieces: Iterable[bytes | Array | None]) -> None:
    with archive.open(name, "w", force_zip64=True) as member:
        for piece in pieces:
            if piece is not None:
                member.write(piece if isinstance(piece, bytes) else piece.tobytes())


class _Plan:
    """Plan of an uncompressed archive: the positions of its members, and its size in bytes."""

    def __init__(self, members: Members) -> None:
        self._members = members
        sizes = {name: sum([size_of(part) for part in parts]) for name, parts in members.items()}
        self._entries = placed(sizes.items())
        last = self._entries[-1]
        self._end = last.header_offset + len(local_header(last)) + last.file_size
        for entry in self._entries:
            entry.CRC = 0
        self.size = self._end + len(directory(self._entries, self._end))

    def write(self, file: SharedFile, mesh: DeviceMesh) -> None:
        """Write the archive; every rank writes its stretches; collective."""
        for entry, parts in zip(self._entries, self._members.values(), strict=True):
            start = entry.header_offset + len(local_header(entry))
            entry.CRC = _checked(file, start, parts, mesh)
        if mesh.rank == 0:
            for entry in self._entries:
                file.write_at(entry.header_offset, local_header(entry))
            file.write_at(self._end, directory(self._entries, self._end))


def _checked(file: SharedFile, start: int, parts: Sequence[Part], mesh: DeviceMesh) -> int:
    """Write a member's content; return its checksum on all ranks."""
    sums: list[Sum] = []
    for part in parts:
        if isinstance(part, DistArray) and part.ndim:
            write_body(file, start, part, sums)
        else:
            data = part if isinstance(part, bytes) else whole(part, False)
            if data is not None and mesh.rank == 0:
                sums.append(sum_of(start, np.frombuffer(data, np.uint8)))
            file.write_at(start, data if mesh.rank == 0 else None)
        start += size_of(part)
    found = mesh.group.allgather_object(sums, "checksums")
    return combined([each for own in found for each in own])
