"""A progress bar with bytes a second, on the first rank."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from distarray.comm import DeviceMesh
from distarray.lazy import needs

__all__ = ["bar", "shows"]


def shows(mesh: DeviceMesh, wanted: bool | None) -> bool:
    """Whether this rank shows a bar: the first of the mesh may, of its own share.

    Parameters
    ----------
    mesh : DeviceMesh
        Whose other ranks do as much at the same time.
    wanted : bool or None
        None: where standard error is a terminal and tqdm is installed.

    Raises
    ------
    ImportError
        If a bar is wanted, and tqdm is not installed; on the first rank alone.
    """
    if mesh.rank != 0 or wanted is False or (wanted is None and not sys.stderr.isatty()):
        return False
    try:
        needs("tqdm")
    except ImportError:
        if wanted:
            raise
        return False
    return True


@contextmanager
def bar(what: str, total: int, mesh: DeviceMesh, shown: bool) -> Iterator[Callable[[int], object]]:
    """Yield what is to be told of bytes done by this rank.

    Parameters
    ----------
    what : str
        Stands before the bar.
    total : int
        Bytes that this rank has to do.
    mesh : DeviceMesh
        The ranks that share the work.
    shown : bool
        What :func:`shows` has said.
    """
    if not shown:
        yield lambda count: None
        return
    ranks = mesh.size()
    words = what if ranks == 1 else f"{what} (rank 0 of {ranks})"
    tqdm = needs("tqdm").tqdm
    with tqdm(total=total, desc=words, unit="B", unit_scale=True, unit_divisor=1024) as shown_bar:
        yield shown_bar.update
