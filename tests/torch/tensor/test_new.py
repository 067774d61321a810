"""Tensors that a distributed one makes of the program's values, and initial values drawn for it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import distarray.torch as dt
from distarray import Shard
from tests.torch.models import close, drawn, line


def bare(values, mesh):
    return dt.distribute_tensor(values, mesh, [Shard(0)], src=None)


def of_module(values, mesh):
    layer = nn.Linear(5, 6).double()
    with torch.no_grad():
        layer.weight.copy_(values)
    return dt.fully_shard(layer, mesh).weight.detach()


KINDS = {"bare": bare, "of a module": of_module}
CALLS = {
    "numbers": lambda x: x * x.new_tensor([1.0, 2, 3, 4, 5]),
    "a number": lambda x: x * x.new_tensor(3.0).item(),
    "integers": lambda x: x.new_tensor([[1, 2], [3, 4]], dtype=torch.int64).double(),
    "itself": lambda x: x.new_tensor(x) + x,
    "a sum": lambda x: x.new_tensor(x.sum()),
    "new": lambda x: x.new([1.0, 2.0]) + x.new(2).zero_() + x.new(torch.Size([2])).zero_(),
}


@pytest.mark.filterwarnings("ignore:To copy construct from a tensor")
@pytest.mark.parametrize("kind", KINDS)
def test_new_tensors_of_a_programs_values(world, ranks, kind):
    def program(group):
        x = KINDS[kind](drawn(6, 5), line(group))
        for name, call in CALLS.items():
            found, wanted = call(x), call(drawn(6, 5))
            whole = found.full_tensor() if hasattr(found, "full_tensor") else found
            assert close(whole, wanted), name
        if isinstance(x, dt.DistTensor) and group.size > 1:
            with pytest.raises(RuntimeError, match="implicit_replication"):
                x.new_tensor(drawn(6, 5))
            with dt.implicit_replication():
                assert close(x.new_tensor(drawn(6, 5)).full_tensor(), drawn(6, 5))

    world.run(ranks, program)


DRAWN = {
    "trunc_normal_": lambda x: nn.init.trunc_normal_(x, std=0.02, a=-0.03, b=0.03),
    "far from the mean": lambda x: nn.init.trunc_normal_(x, a=1.5, b=9.0),
    "kaiming_uniform_": nn.init.kaiming_uniform_,
    "orthogonal_": nn.init.orthogonal_,
}


@pytest.mark.filterwarnings("ignore:mean is more than 2 std", "ignore:.*gathers its operands")
@pytest.mark.parametrize("name", DRAWN)
def test_initial_values_are_those_of_every_layout(world, ranks, name):
    def program(group):
        found = []
        for place in (Shard(0), Shard(1)):
            x = dt.distribute_tensor(torch.zeros(6, 5), line(group), [place], src=None)
            dt.manual_seed(3, x.mesh)
            found.append(DRAWN[name](x).full_tensor())
        assert torch.equal(*found)
        assert len(found[0].unique()) == 30
        if name == "orthogonal_":
            assert torch.allclose(found[0].T @ found[0], torch.eye(5), atol=1e-5)
        if name == "trunc_normal_":
            assert found[0].abs().max() <= 0.03
        if name == "far from the mean":
            assert found[0].min() >= 1.5

    world.run(ranks, program)
