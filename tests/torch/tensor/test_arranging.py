"""Joining, repeating, shifting, padding, triangles and diagonals of distributed tensors."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

import distarray
import distarray.torch as dt
from distarray import Replicate, Shard
from tests.torch.models import drawn, line
from tests.torch.tensor.comparing import compare_drawn, runs_without_gather

#: What is called with one matrix of 6 x 4.
ONE = {
    "cat of rows": lambda x: torch.cat([x, x[1:4], 2 * x]),
    "cat of columns": lambda x: torch.cat([x, x[:, 1:], x[:, :0]], -1),
    "cat of numbers": lambda x: torch.cat([x[0], x[:, 1], x.sum(1)]),
    "cat of kinds": lambda x: torch.cat([x[:2].float(), x], 0).float(),
    "stack": lambda x: torch.stack([x, x.square(), -x], 1),
    "hstack": lambda x: torch.hstack([x, x[:, :1]]),
    "vstack": lambda x: torch.vstack([x[0], x]),
    "repeat": lambda x: x.repeat(2, 3),
    "repeat ahead": lambda x: x.repeat(2, 1, 1),
    "tile": lambda x: torch.tile(x, (3,)),
    "repeat_interleave": lambda x: x.repeat_interleave(2, 0),
    "roll rows": lambda x: x.roll(2, 0),
    "roll both": lambda x: x.roll((-1, 3), (0, -1)),
    "roll all": lambda x: x.roll(5),
    "flip rows": lambda x: x.flip(0),
    "flip both": lambda x: x.flip((0, -1)),
    "tril": torch.tril,
    "triu": lambda x: x.triu(1),
    "tril of batches": lambda x: x.reshape(2, 3, 4).tril(-1),
    "tril in place": lambda x: x.clone().tril_(1),
    "diagonal": torch.diagonal,
    "diagonal above": lambda x: x.diagonal(2),
    "diagonal below": lambda x: x.diagonal(-3) * 2,
    "diagonal of batches": lambda x: x.reshape(2, 3, 2, 2).diagonal(1, 3, 1),
    "diag of a column": lambda x: x[:, 1].diag(),
    "diag of a row below": lambda x: x[1].diag(-2),
    "diag of a matrix": lambda x: x.diag(-1),
    "diag_embed": lambda x: torch.diag_embed(x, 1, 0, 2),
    "trace": lambda x: x[:4].trace(),
    "pad": lambda x: functional.pad(x, (1, 2, 3, 0), value=7),
    "pad less": lambda x: functional.pad(x, (-1, 2, -3, -2)),
    "pad columns": lambda x: functional.pad(x, (0, 5)),
    "gradient of a row": lambda x: x[2] * 2,
    "gradient of slices": lambda x: x[1:5:2, 1:] * x[:2, 1:],
    "tensor_split": lambda x: x.tensor_split(4)[1],
    "chunk": lambda x: x.chunk(3, 1)[1],
    "half a turn": lambda x: torch.rot90(x, 2) + torch.rot90(x, 4),
    "rot90": lambda x: torch.rot90(x, 1) + torch.rot90(x, -1).flip(0),
}


@pytest.mark.parametrize("name", ONE)
@given(data=st.data())
def test_arranging(world, ranks, name, data):
    compare_drawn(world, ranks, data, drawn(6, 4).numpy(), ONE[name])


@pytest.mark.counts(lambda n: n > 1)
@pytest.mark.parametrize("name", ONE)
def test_nothing_gathers(world, ranks, name):
    runs_without_gather(world, ranks, drawn(6, 4).numpy(), ONE[name], (0, 1))


@pytest.mark.parametrize("dim", [0, 1])
def test_a_diagonal_is_a_view(world, ranks, dim):
    values = drawn(5, 5)
    wanted = values.clone()
    wanted.diagonal(1).fill_(3)

    def program(group):
        x = dt.distribute_tensor(values, line(group), [Shard(dim)], src=None)
        x.diagonal(1).fill_(3)
        torch.testing.assert_close(x.full_tensor(), wanted)

    world.run(ranks, program)


OUTS = {
    "diag": (lambda x, **out: torch.diag(x[0], **out), (4, 4)),
    "cat": (lambda x, **out: torch.cat([x, x[1:]], **out), (7, 4)),
    "roll": (lambda x, **out: torch.ops.aten.roll(x, [1], [0], **out), (4, 4)),
    "pad": (lambda x, **out: torch.ops.aten.constant_pad_nd(x, [1, 1], 2, **out), (4, 6)),
    "tril": (torch.tril, (4, 4)),
    "loss": (lambda x, **out: torch.ops.aten.mse_loss(x, x * 2, **out), ()),
}


@pytest.mark.parametrize("name", OUTS)
def test_out(world, ranks, name):
    values = drawn(4, 4)
    call, shape = OUTS[name]
    wanted = call(values)

    def program(group):
        mesh = line(group)
        x = dt.distribute_tensor(values, mesh, [Shard(0)], src=None)
        out = dt.distribute_tensor(torch.zeros(shape).double(), mesh, [Replicate()], src=None)
        with distarray.config.override(fallback="allow"):
            call(x, out=out)
        torch.testing.assert_close(out.full_tensor(), wanted)

    world.run(ranks, program)
