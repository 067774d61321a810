"""What the array API standard asks beyond NumPy's own functions.

NumPy's names, dtypes and signatures satisfy it but for the keyword `descending` of sort and
argsort, and for devices, of which NumPy knows one.
"""

from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from distarray.array import DistArray
from distarray.comm import default_mesh
from distarray.engines.reshaping import in_line

__all__ = ["API_VERSION", "NamespaceInfo", "argsort", "sort"]

#: The latest version of the standard that distarray.numpy satisfies.
API_VERSION = "2025.12"

_Info: Any = np.__array_namespace_info__


class NamespaceInfo(_Info):  # type: ignore[misc]
    """What the namespace can do, and on which devices; see the array API standard."""

    __module__ = "distarray.numpy"

    def default_device(self) -> str:
        """The device of arrays on the default mesh, as this rank sees it: "cpu" or "cuda:N"."""
        return default_mesh().device

    def devices(self) -> tuple[str, ...]:
        """The devices that this rank can make arrays on."""
        own = default_mesh().device
        return ("cpu",) if own == "cpu" else ("cpu", own)

    def default_dtypes(self, *, device: Any = None) -> dict[str, Any]:
        """The data types of arrays for which none is asked, by kind."""
        self._check(device)
        return super().default_dtypes()  # type: ignore[no-any-return]

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, Any]:
        """The data types of the standard, by name; those of one kind or of several."""
        self._check(device)
        return super().dtypes(kind=kind)  # type: ignore[no-any-return]

    def _check(self, device: Any) -> None:
        if device not in (None, *self.devices()):
            raise ValueError(
                f"Device not understood. There is {', '.join(map(repr, self.devices()))}, but "
                f"received: {device}"
            )


def sort(
    a: Any,
    axis: Any = -1,
    kind: Any = None,
    order: Any = None,
    *,
    stable: Any = None,
    descending: bool = False,
) -> Any:
    """A sorted copy; see :func:`numpy.sort`.

    Parameters
    ----------
    descending : bool
        The array API standard's: from the largest element to the smallest, NaN first.

    Cost
    ----
    That of :func:`numpy.sort`.
    """
    ascending = np.sort(a, axis, kind, order, stable=stable)
    return np.flip(ascending, 0 if axis is None else axis) if descending else ascending


def argsort(
    a: Any,
    axis: Any = -1,
    kind: Any = None,
    order: Any = None,
    *,
    stable: Any = None,
    descending: bool = False,
) -> Any:
    """The indices that sort an array; see :func:`numpy.argsort`.

    Parameters
    ----------
    descending : bool
        The array API standard's: from the largest element to the smallest, NaN first. Equal
        elements keep their order, unless stable=False is asked.

    Cost
    ----
    That of :func:`numpy.argsort`, and of reversing an array twice where `descending`.
    """
    if not descending:
        return np.argsort(a, axis, kind, order, stable=stable)
    a = a if isinstance(a, DistArray) else np.asarray(a)
    if axis is None:
        a, axis = in_line(a), 0
    axis = normalize_axis_index(axis, a.ndim)
    # Sorted from the far end and read backwards, equal elements come in their own order.
    stable = True if stable is None and kind is None else stable
    order = np.argsort(np.flip(a, axis), axis, kind, order, stable=stable)
    return a.shape[axis] - 1 - np.flip(order, axis)
