"""Counters of this rank's calls that may have written to cut arrays (write epoch)."""

from itertools import count
from threading import local

__all__ = ["passed"]


class _Passed(local):
    """Counters of this rank (a process or a thread): calls that may have written to a cut array.

    All ranks count the same calls. When `number - harmless` changes, cached elements of other ranks
    are invalid and are fetched again. No two threads ever have the same number.

    Attributes
    ----------
    number : int
        All calls that may have written.
    harmless : int
        The calls among them that only read, or that wrote to the cached replica
        (:mod:`~distarray.array.mirrors`) as well as to the array.
    exports : int
        Number of times that a block of a cut array was exposed to the program.
    watched : int
        Number of gathered copies of cut arrays that may still be alive; see
        :mod:`~distarray.array.stale_copies`. The same on all ranks.
    """

    def __init__(self) -> None:
        self.number = next(_threads) << 40
        self.harmless = self.exports = self.watched = 0


_threads = count(1)


passed = _Passed()
