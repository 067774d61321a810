"""Copies of fully sharded models, and averages of their parameters."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import distarray.torch as dt
from tests.torch.models import close, drawn, filled, line


class Model(nn.Module):
    """Tied layers, parameters of its own, statistics, and a list of parameters beside them."""

    def __init__(self):
        super().__init__()
        self.rows, self.factor = nn.Parameter(torch.empty(7, 7)), nn.Parameter(torch.empty(()))
        self.first, self.second = nn.Linear(7, 7), nn.Linear(7, 7)
        self.second.weight = self.first.weight
        self.norm, self.recurrent = nn.BatchNorm1d(7), nn.GRU(7, 5, batch_first=True)

    def forward(self, x):
        x = self.second(self.first(x @ self.rows)).tanh() * self.factor
        return self.recurrent(self.norm(x)[None])[0][0]


def one_unit(model, mesh):
    return dt.fully_shard(model, mesh)


def two_units(model, mesh):
    dt.fully_shard(model.recurrent, mesh)
    return dt.fully_shard(model, mesh)


def trained(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        model(drawn(4, 7)).square().sum().backward()
        optimizer.step()
    return model


def program(model):
    """What a model, its copy that goes another way, and the copy's copy give."""
    model(drawn(4, 7)).square().sum().backward()
    copied = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in copied.parameters():
            parameter.mul_(0.5)
    again = copy.deepcopy(trained(copied))
    values = [*model.parameters(), *copied.parameters()]
    return [m(drawn(4, 7)) for m in (model, copied, again)], values, [p.grad for p in values]


def averaged(model):
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
    average.update_parameters(model)
    average.update_parameters(trained(model))
    return [average(drawn(4, 7))], list(average.module.parameters()), []


def whole(x):
    return x.full_tensor() if hasattr(x, "full_tensor") else x


@pytest.mark.parametrize("run", [program, averaged])
@pytest.mark.parametrize("shard", [one_unit, two_units])
def test_copies_go_their_own_way(world, ranks, shard, run):
    wanted = run(filled(Model()))

    def on_ranks(group):
        found = run(shard(filled(Model()), line(group)))
        for mine, others in zip(found, wanted, strict=True):
            for one, other in zip(mine, others, strict=True):
                assert close(whole(one), other.detach())

    world.run(ranks, on_ranks)


def test_a_copy_of_a_part_has_its_parameters(world, ranks):
    def on_ranks(group):
        model = one_unit(filled(Model()), line(group))
        first = copy.deepcopy(model.first)
        model(drawn(4, 7)).sum().backward()
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(model)
        assert close(whole(first.weight), filled(Model()).first.weight.detach())

    world.run(ranks, on_ranks)
