"""Losses that compare numbers one by one, of distributed tensors."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

import distarray.torch as dt
from distarray import Shard
from tests.torch.models import drawn, line
from tests.torch.tensor.comparing import compare_drawn, runs_without_gather

LOSSES = {
    "mse": functional.mse_loss,
    "smooth_l1": lambda x, y, **how: functional.smooth_l1_loss(x, y, beta=0.5, **how),
    "huber": lambda x, y, **how: functional.huber_loss(x, y, delta=0.7, **how),
    "l1": functional.l1_loss,
    "soft_margin": functional.soft_margin_loss,
    "logits": functional.binary_cross_entropy_with_logits,
    "weighed logits": lambda x, y, **how: functional.binary_cross_entropy_with_logits(
        x, y, weight=y[0].detach(), pos_weight=y[1].detach().exp(), **how
    ),
    "entropy": lambda x, y, **how: functional.binary_cross_entropy(
        x.sigmoid(), y.sigmoid().detach(), **how
    ),
}
ONE_BY_ONE = {
    "hardswish": functional.hardswish,
    "hardtanh": functional.hardtanh,
    "hardsigmoid": functional.hardsigmoid,
    "softplus": functional.softplus,
    "elu": functional.elu,
    "leaky_relu": functional.leaky_relu,
    "leaky_relu in place": lambda x: functional.leaky_relu_(x + 0),
    "hardtanh in place": lambda x: functional.hardtanh_(x + 0),
    "hardsigmoid in place": lambda x: functional.hardsigmoid(x + 0, inplace=True),
    "elu in place": lambda x: functional.elu_(x + 0),
    "celu in place": lambda x: torch.celu_(x + 0),
    "hardshrink": functional.hardshrink,
    "softshrink": functional.softshrink,
    "prelu": lambda x: functional.prelu(x, x[0].detach()),
    "glu of rows": lambda x: functional.glu(x, 0),
    "glu of columns": functional.glu,
    "rsub": lambda x: torch.rsub(x, x[0], alpha=2),
    "two minus": lambda x: 2 - x,
}
#: What torch tags as working element by element only where nothing is written to.
INTO = {
    "abs_": lambda x: x.clone().abs_(),
    "eq_": lambda x: x.clone().eq_(x[0]),
    "lt_": lambda x: x.clone().lt_(0.3),
    "copysign_": lambda x: x.clone().copysign_(x[:, :1]),
    "elu_": lambda x: functional.elu_(x.clone()),
    "hardtanh_": lambda x: functional.hardtanh_(x.clone()),
    "leaky_relu_": lambda x: functional.leaky_relu_(x.clone()),
    "threshold_": lambda x: functional.threshold_(x.clone(), 0.1, 7.0),
    "relu out": lambda x: torch.ops.aten.relu.out(x, out=torch.empty_like(x)),
    "gelu out": lambda x: torch.ops.aten.gelu.out(x, out=torch.empty_like(x)),
    "leaky_relu out": lambda x: torch.ops.aten.leaky_relu.out(x, 0.2, out=torch.empty_like(x)),
    "where out": lambda x: torch.where(x > 0, x, x[0], out=torch.empty_like(x)),
}


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("name", LOSSES)
@given(data=st.data())
def test_losses(world, ranks, name, reduction, data):
    def call(x):
        return LOSSES[name](x, (x * 0.5 + 0.2).detach(), reduction=reduction)

    compare_drawn(world, ranks, data, drawn(6, 4).numpy(), call)


@pytest.mark.parametrize("name", ONE_BY_ONE)
@given(data=st.data())
def test_one_by_one(world, ranks, name, data):
    compare_drawn(world, ranks, data, drawn(6, 4).numpy(), ONE_BY_ONE[name])


@pytest.mark.counts(lambda n: n > 1)
@pytest.mark.parametrize("name", [*LOSSES, *ONE_BY_ONE])
def test_nothing_gathers(world, ranks, name):
    def call(x):
        return ONE_BY_ONE[name](x) if name in ONE_BY_ONE else LOSSES[name](x, x.detach() * 2)

    runs_without_gather(world, ranks, drawn(6, 4).numpy(), call, (0, 1))


@pytest.mark.parametrize("name", INTO)
@given(data=st.data())
def test_one_by_one_into_a_tensor(world, ranks, name, data):
    compare_drawn(world, ranks, data, drawn(6, 4).numpy(), INTO[name], gradients=False)


@pytest.mark.counts(lambda n: n > 1)
@pytest.mark.parametrize("name", INTO)
def test_nothing_gathers_into_a_tensor(world, ranks, name):
    runs_without_gather(world, ranks, drawn(6, 4).numpy(), INTO[name], (0, 1), gradients=False)


@given(data=st.data())
def test_floor_divide(world, ranks, data):
    def call(x):
        return torch.floor_divide(x, x[0]) + (10 * x).long().floor_divide(3)

    compare_drawn(world, ranks, data, drawn(6, 4).numpy(), call, gradients=False)


def test_bad_values_are_refused_on_all_ranks(world, ranks):
    values = torch.full((4, 2), 0.5)
    bad = values.clone()
    bad[3, 1] = 2

    def program(group):
        x, y = [dt.distribute_tensor(t, line(group), [Shard(0)], src=None) for t in (bad, values)]
        with pytest.raises(RuntimeError, match="between 0 and 1"):
            functional.binary_cross_entropy(x, y)
        zeros = dt.distribute_tensor((bad * 0).long(), line(group), [Shard(0)], src=None)
        ones = zeros + 1
        zeros = zeros + (x < 1)  # one of them is zero, on the last rank
        with pytest.raises(RuntimeError, match="ero"):
            torch.floor_divide(ones, zeros)

    world.run(ranks, program)
