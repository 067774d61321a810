"""Layout of a distributed array's elements on the ranks: integers and tuples only, no MPI."""

from distarray.layout.cut import Cut, Interval
from distarray.layout.layout import LARGE, Box, Coords, Layout, normalize_placements
from distarray.layout.placement import At, Fold, Partial, Placement, Replicate, Shard
from distarray.layout.reshaping import (
    ReshapeGroup,
    flat_boxes,
    recounted_cut,
    regrouped_cut,
    rescaled_cut,
    reshape_groups,
    stretched_cut,
)
from distarray.layout.views import Entries, Entry, local_key, view_layout, whole_view

__all__ = [
    "LARGE",
    "At",
    "Box",
    "Coords",
    "Cut",
    "Entries",
    "Entry",
    "Fold",
    "Interval",
    "Layout",
    "Partial",
    "Placement",
    "Replicate",
    "ReshapeGroup",
    "Shard",
    "flat_boxes",
    "local_key",
    "normalize_placements",
    "recounted_cut",
    "regrouped_cut",
    "rescaled_cut",
    "reshape_groups",
    "stretched_cut",
    "view_layout",
    "whole_view",
]
