"""Where the elements of a distributed array live: integers and tuples only, no MPI."""

from distarray.layout.cut import Cut, Interval
from distarray.layout.layout import Box, Coords, Layout, normalize_placements
from distarray.layout.placement import At, Fold, Partial, Placement, Replicate, Shard

__all__ = [
    "At",
    "Box",
    "Coords",
    "Cut",
    "Fold",
    "Interval",
    "Layout",
    "Partial",
    "Placement",
    "Replicate",
    "Shard",
    "normalize_placements",
]
