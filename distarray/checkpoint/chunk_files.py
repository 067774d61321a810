"""Files of chunks with their checksums, written and read on one rank.

A file contains a shard: its chunks one after the other, each followed by the CRC32C of its bytes.
If a shard may have several chunks, an index of their offsets and lengths follows, with its own
CRC32C.
"""

import errno
import os
import stat
import threading
from collections import OrderedDict
from collections.abc import Iterator

import numpy as np

from distarray.checkpoint.chunk_checksums import checksum, parse_text
from distarray.checkpoint.held_checkpoint import HeldCheckpoint
from distarray.checkpoint.zarr_metadata import CHECK, Stored
from distarray.errors import CheckpointError
from distarray.io.chunk_grids import Index
from distarray.io.flushing import Flusher
from distarray.typing import Array

__all__ = [
    "ChunkFiles",
    "ChunkReading",
    "as_bytes",
    "counted",
    "write_shard",
    "wrong_size",
]

_ABSENT = (1 << 64) - 1

#: Number of bytes of chunks that this process has read; for tests.
counted = {"read": 0}
_counting = threading.Lock()

#: Number of bytes after which writing an unfinished file to disk is started.
_BEGIN = 1 << 25


def as_bytes(view: Array) -> Array:
    """Return the bytes of a C-contiguous array, as a view."""
    return view.reshape(-1).view(np.uint8)


def write_shard(
    path: str, stored: Stored, chunks: Iterator[Array | None], flusher: Flusher
) -> tuple[int, list[int]]:
    """Write the file of a shard; return the number of bytes, and the checksums of the chunks.

    Parameters
    ----------
    path : str
        The file, which must not exist.
    stored : Stored
    chunks : iterator of array or None
        The chunks of the shard in C order, each C-contiguous and whole; None for a chunk beyond
        the edge of the array.
    flusher : Flusher
        Object that brings the file to disk.
    """
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        at, begun, index = 0, 0, np.full((stored.chunks_a_file, 2), _ABSENT, "<u8")
        sums = []
        for number, chunk in enumerate(chunks):
            if chunk is not None:
                data = as_bytes(chunk)
                sums.append(checksum(data))
                _write_all(handle, [data, _check_bytes(sums[-1])])
                index[number] = at, data.size + CHECK
                at += data.size + CHECK
                if at - begun >= _BEGIN:
                    flusher.begin(handle)
                    begun = at
        if stored.index_bytes:
            data = as_bytes(index)
            _write_all(handle, [data, _check_bytes(checksum(data))])
            at += stored.index_bytes
    except BaseException:
        os.close(handle)
        raise
    flusher.put(handle)
    return at, sums


def _check_bytes(value: int) -> Array:
    return np.array([value], "<u4").view(np.uint8)


def _write_all(handle: int, buffers: list[Array]) -> None:
    """Write all bytes of the buffers; a single system call may write fewer."""
    views = [buffer.data for buffer in buffers if buffer.size]
    while views:
        written = os.writev(handle, views)
        while views and written >= len(views[0]):
            written -= len(views.pop(0))
        if views:
            views[0] = views[0][written:]


class ChunkFiles:
    """Files of a checkpoint, from which chunks are read and verified; a few files stay open.

    Parameters
    ----------
    held : HeldCheckpoint

    Attributes
    ----------
    held : HeldCheckpoint
    bytes : int
        Number of bytes read so far.
    """

    _MOST = 32

    def __init__(self, held: HeldCheckpoint) -> None:
        self.bytes = 0
        self.held = held
        self._open: OrderedDict[str, tuple[int, Array | None]] = OrderedDict()
        self._listed: dict[str, Array] = {}

    def __enter__(self) -> "ChunkFiles":
        return self

    def __exit__(self, *exception: object) -> None:
        with _counting:
            counted["read"] += self.bytes
        while self._open:
            os.close(self._open.popitem()[1][0])

    def read(self, stored: Stored, chunk: Index, out: Array) -> None:
        """Read a whole chunk and check its checksum; see :class:`ChunkReading`."""
        ChunkReading(self, stored, chunk).read(out)

    def listed(self, stored: Stored) -> Array | None:
        """Return the checksums of an array's chunks in the description; None if not listed."""
        if self.held.checksums is None:
            return None
        if stored.name not in self._listed:
            text = self.held.checksums.get(stored.name)
            self._listed[stored.name] = parse_text(text, stored)
        return self._listed[stored.name]

    def read_at(self, place: "ChunkReading", buffers: list[Array]) -> None:
        """Read the next bytes of a chunk into buffers."""
        handle, index = self._shard(place.name, place.stored, place.shard)
        start = 0
        if index is not None:
            start, length = int(index[place.number, 0]), int(index[place.number, 1])
            least = place.stored.chunk_bytes + CHECK
            if length != least or start > place.stored.file_bytes(place.shard) - length:
                raise CheckpointError(f"{place}: the file's index is wrong; the file is damaged")
        self.bytes += _read_all(handle, buffers, start + place.at, place)

    def _shard(self, name: str, stored: Stored, shard: Index) -> tuple[int, Array | None]:
        known = self._open.get(name)
        if known is not None:
            self._open.move_to_end(name)
            return known
        if len(self._open) >= self._MOST:
            os.close(self._open.popitem(last=False)[1][0])
        size = stored.file_bytes(shard)
        handle = _open_plain(self.held, name, size, stored.name)
        try:
            index = self._index(handle, name, stored, size) if stored.index_bytes else None
        except BaseException:
            os.close(handle)
            raise
        self._open[name] = handle, index
        return handle, index

    def _index(self, handle: int, name: str, stored: Stored, size: int) -> Array:
        index = np.empty((stored.chunks_a_file, 2), "<u8")
        found = np.empty(CHECK, np.uint8)
        where = f"array {stored.name!r}: the index of {self.held.path}/{name}"
        self.bytes += _read_all(handle, [as_bytes(index), found], size - stored.index_bytes, where)
        if int(found.view("<u4")[0]) != checksum(as_bytes(index)):
            raise CheckpointError(f"{where} is not the one that was saved; the file is damaged")
        return index


class ChunkReading:
    """Sequential read of a chunk, from its first byte to its last, in one or several pieces.

    Parameters
    ----------
    files : ChunkFiles
    stored : Stored
    chunk : tuple of int
        Index of the chunk along each dimension of the whole array.
    """

    def __init__(self, files: ChunkFiles, stored: Stored, chunk: Index) -> None:
        self.stored = stored
        self.shard, self.number = stored.grid.place(chunk)
        self.name = f"{stored.name}/{stored.file_name(self.shard)}"
        self.at = 0
        self._files, self._chunk, self._sum = files, chunk, 0

    def __str__(self) -> str:
        path = f"{self._files.held.path}/{self.name}"
        return f"array {self.stored.name!r}, chunk {self._chunk}, in {path}"

    def read(self, out: Array) -> None:
        """Read the next bytes; after the last byte verify the checksum.

        Parameters
        ----------
        out : array of uint8
            A C-contiguous array, with at most as many bytes as are left in the chunk.

        Raises
        ------
        CheckpointError
            If the file is not complete, the bytes differ from the saved bytes, or the chunk is of
            another checkpoint or another position.
        """
        last = self.at + out.size == self.stored.chunk_bytes
        found = np.empty(CHECK, np.uint8)
        self._files.read_at(self, [out, found] if last else [out])
        self._sum = checksum(out, self._sum)
        self.at += out.size
        if last and int(found.view("<u4")[0]) != self._sum:
            raise CheckpointError(
                f"{self}: the bytes are not those that were saved (their checksum differs); "
                "the file is damaged"
            )
        if last:
            self._check_place()

    def _check_place(self) -> None:
        """Raise if the chunk's checksum is not the one in the checkpoint's description."""
        listed = self._files.listed(self.stored)
        if listed is None:
            return
        saved = int(listed[self.stored.grid.number(self._chunk)])
        if saved != self._sum:
            raise CheckpointError(
                f"{self}: this is a whole chunk, but of another checkpoint or from another place "
                f"(its checksum is {self._sum:08x}, that of the chunk that was saved here is "
                f"{saved:08x}); put the right file back, or load another step"
            )


def _open_plain(held: HeldCheckpoint, file: str, size: int, name: str) -> int:
    """Open an ordinary file of a given size; raise for any other file."""
    path = f"{held.path}/{file}"
    try:
        handle = held.open(file)
    except OSError as error:
        raise _cannot_open(path, name, error) from None
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode) or found.st_size != size:
        os.close(handle)
        raise CheckpointError(wrong_size(path, name, found, size))
    return handle


def _cannot_open(path: str, name: str, error: OSError) -> Exception:
    if error.errno == errno.ELOOP:
        return CheckpointError(f"array {name!r}: {path} is a symbolic link, which no save makes")
    if error.errno == errno.ENOENT:
        return CheckpointError(f"array {name!r}: {path} is missing; the checkpoint is damaged")
    return OSError(error.errno, f"array {name!r}: {error.strerror}", path)


def wrong_size(path: str, name: str, found: os.stat_result, size: int) -> str:
    """Return the error text for a file that is not an ordinary file of `size` bytes."""
    if not stat.S_ISREG(found.st_mode):
        kind = "a symbolic link" if stat.S_ISLNK(found.st_mode) else "no ordinary file"
        return f"array {name!r}: {path} is {kind}, which no save makes"
    return (
        f"array {name!r}: {path} has {found.st_size} bytes where {size} were saved; the file is "
        f"{'truncated' if found.st_size < size else 'damaged'}"
    )


def _read_all(handle: int, buffers: list[Array], at: int, where: "str | ChunkReading") -> int:
    """Read a file's bytes from `at` on into buffers; return the number of bytes."""
    views = [buffer.data for buffer in buffers if buffer.size]
    total = sum(map(len, views))
    while views:
        count = os.preadv(handle, views, at)
        if count <= 0:
            raise CheckpointError(f"{where}: the file ends too early; it is damaged")
        at += count
        while views and count >= len(views[0]):
            count -= len(views.pop(0))
        if views:
            views[0] = views[0][count:]
    return total
