"""Several arrays in one file: ``numpy.savez`` and ``numpy.savez_compressed``."""

from collections.abc import Mapping, Sequence
from typing import Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

import numpy as np

from distarray.array import DistArray, as_distarray, common_mesh
from distarray.comm import DeviceMesh
from distarray.comm.files import SharedFile, open_file
from distarray.io.contiguous import ALONE, Sum, pieces, sum_of, whole, write_body
from distarray.io.numpy_save import parts_of
from distarray.io.output_files import Part, Target, size_of, target_for, write_through
from distarray.io.zip_structure import combined, directory, local_header, placed

__all__ = ["savez", "savez_compressed", "write_archive"]

Members = Mapping[str, Sequence[Part]]


def savez(file: Any, *args: Any, allow_pickle: bool = True, **kwds: Any) -> None:
    """Save several arrays in an ``.npz`` file, byte for byte as NumPy; see :func:`numpy.savez`.

    Parameters
    ----------
    file : path-like or file object
        As for :func:`numpy.save` of distributed arrays.
    *args, **kwds : DistArray or array_like
        What is not distributed counts as equal on all ranks.
    allow_pickle : bool
        Whether arrays of Python objects may be saved; they are pickled, as in NumPy.

    Cost
    ----
    As :func:`numpy.save` of each array. All ranks write at the same time, and each computes the
    checksum of what it writes.
    """
    _save("numpy.savez", file, args, kwds, allow_pickle)


def savez_compressed(file: Any, *args: Any, allow_pickle: bool = True, **kwds: Any) -> None:
    """Save several arrays compressed, byte for byte as NumPy; see :func:`numpy.savez_compressed`.

    Parameters are those of :func:`numpy.savez`.

    Cost
    ----
    Rank 0 compresses what it gathers, 16 MiB at a time: the format has one stream an array, in
    which nothing can be compressed before what comes before it. Zarr compresses in parallel.
    """
    _save("numpy.savez_compressed", file, args, kwds, allow_pickle)


def write_archive(target: Target, members: Members, compressed: bool, mesh: DeviceMesh) -> None:
    """Write an archive; collective.

    Parameters
    ----------
    target : Target
        Where to.
    members : mapping of str to sequence of Part
        What each member consists of, by its name; equal on all ranks.
    compressed : bool
        Whether members are compressed.
    mesh : DeviceMesh
        Whose ranks take part.
    """
    if mesh.coords is None:
        return
    total = sum([size_of(part) for parts in members.values() for part in parts])
    if compressed or total <= ALONE or mesh.size() == 1 or not target.one:
        compression = ZIP_DEFLATED if compressed else ZIP_STORED

        def write(file: Any, everywhere: bool) -> Exception | None:
            return _compressed(file, members, compression, everywhere)

        write_through(target, write, mesh)
    else:
        _written_together(target.file, members, mesh)


def _save(
    call: str, file: Any, args: Sequence[Any], kwds: Mapping[str, Any], allow_pickle: bool
) -> None:
    """Write an archive of arrays: in rank 0's order, where ranks have others; collective."""
    named = dict(kwds)
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
    file: Any, members: Members, compression: int, everywhere: bool
) -> Exception | None:
    """Write an archive to this rank's file, if it has one; brings back what went wrong."""
    archive, error = None, None
    try:
        archive = None if file is None else ZipFile(file, "w", compression)
    except Exception as caught:
        error = caught
    for name, parts in members.items():
        found = _member(archive if error is None else None, name, parts, everywhere)
        error = error or found
    try:
        if archive is not None:
            archive.close()
    except Exception as caught:
        error = error or caught
    return error


def _member(
    archive: ZipFile | None, name: str, parts: Sequence[Part], everywhere: bool
) -> Exception | None:
    """Write one member, or only take part in its gathering."""
    left = (
        piece
        for part in parts
        for piece in ([part] if isinstance(part, bytes) else pieces(part, everywhere))
    )
    error = None
    if archive is not None:
        try:
            with archive.open(name, "w", force_zip64=True) as member:
                for piece in left:
                    member.write(piece if isinstance(piece, bytes) else piece.tobytes())  # type: ignore[union-attr]
        except Exception as caught:
            error = caught
    for _ in left:  # the other ranks go on sending
        pass
    return error


def _written_together(path: str, members: Members, mesh: DeviceMesh) -> None:
    """Write an archive of stored members, every rank its stretches."""
    sizes = {name: sum([size_of(part) for part in parts]) for name, parts in members.items()}
    entries = placed(sizes.items())
    last = entries[-1]
    place = last.header_offset + len(local_header(last)) + last.file_size
    for entry in entries:
        entry.CRC = 0
    total = place + len(directory(entries, place))
    with open_file(mesh.group, path, "w", total) as file:
        for entry, parts in zip(entries, members.values(), strict=True):
            start = entry.header_offset + len(local_header(entry))
            entry.CRC = _checked(file, start, parts, mesh)
        for entry in entries:
            head = local_header(entry)
            file.write_all(entry.header_offset, head if mesh.rank == 0 else None)
        file.write_all(place, directory(entries, place) if mesh.rank == 0 else None)


def _checked(file: SharedFile, start: int, parts: Sequence[Part], mesh: DeviceMesh) -> int:
    """Write a member's content; its checksum, on all ranks."""
    sums: list[Sum] = []
    for part in parts:
        if isinstance(part, DistArray) and part.ndim:
            write_body(file, start, part, sums)
        else:
            data: Any = part if isinstance(part, bytes) else whole(part, False)
            if mesh.rank == 0:
                sums.append(sum_of(start, np.frombuffer(data, np.uint8)))
            file.write_all(start, data if mesh.rank == 0 else None)
        start += size_of(part)
    found = mesh.group.allgather_object(sums, "checksums")
    return combined([each for own in found for each in own])
