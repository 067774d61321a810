"""A progress bar with bytes a second, on the first rank."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from distarray.comm import DeviceMesh

__all__ = ["bar"]


@contextmanager
def bar(
    what: str, total: int, mesh: DeviceMesh, shown: bool | None
) -> Iterator[Callable[[int], object]]:
    """Yield what is to be told of bytes done by this rank.

    Parameters
    ----------
    what : str
        Stands before the bar.
    total : int
        Bytes that this rank has to do.
    mesh : DeviceMesh
        Its first rank shows the bar, of its own share: the others do as much at the same time.
    shown : bool or None
        None: where standard error is a terminal and tqdm is installed.
    """
    if mesh.rank != 0 or shown is False or (shown is None and not sys.stderr.isatty()):
        yield lambda count: None
        return
    try:
        from tqdm import tqdm
    except ImportError:
        if shown:
            raise ImportError(
                "a progress bar needs tqdm: pip install 'distarray-mpi[io]'"
            ) from None
        yield lambda count: None
        return
    ranks = mesh.size()
    words = what if ranks == 1 else f"{what} (rank 0 of {ranks})"
    with tqdm(total=total, desc=words, unit="B", unit_scale=True, unit_divisor=1024) as shown_bar:
        yield shown_bar.update
