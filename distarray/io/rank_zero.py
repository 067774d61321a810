"""File system calls of rank 0 alone, with their results and errors on all ranks."""

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
    """The result of `act` on rank 0, on all ranks of the group; its error likewise. Collective.

    Parameters
    ----------
    group : Group
        The ranks that need the result.
    act : callable
        Called on rank 0, without arguments.
    said : str
        The request in words, which must be equal on all ranks.
    error : Exception, optional
        What this rank has found wrong already; raised on all ranks.

    Raises
    ------
    ArgumentsDiffer
        On all ranks, if their requests differ.

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
    """Rank 0's finding on disk, on all ranks; its exception is raised on all. Collective.

    So all ranks go by the same facts, and none opens a file that rank 0 has not seen: under
    ``python -m distarray`` rank 0 writes the files. `said` and `error` are those of
    :func:`on_rank_zero`. Outside of the mesh a rank looks for itself.
    """
    if mesh.coords is None:
        return look()
    return on_rank_zero(mesh.group, look, said, error)
