"""Choosing by probabilities that no rank has whole.

The probabilities are summed tile by tile (each tile from its beginning, then the tiles' sums), so
that the sums do not depend on who has which part. Every rank knows the tiles' sums, and so in which
tile a uniform number falls; within the tile, its owner looks.
"""

from itertools import pairwise
from typing import Any

import numpy as np

from distarray.array import DistArray, movement
from distarray.comm import DeviceMesh, Group
from distarray.layout import Cut, Layout
from distarray.ops.indexing.gather import segments
from distarray.ops.indexing.owners import grouped_by_owner
from distarray.ops.random.sampling import Array, tiled_layout
from distarray.ops.random.tiles import TILE

__all__ = ["Weights", "check_weights"]

_SUM = "Probabilities do not sum to 1. See Notes section of docstring for more information."


def check_weights(p: DistArray, count: int) -> None:
    """Raise what NumPy's ``choice`` raises for probabilities, on every rank."""
    if p.ndim != 1:
        raise ValueError("p must be 1-dimensional")
    if p.size != count:
        raise ValueError("a and p must have same size")
    total, least = float(p.sum()), float(p.min()) if p.size else 0.0
    if np.isnan(total):
        raise ValueError("Probabilities contain NaN")
    if least < 0:
        raise ValueError("Probabilities are not non-negative")
    exact = p.dtype if p.dtype.kind == "f" else np.dtype(np.float64)
    if abs(total - 1.0) > np.sqrt(max(np.finfo(exact).eps, np.finfo(np.float64).eps)):
        raise ValueError(_SUM)


class Weights:
    """Accumulated probabilities, of which each rank has some tiles.

    Parameters
    ----------
    p : array or DistArray
        The probabilities, along one dimension; what is no DistArray every rank has.
    mesh : DeviceMesh
        The ranks.

    Cost
    ----
    For distributed ones, an exchange of the tiles that a cut divides and an allgather of one number
    a tile.
    """

    def __init__(self, p: Any, mesh: DeviceMesh) -> None:
        self._group: Group | None = None
        self._first = 0
        block = p
        if isinstance(p, DistArray):
            cut = p._layout.cuts[0]
            layout = Layout.chunked(p.shape, mesh.shape, p._layout.placements)
            layout = tiled_layout(layout, (TILE,))
            block = mesh.to_host(movement.moved(p._block, p._layout, layout, mesh))
            self._group = mesh.subgroup(cut.mesh_dims)
            self._first = -(-layout.section(mesh.coords)[0][0] // TILE)
            self._firsts = _first_tiles(layout.cuts[0])
        rows = -(-len(block) // TILE)
        padded = np.zeros((rows, TILE))
        padded.reshape(-1)[: len(block)] = block
        self._sums = np.cumsum(padded, axis=1, out=padded)
        sums = self._sums[:, -1].copy()
        if self._group is not None and mesh.coords is not None:
            sums = np.concatenate(self._group.allgather_varied(sums, None, "sums of tiles"))
        self._bounds = np.cumsum(sums)

    def positions(self, uniform: Array) -> Array:
        """Where uniform numbers on [0, 1) fall; of this rank's numbers, in one dimension.

        Collective if the probabilities are distributed: two all-to-alls.
        """
        values = uniform * self._bounds[-1]
        last = np.searchsorted(self._bounds, self._bounds[-1])  # of those that are not all zero
        tiles = np.minimum(np.searchsorted(self._bounds, values, side="right"), last)
        before = np.concatenate([[0.0], self._bounds[:-1]])
        rests = values - before[tiles]
        if self._group is None:
            return self._search(tiles, rests)
        owners = np.searchsorted(self._firsts, tiles, side="right") - 1
        order, counts = grouped_by_owner(owners, self._group.size)
        # As floating-point numbers, which hold tiles exactly up to 2^53 of them.
        requests = np.stack([tiles[order].astype(np.float64), rests[order]], axis=1)
        asked = self._group.alltoall_varied(segments(requests, counts), "uniform numbers")
        replies = [self._search(part[:, 0].astype(np.intp), part[:, 1]) for part in asked]
        found = np.empty(len(values), np.int64)
        found[order] = np.concatenate(self._group.alltoall_varied(replies, "positions"))
        return found

    def _search(self, tiles: Array, rests: Array) -> Array:
        """Positions of numbers that fall into tiles of this rank."""
        found = np.empty(len(tiles), np.int64)
        order = np.argsort(tiles, kind="stable")
        marks = np.flatnonzero(np.diff(tiles[order], prepend=-1, append=-1))
        for start, stop in pairwise(marks):
            chosen = order[start:stop]
            tile = int(tiles[chosen[0]])
            sums = self._sums[tile - self._first]
            places = np.searchsorted(sums, rests[chosen], side="right")
            last = np.searchsorted(sums, sums[-1])
            found[chosen] = np.minimum(places, last) + tile * TILE
        return found


def _first_tiles(cut: Cut) -> Array:
    """The first tile of each part."""
    return np.array([-(-cut.interval(part)[0] // TILE) for part in range(cut.parts)])
