"""Choices by distributed probabilities.

The probabilities are summed tile by tile (each tile from its beginning, then the tiles' sums), so
that the sums do not depend on the layout. Every rank knows the tiles' sums, and therefore the tile
that a uniform number falls into; the owner of the tile finds the position within it.
"""

import numpy as np

from distarray.array import DistArray, movement
from distarray.comm import DeviceMesh, Group
from distarray.engines.drawing.drawn_tiles import TILE
from distarray.engines.drawing.sampling import tiled_layout
from distarray.engines.indexing.gather import segments
from distarray.engines.indexing.owners import grouped_by_owner
from distarray.layout import Cut, Layout
from distarray.typing import Array

__all__ = ["Weights", "check_weights"]

_SUM = "Probabilities do not sum to 1. See Notes section of docstring for more information."


def check_weights(p: DistArray, count: int) -> None:
    """Raise the errors of NumPy's ``choice`` about probabilities, on every rank."""
    if p.ndim != 1:
        raise ValueError("p must be 1-dimensional")
    if p.size != count:
        raise ValueError("a and p must have same size")
    if not np.can_cast(p.dtype, np.float64):
        raise TypeError(
            f"Cannot cast array data from {p.dtype!r} to dtype('float64') according to the rule "
            "'safe'"
        )
    total, least = float(p.sum()), float(p.min()) if p.size else 0.0
    if np.isnan(total):
        raise ValueError("Probabilities contain NaN")
    if least < 0:
        raise ValueError("Probabilities are not non-negative")
    exact = p.dtype if p.dtype.kind == "f" else np.dtype(np.float64)
    if abs(total - 1.0) > np.sqrt(max(np.finfo(exact).eps, np.finfo(np.float64).eps)):
        raise ValueError(_SUM)


class Weights:
    """Accumulated probabilities; each rank has some tiles of them.

    Parameters
    ----------
    p : array or DistArray
        The probabilities, along one dimension; an array is equal on every rank.
    mesh : DeviceMesh
        The ranks.

    Cost
    ----
    For distributed probabilities, an exchange of the tiles that a cut divides, and an allgather of
    one number a tile.
    """

    def __init__(self, p: Array | DistArray, mesh: DeviceMesh) -> None:
        self._group: Group | None = None
        self._start = 0
        if not isinstance(p, DistArray):
            block = p
        else:
            layout = Layout.chunked(p.shape, mesh.shape, p.layout.placements)
            layout = tiled_layout(layout, (TILE,))
            block = mesh.to_host(movement.moved(p.block, p.layout, layout, mesh))
            self._group = mesh.subgroup(layout.cuts[0].mesh_dims)
            self._start = layout.section(mesh.coords)[0][0]
            self._firsts = _first_tiles(layout.cuts[0])
        rows = -(-len(block) // TILE)
        sums = np.zeros((rows, TILE))
        sums.reshape(-1)[: len(block)] = block
        np.cumsum(sums, axis=1, out=sums)
        tiles = sums[:, -1].copy()
        if self._group is not None:
            tiles = np.concatenate(self._group.allgather_varied(tiles, None, "sums of tiles"))
        #: The sums up to the end of each tile, of all ranks.
        self._bounds = np.cumsum(tiles)
        first = -(-self._start // TILE)
        sums += np.concatenate([[0.0], self._bounds])[first : first + rows, None]
        #: The sums up to each position of this rank's tiles.
        self._sums = sums.reshape(-1)[: len(block)]

    def positions(self, uniform: Array) -> Array:
        """The positions that this rank's uniform numbers on [0, 1) fall on, in one dimension.

        Collective if the probabilities are distributed: two all-to-alls.
        """
        values = uniform * self._bounds[-1]
        if self._group is None:
            return self._search(values)
        last = np.searchsorted(self._bounds, self._bounds[-1])  # the last tile that is not all zero
        tiles = np.minimum(np.searchsorted(self._bounds, values, side="right"), last)
        owners = np.searchsorted(self._firsts, tiles, side="right") - 1
        order, counts = grouped_by_owner(owners, self._group.size)
        asked = self._group.alltoall_varied(segments(values[order], counts), "uniform numbers")
        replies = self._group.alltoall_varied([self._search(part) for part in asked], "positions")
        found = np.empty(len(values), np.int64)
        found[order] = np.concatenate(replies)
        return found

    def _search(self, values: Array) -> Array:
        """The positions of numbers that fall into this rank's tiles.

        A number that rounding has carried to the end gets the last position of any probability.
        """
        last = np.searchsorted(self._sums, self._bounds[-1])
        found: Array = np.minimum(np.searchsorted(self._sums, values, side="right"), last)
        return found + self._start


def _first_tiles(cut: Cut) -> Array:
    """The first tile of each part."""
    return np.array([-(-cut.interval(part)[0] // TILE) for part in range(cut.parts)])
