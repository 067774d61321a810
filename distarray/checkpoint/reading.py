"""Reading of arrays: each chunk is read once, and sent to the ranks that need its elements.

A chunk that only one rank needs is read by that rank, directly into its block if the chunk is
contiguous there. A chunk that several ranks need is read by one of them, chosen in turn, and passed
to the others (:mod:`distarray.checkpoint.shared_chunks`).
"""

from collections.abc import Sequence

from distarray.checkpoint.chunk_files import ChunkFiles
from distarray.checkpoint.chunk_reader import Chunk, ChunkReader, Progress, Wanted, ranks_of
from distarray.checkpoint.shared_chunks import read_shared
from distarray.comm import DeviceMesh

__all__ = ["read_arrays"]


def read_arrays(
    files: ChunkFiles, arrays: Sequence[Wanted], mesh: DeviceMesh, progress: Progress
) -> Exception | None:
    """Fill this rank's blocks of the arrays; collective over the mesh of the arrays.

    Parameters
    ----------
    files : ChunkFiles
    arrays : sequence of Wanted
        The same arrays, in the same order, on all ranks of the mesh.
    mesh : DeviceMesh
    progress : callable
        Function that is called with the number of bytes of chunks that have been read.

    Returns
    -------
    Exception or None
        The error of this rank, which has nevertheless taken part in all communication.

    Cost
    ----
    Each chunk is read once. An allreduce of an integer. If several ranks need a chunk, one exchange
    of a few integers for each piece of it, then rounds of pieces, in which each rank gets its
    missing elements.
    """
    reader = ChunkReader(files, arrays, mesh, progress)
    alone, shared = _divided(arrays, mesh)
    for chunk in alone:
        reader.read_alone(chunk)
    read_shared(reader, shared)
    return reader.error


def _divided(
    arrays: Sequence[Wanted], mesh: DeviceMesh
) -> tuple[list[Chunk], dict[tuple[int, int], Chunk]]:
    """Return the chunks that only this rank needs, and the chunks that it shares with others."""
    alone, shared = [], {}
    for array, (stored, layout, _) in enumerate(arrays):
        section = layout.section(mesh.coords)
        if not stored.nbytes or any(start >= stop for start, stop in section):
            continue
        for index in stored.grid.chunks_in(section):
            ranks = ranks_of(layout, stored.grid.chunk_box(index))
            chunk = Chunk(array, stored.grid.number(index), index, ranks)
            if ranks.count == 1:
                alone.append(chunk)
            else:
                shared[chunk.key] = chunk
    return alone, shared
