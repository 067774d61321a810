"""NumPy's masked record arrays, over distributed arrays."""

from typing import Any, SupportsIndex

import numpy.ma.mrecords

from distarray.array import DistArray
from distarray.masked.executing import executed

_module: Any = executed("numpy.ma.mrecords")
_kind: Any = _module.MaskedRecords


def _full(self: DistArray) -> Any:
    """Return the global array as NumPy's masked records on every rank; collective."""
    return super(_kind, self).full().view(numpy.ma.mrecords.MaskedRecords)


def _reduced(self: DistArray, protocol: SupportsIndex) -> Any:
    """Reduce to NumPy's masked records, which any process can load."""
    return self.full().__reduce_ex__(protocol)


_kind._numpys_own = numpy.ma.mrecords.MaskedRecords
_kind.full, _kind.__reduce_ex__ = _full, _reduced

__all__ = list(_module.__all__)
globals().update({name: getattr(_module, name) for name in __all__})
