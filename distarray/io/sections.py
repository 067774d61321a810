"""Reading and writing arrays section by section: the engine that all file formats share.

A format says where bytes are (:class:`Source`) or where they go (:class:`Sink`). This module
decides which rank reads or writes which section, how replicas and pending folds are treated, and
how an error of one rank's disk is raised on all ranks.
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

#: Bytes that are sent to a single writer at a time.
_PIECE = 1 << 25
#: Bytes a rank that may be in memory besides the blocks.
_BESIDE = 1 << 24


class Source(Protocol):
    """A stored array that each rank reads by itself."""

    @property
    def shape(self) -> Shape:
        """Shape of the whole array."""

    @property
    def dtype(self) -> DType:
        """Data type of the elements, which are not Python objects."""

    @property
    def chunks(self) -> Shape | None:
        """Shape of the pieces that are read whole; None if any box costs its own bytes."""

    def read(self, section: Box, out: Array) -> None:
        """Fill `out` with the elements of a box that is not empty: (start, stop) a dimension."""


class Sink(Protocol):
    """A place for an array."""

    @property
    def writers(self) -> Literal["all", "one"]:
        """Whether all ranks write their parts at the same time, or rank 0 alone.

        With "one" the other ranks of the mesh send their parts to rank 0.
        """

    @property
    def chunks(self) -> Shape | None:
        """Shape of the pieces that one rank must write whole; None: any disjoint boxes."""

    def write(self, section: Box, block: Array) -> None:
        """Store the elements of a box; `block` may be strided and is not empty."""


def read_array(
    source: Source,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
    *,
    said: str = "",
    error: Exception | None = None,
) -> DistArray:
    """A stored array, each rank reading what it needs; collective.

    Parameters
    ----------
    source : Source
        The same array on every rank.
    mesh : DeviceMesh, optional
        The default mesh if not given.
    placements : sequence of Placement, optional
        As for :func:`distarray.distribute`: by default large arrays are cut and small ones
        replicated.
    said : str
        What is read, in words; equal on ranks that read the same.
    error : Exception, optional
        What this rank has found wrong already; raised on all ranks.

    Raises
    ------
    ArgumentsDiffer
        If the ranks do not read the same, or with other placements.
    DistArrayError, OSError, ...
        The error of the lowest rank that has one, on all ranks.

    Cost
    ----
    Each byte is read once: along replicating mesh dimensions every rank reads a part, cut where
    the storage is cut, and the ranks exchange the parts. One small broadcast and one allreduce of
    an integer besides. Peak memory is the block, and 16 MiB where parts are exchanged; a second
    block if the layout cuts all dimensions.
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
    """Shape, dtype and chunks as rank 0 sees them; raises if another rank sees others."""
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
    """This rank's block of a layout, from storage; raises on all ranks if it fails on one."""

    def fetched() -> Array:
        host: Array = np.empty(layout.local_shape(mesh.coords), dtype)
        if host.size and layout.holds(mesh.coords):
            source.read(layout.section(mesh.coords), host)
        block: Array = mesh.asarray(host)
        return block

    return agreed(mesh.group, fetched)


def write_array(sink: Sink, x: DistArray) -> None:
    """Store an array, each element once; collective.

    Parameters
    ----------
    sink : Sink
        The same place on every rank.
    x : DistArray
        Pending folds are carried out first. One rank writes each part of a replicated array.

    Raises
    ------
    OSError, ...
        The error of the lowest rank that has one, on all ranks.

    Cost
    ----
    Nothing is sent where all ranks write and blocks end where chunks do; otherwise each rank
    receives what it lacks of the chunks that it writes, and needs 16 MiB for it, as in
    :func:`read_array`. The chunks are written some mebibytes at a time. A single writer is sent
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
    """Write this rank's section a few chunks at a time, from the pieces of its elements."""
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
    """Rank 0 writes its own part, then what the others send, one rank after the other.

    A rank sends only when rank 0 asks for its part: after a failure nothing more is sent.
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
    """Receive one rank's part, if nothing has failed so far, and store it."""
    mesh.group.exchange([(rank, np.array([error is None], np.uint8))], [])
    if error is not None:
        return error
    for piece in pieces_of(box, dtype.itemsize, _PIECE):
        part = np.empty([stop - start for start, stop in piece], dtype)
        mesh.group.exchange([], [(rank, part)])
        error = error or tried(sink.write, piece, part)
        del part  # before the next one is allocated
    return error
