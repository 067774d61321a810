"""The list of chunks in a checkpoint's description: the CRC32C of each.

In its file a chunk is followed by its CRC32C, which shows that it is whole. That in the description
shows that it is this checkpoint's, and in its place: a chunk of another step, or of another array,
is whole as well.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from distarray.checkpoint.zarr_metadata import Json, Stored
from distarray.errors import CheckpointError
from distarray.lazy import needs
from distarray.typing import Array

__all__ = ["Checksums", "Written", "as_table", "as_texts", "checksum", "parse_text", "table_from"]

#: The list of each array, as it is in a description; None for one of an early version.
Checksums: TypeAlias = Mapping[str, Json] | None
#: Chunks that a rank has written: name of the array, number of the chunk, CRC32C.
Written: TypeAlias = list[tuple[str, int, int]]

#: Hexadecimal digits of a checksum.
_DIGITS = 8


def checksum(data: Array | bytes, before: int = 0) -> int:
    """CRC32C of a contiguous array or of bytes; `before` is that of preceding bytes."""
    return int(needs("google_crc32c").extend(before, data))


def as_table(written: Written, arrays: Sequence[Stored]) -> Array:
    """What a rank has written, as rows of integers, for sending; arrays by their number."""
    numbers = {stored.name: number for number, stored in enumerate(arrays)}
    rows = [(numbers[name], chunk, value) for name, chunk, value in written]
    return np.array(rows, np.int64).reshape(-1, 3)


def table_from(data: bytes) -> Array:
    """The table whose bytes these are."""
    return np.frombuffer(data, np.int64).reshape(-1, 3)


def as_texts(tables: Iterable[Array], arrays: Sequence[Stored]) -> dict[str, str]:
    """The checksums of all chunks of each array, which ranks have written, in hexadecimal.

    Raises
    ------
    CheckpointError
        If not every chunk has been written once.
    """
    rows = np.concatenate([as_table([], arrays), *tables])
    counts = np.array([stored.chunk_count for stored in arrays], np.int64)
    ends = np.cumsum(counts)
    places = (ends - counts)[rows[:, 0]] + rows[:, 1]
    if not np.array_equal(np.sort(places), np.arange(counts.sum())):
        raise CheckpointError(
            f"{len(set(places.tolist()))} of {counts.sum()} chunks have been written"
        )
    values = np.empty(len(places), ">u4")
    values[places] = rows[:, 2]
    return {
        stored.name: values[end - count : end].tobytes().hex()
        for stored, count, end in zip(arrays, counts, ends)
    }


def parse_text(text: Json, stored: Stored) -> Array:
    """The checksums of an array's chunks, numbered in C order.

    Raises
    ------
    CheckpointError
        If they are not those of all its chunks.
    """
    if not isinstance(text, str) or len(text) != _DIGITS * stored.chunk_count:
        raise CheckpointError(f"array {stored.name!r}: the list of its chunks is malformed")
    try:
        return np.frombuffer(bytes.fromhex(text), ">u4")
    except ValueError as error:
        raise CheckpointError(
            f"array {stored.name!r}: the list of its chunks is malformed ({error})"
        ) from None
