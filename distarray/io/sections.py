"""Reading and writing of arrays by sections: the engine that all file formats share.

A format implements the reading of a box (:class:`Source`) or the writing of a box (:class:`Sink`).
This module decides which rank reads or writes which section, handles replicas and pending folds,
and raises a disk error of one rank on all ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import numpy as np

from distarray.array import DistArray, wrap
from distarray.array.creation import empty, placed_layout
from distarray.array.movement import Piece, moved, part_of, pieces, settled
from distarray.comm import DeviceMesh, default_mesh
from distarray.comm.agree import agree, agreed
from distarray.comm.progress import stage
from distarray.errors import ArgumentsDiffer, DistArrayError
from distarray.io.box_pieces import assembled, chunk_aligned_pieces, pieces_of, within
from distarray.io.file_errors import tried
from distarray.io.fingerprints import described
from distarray.io.storage_layout import storage_layout
from distarray.io.two_phase import read_in_slabs, write_in_slabs
from distarray.layout import Box, Layout
from distarray.plan import moved_elements
from distarray.typing import Array, DType, Placements, Shape

__all__ = ["Sink", "Source", "read_array", "write_array"]

#: Bytes per message to a single writer.
_PIECE = 1 << 25
#: Maximum memory per rank in addition to its block, in bytes.
_BESIDE = 1 << 24


class Source(Protocol):
    """Stored array that each rank reads by itself."""

    @property
    def shape(self) -> Shape:
        """Shape of the whole array."""

    @property
    def dtype(self) -> DType:
        """Data type of the elements; not Python objects."""

    @property
    def chunks(self) -> Shape | None:
        """Shape of the chunks that are read whole; None if any box can be read by itself."""

    def read(self, section: Box, out: Array) -> None:
        """Read a box, (start, stop) per dimension and not empty, into `out`."""


class Sink(Protocol):
    """Destination to which an array is written."""

    @property
    def writers(self) -> Literal["all", "one"]:
        """Writing ranks: "all" ranks write their sections at the same time; "one" is rank 0 alone.

        With "one" the other ranks of the mesh send their sections to rank 0.
        """

    @property
    def chunks(self) -> Shape | None:
        """Shape of the chunks that one rank must write whole; None for any disjoint boxes."""

    def write(self, section: Box, block: Array) -> None:
        """Write a block to a box; `block` may be strided and is not empty."""


def read_array(
    source: Source,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
    *,
    said: str = "",
    error: Exception | None = None,
) -> DistArray:
    """Read a stored array; each rank reads the elements that it needs; collective.

    Parameters
    ----------
    source : Source
        The same array on every rank.
    mesh : DeviceMesh, optional
        The default mesh if not given.
    placements : sequence of Placement, optional
        As for :func:`distarray.distribute`: by default large arrays are cut and small arrays
        replicated.
    said : str
        Description of the array; equal on ranks that read the same array.
    error : Exception, optional
        An error that this rank has already found; it is raised on all ranks.

    Raises
    ------
    ArgumentsDiffer
        If the ranks read different arrays, or with different placements.
    DistArrayError, OSError, ...
        The error of the lowest rank that has an error, on all ranks.

    Cost
    ----
    Each byte is read once: along replicating mesh dimensions every rank reads a section, cut at the
    chunks of the storage, and the ranks exchange the sections. In addition one small broadcast and
    one allreduce of an integer. Peak memory is the block, plus 16 MiB if sections are exchanged, or
    a second block if the layout cuts all dimensions.
    """
    mesh = default_mesh() if mesh is None else mesh
    shape, dtype, chunks = _agreed(source, mesh, f"{said} placed {described(placements)}", error)
    layout = placed_layout(shape, dtype, mesh, placements)
    reading = storage_layout(layout, chunks, dtype.itemsize)
    with stage("reading", layout.size * dtype.itemsize // mesh.size(), "B"):
        if reading is not layout and not reading.ats:
            result = agreed(mesh.group, lambda: empty(layout, dtype, mesh))
            agree(mesh.group, read_in_slabs(result, chunks, source.read))
            return result
        block = _read_block(source, reading, dtype, mesh)
    return wrap(*settled(block, reading, mesh), mesh)


def _agreed(
    source: Source, mesh: DeviceMesh, said: str, error: Exception | None
) -> tuple[Shape, DType, Shape | None]:
    """Return rank 0's shape, dtype and chunks; raise if shape or dtype differ on another rank."""
    chunks = None if source.chunks is None else tuple(source.chunks)
    own = (tuple(source.shape), source.dtype, chunks)
    words, first = mesh.group.broadcast_object((said, own), 0)
    if error is None and words != said:
        error = ArgumentsDiffer(
            "the ranks read different arrays or parts; the ranks of a mesh read one together:"
            f"\n    rank 0  {words}\n    rank {mesh.rank}  {said}"
        )
    if error is None and own[:2] != first[:2]:
        error = DistArrayError(
            f"rank {mesh.rank} finds an array {own[1]} {own[0]} in the file where rank 0 finds "
            f"{first[1]} {first[0]}: the ranks do not see the same file"
        )
    agree(mesh.group, error)
    agreed_on: tuple[Shape, DType, Shape | None] = first
    return agreed_on


def _read_block(source: Source, layout: Layout, dtype: DType, mesh: DeviceMesh) -> Array:
    """Read this rank's block of a layout from storage; raise on all ranks if one rank fails."""

    def fetched() -> Array:
        host: Array = np.empty(layout.local_shape(mesh.coords), dtype)
        if host.size and layout.holds(mesh.coords):
            source.read(layout.section(mesh.coords), host)
        block: Array = mesh.asarray(host)
        return block

    return agreed(mesh.group, fetched)


def write_array(sink: Sink, x: DistArray) -> None:
    """Write an array, each element once; collective.

    Parameters
    ----------
    sink : Sink
        The same destination on every rank.
    x : DistArray
        Pending folds are carried out first. One rank writes each section of a replicated array.

    Raises
    ------
    OSError, ...
        The error of the lowest rank that has an error, on all ranks.

    Cost
    ----
    No message if all ranks write and blocks end at chunk boundaries. Otherwise each rank receives
    the missing elements of the chunks that it writes, and needs 16 MiB of memory for them, as in
    :func:`read_array`. The chunks are written some mebibytes at a time. A single writer receives
    the blocks in pieces of 32 MiB, one at a time.
    """
    x = x.plain()
    alone = sink.writers == "one"
    with stage("writing", x.nbytes if alone else x.nbytes // x.mesh.size(), "B"):
        _write_array(sink, x, alone)


def _write_array(sink: Sink, x: DistArray, alone: bool) -> None:
    chunks = None if alone or sink.chunks is None else tuple(sink.chunks)
    writing = storage_layout(x.layout, chunks, x.itemsize, strict=True)
    lacking = 0 if writing.ats else moved_elements(x.layout, writing) * x.itemsize
    if alone:
        block = x.to_local() if writing.ats else moved(x.to_local(), x.layout, writing, x.mesh)
        error = _gathered_to_one(sink, x.mesh.to_host(block), writing, x.mesh)
    elif lacking > _BESIDE * x.mesh.size():
        error = write_in_slabs(x, chunks, sink.write)
    else:
        source = writing if writing.ats else x.layout
        found = pieces(x.to_local(), source, writing, x.mesh)
        error = _stored_in_pieces(sink, found, writing, x) if found else None
    agree(x.mesh.group, error)


def _stored_in_pieces(
    sink: Sink, found: Sequence[Piece], writing: Layout, x: DistArray
) -> Exception | None:
    """Write this rank's section, a few chunks at a time, from the pieces of the section."""
    section, mesh = writing.section(x.mesh.coords), x.mesh
    if not writing.holds(mesh.coords) or any(start >= stop for start, stop in section):
        return None
    boxes = (
        [section] if sink.chunks is None else chunk_aligned_pieces(section, sink.chunks, x.itemsize)
    )
    for box in boxes:
        local = tuple([(a - low, b - low) for (a, b), (low, _) in zip(box, section)])
        part = assembled(found, local, mesh)
        error = tried(sink.write, box, mesh.to_host(part))
        if error is not None:
            return error
    return None


def _gathered_to_one(
    sink: Sink, block: Array, writing: Layout, mesh: DeviceMesh
) -> Exception | None:
    """Write rank 0's section, then the sections that the other ranks send, in rank order.

    A rank sends only when rank 0 requests its section: after a failure nothing more is sent.
    """
    error: Exception | None = None
    if mesh.rank == 0:
        error = tried(sink.write, writing.section(mesh.coords), block) if block.size else None
        for rank in range(1, mesh.size()):
            coords = mesh.coords_of(rank)
            box = writing.section(coords)
            if writing.holds(coords) and all(start < stop for start, stop in box):
                error = _receive(sink, box, block.dtype, mesh, rank, error)
    elif writing.holds(mesh.coords) and block.size:
        wanted = np.empty(1, np.uint8)
        mesh.group.exchange([], [(0, wanted)])
        if wanted[0]:
            box = writing.section(mesh.coords)
            for piece in pieces_of(box, block.dtype.itemsize, _PIECE):
                mesh.group.exchange([(0, part_of(block, within(piece, box)))], [])
    return error


def _receive(
    sink: Sink, box: Box, dtype: DType, mesh: DeviceMesh, rank: int, error: Exception | None
) -> Exception | None:
    """Receive one rank's section and write it, unless an error has occurred before."""
    mesh.group.exchange([(rank, np.array([error is None], np.uint8))], [])
    if error is not None:
        return error
    for piece in pieces_of(box, dtype.itemsize, _PIECE):
        part = np.empty([stop - start for start, stop in piece], dtype)
        mesh.group.exchange([], [(rank, part)])
        error = error or tried(sink.write, piece, part)
        del part  # before the next piece is allocated
    return error
