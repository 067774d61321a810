"""Conversion of distributed arrays of NumPy's own subclasses, for files and other processes."""

from typing import Any, SupportsIndex

from distarray.array.dressing import bare
from distarray.array.subclasses import Subclass

__all__ = ["adapt"]


def adapt(kind: Any, numpys: type[Any]) -> None:
    """Finish a class of an executed module, the counterpart of the NumPy class `numpys`.

    NumPy's instances of `numpys` count as instances of `kind`. Converted to NumPy, as in pickles,
    an array of `kind` becomes an array of `numpys`.
    """

    def full(self: Subclass) -> Any:
        """Return the global array as a NumPy array of this class on every rank; collective."""
        return bare(self).full().view(numpys)

    def reduced(self: Subclass, protocol: SupportsIndex) -> Any:
        """Reduce to a NumPy array, which any process can load."""
        is_numpys = type(self) is kind
        return self.full().__reduce_ex__(protocol) if is_numpys else Subclass.__reduce__(self)

    kind._numpys_own = numpys
    kind.full, kind.__reduce_ex__ = full, reduced
