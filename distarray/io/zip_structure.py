"""Structure of zip archives whose members are not compressed, such as NumPy's ``.npz`` files.

The lengths of the members determine their positions, so that all ranks can write at the same time.
The records between the members, checksums included, are written last. The bytes are equal to those
that :mod:`zipfile` writes.
"""

import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from zipfile import ZIP_STORED, ZipInfo

__all__ = ["combined", "directory", "local_header", "placed"]

_LIMIT = (1 << 31) - 1
_ZIP64 = 45
_EVERY_BIT = 0xFFFFFFFF


def placed(sizes: Iterable[tuple[str, int]]) -> list[ZipInfo]:
    """Make entries with positions, for members with these names and lengths."""
    entries, place = [], 0
    for name, size in sizes:
        entry = ZipInfo(name)
        entry.compress_type = ZIP_STORED
        entry.external_attr = 0o600 << 16
        entry.file_size = entry.compress_size = size
        entry.header_offset = place
        entry.CRC = 0
        place += len(local_header(entry)) + size
        entries.append(entry)
    return entries


def local_header(entry: ZipInfo) -> bytes:
    """Return the record before a member."""
    return entry.FileHeader(zip64=True)


def directory(entries: Sequence[ZipInfo], place: int) -> bytes:
    """Return the central directory, which begins at byte `place`, and its end record."""
    central = b"".join([_central_record(entry) for entry in entries])
    count, size, start = len(entries), len(central), place
    end = b""
    if count > 0xFFFF or size > _LIMIT or start > _LIMIT:
        fields = (44, _ZIP64, _ZIP64, 0, 0, count, count, size, start)
        end = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", *fields)
        end += struct.pack("<4sLQL", b"PK\x06\x07", 0, place + size, 1)
        count, size, start = min(count, 0xFFFF), min(size, _EVERY_BIT), min(start, _EVERY_BIT)
    end += struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, count, count, size, start, 0)
    return central + end


def _central_record(entry: ZipInfo) -> bytes:
    name = entry.filename
    coded = name.encode("ascii" if name.isascii() else "utf-8")
    year, month, day, hour, minute, second = entry.date_time
    wide: list[int] = []
    size = entry.file_size
    if size > _LIMIT:
        wide, size = [size, size], _EVERY_BIT
    place = entry.header_offset
    if place > _LIMIT:
        wide, place = [*wide, place], _EVERY_BIT
    extra = struct.pack(f"<HH{len(wide)}Q", 1, 8 * len(wide), *wide) if wide else b""
    least = _ZIP64 if wide else 0
    record = struct.pack(
        "<4s4B4HL2L5H2L",
        b"PK\x01\x02",
        max(least, entry.create_version),
        entry.create_system,
        max(least, entry.extract_version),
        entry.reserved,
        entry.flag_bits | (0 if name.isascii() else 0x800),
        entry.compress_type,
        hour << 11 | minute << 5 | second // 2,
        year - 1980 << 9 | month << 5 | day,
        entry.CRC,
        size,
        size,
        len(coded),
        len(extra),
        0,
        0,
        entry.internal_attr,
        entry.external_attr,
        place,
    )
    return record + coded + extra


def combined(sums: Iterable[tuple[int, int, int]]) -> int:
    """Combine the checksums (position, length, CRC-32) of adjacent stretches to one CRC-32."""
    total = 0
    for _, length, crc in sorted(sums):
        total = _times(_zeros(length), total) ^ crc
    return total


def _times(matrix: Sequence[int], vector: int) -> int:
    """Multiply over GF(2); a matrix is the list of its columns, each 32 bits of an int."""
    result = 0
    for column in matrix:
        if not vector:
            break
        if vector & 1:
            result ^= column
        vector >>= 1
    return result


@lru_cache(maxsize=64)
def _zeros(length: int) -> tuple[int, ...]:
    """Return the effect of `length` zero bytes on a CRC-32, a linear map of its 32 bits."""
    step: tuple[int, ...] = (0xEDB88320, *[1 << bit for bit in range(31)])  # for one zero bit
    for _ in range(3):
        step = tuple([_times(step, column) for column in step])  # for one zero byte
    result = tuple([1 << bit for bit in range(32)])
    while length:
        if length & 1:
            result = tuple([_times(step, column) for column in result])
        length >>= 1
        if length:
            step = tuple([_times(step, column) for column in step])
    return result
