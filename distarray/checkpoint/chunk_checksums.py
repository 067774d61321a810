"""List of the CRC32C of all chunks, in a checkpoint's description.

In its file a chunk is followed by its CRC32C, which shows that the chunk is intact. The CRC32C in
the description shows that the chunk belongs to this checkpoint and to this position: a chunk of
another step, or of another array, is intact as well.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from distarray.checkpoint.zarr_metadata import Json, Stored
from distarray.errors import CheckpointError
from distarray.lazy import needs
from distarray.typing import Array

__all__ = ["Checksums", "Written", "as_table", "as_texts", "checksum", "parse_text", "table_from"]

#: Texts with the checksums of each array, from a description; None for early versions.
Checksums: TypeAlias = Mapping[str, Json] | None
#: Chunks that a rank has written: name of the array, number of the chunk, CRC32C.
Written: TypeAlias = list[tuple[str, int, int]]

#: Number of hexadecimal digits of a checksum.
_DIGITS = 8


def checksum(data: Array | bytes, before: int = 0) -> int:
    """Compute the CRC32C of a contiguous array or of bytes; `before`: CRC32C of earlier bytes."""
    return int(needs("google_crc32c").extend(before, data))


def as_table(written: Written, arrays: Sequence[Stored]) -> Array:
    """Convert the list of written chunks to a table of integers; arrays become their numbers."""
    numbers = {stored.name: number for number, stored in enumerate(arrays)}
    rows = [(numbers[name], chunk, value) for name, chunk, value in written]
    return np.array(rows, np.int64).reshape(-1, 3)


def table_from(data: bytes) -> Array:
    """Convert bytes back to a table."""
    return np.frombuffer(data, np.int64).reshape(-1, 3)


def as_texts(tables: Iterable[Array], arrays: Sequence[Stored]) -> dict[str, str]:
    """Convert the ranks' tables to the checksums of each array's chunks, in hexadecimal.

    Raises
    ------
    CheckpointError
        If not every chunk has been written exactly once.
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
    """Parse the checksums of an array's chunks, which are in C order.

    Raises
    ------
    CheckpointError
        If the text does not contain one checksum for each chunk.
    """
    if not isinstance(text, str) or len(text) != _DIGITS * stored.chunk_count:
        raise CheckpointError(f"array {stored.name!r}: the list of its chunks is malformed")
    try:
        return np.frombuffer(bytes.fromhex(text), ">u4")
    except ValueError as error:
        raise CheckpointError(
            f"array {stored.name!r}: the list of its chunks is malformed ({error})"
        ) from None
