"""Layers of experts that are divided among the ranks: tokens that all ranks have, and cut ones."""

from __future__ import annotations

import copy
from functools import partial

import pytest
import torch
from torch import nn

import distarray.torch as dt
from distarray import Replicate, Shard, trace
from tests.everywhere import raises_everywhere
from tests.torch.models import close, drawn, filled, line, same_gradients, same_parameters
from tests.torch.training import grid

FEATURES = 6


class Experts(nn.Module):
    """Experts in parameters of three dimensions, by a loop over those that are asked for."""

    def __init__(self, count):
        super().__init__()
        self.num_experts = count
        self.up = nn.Parameter(torch.empty(count, 8, FEATURES))
        self.down = nn.Parameter(torch.empty(count, FEATURES, 8))
        self.bias = nn.Parameter(torch.empty(count, FEATURES))

    def forward(self, tokens, experts, weights):
        assert len(self.up) == self.num_experts
        total = torch.zeros_like(tokens)
        for expert in range(self.num_experts):
            row, slot = torch.where(experts == expert)
            hidden = torch.relu(tokens[row] @ self.up[expert].T)
            result = hidden @ self.down[expert].T + self.bias[expert]
            total = total.index_add(0, row, result * weights[row, slot, None])
        return total


class Scaled(Experts):
    """Experts whose forward takes more than tokens, experts and weights."""

    def forward(self, tokens, experts, weights, scale=1.0):
        return super().forward(tokens, experts, weights) * scale


class Gate(nn.Module):
    """Chooses experts, and weights by which their results count."""

    def __init__(self, count):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(count, FEATURES))

    def forward(self, tokens):
        return (tokens @ self.weight.T).softmax(-1).topk(2)


class Routed(nn.Module):
    def __init__(self, count):
        super().__init__()
        self.gate, self.experts = Gate(count), Experts(count)

    def forward(self, tokens):
        weights, numbers = self.gate(tokens)
        return self.experts(tokens, numbers, weights)


def began(count, tokens):
    """A model, tokens, and what one process makes of them, with gradients."""
    reference, x = filled(Routed(count)), drawn(tokens, FEATURES)
    start = copy.deepcopy(reference)
    asked = x.clone().requires_grad_()
    wanted = reference(asked)
    wanted.square().sum().backward()
    return start, x, wanted.detach(), asked.grad, reference


@pytest.mark.parametrize("count", [2, 4, 5])
@pytest.mark.parametrize("tokens", [1, 2, 11])
def test_tokens_that_every_rank_has(world, ranks, count, tokens):
    start, x, wanted, gradient, reference = began(count, tokens)

    def program(group):
        plan = {"experts": dt.ExpertParallel()}
        model = dt.parallelize_module(copy.deepcopy(start), line(group), plan)
        asked = x.clone().requires_grad_()
        found = model(asked)
        found.square().sum().backward()
        assert close(found, wanted)
        assert close(asked.grad, gradient)
        assert same_gradients(model, reference)
        assert dt.module_state(model)["experts.up"].placements == (Shard(0),)

    world.run(ranks, program)


def by_tokens(local=True):
    return {
        "gate": dt.SequenceParallel(sequence_dim=0, use_local_output=local),
        "experts": dt.ExpertParallel(input_layouts=Shard(0), use_local_output=local),
    }


@pytest.mark.parametrize("local", [True, False])
@pytest.mark.parametrize("count", [2, 5])
@pytest.mark.parametrize("tokens", [1, 11])
def test_tokens_that_are_cut(world, ranks, count, tokens, local):
    start, x, wanted, gradient, reference = began(count, tokens)

    def program(group):
        model = dt.parallelize_module(copy.deepcopy(start), line(group), by_tokens(local))
        mine = slice(*tokens_of(group.rank, group.size, tokens))
        asked = x[mine].clone().requires_grad_()
        if local:
            found = model(asked)
            found.square().sum().backward()
        else:
            whole = dt.DistTensor.from_local(asked, line(group), [Shard(0)])
            result = model(whole)
            assert result.placements == (Shard(0),)
            assert tuple(result.shape) == (tokens, FEATURES)
            result.square().sum().backward()
            found = result.to_local()
        assert close(found, wanted[mine])
        assert close(asked.grad, gradient[mine])
        assert same_gradients(model, reference)

    world.run(ranks, program)


def test_what_is_not_an_expert_is_averaged_by_itself(world, ranks):
    """The way out where data_parallel refuses the model; its rest is averaged, or divided."""
    start, x, _, _, reference = began(5, 12)

    def divided(group):
        plan = {"experts": dt.ExpertParallel(input_layouts=Shard(0))}
        model = dt.parallelize_module(copy.deepcopy(start), line(group), plan)
        dt.fully_shard(model.gate, line(group), fold="sum")
        model(x.tensor_split(group.size)[group.rank]).square().sum().backward()
        assert same_gradients(model, reference)

    def program(group):
        divided(group)
        plan = {"experts": dt.ExpertParallel(input_layouts=Shard(0))}
        model = dt.parallelize_module(copy.deepcopy(start), line(group), plan)
        if group.size > 1:
            with pytest.raises(ValueError, match="modules that have no such parameter"):
                dt.data_parallel(model, line(group), fold="sum")
        dt.data_parallel(model.gate, line(group), fold="sum")
        model(x.tensor_split(group.size)[group.rank]).square().sum().backward()
        assert same_gradients(model, reference)

    world.run(ranks, program)


def tokens_of(rank, ranks, tokens):
    """Where a rank's tokens begin and end: the last ranks have one, the first all others."""
    ends = [max(0, tokens - left) for left in range(ranks)][::-1]
    return (0, *ends)[rank], ends[rank]


def test_one_rank_has_all_tokens_of_one_expert(world, ranks):
    """Other experts' gradients are zeros, as in one process, so that optimizers step them."""
    layer, x = filled(Experts(4)), drawn(5, FEATURES)
    start, numbers = copy.deepcopy(layer), torch.full((5, 1), 3)
    layer(x, numbers, torch.ones(5, 1, dtype=x.dtype)).sum().backward()

    def program(group):
        style = dt.ExpertParallel(input_layouts=Shard(0))
        found = dt.parallelize_module(copy.deepcopy(start), line(group), style)
        mine = slice(0, 5 if group.rank == 0 else 0)
        weights = torch.ones(5, 1, dtype=x.dtype)[mine]
        found(x[mine], numbers[mine], weights).sum().backward()
        assert all(p.grad is not None for p in found.parameters())
        assert same_gradients(found, layer)

    world.run(ranks, program)


def test_a_step_after_steps(world, ranks):
    """Five steps of AdamW, whose state counts every step, in two dimensions of a mesh."""
    start, batch = filled(Routed(3)), drawn(8, FEATURES)

    def trained(model, mine, fold):
        optimizer = torch.optim.AdamW(model.parameters(), 0.01)
        for step in range(5):
            optimizer.zero_grad()
            x = batch.roll(step, 0)[mine]
            (model(x).square().sum() * fold).backward()
            optimizer.step()
        return model

    reference = trained(copy.deepcopy(start), slice(None), 1.0)

    def program(group):
        mesh = grid(group)
        model = copy.deepcopy(start)
        dt.parallelize_module(model, mesh["tp"], {"experts": dt.ExpertParallel()})
        dt.fully_shard(model, mesh, "dp", fold="sum")
        rows = torch.arange(8).tensor_split(mesh.size("dp"))[mesh.coords[0]]
        assert same_parameters(trained(model, rows, 1.0), reference)

    world.run(ranks, program)


@pytest.mark.counts(lambda ranks: ranks > 1)
def test_messages(world, ranks):
    """As the docstring has them, once the gradient of the gate has been compared."""
    start, x, *_ = began(12, 60)  # some for every rank

    def counted(group, plan):
        model = dt.parallelize_module(copy.deepcopy(start), line(group), plan)
        model(x.clone()).square().sum().backward()
        with trace() as forward:
            loss = model(x.clone().requires_grad_()).square().sum()
        with trace() as backward:
            loss.backward()
        return forward, backward

    def program(group):
        forward, backward = counted(group, {"experts": dt.ExpertParallel()})
        assert [event.kind for event in forward] == ["allreduce"]
        assert [event.kind for event in backward] == ["allreduce"] * 2
        cut = dt.ExpertParallel(input_layouts=Shard(0))
        forward, backward = counted(group, {"experts": cut})
        assert {event.note for event in forward} == {"all_to_all"}
        assert len(forward) == 5
        assert {event.note for event in backward} == {"all_to_all"}
        assert len(backward) == 3

    world.run(ranks, program)


def test_none_and_no_expert(world, ranks):
    layer, x = filled(Experts(3)), drawn(4, FEATURES)
    numbers = torch.tensor([[0, 3], [3, 3], [2, 1], [3, 0]])
    weights = drawn(4, 2, seed=3)
    start, wanted = copy.deepcopy(layer), layer(x, numbers, weights)

    def program(group):
        for placement in (Replicate(), Shard(0)):
            style = dt.ExpertParallel(input_layouts=placement)
            found = dt.parallelize_module(copy.deepcopy(start), line(group), style)
            assert close(found(tokens=x, experts=numbers, weights=weights), wanted.detach())
            wrong = numbers + 1
            if placement == Shard(0) and group.rank > 0:
                wrong = numbers  # one rank alone has the wrong number
            call = partial(found, x, wrong, weights)
            raises_everywhere(group, IndexError, call, "numbered from 0 to 2")

    world.run(ranks, program)


def test_refused(world, ranks):
    counted = filled(Experts(2))
    counted.register_buffer("seen", torch.zeros(2))  # each rank would read those of other experts
    x, numbers = drawn(2, FEATURES), torch.zeros(2, 1, dtype=torch.int64)

    def program(group):
        mesh = line(group)
        for module in (nn.Linear(2, 2), Routed(2), nn.ReLU(), counted):
            call = partial(dt.parallelize_module, module, mesh, dt.ExpertParallel())
            raises_everywhere(group, TypeError, call, "experts")
        call = partial(dt.ExpertParallel, input_layouts=Shard(1))
        raises_everywhere(group, ValueError, call, "by tokens")
        layer = dt.parallelize_module(Scaled(2), mesh, dt.ExpertParallel())
        call = partial(layer, x, numbers, x[:, :1], scale=2.0)
        raises_everywhere(group, TypeError, call, "not tokens, experts, weights, scale")

    world.run(ranks, program)
