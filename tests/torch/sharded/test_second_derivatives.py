"""Second derivatives of fully sharded models, whose ranks have different samples."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import distarray.torch as dt
from tests.torch.models import close, drawn, filled, line


class Model(nn.Module):
    """Two layers, one with a factor that every rank has."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(7, 5), nn.Linear(5, 3)
        self.factor = nn.Parameter(torch.ones(()))

    def forward(self, x):
        return self.second(self.first(x).tanh() * self.factor)


def one_unit(model, mesh, **options):
    return dt.fully_shard(model, mesh, **options)


def two_units(model, mesh, **options):
    dt.fully_shard(model.first, mesh, **options)
    return dt.fully_shard(model, mesh, **options)


def penalized(loss, parameters):
    grads = torch.autograd.grad(loss, parameters, create_graph=True)
    return loss + sum((grad**3).sum() for grad in grads if grad.ndim)


def by_grad(loss, parameters):
    return torch.autograd.grad(penalized(loss, parameters), parameters)


def by_backward(loss, parameters):
    penalized(loss, parameters).backward()
    return [p.grad for p in parameters]


def hessian_times_parameters(loss, parameters):
    loss.backward(create_graph=True)
    grads = [p.grad for p in parameters if p.ndim]
    cut = [p for p in parameters if p.ndim]
    found = torch.autograd.grad(grads, cut, grad_outputs=[p.detach() for p in cut])
    for p in parameters:
        p.grad = None  # which would keep the graph, and that the gradient
    return found


@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph")
@pytest.mark.parametrize("run", [by_grad, by_backward, hessian_times_parameters])
@pytest.mark.parametrize("shard", [one_unit, two_units])
@pytest.mark.parametrize("fold", ["avg", "sum"])
def test_second_derivatives(world, ranks, fold, shard, run):
    alone = filled(Model())
    whole = alone(drawn(2 * ranks, 7)).square().sum() / (ranks if fold == "avg" else 1)
    wanted = run(whole, list(alone.parameters()))

    def program(group):
        for ahead in (True, False):
            model = shard(filled(Model()), line(group), fold=fold, ahead=ahead)
            mine = drawn(2 * ranks, 7).tensor_split(group.size)[group.rank]
            found = run(model(mine).square().sum(), list(model.parameters()))
            for one, other in zip(found, wanted, strict=True):
                one = one.full_tensor() if hasattr(one, "full_tensor") else one
                assert close(one, other.detach())

    world.run(ranks, program)


@pytest.mark.counts(lambda ranks: ranks > 1)
def test_third_derivatives_are_refused(world, ranks):
    def program(group):
        model = one_unit(filled(Model()), line(group))
        parameters = list(model.parameters())
        loss = penalized(model(drawn(4, 7)).square().sum(), parameters)
        with pytest.raises(RuntimeError, match="no third derivatives"):
            torch.autograd.grad(loss, parameters, create_graph=True)

    world.run(ranks, program)
