"""NumPy's own subclasses of arrays over distributed arrays, for files and other processes."""

from typing import Any, SupportsIndex

from distarray.array.dressing import bare
from distarray.array.subclasses import Subclass

__all__ = ["adapt"]


def adapt(kind: Any, numpys: type[Any]) -> None:
    """Finish a class of an executed module, which stands for one of NumPy's.

    NumPy's arrays of its class are instances of ours; as a NumPy array, in pickles for instance, an
    array of ours is of NumPy's class.
    """

    def full(self: Subclass) -> Any:
        """The global array as a NumPy array of this class on every rank; collective."""
        return bare(self).full().view(numpys)

    def reduced(self: Subclass, protocol: SupportsIndex) -> Any:
        """Reduce to NumPy's array, which any process can load."""
        is_numpys = type(self) is kind
        return self.full().__reduce_ex__(protocol) if is_numpys else Subclass.__reduce__(self)

    kind._numpys_own = numpys
    kind.full, kind.__reduce_ex__ = full, reduced
