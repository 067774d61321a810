"""Parameters that a plan does not name, and what they do with parts of activations."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import distarray.torch as dt
from distarray import Shard, trace
from distarray.errors import DivergenceError
from tests.torch.models import close, drawn, filled, line


class Scaled(nn.Module):
    """Two layers with a factor of its own between them, and one behind them."""

    def __init__(self, factor=lambda p: p):
        super().__init__()
        self.up, self.down = nn.Linear(7, 11), nn.Linear(11, 3)
        self.between, self.behind = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(3))
        self.factor = factor

    def forward(self, x):
        return self.down(self.up(x).tanh() * self.factor(self.between)) * self.behind


def loss(model):
    return model(drawn(4, 7)).square().sum()


def plan(**options):
    return {"up": dt.ColwiseParallel(**options), "down": dt.RowwiseParallel()}


def wanted():
    alone = filled(Scaled())
    loss(alone).backward()
    return alone.between.grad, alone.behind.grad


@pytest.mark.counts(lambda ranks: ranks > 1)
def test_a_contribution_to_a_gradient_is_not_taken_for_the_whole(world, ranks):
    def program(group):
        model = dt.parallelize_module(filled(Scaled()), line(group), plan())
        with pytest.raises(DivergenceError, match=r"between .*use_local_output=False.*copy_to"):
            loss(model).backward()

    world.run(ranks, program)


def test_what_the_error_says_is_right(world, ranks):
    def program(group):
        mesh = line(group)
        summed = Scaled(lambda p: dt.copy_to(p, mesh))
        ways = {
            "use_local_output=False": (Scaled(), plan(use_local_output=False)),
            "copy_to": (summed, plan()),
        }
        for name, (model, styles) in ways.items():
            dt.parallelize_module(filled(model), mesh, styles)
            loss(model).backward()
            for found, other in zip((model.between.grad, model.behind.grad), wanted(), strict=True):
                assert close(found, other), name

    world.run(ranks, program)


@pytest.mark.counts(lambda ranks: ranks > 1)
def test_gradients_are_compared_until_they_have_values(world, ranks):
    """One message in the first pass whose gradients are not zero, and none afterwards."""

    def compared(model, factor):
        with trace() as events:
            (factor * loss(model)).backward()
        return sum(event.note == "gradients of replicated parameters" for event in events)

    def program(group):
        mesh = line(group)
        model = filled(Scaled(lambda p: dt.copy_to(p, mesh)))
        dt.parallelize_module(model, mesh, plan())
        assert [compared(model, factor) for factor in (0, 0, 1, 1)] == [1, 1, 1, 0]

    world.run(ranks, program)


class _Constant(torch.autograd.Function):
    """A function that tells autograd of no gradient at all."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return None


def test_a_parameter_without_a_gradient(world, ranks):
    def program(group):
        mesh = line(group)
        model = dt.parallelize_module(filled(Scaled(_Constant.apply)), mesh, plan())
        loss(model).backward()
        assert model.between.grad is None
        x = dt.distribute_tensor(drawn(5, 3), mesh, [Shard(0)]).requires_grad_()
        y = dt.distribute_tensor(drawn(5, 3), mesh, [Shard(0)]).requires_grad_()
        (_Constant.apply(x) * y).sum().backward()
        assert x.grad is None
        assert close(y.grad.full_tensor(), drawn(5, 3))

    world.run(ranks, program)
