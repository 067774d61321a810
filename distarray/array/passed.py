"""How many calls of a rank have passed that may have written to a cut array."""

from itertools import count
from threading import local

__all__ = ["passed"]


class _Passed(local):
    """How many calls of this rank (a process or a thread) may have written to a cut array.

    Once the number has changed, which it does on all ranks alike, elements of other ranks that a
    rank keeps are fetched again. No two threads ever have the same number.

    Attributes
    ----------
    number : int
        The calls.
    harmless : int
        The calls among them that have only read, or have written to the
        :mod:`~distarray.array.mirrors` as well as to the array.
    exports : int
        How often the program was handed the block of a cut array.
    watched : int
        How many gathered copies of cut arrays may still be alive; see
        :mod:`~distarray.array.stale_copies`. The same on all ranks.
    """

    def __init__(self) -> None:
        self.number = next(_threads) << 40
        self.harmless = self.exports = self.watched = 0


_threads = count(1)


passed = _Passed()
