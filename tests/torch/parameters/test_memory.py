"""Tensors that are given what other tensors are: ``x.data = y``, ``x.set_(y)``, ``module.to``."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import distarray as da
import distarray.torch as dt
from distarray import Replicate, Shard
from tests.torch.models import close, drawn, filled, line


def made():
    return filled(nn.Linear(7, 5))


def parallel(mesh):
    return dt.parallelize_module(nn.Sequential(made()), mesh, {"0": dt.ColwiseParallel()})[0]


def assigned(x, value):
    x.data = value


@pytest.mark.parametrize("give", [assigned, torch.Tensor.set_], ids=["data", "set_"])
def test_a_plain_tensor_does_not_become_a_part(give, world, ranks):
    def program(group):
        mesh = line(group)
        there, layer = dt.distribute_tensor(drawn(5, 7), mesh), parallel(mesh)
        plain = torch.zeros(5, 7, dtype=torch.float64)
        with pytest.raises(RuntimeError, match=r"from_local|full_tensor"):
            give(plain, there)
        with pytest.raises(RuntimeError, match=r"from_local|copy_"):
            give(there, plain)
        if group.size > 1:  # one rank has a plain parameter
            with pytest.raises(RuntimeError, match="full_tensor"):
                give(plain, layer.weight.detach())
        assert plain.shape == (5, 7)
        give(plain, drawn(2))
        assert close(plain, drawn(2))

    world.run(ranks, program)


def test_a_distributed_tensor_takes_another_one_over(world, ranks):
    def program(group):
        mesh = line(group)
        x = nn.Parameter(dt.distribute_tensor(torch.zeros(5, 7), mesh, [Shard(0)]))
        value = dt.distribute_tensor(drawn(5, 7), mesh, [Shard(1)])
        x.data = value
        x.pow(2).sum().backward()
        y = dt.distribute_tensor(torch.zeros(2, dtype=torch.float64), mesh, [Replicate()])
        view = y[:1]
        with da.config.override(fallback="error"):
            y.set_(value)
        value[0] = 0
        z, swapped = (dt.distribute_tensor(drawn(n, 7), mesh, [Shard(0)]) for n in (5, 2))
        torch.utils.swap_tensors(z, swapped)
        wanted = drawn(5, 7)
        assert close(x.grad.full_tensor(), 2 * wanted)
        wanted[0] = 0
        assert x.placements == x.grad.placements == (Shard(1),)
        for found in (x, y):
            assert close(found.full_tensor(), wanted)
        assert close(swapped.full_tensor(), drawn(5, 7))
        assert close(z.full_tensor(), drawn(2, 7))
        assert view.full_tensor().tolist() == [0]

    world.run(ranks, program)


@pytest.mark.parametrize("give", [assigned, torch.Tensor.set_], ids=["data", "set_"])
def test_gradients_lie_as_what_was_taken_over(give, world, ranks):
    def program(group):
        mesh = line(group)
        x = dt.distribute_tensor(torch.zeros(5, 7), mesh, [Shard(0)]).double().requires_grad_()
        with torch.no_grad():
            give(x, dt.distribute_tensor(drawn(5, 7), mesh, [Shard(1)]))
        x.pow(2).sum().backward()
        assert x.placements == x.grad.placements == (Shard(1),)
        assert close(x.grad.full_tensor(), 2 * drawn(5, 7))

    world.run(ranks, program)


@pytest.mark.parametrize("convert", [nn.Module.double, lambda m: m.bfloat16().double()])
def test_modules_of_distributed_tensors_are_converted(convert, world, ranks):
    """In a module that no function of this package has been given."""

    def program(group):
        mesh, layer = line(group), made().float()
        alone = convert(made().float())
        for name, p in list(layer.named_parameters()):
            there = nn.Parameter(dt.distribute_tensor(p.detach(), mesh, [Shard(0)]))
            setattr(layer, name, there)
        convert(layer)
        x = dt.distribute_tensor(drawn(4, 7), mesh, [Replicate()])
        layer(x).sum().backward()
        alone(drawn(4, 7)).sum().backward()
        for p, wanted in zip(layer.parameters(), alone.parameters(), strict=True):
            assert p.dtype is torch.float64 and p.placements == (Shard(0),)
            assert close(p.full_tensor(), wanted.detach())
            assert close(p.grad.full_tensor(), wanted.grad)

    world.run(ranks, program)
