"""parallelize_module: what is refused, on all ranks, before anything has changed."""

from __future__ import annotations

import pytest
from torch import nn

import distarray
import distarray.torch as dt
from distarray import DeviceMesh, Shard
from distarray.errors import DivergenceError, LayoutError, MeshError
from tests.torch.models import (
    TOY_PLAN,
    ToyModel,
    drawn,
    filled,
    line,
)


def test_plans_that_do_not_fit(world, ranks):
    def program(group):
        mesh = line(group)
        model = filled(ToyModel())

        def refused(kind, words, plan, model=model, mesh=mesh):
            with pytest.raises(kind, match=words):
                dt.parallelize_module(model, mesh, plan)

        colwise = dt.ColwiseParallel()
        refused(ValueError, "in_projj.*matches no part.*in_proj", {"in_projj": colwise})
        refused(ValueError, "matches no part", TOY_PLAN | {"layers.*": colwise})
        refused(TypeError, "is a ParallelStyle", {"in_proj": Shard(0)})
        refused(TypeError, "the plan is a style", None)
        refused(TypeError, "not for ReLU", {"relu": colwise})
        refused(TypeError, "AttentionParallel is for", {"relu": dt.AttentionParallel()})
        refused(TypeError, "DropoutParallel is for", {"relu": dt.DropoutParallel()})
        refused(ValueError, "two styles", {"in_proj": colwise, "in_*": dt.RowwiseParallel()})
        refused(LayoutError, "no multiple", {"in_proj": dt.ColwiseParallel(multiple_of=5)})
        grid = DeviceMesh(group, (1, group.size), ("dp", "tp"))
        refused(MeshError, r"mesh\['tp'\]", TOY_PLAN, mesh=grid)
        assert model.in_proj.weight.shape == (32, 10)
        assert model(drawn(2, 10)).shape == (2, 5)
        model(drawn(2, 10)).sum().backward()
        refused(ValueError, "has a gradient", TOY_PLAN)
        refused(TypeError, "no shape yet", TOY_PLAN, nn.Sequential(nn.LazyLinear(3)))
        refused(TypeError, "meta device", colwise, nn.Linear(3, 3, device="meta"))
        refused(TypeError, "cannot be cut", colwise, nn.Embedding(3, 3, max_norm=1.0))

    world.run(ranks, program)


@pytest.mark.counts(lambda n: n > 1)
def test_ranks_with_different_plans_or_models(world, ranks):
    def program(group):
        mesh = line(group)
        first = group.rank == 0
        plan = TOY_PLAN if first else {"in_proj": dt.ColwiseParallel()}
        with pytest.raises(DivergenceError, match="plan"):
            dt.parallelize_module(ToyModel(), mesh, plan)
        with pytest.raises(DivergenceError, match="weight"):
            dt.parallelize_module(nn.Linear(3, 3 if first else 4), mesh, dt.ColwiseParallel())
        with pytest.raises(ValueError, match="matches no part"):
            dt.parallelize_module(ToyModel(), mesh, TOY_PLAN if first else {"out": plan["in_proj"]})

    world.run(ranks, program)


def test_inputs_of_other_widths(world, ranks):
    """A rank that is handed a wrong input alone raises alone; under config.check all of them do."""

    def program(group):
        model = dt.parallelize_module(filled(ToyModel()), line(group), TOY_PLAN)
        if group.rank == group.size - 1:
            with pytest.raises(LayoutError, match="the layer takes 10 features"):
                model(drawn(2, 9))
        if group.size > 1:
            with (
                distarray.config.override(check=True),
                pytest.raises(DivergenceError, match=r"shape \(2, 9\)"),
            ):
                model(drawn(2, 10 if group.rank else 9))
        with distarray.config.override(check=True):
            assert model(drawn(2, 10)).shape == (2, 5)

    world.run(ranks, program)
