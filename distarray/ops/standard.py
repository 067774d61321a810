"""Names of the array API standard that NumPy lacks, or that have another signature in NumPy.

NumPy's names, data types and signatures satisfy the standard, except for the keyword `descending`
of sort and argsort, and for devices: NumPy supports only one.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from distarray.array import DistArray
from distarray.comm import default_mesh
from distarray.engines.reshaping import in_line
from distarray.typing import ArrayLike, Axis

__all__ = ["API_VERSION", "NamespaceInfo", "argsort", "sort"]

#: Latest version of the standard that distarray.numpy satisfies.
API_VERSION = "2025.12"

# Untyped here: NumPy's stubs have overloads that our arguments do not match.
_sort: Any = np.sort
_argsort: Any = np.argsort
_Info: Any = np.__array_namespace_info__


class NamespaceInfo(_Info):  # type: ignore[misc]
    """Capabilities, devices and data types of the namespace; see the array API standard."""

    __module__ = "distarray.numpy"

    def default_device(self) -> str:
        """Return the device of arrays on the default mesh, on this rank: "cpu" or "cuda:N"."""
        return default_mesh().device

    def devices(self) -> list[str]:
        """Return the devices that this rank can make arrays on."""
        own = default_mesh().device
        return ["cpu"] if own == "cpu" else ["cpu", own]

    def default_dtypes(self, *, device: str | None = None) -> dict[str, Any]:
        """Return the data types of new arrays where the caller passes none, by kind."""
        self._check(device)
        return super().default_dtypes()  # type: ignore[no-any-return]

    def dtypes(
        self, *, device: str | None = None, kind: str | tuple[str, ...] | None = None
    ) -> dict[str, Any]:
        """Return the data types of the standard by name: all, or those of one kind or several."""
        self._check(device)
        return super().dtypes(kind=kind)  # type: ignore[no-any-return]

    def _check(self, device: str | None) -> None:
        if device not in (None, *self.devices()):
            raise ValueError(
                f"Device not understood. Available: {', '.join(map(repr, self.devices()))}; "
                f"received: {device}"
            )


def sort(
    a: ArrayLike,
    axis: Axis = -1,
    kind: str | None = None,
    order: str | Sequence[str] | None = None,
    *,
    stable: bool | None = None,
    descending: bool = False,
) -> Any:
    """Return a sorted copy; see :func:`numpy.sort`.

    Parameters
    ----------
    descending : bool
        Keyword of the array API standard: from the largest element to the smallest, NaN first.

    Cost
    ----
    The cost of :func:`numpy.sort`.
    """
    ascending = _sort(a, axis, kind, order, stable=stable)
    return np.flip(ascending, 0 if axis is None else axis) if descending else ascending


def argsort(
    a: ArrayLike,
    axis: Axis = -1,
    kind: str | None = None,
    order: str | Sequence[str] | None = None,
    *,
    stable: bool | None = None,
    descending: bool = False,
) -> Any:
    """Return the indices that sort an array; see :func:`numpy.argsort`.

    Parameters
    ----------
    descending : bool
        Keyword of the array API standard: from the largest element to the smallest, NaN first.
        Equal elements keep their order, unless ``stable=False``.

    Cost
    ----
    The cost of :func:`numpy.argsort`; with `descending`, also the cost of reversing an array twice.
    """
    if not descending:
        return _argsort(a, axis, kind, order, stable=stable)
    x: Any = a if isinstance(a, DistArray) else np.asarray(a)
    if axis is None:
        x, axis = in_line(x), 0
    axis = normalize_axis_index(axis, x.ndim)
    # After sorting from the far end and reading backwards, equal elements keep their order.
    stable = True if stable is None and kind is None else stable
    found = _argsort(np.flip(x, axis), axis, kind, order, stable=stable)
    return x.shape[axis] - 1 - np.flip(found, axis)
