"""Plans of reductions: where the result lies, and which ranks fold it."""

import numpy as np

from distarray.layout import At, Layout, Partial, Replicate, Shard
from distarray.plan import plan_reduction

FLOAT = np.dtype(float)


def planned(layout, axis, keepdims=False):
    plan = plan_reduction(layout, axis, keepdims, FLOAT)
    return plan.layout.shape, plan.layout.placements, plan.mesh_dims


def test_a_reduced_cut_is_folded_and_the_others_stay():
    layout = Layout.chunked((8, 6), (2, 3), [Shard(0), Shard(1)])
    assert planned(layout, 0) == ((6,), (Replicate(), Shard(0)), (0,))
    assert planned(layout, -1, True) == ((8, 1), (Shard(0), Replicate()), (1,))
    assert planned(layout, None) == ((), (Replicate(), Replicate()), (0, 1))
    assert planned(layout, ()) == ((8, 6), (Shard(0), Shard(1)), ())


def test_mesh_dimensions_of_one_rank_fold_nothing():
    assert planned(Layout.chunked((8,), (1,), [Shard(0)]), 0) == ((), (Replicate(),), ())


def test_pending_folds_and_lone_coordinates_are_folded_with_the_rest():
    pending = Layout.chunked((8, 6), (2, 3), [Shard(0), Partial()])
    assert planned(pending, 1) == ((8,), (Shard(0), Replicate()), (1,))
    lone = Layout.lone((8, 6), (2, 3), (1, 0))
    assert lone.placements == (At(1), At(0))
    plan = plan_reduction(lone, 0, False, FLOAT)
    assert (plan.layout.is_replicated, plan.mesh_dims) == (True, (0, 1))
    assert [coords for coords in np.ndindex(2, 3) if plan.leads(coords)] == [(0, 0)]
