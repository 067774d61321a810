"""Distributed tensors under torch.inference_mode, made there or before."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

import distarray
import distarray.torch as dt
from distarray import Replicate, Shard
from tests.torch.models import close, drawn, filled, line


def _written(x):
    base = x.clone()
    view, piece = base.view(3, 8), base.view(-1)[5:9]
    base.mul_(2)
    piece.add_(1)
    view[1].zero_()
    torch._foreach_mul_([base], 3.0)
    return base + view.view(6, 4), piece + 0


def _attention(x):
    heads = x.view(2, 3, 2, 2).transpose(1, 2)
    found = functional.scaled_dot_product_attention(heads, heads, heads)
    return found.transpose(1, 2).reshape(2, 3, 4)


#: What is called with one matrix of 6 x 4.
CALLS = {
    "reshape of a permuted one": lambda x: x.view(2, 3, 4).permute(2, 0, 1).reshape(4, 6),
    "reshape of a transposed one": lambda x: x.T.reshape(-1),
    "reshape of one row": lambda x: x[None, :1].transpose(1, 2).reshape(2, 2),
    "view that moves": lambda x: x.view(3, 8) * 2,
    "views and writes": _written,
    "attention": _attention,
    "row": lambda x: x[2] * x[3],
    "sums": lambda x: x.sum(0) * x.sum(0) + x.mean(),
    "interpolate": lambda x: functional.interpolate(x[None], scale_factor=2),
    "greater": lambda x: torch.max(x, x * 0),
    "conv": lambda x: functional.conv1d(x[None], x[:, :3][None].expand(2, 6, 3)),
}


@pytest.mark.parametrize("before", [False, True], ids=["made there", "made before"])
@pytest.mark.parametrize("name", CALLS)
def test_operators(world, ranks, name, before):
    """As in no_grad, and read afterwards as well."""
    wanted = CALLS[name](drawn(6, 4))

    def program(group):
        for place in (Shard(0), Shard(1), Replicate()):
            with torch.inference_mode(not before):
                x = dt.distribute_tensor(drawn(6, 4), line(group), [place], src=None)
            with torch.inference_mode(), distarray.config.override(fallback="allow"):
                found = CALLS[name](x)
            found, plain = [y if isinstance(y, tuple) else (y,) for y in (found, wanted)]
            assert all(close(y.full_tensor(), z) for y, z in zip(found, plain, strict=True))

    world.run(ranks, program)


def test_parts_are_shared(world, ranks):
    """With the plain tensor that they were made of, which is torch's own of that mode."""

    def program(group):
        with torch.inference_mode():
            part = torch.zeros(2, 3)
            x = dt.DistTensor.from_local(part, line(group), [Shard(0)])
            x.add_(1)
            part[0] = 5
            assert x.to_local().sum() == part.sum() == 18

    world.run(ranks, program)


def test_models(world, ranks):
    values = drawn(6, 4)
    model = filled(nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4)))
    wanted = model(values).detach()

    def program(group):
        for distribute in (dt.fully_shard, dt.distribute_module):
            mine = filled(nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4)))
            mine = distribute(mine, line(group))
            with torch.inference_mode():
                found = mine(values)
            assert close(found, wanted)

    world.run(ranks, program)
