"""Progress bar with bytes per second, on rank 0."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from distarray.comm import DeviceMesh
from distarray.comm.progress import BYTES, is_watched
from distarray.lazy import needs

__all__ = ["bar", "shows"]


def shows(mesh: DeviceMesh, wanted: bool | None) -> bool:
    """Return True if this rank shows a bar: only rank 0 may, for its own share of the work.

    Parameters
    ----------
    mesh : DeviceMesh
        The mesh whose ranks share the work; the other ranks have similar shares.
    wanted : bool or None
        The caller's choice. None: show a bar within :func:`distarray.progress`, or if standard
        error is a terminal, provided that tqdm is installed.

    Raises
    ------
    ImportError
        On rank 0 alone, if a bar is requested and tqdm is not installed.
    """
    seen = is_watched() or sys.stderr.isatty()
    if mesh.rank != 0 or wanted is False or (wanted is None and not seen):
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
    """Yield a function that is called with the number of bytes that this rank has processed.

    Parameters
    ----------
    what : str
        The text before the bar.
    total : int
        Number of bytes that this rank has to process.
    mesh : DeviceMesh
        The ranks that share the work.
    shown : bool
        The result of :func:`shows`.
    """
    if not shown:
        yield lambda count: None
        return
    ranks = mesh.size()
    words = what if ranks == 1 else f"{what} (rank 0 of {ranks})"
    tqdm = needs("tqdm").tqdm
    with tqdm(total=total, desc=words, **BYTES) as shown_bar:
        yield shown_bar.update
