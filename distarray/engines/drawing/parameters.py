"""Parameters of distributions: numbers, arrays equal on every rank, and distributed arrays."""

from typing import Any

import numpy as np

from distarray.array import DistArray, movement
from distarray.array.placing import as_shape, plain
from distarray.comm import DeviceMesh
from distarray.layout import Layout
from distarray.plan import restrict
from distarray.typing import Shape, ShapeLike

__all__ = ["as_parameter", "common_shape", "on_host", "part_of"]


def as_parameter(value: Any) -> Any:
    """Convert an argument to a scalar, a NumPy array, or an array without pending folds.

    Replicated arrays become NumPy arrays. Communicates only for pending folds, and for arrays that
    a single rank holds.
    """
    if isinstance(value, DistArray):
        value = plain(value)
        if not isinstance(value, DistArray):
            return value
        value = value.plain()
        if value.layout.is_replicated and value.mesh.coords is not None:
            return value.mesh.to_host(value.block)
        return value
    if isinstance(value, (list, tuple)):
        return np.asarray(value)
    return value


def on_host(value: Any) -> Any:
    """Return a parameter whole on every rank, for reading; a distributed parameter is gathered.

    A rank outside the parameter's mesh gets zeros of its shape and data type.
    """
    if not isinstance(value, DistArray):
        return value
    if value.mesh.coords is None:
        return np.zeros(value.shape, value.dtype)
    value = value.plain()
    return value.mesh.to_host(value.block) if value.layout.is_whole else value.full()


def common_shape(size: ShapeLike | None, *shapes: Shape) -> Shape:
    """Return the shape of the result; raise NumPy's error if a parameter does not fit `size`."""
    if size is None:
        return np.broadcast_shapes(*shapes)
    size = as_shape(size)
    own = np.broadcast_shapes(size, *shapes)
    if own != size:
        raise ValueError(
            f"Output size {size} is not compatible with broadcast dimensions of inputs {own}."
        )
    return own


def part_of(value: Any, core: int, work: Layout, mesh: DeviceMesh) -> Any:
    """Return the part of a parameter that this rank's rows of the result need.

    Parameters
    ----------
    value : scalar, array or DistArray
        The parameter.
    core : int
        The number of the parameter's trailing dimensions that belong to one element.
    work : Layout
        The layout of the elements, cut along the first dimension only.
    mesh : DeviceMesh
        The ranks of the result; ranks outside the mesh get no part of a distributed parameter.
    """
    if isinstance(value, DistArray):
        own = value.shape[: value.ndim - core]
        target = restrict(work, own)
        for dim in range(len(own), value.ndim):
            target = target.expand(dim).replace(dim, _whole(value, dim))
        return mesh.to_host(movement.moved(value.block, value.layout, target, mesh))
    lanes = np.ndim(value) - core
    if lanes < work.ndim or not work.ndim or value.shape[0] == 1:
        return value
    start, stop = work.section(mesh.coords)[0]
    return value[start:stop]


def _whole(value: DistArray, dim: int) -> Any:
    return Layout.replicated(value.shape, value.mesh.shape).cuts[dim]
