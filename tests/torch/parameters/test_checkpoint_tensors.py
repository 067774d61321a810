"""Checkpoints of modules whose parameters are distributed tensors, as DTensor's users make them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import distarray as da
import distarray.torch as dt
from distarray import Replicate, Shard
from tests.torch.models import filled, line

LAYOUTS = ([Shard(0)], [Shard(1)], [Replicate()])


def _made(mesh, placements):
    model = filled(nn.Linear(5, 3, bias=False))
    whole = model.weight.detach()
    model.weight = nn.Parameter(dt.distribute_tensor(whole, mesh, placements, src=None))
    return model, torch.optim.AdamW(model.parameters(), 0.1)


def _step(model, optimizer):
    model.weight.pow(2).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


@pytest.mark.parametrize("placements", LAYOUTS)
def test_it_loads_in_another_layout(world, ranks, tmp_path, placements):
    def program(group):
        path = group.allgather_object(str(tmp_path / "run"))[0]
        mesh = line(group)
        model, optimizer = _made(mesh, placements)
        _step(model, optimizer)
        da.checkpoint.save(path, {"model": model, "optimizer": optimizer}, mesh=mesh)
        saved = model.weight.detach().full_tensor().clone()
        _step(model, optimizer)
        wanted = model.weight.detach().full_tensor()
        for other in LAYOUTS:
            for steps in (0, 2):  # an optimizer without a state, and one that has its own
                model, optimizer = _made(mesh, other)
                for _ in range(steps):
                    _step(model, optimizer)
                da.checkpoint.load(path, {"model": model, "optimizer": optimizer}, mesh=mesh)
                torch.testing.assert_close(model.weight.detach().full_tensor(), saved)
                assert model.weight.placements == tuple(other)
                _step(model, optimizer)
                torch.testing.assert_close(model.weight.detach().full_tensor(), wanted)

    world.run(ranks, program)
