"""The allreduce of much data among the ranks of one node.

Between processes that share memory, MPI's own allreduce of megabytes spends its time in temporary
copies of the whole. Here each rank folds one piece of every segment, as it comes, into where it
belongs, while the next segment is on its way; what it has folded it sends to the others. Each
element is sent twice at most, the extra memory is two segments, and since a piece is folded by one
rank alone, in rank order, all ranks get the same bits.
"""

from typing import Any

import numpy as np
from mpi4py import MPI

from distarray.comm.datatypes import message

__all__ = ["SHARE", "allreduce"]

Array = Any

#: Blocks that have this many bytes for each rank gain.
SHARE = 1 << 20
#: Bytes of a segment, all pieces together: the next one lands in a buffer of this size. Smaller
#: ones are folded in cache, and lose more by waiting where ranks share cores.
SEGMENT = 1 << 23
_CONTRIBUTION, _RESULT = 9, 10
_Waitall = MPI.Request.Waitall


def allreduce(comm: MPI.Intracomm, block: Array, total: Array, ufunc: np.ufunc) -> None:
    """Fold the ranks' blocks.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        At least two ranks.
    block : ndarray
        C-contiguous; of equal shape and dtype on every rank.
    total : ndarray
        C-contiguous; receives the fold. It may be `block` itself.
    ufunc : numpy.ufunc
        What folds two of them.
    """
    source, target = block.reshape(-1), total.reshape(-1)
    rank, size = comm.rank, comm.size
    others = [other for other in range(size) if other != rank]
    segment = min(max(size, SEGMENT // block.itemsize), source.size)
    cuts = [_cut(start, source.size, segment, size) for start in range(0, source.size, segment)]
    places = np.empty((min(2, len(cuts)), size, -(-segment // size)), block.dtype)

    def ask(number: int) -> list[MPI.Request]:
        cut = cuts[number]
        landing = places[number % 2, :, : cut[rank + 1] - cut[rank]]
        return [comm.Irecv(message(landing[other]), other, _CONTRIBUTION) for other in others] + [
            comm.Isend(message(source[cut[other] : cut[other + 1]]), other, _CONTRIBUTION)
            for other in others
        ]

    returning: list[MPI.Request] = []
    coming = ask(0)
    for number, cut in enumerate(cuts):
        following = ask(number + 1) if number + 1 < len(cuts) else []
        _Waitall(coming)
        coming = following
        mine = slice(cut[rank], cut[rank + 1])
        parts = list(places[number % 2, :, : cut[rank + 1] - cut[rank]])
        scratch, parts[rank] = parts[rank], source[mine]
        _fold(parts, target[mine], ufunc, scratch)
        for other in others:
            theirs = target[cut[other] : cut[other + 1]]
            returning.append(comm.Irecv(message(theirs), other, _RESULT))
            returning.append(comm.Isend(message(target[mine]), other, _RESULT))
    _Waitall(returning)


def _cut(start: int, extent: int, segment: int, size: int) -> list[int]:
    """The bounds of the ranks' pieces of the segment that begins here."""
    length = min(segment, extent - start)
    return [start + length * rank // size for rank in range(size + 1)]


def _fold(parts: list[Array], into: Array, ufunc: np.ufunc, scratch: Array) -> None:
    """Fold in rank order; `into` may be this rank's own part, so it is written at the very end."""
    total = parts[0]
    for part in parts[1:-1]:
        total = ufunc(total, part, out=scratch)
    ufunc(total, parts[-1], out=into)
