"""Parameters of distributions: scalars, arrays equal on every rank, and distributed arrays."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from distarray.array import DistArray, movement
from distarray.array.placing import as_shape, plain
from distarray.comm import DeviceMesh
from distarray.engines.drawing.drawn_tiles import Tile
from distarray.layout import Box, Layout
from distarray.plan import restrict
from distarray.typing import Array, ArrayLike, Shape, ShapeLike

__all__ = ["Parameter", "Placed", "as_parameters", "common_shape"]

#: A scalar, or an array of at least one dimension.
Parameter: TypeAlias = DistArray | Array | np.generic | complex


def as_parameters(values: Sequence[Any]) -> list[Parameter]:
    """Arguments as scalars, NumPy arrays, and distributed arrays without pending folds.

    Replicated arrays become NumPy arrays. Communicates only for pending folds, and for arrays that
    one rank alone holds.
    """
    return [_as_parameter(value) for value in values]


def _as_parameter(value: ArrayLike) -> Any:
    """One argument as a parameter."""
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


def common_shape(size: ShapeLike | None, *shapes: Shape) -> Shape:
    """The shape of the result; NumPy's error if the shapes of parameters do not fit `size`."""
    if size is None:
        return np.broadcast_shapes(*shapes)
    size = as_shape(size)
    own = np.broadcast_shapes(size, *shapes)
    if own != size:
        raise ValueError(
            f"Output size {size} is not compatible with broadcast dimensions of inputs {own}."
        )
    return own


class Placed:
    """A parameter on one rank.

    Attributes
    ----------
    block : scalar or array
        The whole parameter, or the part that this rank's section of the result needs.
    """

    __slots__ = ("_shape", "_starts", "block")

    def __init__(self, value: Parameter, layout: Layout, mesh: DeviceMesh) -> None:
        self._shape = np.shape(value) if not hasattr(value, "shape") else value.shape
        self._starts = (0,) * len(self._shape)
        self.block: Any = value
        if isinstance(value, DistArray):
            target = restrict(layout, value.shape)
            block = movement.moved(value.block, value.layout, target, mesh)
            self.block = mesh.to_host(block)
            self._starts = tuple([start for start, _ in target.section(mesh.coords)])

    def section(self, box: Box) -> Any:
        """The part that broadcasts onto a section."""
        starts = tuple([start for start, _ in box])
        extents = tuple([stop - start for start, stop in box])
        return self.part(Tile(0, starts, extents, (), (), True))

    def part(self, tile: Tile) -> Any:
        """The part that broadcasts onto the elements that are drawn of a tile.

        Elements of other ranks get the parameters of the nearest one of this rank.
        """
        if not self._shape:
            return self.block
        lead = len(tile.start) - len(self._shape)
        block = self.block
        for dim, extent in enumerate(self._shape):
            if extent == 1:
                continue
            first = tile.start[lead + dim] - self._starts[dim]
            last = first + tile.extents[lead + dim]
            key = (slice(None),) * dim
            if first >= 0 and last <= block.shape[dim]:
                block = block[(*key, slice(first, last))]
            else:
                places = np.arange(first, last).clip(0, block.shape[dim] - 1)
                block = block[(*key, places)]
        return block
