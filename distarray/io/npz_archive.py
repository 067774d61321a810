"""Archive that ``numpy.load`` returns for an ``.npz`` file; arrays are read at each access."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple
from zipfile import ZIP_STORED, BadZipFile, ZipFile
from zlib import crc32

import numpy as np
from numpy.lib import format as npy_format
from numpy.lib.npyio import NpzFile

from distarray.array import DistArray, distribute
from distarray.comm import DeviceMesh
from distarray.comm.agree import agreed
from distarray.io.contiguous import Sum
from distarray.io.contiguous_reading import read_by_all, read_own_file
from distarray.io.input_files import read_by_each
from distarray.io.npy_header import PARSING, Header, read_header
from distarray.io.rank_zero import found_on_rank_zero
from distarray.io.zip_structure import combined
from distarray.typing import Placements

__all__ = ["Archive", "Member", "look_at"]


class Member(NamedTuple):
    """Member of an archive.

    Attributes
    ----------
    header : Header or None
        The header of an array; its `start` counts from the beginning of the archive if the member
        is not compressed.
    stored : bool
        True if the member is not compressed.
    crc : int
        Checksum of the member, header included.
    lead : Sum
        Checksum of the header, if the member is not compressed.
    """

    header: Header | None
    stored: bool
    crc: int
    lead: Sum


class Archive(Mapping[str, DistArray]):
    """Mapping of names to the arrays of an ``.npz`` file; each access reads an array; collective.

    Parameters
    ----------
    source : str or numpy.lib.npyio.NpzFile
        A path that all ranks share, or an archive that this rank has opened.
    rest : dict
        Keyword arguments of :func:`numpy.load`.
    mesh, placements
        As for :func:`distarray.distribute`.
    """

    def __init__(
        self,
        source: str | NpzFile,
        rest: dict[str, Any],
        mesh: DeviceMesh,
        placements: Placements | None,
    ) -> None:
        # The absolute path, since the program may change its directory.
        self._source: str | NpzFile | None = (
            os.path.abspath(source) if isinstance(source, str) else source
        )
        self._zip: ZipFile | None = None
        self._name = source if isinstance(source, str) else "object"
        self._rest = rest
        self._mesh, self._placements = mesh, placements
        names = found_on_rank_zero(lambda: _names(source), mesh)
        #: Names of the members without the ending ``.npy``.
        self.files: list[str] = [name.removesuffix(".npy") for name in names]
        self._members = dict(zip(self.files, names, strict=True)) | {name: name for name in names}

    def __getitem__(self, key: str) -> Any:
        source, name = self._source, self._members.get(key, "")
        error: Exception | None = None
        if not name:
            error = KeyError(f"{key} is not a file in the archive")
        elif source is None:
            error = ValueError("the archive is closed")
        if isinstance(source, NpzFile):
            return self._distributed(lambda: _member_of(source, key, error))
        path = source or ""
        said = f"{name!r} of {path}"
        member = found_on_rank_zero(
            lambda: _member_at(path, name, self._limit), self._mesh, said, error
        )
        if member.header is None or member.header.dtype.hasobject:
            return self._distributed(lambda: _by_numpy(path, key, self._rest))
        if not member.stored:
            return self._decompressed(path, name)
        return self._stored(path, name, member, member.header)

    def _stored(self, path: str, name: str, member: Member, header: Header) -> DistArray:
        """Read an uncompressed member on all ranks together, and verify its checksum."""
        sums: list[Sum] = []
        x = read_by_all(path, header, self._mesh, self._placements, sums)
        found = self._mesh.group.allgather_object(sums, "checksums")
        whole = combined([member.lead, *[each for own in found for each in own]])
        if whole != member.crc and self._mesh.coords is not None:
            raise BadZipFile(f"Bad CRC-32 for file {name!r}")
        return x

    @property
    def f(self) -> _Bag:
        """Object with the arrays as attributes."""
        return _Bag(self)  # not cached: that would be a reference cycle that contains open files

    @property
    def _limit(self) -> int:
        return 2**64 if self._rest["allow_pickle"] else int(self._rest["max_header_size"])

    def _distributed(self, read: Callable[[], Any]) -> Any:
        """Read a whole member on every rank, and distribute an array."""
        value = read_by_each("numpy.load", read, self._mesh)
        if not isinstance(value, np.ndarray):
            return value
        placements = None if value.dtype.hasobject else self._placements
        return distribute(value, self._mesh, placements, src=None)

    def _decompressed(self, path: str, name: str) -> DistArray:
        """Decompress a whole compressed member on every rank; each rank keeps its block."""
        archive = agreed(self._mesh.group, lambda: ZipFile(path))
        with archive:
            member = agreed(self._mesh.group, lambda: archive.open(name))
            header = agreed(self._mesh.group, lambda: read_header(member, self._limit))
            x = read_own_file(member, header, self._mesh, self._placements)
            agreed(self._mesh.group, lambda: member.read(1))  # past the end: verifies the checksum
            return x

    @property
    def zip(self) -> ZipFile | None:
        """Archive that this rank has open (opened here if given as a path); None once closed."""
        if isinstance(self._source, str) and self._zip is None:
            self._zip = ZipFile(self._source)
        return self._source.zip if isinstance(self._source, NpzFile) else self._zip

    @property
    def fid(self) -> Any:
        """File object that :attr:`zip` reads."""
        if isinstance(self._source, NpzFile):
            return self._source.fid
        return None if self.zip is None else self.zip.fp

    def __iter__(self) -> Iterator[str]:
        return iter(self.files)

    def __len__(self) -> int:
        return len(self.files)

    def __contains__(self, key: object) -> bool:
        return key in self._members

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()

    def __repr__(self) -> str:
        shown = ", ".join(self.files[:5]) + ("..." if len(self.files) > 5 else "")
        return f"NpzFile {self._name!r} with keys: {shown}"

    def close(self) -> None:
        """Close the archive on this rank."""
        source, self._source = self._source, None
        opened, self._zip = self._zip, None
        if opened is not None:
            opened.close()
        if isinstance(source, NpzFile):
            source.close()


class _Bag:
    """Object with the arrays of an archive as attributes."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive

    def __getattr__(self, name: str) -> Any:
        try:
            return self._archive[name]
        except KeyError:
            raise AttributeError(name) from None

    def __dir__(self) -> list[str]:
        return list(self._archive)


def _names(source: str | NpzFile) -> list[str]:
    if isinstance(source, NpzFile):
        return [] if source.zip is None else source.zip.namelist()
    with ZipFile(source) as archive:
        return archive.namelist()


def _member_of(archive: NpzFile, key: str, error: Exception | None) -> Any:
    """Read a member of an archive that this rank has opened."""
    if error is not None:
        raise error
    with PARSING:
        return archive[key]


def _member_at(path: str, name: str, limit: int) -> Member:
    with ZipFile(path) as archive:
        return look_at(archive, name, limit)


def look_at(archive: ZipFile, name: str, limit: int = 10_000) -> Member:
    """Describe a member, from its header and the archive's directory.

    Raises
    ------
    ValueError
        If the member has fewer elements than its header states.
    """
    entry = archive.getinfo(name)
    with archive.open(name) as member:
        stored = entry.compress_type == ZIP_STORED
        if member.read(len(npy_format.MAGIC_PREFIX)) != npy_format.MAGIC_PREFIX:
            return Member(None, stored, entry.CRC, (0, 0, 0))
        member.seek(0)
        header = read_header(member, limit)
        if header.dtype.hasobject:
            return Member(header, stored, entry.CRC, (0, 0, 0))
        header.check_size(entry.file_size)
        if not stored:
            return Member(header, stored, entry.CRC, (0, 0, 0))
        member.seek(0)
        lead = member.read(header.start)
    file = archive.fp
    assert file is not None
    file.seek(entry.header_offset + 26)
    name_length, extra_length = struct.unpack("<2H", file.read(4))
    place = entry.header_offset + 30 + name_length + extra_length
    header = header._replace(start=place + header.start)
    return Member(header, stored, entry.CRC, (place, len(lead), crc32(lead)))


def _by_numpy(path: str, key: str, rest: dict[str, Any]) -> Any:
    with PARSING, np.load(path, **rest) as archive:
        return archive[key]
