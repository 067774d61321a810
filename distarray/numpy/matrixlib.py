"""NumPy's names for matrices, which stay two-dimensional: ``distarray.numpy.matrixlib``."""

from collections.abc import Callable
from typing import Any

import numpy

from distarray.array import DistArray
from distarray.array.dressing import bare
from distarray.masked.executing import executed
from distarray.masked.numpys_classes import adapt
from distarray.typing import Out

defmatrix = executed("numpy.matrixlib.defmatrix")
adapt(defmatrix.matrix, numpy.matrix)


def _of_all(name: str) -> Callable[..., Any]:
    """Return a method for scalar results without an axis, where NumPy's source calls ``_align``."""
    along = getattr(defmatrix.matrix, name)

    def method(self: DistArray, axis: int | None = None, out: Out = None) -> Any:
        return getattr(bare(self), name)(None, out) if axis is None else along(self, axis, out)

    method.__name__, method.__doc__ = name, along.__doc__
    return method


defmatrix.matrix.argmax, defmatrix.matrix.argmin = map(_of_all, ("argmax", "argmin"))

__all__ = list(defmatrix.__all__)
globals().update({name: getattr(defmatrix, name) for name in __all__})
