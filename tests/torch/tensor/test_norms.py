"""Norms of layers, groups and batches of distributed tensors, and dropout."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

import distarray.torch as dt
from distarray import Replicate, Shard
from tests.torch.models import drawn, line
from tests.torch.tensor.comparing import compare_drawn, runs_without_gather

#: What is called with one tensor of 4 x 6 x 5; its weights are cut as it is.
NORMS = {
    "layer": lambda x: functional.layer_norm(x, (5,)),
    "layer with weights": lambda x: functional.layer_norm(x, (5,), x[0, 0], x[1, 2]),
    "layer of two": lambda x: functional.layer_norm(x, (6, 5), x[0], x[1], 0.1),
    "layer of all": lambda x: functional.layer_norm(x, (4, 6, 5), x),
    "rms": lambda x: functional.rms_norm(x, (5,), x[1, 1]),
    "group": lambda x: functional.group_norm(x, 3),
    "group with weights": lambda x: functional.group_norm(x, 2, x[0, :, 0], x[1, :, 1]),
    "batch": lambda x: functional.batch_norm(x, None, None, training=True),
    "batch with weights": lambda x: functional.batch_norm(
        x, None, None, x[0, :, 0], x[1, :, 1], training=True
    ),
    "batch of rows": lambda x: functional.batch_norm(x[:, :, 2], None, None, training=True),
    "batch in use": lambda x: functional.batch_norm(
        x, x[2, :, 1].detach(), x[2, :, 1].detach().square() + 1, x[0, :, 0], x[1, :, 1]
    ),
    "instance": functional.instance_norm,
    "normalize": lambda x: functional.normalize(x, dim=1),
    "cosine_similarity": lambda x: functional.cosine_similarity(x, x[0] * 2 + 1, dim=-1),
}


@pytest.mark.parametrize("name", NORMS)
@given(data=st.data())
def test_norms(world, ranks, name, data):
    compare_drawn(world, ranks, data, drawn(4, 6, 5).numpy(), NORMS[name])


#: Made of the norms of vectors, which are another family's.
OF_VECTORS = {"normalize", "cosine_similarity"}


@pytest.mark.counts(lambda n: n > 1)
@pytest.mark.parametrize("name", [name for name in NORMS if name not in OF_VECTORS])
def test_nothing_gathers(world, ranks, name):
    runs_without_gather(world, ranks, drawn(4, 6, 5).numpy(), NORMS[name], (0, 1, 2))


@pytest.mark.parametrize("place", [Shard(0), Shard(1), Shard(2), Replicate()], ids=str)
@pytest.mark.parametrize("kept", [Shard(0), Replicate()], ids=str)
def test_running_statistics(world, ranks, place, kept):
    values, start = drawn(4, 6, 5), drawn(6, seed=2)

    def follows(x, mean, variance):
        functional.batch_norm(x, mean, variance, training=True, momentum=0.3)
        torch._native_batch_norm_legit(x, None, None, mean, variance, True, 0.3, 1e-5)

    wanted = [start.clone(), start.square()]
    follows(values, *wanted)

    def program(group):
        mesh = line(group)
        x = dt.distribute_tensor(values, mesh, [place], src=None)
        found = [dt.distribute_tensor(t, mesh, [kept], src=None) for t in (start, start.square())]
        follows(x, *found)
        for running, plain in zip(found, wanted, strict=True):
            assert running.placements == (kept,)
            torch.testing.assert_close(running.full_tensor(), plain)

    world.run(ranks, program)


@pytest.mark.parametrize("p", [0.0, 0.4, 1.0])
def test_dropout_is_the_same_in_every_layout(world, ranks, p):
    values = drawn(6, 5) + 9

    def program(group):
        mesh, found = line(group), []
        for place in (Replicate(), Shard(0), Shard(1)):
            x = dt.distribute_tensor(values, mesh, [place], src=None).requires_grad_()
            dt.manual_seed(3, mesh)
            result, mask = torch.native_dropout(x, p, True)
            result.sum().backward()
            assert result.placements == x.placements
            whole = result.detach().full_tensor()
            assert torch.equal(mask.full_tensor(), whole != 0)
            torch.testing.assert_close(x.grad.full_tensor() * values, whole)
            found.append(whole)
        assert all(torch.equal(found[0], other) for other in found[1:])
        same, mask = torch.native_dropout(x.detach(), p, False)
        assert torch.equal(same.full_tensor(), values)
        assert bool(mask.all())

    world.run(ranks, program)
