"""File system calls on rank 0 alone, with their results and errors on all ranks."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from distarray.comm import DeviceMesh, Group
from distarray.comm.agree import agree
from distarray.errors import ArgumentsDiffer

__all__ = ["found_on_rank_zero", "on_rank_zero"]

T = TypeVar("T")


def on_rank_zero(
    group: Group, act: Callable[[], T], said: str = "", error: Exception | None = None
) -> T:
    """Call `act` on rank 0; return its result, or raise its error, on all ranks. Collective.

    Parameters
    ----------
    group : Group
        The ranks that need the result.
    act : callable
        Function without arguments that is called on rank 0.
    said : str
        The request in words, which must be equal on all ranks.
    error : Exception, optional
        An error that this rank has already found; it is raised on all ranks.

    Raises
    ------
    ArgumentsDiffer
        On all ranks, if the requests differ.

    Cost
    ----
    A small broadcast, and an allreduce of an integer.
    """
    result: Any = None
    if group.rank == 0 and error is None:
        try:
            result = act()
        except Exception as caught:
            error = caught
    words, found = group.broadcast_object((said, result), 0)
    if error is None and words != said:
        error = ArgumentsDiffer(
            f"the ranks make different requests of one file:\n    rank 0  {words}"
            f"\n    rank {group.rank}  {said}"
        )
    agree(group, error)
    return cast("T", found)


def found_on_rank_zero(
    look: Callable[[], T], mesh: DeviceMesh, said: str = "", error: Exception | None = None
) -> T:
    """Call `look` on rank 0; return its result, or raise its error, on all ranks. Collective.

    Hence all ranks use the same facts about files, and no rank opens a file that rank 0 has not
    seen: under ``python -m distarray`` rank 0 writes the files. The other parameters are those of
    :func:`on_rank_zero`. A rank outside of the mesh calls `look` itself.
    """
    if mesh.coords is None:
        return look()
    return on_rank_zero(mesh.group, look, said, error)
