"""Multiplication and summation in contractions: sums in any order, or in the order of a tree.

:mod:`distarray.engines.contracting.execution` decides which blocks are multiplied when. A
:class:`Sums` multiplies the blocks, and adds up the contributions of several blocks and several
ranks.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from distarray.array.portable import as_array
from distarray.comm import DeviceMesh
from distarray.engines.contracting.program import Program
from distarray.engines.contracting.tiles import tiled_product
from distarray.engines.contracting.tiling import Tiling
from distarray.engines.reproducible import Held, added_up, join, scattered
from distarray.layout import Coords, Fold, Interval
from distarray.plan import Route
from distarray.typing import Array, Shape

__all__ = ["InAnyOrder", "InOrder", "Sums", "peers"]

Box = Sequence[Interval]


class Sums(Protocol):
    """Strategy that multiplies blocks and adds contributions.

    A contribution is an array with the result's dimensions, possibly with additional leading
    dimensions.
    """

    def room(self, shape: Shape, box: Box, mesh: DeviceMesh) -> Array:
        """Allocate memory for the contribution of blocks with these indices of each label."""

    def product(self, blocks: Sequence[Array], box: Box, into: Array | None) -> Array:
        """Compute the contribution of blocks; in `into`, if `into` is given and this is faster."""

    @property
    def label(self) -> int | None:
        """The summed label that is multiplied range by range, if there is one."""

    def stretches(self, box: Box, ready: Interval) -> list[Interval]:
        """Return the ranges of `label` to multiply one by one, given the range that is ready."""

    def joined(self, first: Array, second: Array, stretch: Interval, begin: int = 0) -> Array:
        """Join two contributions: of a range of the summed label, and of all indices before it.

        The indices before the range begin at `begin`.
        """

    def alone(self, contribution: Array) -> Array:
        """Return the sum, if there is one contribution."""

    def everywhere(self, contribution: Array, mesh: DeviceMesh) -> Array:
        """Return the sum of the ranks' contributions, on all ranks."""

    def scattered(self, contributions: Sequence[Array], mesh: DeviceMesh) -> Array:
        """Return this rank's part of the sum; each rank has a contribution to every rank's part."""


class InAnyOrder(NamedTuple):
    """Products by the program's kernel, added up by MPI."""

    program: Program

    @property
    def label(self) -> None:
        """None: operands are redistributed whole."""

    def room(self, shape: Shape, box: Box, mesh: DeviceMesh) -> Array:
        """Allocate memory for a result."""
        found: Array = mesh.xp.zeros(shape, self.program.work)
        return found

    def product(self, blocks: Sequence[Array], box: Box, into: Array | None) -> Array:
        """Compute the product of blocks."""
        return self.program.kernel(blocks, self.program.work, into)

    def stretches(self, box: Box, ready: Interval) -> list[Interval]:
        """Return an empty list, as there is no label."""
        return []

    def joined(self, first: Array, second: Array, stretch: Interval, begin: int = 0) -> Array:
        """Add both contributions, in place in the first one if it is an array."""
        first += second
        return first

    def alone(self, contribution: Array) -> Array:
        """Return the contribution itself."""
        return contribution

    def everywhere(self, contribution: Array, mesh: DeviceMesh) -> Array:
        """Sum the contributions by one allreduce."""
        plan = self.program.plan
        group, route = mesh.subgroup(plan.pending), Route(plan.local, plan.result)
        return group.allreduce(as_array(contribution), self._fold, route)

    def scattered(self, contributions: Sequence[Array], mesh: DeviceMesh) -> Array:
        """Sum the contributions by one reduce-scatter."""
        plan = self.program.plan
        group, route = mesh.subgroup(plan.pending), Route(plan.local, plan.result)
        return group.reduce_scatter([as_array(c) for c in contributions], self._fold, route)

    @property
    def _fold(self) -> Fold:
        return Fold.ANY if self.program.work.kind == "b" else Fold.SUM


class InOrder(NamedTuple):
    """Products tile by tile, added up by a tree: bitwise equal results on every mesh.

    The first dimension of a contribution is the tree pieces that it consists of.
    """

    program: Program
    tiling: Tiling

    @property
    def label(self) -> int:
        """The summed label that is divided into tiles."""
        return self.tiling.depth

    def room(self, shape: Shape, box: Box, mesh: DeviceMesh) -> Array:
        """Allocate memory for the pieces."""
        pieces = self.tiling.tree.pieces(*box[self.tiling.depth])
        return np.empty((len(pieces), *shape), self.program.sums_in)

    def product(self, blocks: Sequence[Array], box: Box, into: Array | None) -> Array:
        """Compute the pieces of the product."""
        return tiled_product(self.program.spec, self.tiling, blocks, box, self.program.sums_in)

    def stretches(self, box: Box, ready: Interval) -> list[Interval]:
        """Return up to three ranges: the ready tiles, and the indices before and after them."""
        start, stop = box[self.tiling.depth]
        grain = self.tiling.tree.chunk
        low = -(-ready[0] // grain) * grain
        high = stop if ready[1] == stop else ready[1] // grain * grain
        if low >= high:
            return [(start, stop)]
        parts = [(start, low), (low, high), (high, stop)]
        return [part for part in parts if part[0] < part[1]]

    def joined(self, first: Array, second: Array, stretch: Interval, begin: int = 0) -> Array:
        """Join the pieces of both contributions."""
        middle, stop = stretch
        held = Held(begin, middle, first), Held(middle, stop, second)
        return join(self.tiling.tree, *held).values

    def alone(self, contribution: Array) -> Array:
        """Return the only piece, or zeros if there is none."""
        if len(contribution):
            whole: Array = contribution[0]
            return whole
        return np.zeros(contribution.shape[1:], contribution.dtype)

    def everywhere(self, contribution: Array, mesh: DeviceMesh) -> Array:
        """Sum the pieces: a message for each doubling of the ranks, and a broadcast."""
        cut, tree = self.program.plan.cuts[self.tiling.depth], self.tiling.tree
        return added_up(Held(*self._bounds(mesh.coords), contribution), tree, cut, mesh)

    def scattered(self, contributions: Sequence[Array], mesh: DeviceMesh) -> Array:
        """Sum the pieces by one exchange of the pieces of each rank's part."""
        own, group = self._bounds(mesh.coords), mesh.subgroup(self.program.plan.pending)
        parts = [Held(*own, contribution) for contribution in contributions]
        bounds = [self._bounds(coords) for coords in peers(self.program.plan.pending, mesh)]
        return scattered(parts, self.tiling.tree, bounds, group)

    def _bounds(self, coords: Coords | None) -> Interval:
        """Return the range of summands of the rank at these coordinates."""
        assert coords is not None
        cut = self.program.plan.cuts[self.tiling.depth]
        return cut.interval(cut.part(coords))


def peers(pending: Sequence[int], mesh: DeviceMesh) -> Iterator[Coords]:
    """Yield the coordinates of the ranks that share this rank's sum, in order."""
    assert mesh.coords is not None
    for number in np.ndindex(tuple([mesh.shape[m] for m in pending])):
        coords = list(mesh.coords)
        for mesh_dim, coordinate in zip(pending, number, strict=True):
            coords[mesh_dim] = coordinate
        yield tuple(coords)
