"""Parameters, arrays and optimizers of tensor-parallel models: one memory, and what breaks that."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from torch import nn

import distarray.torch as dt
from distarray import DeviceMesh, Replicate, Shard
from distarray.errors import LayoutError
from tests.torch.models import (
    TOY_PLAN,
    ToyModel,
    close,
    drawn,
    filled,
    line,
    local_of,
    same_parameters,
)


def test_optimizers_made_before(world, ranks):
    """The parameters stay the same objects; of what earlier steps left each rank keeps its part."""
    reference = filled(ToyModel())
    x = drawn(8, 10)

    def program(group):
        mesh = line(group)
        alone, model = copy.deepcopy(reference), copy.deepcopy(reference)
        optimizers = [torch.optim.Adam(m.parameters(), lr=0.1) for m in (alone, model)]
        dt.parallelize_module(model, mesh, TOY_PLAN)
        for m, optimizer in zip((alone, model), optimizers):
            m(x).sum().backward()
            optimizer.step()
        assert same_parameters(model, alone)
        optimizers[0].zero_grad()
        dt.parallelize_module(alone, mesh, TOY_PLAN)
        for m, optimizer in zip((alone, model), optimizers):
            optimizer.zero_grad()
            m(x).sum().backward()
            optimizer.step()
        found, wanted = dt.module_state(alone), dt.module_state(model)
        assert all(np.allclose(found[n].full(), a.full()) for n, a in wanted.items())

    world.run(ranks, program)


@pytest.mark.counts(lambda n: n > 1)
@pytest.mark.parametrize("name", ["Adafactor", "LBFGS"])
def test_optimizers_of_whole_parameters(world, ranks, name):
    """Line searches and factors of parts would go another way on every rank; of wholes they may."""

    def program(group):
        cut = [
            dt.parallelize_module(filled(ToyModel()), line(group), TOY_PLAN),
            dt.fully_shard(filled(ToyModel()), line(group)),
        ]
        for model in cut:
            optimizer = getattr(torch.optim, name)(model.parameters())
            with pytest.raises(RuntimeError, match="of whole parameters"):
                optimizer.step(lambda model=model: model(drawn(4, 10)).sum())
        model = dt.data_parallel(filled(ToyModel()), line(group))
        optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.01)

        def loss():
            optimizer.zero_grad()
            total = model(drawn(4, 10)).square().sum()
            total.backward()
            return total

        first = float(loss().detach())
        optimizer.step(loss)
        return float(loss().detach()) < first

    assert all(world.run(ranks, program))


def test_computed_weights(world, ranks):
    """A parametrized layer has no weight of its own to cut."""

    def program(group):
        layer = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))
        for style in (dt.ColwiseParallel(), dt.RowwiseParallel()):
            with pytest.raises(TypeError, match="computes its weight"):
                dt.parallelize_module(layer, line(group), style)

    world.run(ranks, program)


def test_sharing(world, ranks):
    """Arrays and parameters are one memory, and it is noticed when they are no longer."""

    def program(group):
        mesh = line(group)
        model = dt.parallelize_module(filled(ToyModel()), mesh, TOY_PLAN)
        state = dt.module_state(model)
        weight = state["in_proj.weight"]
        assert weight.placements == (Shard(0),)
        assert state["out_proj.weight"].placements == (Shard(1),)
        assert state["out_proj.bias"].placements == (Replicate(),)
        weight[...] = 1.0
        assert bool((model.in_proj.weight == 1).all())
        with torch.no_grad():
            model.in_proj.weight.mul_(3)
        assert float(weight.sum()) == 960
        model.in_proj.weight.data = model.in_proj.weight.data.clone()
        with pytest.raises(RuntimeError, match=r"in_proj.weight no longer shares"):
            dt.module_state(model)
        del state, weight
        assert float(dt.module_state(model)["in_proj.weight"].sum()) == 960
        if group.size > 1:
            with pytest.raises(RuntimeError, match="over all ranks"):
                model.in_proj.weight.data = torch.zeros(2, 2, dtype=torch.float64)
        model.out_proj.bias.data = torch.zeros(2, dtype=torch.float64)
        with pytest.raises(LayoutError, match=r"out_proj.bias has become"):
            dt.module_state(model)
        with pytest.raises(ValueError, match="not distributed"):
            dt.module_state(nn.Linear(2, 2))
        for move in (nn.Module.float, nn.Module.share_memory, assign):
            model = dt.parallelize_module(filled(ToyModel()), mesh, TOY_PLAN)
            kept = dt.module_state(model)
            move(model)
            with pytest.raises(RuntimeError, match="no longer shares"):
                dt.module_state(model)
            del kept

    def assign(model):
        own = {name: value.clone() for name, value in model.state_dict().items()}
        model.load_state_dict(own, assign=True)

    world.run(ranks, program)


def test_loading_whole_and_own_states(world, ranks):
    """load_state_dict takes whole parameters and this rank's part; copies are distributed, too."""
    reference, other = filled(ToyModel()), filled(ToyModel(), seed=9)
    x = drawn(4, 10)

    def program(group):
        model = dt.parallelize_module(copy.deepcopy(reference), line(group), TOY_PLAN)
        own = {name: value.clone() for name, value in model.state_dict().items()}
        twin = copy.deepcopy(model)
        state = dt.module_state(model)
        model.load_state_dict(other.state_dict())
        assert close(model(x), other(x).detach())
        assert np.array_equal(state["in_proj.bias"].full(), other.in_proj.bias.detach().numpy())
        assert close(twin(x), reference(x).detach())
        assert same_parameters(twin, reference)
        norms = [dt.clip_grad_norm_(m.parameters(), 1e9) for m in graded(model, twin)]
        assert close(norms[0], norms[1])
        model.load_state_dict(own)
        assert close(model(x), reference(x).detach())
        with pytest.raises(TypeError, match="each rank has a part"):
            pickle.dumps(model)
        with pytest.raises(RuntimeError, match="size mismatch"):
            model.load_state_dict(nn.ModuleDict({"in_proj": nn.Linear(3, 3)}).state_dict(), False)

    world.run(ranks, program)


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad"])
def test_arrays_see_what_optimizers_do(world, ranks, kind):
    reference, x = filled(ToyModel()), drawn(4, 10)

    def program(group):
        alone, model = copy.deepcopy(reference), copy.deepcopy(reference)
        dt.parallelize_module(model, line(group), TOY_PLAN)
        before = dt.module_state(model)
        for one in (alone, model):
            optimizer = getattr(torch.optim, kind)(one.parameters(), lr=0.05)
            for _ in range(2):
                optimizer.zero_grad()
                one(x).square().sum().backward()
                optimizer.step()
        for name, parameter in alone.named_parameters():
            assert close(torch.from_numpy(before[name].full()), parameter.detach())

    world.run(ranks, program)


def graded(*models):
    """The models with all gradients 1."""
    for model in models:
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
    return models


@pytest.mark.counts(lambda n: n in (4, 6))
def test_part_of_a_mesh(world, ranks):
    """Tensor parallel along one dimension of two; ranks outside keep the module as it is."""
    reference = filled(ToyModel())
    x = drawn(4, 10)

    def program(group):
        mesh = DeviceMesh(group, (2, group.size // 2), ("dp", "tp"))
        model = dt.parallelize_module(copy.deepcopy(reference), mesh["tp"], TOY_PLAN)
        assert close(model(x), reference(x).detach())
        state = dt.module_state(model, mesh)
        assert state["in_proj.weight"].placements == (Replicate(), Shard(0))
        wanted = reference.in_proj.weight.detach().numpy()
        assert np.array_equal(state["in_proj.weight"].full(), wanted)
        few = DeviceMesh(group, (2,), ranks=[0, 1])
        model = dt.parallelize_module(copy.deepcopy(reference), few, TOY_PLAN)
        assert close(model(x), reference(x).detach())
        assert local_of(model.in_proj.weight).shape[0] == (16 if group.rank < 2 else 32)

    world.run(ranks, program)


def test_norms_that_are_no_numbers(world, ranks):
    """As in torch: NaN spreads; a single parameter is one; an error if that is wanted."""

    def program(group):
        model = dt.parallelize_module(filled(ToyModel()), line(group), TOY_PLAN)
        model(drawn(2, 10)).sum().backward()
        assert float(dt.clip_grad_norm_(model.out_proj.weight, 1e9)) > 0
        model.out_proj.bias.grad[0] = float("nan")
        with pytest.raises(RuntimeError, match="of all gradients is nan"):
            dt.clip_grad_norm_(model, 1.0, error_if_nonfinite=True)
        for order in (2.0, float("inf")):
            assert torch.isnan(dt.clip_grad_norm_(model, 1.0, order))
        assert all(torch.isnan(p.grad).all() for p in model.parameters())

    world.run(ranks, program)


def test_rows_of_other_words_do_not_matter(world, ranks):
    """A row that is infinite does not make NaN of the words beside it."""
    reference = filled(nn.Embedding(5, 2))
    with torch.no_grad():
        reference.weight[0] = float("inf")

    def program(group):
        model = dt.parallelize_module(copy.deepcopy(reference), line(group), dt.RowwiseParallel())
        found = model(torch.tensor([1, 4, 0]))
        assert torch.equal(found, reference(torch.tensor([1, 4, 0])))

    world.run(ranks, program)
