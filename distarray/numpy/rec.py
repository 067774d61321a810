"""NumPy's names for record arrays, with fields as attributes: ``distarray.numpy.rec``."""

from typing import Any

import numpy

from distarray.io.file_paths import FileLike
from distarray.masked.executing import executed
from distarray.masked.numpys_classes import adapt
from distarray.ops.conversion import array as _distributed
from distarray.typing import DTypeLike, ShapeLike

core: Any = executed("numpy._core.records")
core.record = numpy.record
adapt(core.recarray, numpy.recarray)


def fromfile(fd: FileLike, *args: DTypeLike | ShapeLike, **kwargs: DTypeLike | ShapeLike) -> Any:
    """Read the records of a binary file, on every rank; see :func:`numpy.rec.fromfile`.

    Every rank reads the whole file. For a file that exceeds a rank's memory use
    :func:`distarray.numpy.fromfile`, whose result can be viewed as a recarray.
    """
    read: Any = numpy.rec.fromfile
    found = read(fd, *args, **kwargs)
    return _distributed(numpy.asarray(found)).view(core.recarray)


core.fromfile = fromfile

__all__ = list(core.__all__)
globals().update({name: getattr(core, name) for name in __all__})
