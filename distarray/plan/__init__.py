"""Plans, computed from layouts alone: layouts of operations, and the messages of each rank."""

from distarray.plan.cells import Outline, Source, cells
from distarray.plan.contraction import (
    Contraction,
    ContractionPlan,
    Panels,
    divided_dim,
    panels_of,
    parts_of,
    plan_contraction,
)
from distarray.plan.cost import moved_elements, stays
from distarray.plan.exchange import (
    Exchange,
    Route,
    Slices,
    Transfer,
    coords_of,
    intersect,
    plan_across,
    plan_exchange,
    rank_of,
)
from distarray.plan.halo import Halo, Patch, Reach, plan_halo
from distarray.plan.propagate import (
    Propagation,
    broadcast_shapes,
    propagate,
    restrict,
    shape_text,
    whole_pair,
    whole_product,
)
from distarray.plan.reduction import ReductionPlan, plan_reduction
from distarray.plan.summation import Piece, Tree

__all__ = [
    "Contraction",
    "ContractionPlan",
    "Exchange",
    "Halo",
    "Outline",
    "Panels",
    "Patch",
    "Piece",
    "Propagation",
    "Reach",
    "ReductionPlan",
    "Route",
    "Slices",
    "Source",
    "Transfer",
    "Tree",
    "broadcast_shapes",
    "cells",
    "coords_of",
    "divided_dim",
    "intersect",
    "moved_elements",
    "panels_of",
    "parts_of",
    "plan_contraction",
    "plan_across",
    "plan_exchange",
    "plan_halo",
    "plan_reduction",
    "propagate",
    "rank_of",
    "restrict",
    "shape_text",
    "stays",
    "whole_pair",
    "whole_product",
]
