"""Modules and plans that are refused, on all ranks, before anything has changed."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import distarray
import distarray.torch as dt
from distarray import DeviceMesh, Partial, Shard
from distarray.errors import DivergenceError, LayoutError, MeshError
from tests.torch.models import (
    TOY_PLAN,
    ToyModel,
    drawn,
    filled,
    line,
    spread,
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


def _prepared(given, wanted, **words):
    return dt.PrepareModuleInput(input_layouts=given, desired_input_layouts=wanted, **words)


CUT = (Shard(0),)
#: (call with a mesh and a tensor whose columns are cut, error, words)
MISTAKES = [
    (lambda m, x: dt.DistTensor(), TypeError, "DistTensor.from_local"),
    (lambda m, x: dt.distribute_module(3, m), TypeError, "takes a Module, not int"),
    (lambda m, x: dt.parallelize_module(3, m, {}), TypeError, "takes a Module, not int"),
    (lambda m, x: dt.data_parallel(3, m), TypeError, "takes a torch.nn.Module, not int"),
    (lambda m, x: dt.data_parallel(ToyModel(), m, bucket_bytes=0), ValueError, "positive"),
    (lambda m, x: dt.ColwiseParallel(multiple_of=0), ValueError, "at least 1"),
    (lambda m, x: _prepared(CUT, CUT * 2), ValueError, "1 input_layouts and 2"),
    (
        lambda m, x: _prepared(
            CUT, CUT, input_kwarg_layouts={"a": CUT[0]}, desired_input_kwarg_layouts={}
        ),
        ValueError,
        "input_kwarg_layouts and desired_input_kwarg_layouts name",
    ),
    (
        lambda m, x: dt.PrepareModuleOutput(output_layouts=CUT, desired_output_layouts=()),
        ValueError,
        "1 output_layouts and",
    ),
    (lambda m, x: dt.distribute_parameter(nn.Linear(2, 2), "a", m, CUT), AttributeError, "no par"),
    (
        lambda m, x: dt.distribute_parameter(nn.Linear(2, 2), "bias", m, [Partial()]),
        LayoutError,
        "cut or replicated",
    ),
    (lambda m, x: torch.mm(x.t(), x, out=x), ValueError, "distributed tensors keep theirs"),
    (lambda m, x: dt.parallel_cross_entropy(x, x, reduction="no"), ValueError, "for reduction"),
    (lambda m, x: dt.data_parallel(ToyModel(), 3), TypeError, "is a distarray.DeviceMesh, not int"),
    (
        lambda m, x: dt.data_parallel(ToyModel(), DeviceMesh(m.group, (1, m.size()))),
        MeshError,
        "give them names",
    ),
    (lambda m, x: dt.to_torch(distarray.numpy.ones(3).sum(), copy=False), ValueError, "a value"),
    (
        lambda m, x: dt.to_torch(distarray.numpy.ones(3), dtype="f4", copy=False),
        ValueError,
        "by a copy only",
    ),
]


@pytest.mark.host
@pytest.mark.parametrize("number", range(len(MISTAKES)))
def test_mistakes(world, number):
    call, kind, words = MISTAKES[number]

    def program(group):
        mesh = line(group)
        x = spread(drawn(3, 12), mesh, [Shard(1)])
        if group.size > 1 or "cut" not in words:
            with pytest.raises(kind, match=words):
                call(mesh, x)

    world.run(world.ranks[-1], program)
