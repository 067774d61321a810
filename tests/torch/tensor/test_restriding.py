"""Operators that give a distributed tensor itself another shape."""

from __future__ import annotations

import pytest
import torch

import distarray
import distarray.torch as dt
from distarray import Shard
from tests.torch.models import drawn, line
from tests.torch.tensor.laying import layouts, line_or_grid


def _turns(x):
    """What becomes of a tensor and of a view of it that was there before."""
    view = x[1]
    x.squeeze_(1).add_(1)
    x.t_()
    x[2] = 7
    x.unsqueeze_(0).transpose_(0, 1)
    view.mul_(2)
    x[3:].add_(3)
    return x, view


def _shortens(x):
    view = x[1]
    x.resize_(3, 7)
    x.mul_(2)
    view.add_(1)
    x[0] = 0
    x.view(-1)[5:9].add_(3)
    x.resize_as_(x[:2].t())
    return x, view


CALLS = {
    "turns": (_turns, (4, 1, 6)),
    "shortens": (_shortens, (4, 6)),
    "quantile": (lambda x: (x.quantile(0.3), x.nanquantile(0.5, 1)), (4, 6)),
}


def test_a_tensor_becomes_a_view_of_itself(world, ranks):
    def program(group):
        for name, (call, shape) in CALLS.items():
            wanted = call(drawn(*shape))
            mesh = line_or_grid(group)
            for placements in layouts(len(shape), mesh):
                x = dt.distribute_tensor(drawn(*shape), mesh, placements, src=None)
                with distarray.config.override(fallback="allow"):
                    found = call(x)
                for one, other in zip(found, wanted, strict=True):
                    text = f"{name} {placements}"
                    assert one.shape == other.shape, text
                    assert one.stride() == other.stride(), text
                    assert torch.equal(one.full_tensor(), other), text

    world.run(ranks, program)


def test_gradients_go_through(world, ranks):
    def loss(x):
        y = (x * 2).squeeze_(1)
        y.t_()
        return (y * y.exp()).sum()

    wanted = drawn(4, 1, 3).requires_grad_()
    loss(wanted).backward()

    def program(group):
        x = dt.distribute_tensor(drawn(4, 1, 3), line(group), [Shard(0)], src=None)
        x.requires_grad_()
        loss(x).backward()
        torch.testing.assert_close(x.grad.full_tensor(), wanted.grad)

    world.run(ranks, program)


def test_there_is_no_more_memory(world, ranks):
    def program(group):
        x = dt.distribute_tensor(drawn(4, 6), line(group), [Shard(0)], src=None)
        with pytest.raises(NotImplementedError, match=r"x\.new_empty"):
            x.resize_(5, 6)
        with pytest.raises(NotImplementedError, match="strides"):
            x.t().resize_(2, 2)
        assert x.shape == (4, 6)

    world.run(ranks, program)
