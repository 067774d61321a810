"""Specs of distributed tensors: all that a rank knows of one without communication."""

from threading import Lock
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import torch

from distarray.comm import DeviceMesh
from distarray.layout import Layout

__all__ = ["Spec", "contiguous_strides", "strides_like"]


class Spec:
    """Mesh, layout, global shape and strides, data type and device of a distributed tensor.

    Equal specs are the same object, so a decision is looked up by the objects' addresses.

    Attributes
    ----------
    mesh : DeviceMesh
        The ranks that hold the tensor.
    layout : Layout
        The rank and position of every element.
    shape : torch.Size
        The global shape.
    strides : tuple of int
        The strides that the global tensor would have in one process. They give its order in memory,
        which torch's view functions read.
    dtype : torch.dtype
        Data type of the elements.
    device : torch.device
        Device of this rank's part.
    copied : bool
        True if the tensor is a view whose elements had to move, so that it has memory of its own.
    """

    __slots__ = (
        "__weakref__",
        "copied",
        "device",
        "dtype",
        "layout",
        "mesh",
        "shape",
        "strides",
    )

    mesh: DeviceMesh
    layout: Layout
    shape: Any
    strides: tuple[int, ...]
    dtype: Any
    device: Any
    copied: bool

    _known: ClassVar["WeakValueDictionary[tuple[Any, ...], Spec]"] = WeakValueDictionary()
    _lock = Lock()

    def __new__(
        cls,
        mesh: DeviceMesh,
        layout: Layout,
        strides: tuple[int, ...],
        dtype: torch.dtype,
        device: torch.device,
        copied: bool = False,
    ) -> "Spec":
        """Return the unique spec of these values."""
        key = (mesh, layout, strides, dtype, device, copied)
        found = cls._known.get(key)
        if found is not None:
            return found
        self = object.__new__(cls)
        self.mesh, self.layout, self.strides = mesh, layout, strides
        self.shape = torch.Size(layout.shape)
        self.dtype, self.device, self.copied = dtype, device, copied
        with cls._lock:
            return cls._known.setdefault(key, self)

    def laid_out(self, layout: Layout) -> "Spec":
        """Return the spec of the same tensor moved to another layout, where it is in C order."""
        if layout is self.layout and not self.copied:
            return self
        strides = contiguous_strides(layout.shape)
        return Spec(self.mesh, layout, strides, self.dtype, self.device)

    def owned(self) -> "Spec":
        """Return the spec of the same tensor with memory of its own, not a view."""
        if not self.copied:
            return self
        return Spec(self.mesh, self.layout, self.strides, self.dtype, self.device)

    def local_shape(self) -> tuple[int, ...]:
        """Return the shape of this rank's part."""
        return self.layout.local_shape(self.mesh.coords)

    def __deepcopy__(self, memo: Any) -> "Spec":
        return self

    def __repr__(self) -> str:
        return f"Spec({self.layout!r}, {self.dtype} on {self.device}, {self.mesh!r})"


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a contiguous tensor.

    Examples
    --------
    >>> contiguous_strides((4, 3, 2))
    (6, 2, 1)
    """
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


def strides_like(shape: tuple[int, ...], order: tuple[int, ...], gaps: int = 0) -> tuple[int, ...]:
    """Return strides for a shape that keep the order of dimensions of other strides.

    Parameters
    ----------
    shape : tuple of int
        Shape of the tensor.
    order : tuple of int
        Strides of any other tensor.
    gaps : int
        Number of unused elements between the end of a dimension and the next dimension.

    Examples
    --------
    >>> strides_like((4, 3), (1, 10))
    (1, 4)
    >>> strides_like((4, 3), (3, 1), gaps=1)
    (4, 1)
    """
    strides, step = [0] * len(shape), 1
    for dim in sorted(range(len(shape)), key=lambda dim: (order[dim], -dim)):
        strides[dim] = step
        step *= max(shape[dim], 1) + gaps
    return tuple(strides)
