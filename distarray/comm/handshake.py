"""Handshake of ranks before they first communicate: a check that they run the same program.

The check is one small allreduce of digests, for any number of ranks. Only if it finds a difference
do the ranks exchange details, and then all of them raise the same error.
"""

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from distarray.comm import hooks, process_traits
from distarray.comm.describing import ranks_in_words
from distarray.comm.process_traits import Trait
from distarray.errors import DivergenceError

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["meet", "part"]

#: True: functions of this module wait for other ranks (see :mod:`distarray.comm.waits.stacks`).
WAITS_FOR_RANKS = True
#: Largest number of characters of a trait, and of a list of ranks, in a message.
_SHOWN = 160
_processors_told = False


def meet(comm: "MPI.Intracomm", share: int) -> int:
    """Compare the ranks of a communicator; collective, before its first use.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
    share : int
        This rank's share of its node's cores.

    Returns
    -------
    int
        The smallest share of all ranks.

    Raises
    ------
    DivergenceError
        On all ranks, if two ranks differ in a trait that must be the same.

    Cost
    ----
    One allreduce of five integers.
    """
    from mpi4py import MPI

    own, processor = process_traits.traits(), process_traits.processor()
    ours = _digest([f"{name}={trait.value}" for name, trait in own.items()])
    bits = _digest(processor)
    found = np.array([ours, -ours, bits, -bits, -share], np.int64)
    comm.Allreduce(MPI.IN_PLACE, found, MPI.MAX)
    most, least, fastest, slowest, cores = found.tolist()
    if most != -least:
        problem = _differences(comm, own)
        if problem:
            raise DivergenceError(problem)
    if fastest != -slowest:
        _tell_processors(comm, processor)
    return -int(cores)


def part(comm: "MPI.Intracomm") -> str:
    """Compare traits that may have changed since :func:`meet`: settings, and program modules.

    Returns
    -------
    str
        The differences as text, on all ranks; empty if there are none.

    Cost
    ----
    One allreduce of two integers.
    """
    from mpi4py import MPI

    own = process_traits.settings() | process_traits.modules()
    ours = _digest([f"{name}={trait.value}" for name, trait in own.items()])
    found = np.array([ours, -ours], np.int64)
    comm.Allreduce(MPI.IN_PLACE, found, MPI.MAX)
    return "" if found[0] == -found[1] else _differences(comm, own)


def _digest(texts: Iterable[str]) -> int:
    """Return a number of 56 bits for a set of texts."""
    whole = "\0".join(sorted(texts)).encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(whole, digest_size=7).digest(), "little")


def _differences(comm: "MPI.Intracomm", own: Mapping[str, Trait]) -> str:
    """Describe the ranks that differ from rank 0, their traits and values; empty if none differ.

    A trait that a rank does not have, such as a module that only rank 0 imports, is no difference.
    """
    first: dict[str, tuple[str, ...]] = comm.bcast({name: (*each,) for name, each in own.items()})
    names = list(first)
    wrong = [name in own and own[name].value != first[name][0] for name in names]
    marks: list[int] = comm.allgather(sum(1 << i for i, differs in enumerate(wrong) if differs))
    lines: list[str] = []
    cures: dict[str, None] = {}
    for i, name in enumerate(names):
        ranks = [rank for rank, mark in enumerate(marks) if mark >> i & 1]
        if ranks:
            theirs = comm.bcast(own[name].shown if comm.Get_rank() == ranks[0] else "", ranks[0])
            lines.append(_line(name, first[name][1], theirs, ranks))
            cures[first[name][2]] = None
    if not lines:
        return ""
    return f"the ranks differ, and would compute different things:{''.join(lines)}\n  " + (
        "; ".join(cures)
    )


def _line(name: str, first: str, other: str, ranks: list[int]) -> str:
    """Return a line of the message: a trait of rank 0, and of the first rank that differs."""
    more = f"; {_short(ranks_in_words(ranks))} differ from rank 0" if len(ranks) > 1 else ""
    return f"\n    {name}: {_short(first)} on rank 0, {_short(other)} on rank {ranks[0]}{more}"


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _tell_processors(comm: "MPI.Intracomm", own: frozenset[str]) -> None:
    """Warn once, on rank 0, that last digits will differ: a cluster of mixed nodes is no error."""
    global _processors_told
    first: frozenset[str] = comm.bcast(own)
    marks: list[bool] = comm.allgather(own != first)
    ranks = [rank for rank, differs in enumerate(marks) if differs]
    theirs: frozenset[str] = comm.bcast(own, ranks[0])
    if comm.Get_rank() or _processors_told:
        return
    _processors_told = True
    here, there = sorted(first - theirs), sorted(theirs - first)
    hooks.say(
        f"warning: {_short(ranks_in_words(ranks))} and rank 0 have different processors, or BLAS "
        "libraries: the last digits of equal operations can differ between them, and with them "
        "what a program decides by comparing floats that are not distributed.\n"
        f"    only rank 0: {_short(' '.join(here)) or 'nothing'}\n"
        f"    only rank {ranks[0]}: {_short(' '.join(there)) or 'nothing'}\n"
        "  Ask the scheduler for nodes of one kind, or give all ranks the instructions that all "
        "have (NPY_DISABLE_CPU_FEATURES, OPENBLAS_CORETYPE, OMP_NUM_THREADS)."
    )
