"""Names of the array API standard that NumPy lacks, or gives another signature.

NumPy's names, data types and signatures satisfy the standard, except for the keyword `descending`
of sort and argsort, and for devices: NumPy knows only one.
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

#: The latest version of the standard that distarray.numpy satisfies.
API_VERSION = "2025.12"

# Untyped here: NumPy's stubs have overloads that our arguments do not match.
_sort: Any = np.sort
_argsort: Any = np.argsort
_Info: Any = np.__array_namespace_info__


class NamespaceInfo(_Info):  # type: ignore[misc]
    """Capabilities, devices and data types of the namespace; see the array API standard."""

    __module__ = "distarray.numpy"

    def default_device(self) -> str:
        """The device of arrays on the default mesh, as this rank sees it: "cpu" or "cuda:N"."""
        return default_mesh().device

    def devices(self) -> list[str]:
        """The devices that this rank can make arrays on."""
        own = default_mesh().device
        return ["cpu"] if own == "cpu" else ["cpu", own]

    def default_dtypes(self, *, device: str | None = None) -> dict[str, Any]:
        """The data types of new arrays where none is given, by kind."""
        self._check(device)
        return super().default_dtypes()  # type: ignore[no-any-return]

    def dtypes(
        self, *, device: str | None = None, kind: str | tuple[str, ...] | None = None
    ) -> dict[str, Any]:
        """The data types of the standard by name: all, or those of one kind or several."""
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
    """A sorted copy; see :func:`numpy.sort`.

    Parameters
    ----------
    descending : bool
        The array API standard's: from the largest element to the smallest, NaN first.

    Cost
    ----
    That of :func:`numpy.sort`.
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
    """The indices that sort an array; see :func:`numpy.argsort`.

    Parameters
    ----------
    descending : bool
        The array API standard's: from the largest element to the smallest, NaN first. Equal
        elements keep their order, unless ``stable=False``.

    Cost
    ----
    That of :func:`numpy.argsort`; with `descending`, also that of reversing an array twice.
    """
    if not descending:
        return _argsort(a, axis, kind, order, stable=stable)
    x: Any = a if isinstance(a, DistArray) else np.asarray(a)
    if axis is None:
        x, axis = in_line(x), 0
    axis = normalize_axis_index(axis, x.ndim)
    # Sorted from the far end and read backwards, equal elements keep their order.
    stable = True if stable is None and kind is None else stable
    found = _argsort(np.flip(x, axis), axis, kind, order, stable=stable)
    return x.shape[axis] - 1 - np.flip(found, axis)
