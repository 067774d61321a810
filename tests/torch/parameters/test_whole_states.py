"""States and copies of distributed modules, and parameters that programs put in their place."""

from __future__ import annotations

import copy
import io
from functools import partial

import pytest
import torch
from torch import nn

import distarray.torch as dt
from distarray import Shard
from tests.torch.models import close, drawn, filled, line
from tests.torch.parameters.test_outside import LAYOUTS, PLAN, crossed, made, whole

PAIRS = [("rows", "a plan"), ("a plan", "columns"), ("columns", "both"), ("both", "rows")]


def output(model, x, layout, group):
    """What a model gives, whole."""
    mesh = {"a plan": line(group), "both": crossed(group)["tp"]}.get(layout)
    return model(x) if mesh is None else dt.gather_from(model(x), mesh, dim=-1)


def same(model, reference):
    pairs = zip(model.parameters(), reference.parameters(), strict=True)
    return all(close(whole(mine), theirs.detach()) for mine, theirs in pairs)


def trained(model, optimizer):
    optimizer.zero_grad()
    with dt.implicit_replication():
        loss = sum(whole(p.pow(2).sum() + p.pow(3).sum()) for p in model.parameters())
    loss.backward()
    optimizer.step()


@pytest.mark.parametrize("source, target", PAIRS)
def test_states_are_of_the_whole(world, ranks, source, target):
    """Into another layout, into a plain model, through a file, and back; of optimizers, too."""
    alone = made()
    lone = torch.optim.AdamW(alone.parameters(), lr=0.1)
    for _ in range(2):
        trained(alone, lone)
    once = copy.deepcopy(alone), copy.deepcopy(lone.state_dict())
    trained(alone, lone)

    def program(group):
        first = LAYOUTS[source](made(), group)
        optimizer = torch.optim.AdamW(first.parameters(), lr=0.1)
        for _ in range(2):
            trained(first, optimizer)
        state = first.state_dict()
        assert {n: x.shape for n, x in state.items()} == {
            n: x.shape for n, x in once[0].state_dict().items()
        }
        for kept, p in zip(optimizer.state_dict()["state"].values(), alone.parameters()):
            assert kept["exp_avg"].shape == p.shape
        file = io.BytesIO()
        torch.save({"model": state, "optimizer": optimizer.state_dict()}, file)
        file.seek(0)
        read = torch.load(file)
        assert all(type(x) is torch.Tensor for x in read["model"].values())
        for states in (
            (state, optimizer.state_dict()),
            (read["model"], read["optimizer"]),
            (once[0].state_dict(), once[1]),
            copy.deepcopy((state, optimizer.state_dict())),
        ):
            for make in (lambda: LAYOUTS[target](made(), group), made):
                second = make()
                again = torch.optim.AdamW(second.parameters(), lr=0.1)
                second.load_state_dict(states[0])
                again.load_state_dict(copy.deepcopy(states[1]))
                trained(second, again)
                assert same(second, alone)

    world.run(ranks, program)


def replicas(model, group):
    """Cut over the ranks of each row of a mesh, and averaged over its columns."""
    mesh = crossed(group)
    return dt.data_parallel(dt.parallelize_module(model, mesh["tp"], PLAN), mesh, "dp")


@pytest.mark.parametrize("source", ["both", "rows", replicas])
@pytest.mark.parametrize("target", ["both", "rows", replicas])
def test_states_go_to_meshes_of_some_of_the_ranks(world, ranks, source, target):
    """Each row of ranks has a mesh of its own; no exchange between several meshes is waited for."""
    alone = made()
    lone = torch.optim.AdamW(alone.parameters(), lr=0.1)
    trained(alone, lone)

    def program(group):
        first, second = (LAYOUTS.get(kind, kind)(made(), group) for kind in (source, target))
        optimizer, again = (torch.optim.AdamW(m.parameters(), lr=0.1) for m in (first, second))
        optimizer.load_state_dict(copy.deepcopy(lone.state_dict()))
        first.load_state_dict(alone.state_dict())
        second.load_state_dict(first.state_dict())
        again.load_state_dict(optimizer.state_dict())
        assert same(second, alone)
        for p, kept in zip(alone.parameters(), again.state_dict()["state"].values(), strict=True):
            assert close(whole(kept["exp_avg"]), lone.state[p]["exp_avg"])

    world.run(ranks, program)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_loading_by_assignment_and_other_types(world, ranks, layout):
    other = filled(made(), seed=8)

    def program(group):
        model = LAYOUTS[layout](made(), group)
        model.load_state_dict(other.state_dict(), assign=True)
        assert same(model, other)
        x = torch.tensor([0, 6, 3])
        assert close(output(model, x, layout, group), other(x).detach())
        model.float()
        assert all(p.dtype is torch.float32 for p in model.parameters())
        assert model[0].weight.shape == (7, 4)
        found = output(model, x, layout, group)
        assert torch.allclose(found, other(x).float(), atol=1e-5)
        model.double()
        with pytest.raises(RuntimeError, match="size mismatch"):
            model.load_state_dict(nn.Sequential(nn.Embedding(6, 4), nn.Linear(4, 7)).state_dict())

    world.run(ranks, program)


def replaced(model):
    model[1].weight = nn.Parameter(model[1].weight.detach())


def set_anew(model):
    model[1].weight = nn.Parameter(torch.ones(7, 4, dtype=torch.float64))


@pytest.mark.parametrize("layout", ["rows", "a plan", "columns", "both", "data parallel"])
def test_parameters_replaced(world, ranks, layout):
    """A part in a part's place is trained; a plain tensor is refused, for it would be cut."""
    x = torch.tensor([0, 6, 3])
    alone = made()
    alone(x).square().sum().backward()
    make = LAYOUTS.get(layout, lambda m, group: dt.data_parallel(m, line(group)))

    def program(group):
        model = make(made(), group)
        replaced(model)
        output(model, x, layout, group).square().sum().backward()
        for mine, theirs in zip(model.parameters(), alone.parameters()):
            assert close(whole(mine.grad), theirs.grad)
        model = make(made(), group)
        set_anew(model)
        if group.size == 1 or layout == "data parallel":
            model(x)
        else:
            with pytest.raises(RuntimeError, match=r"replaced by a plain|no longer the parameter"):
                model(x)

    world.run(ranks, program)


@pytest.mark.counts(lambda n: n > 1)
def test_other_parameters_between_forward_and_backward(world, ranks):
    def program(group):
        inner = nn.Sequential(dt.fully_shard(filled(nn.Linear(4, 4)), line(group)))
        dt.fully_shard(inner, line(group))
        loss = inner(drawn(2, 4).requires_grad_()).square().sum()
        inner[0].weight = nn.Parameter(inner[0].weight.detach().clone())
        inner(drawn(2, 4))
        with pytest.raises(RuntimeError, match="between its forward and the backward"):
            loss.backward()

    world.run(ranks, program)


@pytest.mark.parametrize("layout", ["a plan", "columns", "registered"])
def test_functional_calls(world, ranks, layout):
    """With other values than the module's, and with gradients for them."""
    x = torch.tensor([0, 6, 3])
    alone = made()
    values = {n: p.detach().clone().requires_grad_() for n, p in alone.named_parameters()}
    wanted = torch.func.functional_call(alone, {n: 2 * v for n, v in values.items()}, x)
    wanted.square().sum().backward()

    def program(group):
        model = LAYOUTS[layout](made(), group)
        named = dict(model.named_parameters())
        double = {n: 2 * p for n, p in named.items()}
        found = output(partial(torch.func.functional_call, model, double), x, layout, group)
        assert close(found, wanted.detach())
        found.square().sum().backward()
        for name, p in named.items():
            assert close(whole(p.grad), values[name].grad)

    world.run(ranks, program)


@pytest.mark.parametrize("layout", ["a plan", "columns"])
def test_averages_of_a_model(world, ranks, layout):
    start = made()

    def program(group):
        model = LAYOUTS[layout](made(), group)
        average = torch.optim.swa_utils.AveragedModel(
            model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.5)
        )
        average.update_parameters(model)
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(3)
        average.update_parameters(model)
        for mine, theirs in zip(average.module.parameters(), start.parameters()):
            assert close(whole(mine), 2 * theirs.detach())

    world.run(ranks, program)


@pytest.mark.counts(lambda n: n > 1)
def test_what_other_libraries_write(world, ranks):
    """torch's states of models, safetensors: the whole, or the line that gives it."""
    state = pytest.importorskip("torch.distributed.checkpoint.state_dict")
    safe = pytest.importorskip("safetensors.torch")
    start, other = made(), filled(made(), seed=8)

    def program(group):
        for layout in LAYOUTS.values():
            model = layout(made(), group)
            found = state.get_model_state_dict(model)
            assert {n: whole(x).shape for n, x in found.items()} == {
                n: x.shape for n, x in start.state_dict().items()
            }
            state.set_model_state_dict(model, other.state_dict())
            assert same(model, other)
            with pytest.raises(RuntimeError, match=r"x\.full_tensor"):
                safe.save(model.state_dict())
            written = {
                name: x.full_tensor() if isinstance(x, dt.DistTensor) else x
                for name, x in model.state_dict().items()
            }
            with pytest.raises(RuntimeError, match=r"x\.full_tensor"):
                safe.save({"x": dt.distribute_tensor(torch.ones(4), line(group), [Shard(0)])})
            read = safe.load(safe.save(written))
            assert all(torch.equal(read[n], x) for n, x in other.state_dict().items())

    world.run(ranks, program)


def test_registered_parameters_that_modules_share(world, ranks):
    """One distributed tensor in two modules is one parameter afterwards."""

    def program(group):
        model = filled(nn.Sequential(nn.Linear(4, 4, False), nn.Linear(4, 4, False)))
        reference = copy.deepcopy(model)
        reference[1].weight = reference[0].weight
        shared = []

        def share(name, module, mesh):
            if "weight" in module._parameters:
                if not shared:
                    spread = dt.distribute_tensor(module.weight.detach(), mesh, [Shard(1)])
                    shared.append(nn.Parameter(spread))
                module.register_parameter("weight", shared[0])

        dt.distribute_module(model, line(group), share)
        assert model[0].weight is model[1].weight
        for one in (model, reference):
            one(drawn(3, 4)).square().sum().backward()
        assert close(whole(model[0].weight.grad), reference[0].weight.grad)

    world.run(ranks, program)
