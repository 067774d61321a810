"""Models as libraries write them: transposed weights, packed heads, caches that begin empty."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import distarray.torch as dt
from distarray import Replicate, Shard
from tests.everywhere import raises_everywhere
from tests.torch.models import close, drawn, filled, line, same_gradients, same_parameters
from tests.torch.training import grid


class Conv1D(nn.Module):
    """A Linear whose weight is transposed, as GPT-2 has it in the library transformers."""

    def __init__(self, nf, nx):
        super().__init__()
        self.nf, self.nx = nf, nx
        self.weight = nn.Parameter(torch.empty(nx, nf))
        self.bias = nn.Parameter(torch.zeros(nf))

    def forward(self, x):
        size = (*x.size()[:-1], self.nf)
        return torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight).view(size)


class Block(nn.Module):
    """Queries, keys and values from one layer, keys and values by a cache, and a feed-forward."""

    def __init__(self, size=12, heads=3, hidden=10):
        super().__init__()
        self.c_attn, self.c_proj = Conv1D(3 * size, size), Conv1D(size, size)
        self.c_fc, self.c_out = Conv1D(hidden, size), Conv1D(size, hidden)
        self.size, self.head_size = size, size // heads

    def forward(self, x):
        empty = torch.tensor([], dtype=x.dtype)
        q, k, v = (
            y.view(*y.shape[:-1], -1, self.head_size).transpose(1, 2)
            for y in self.c_attn(x).split(self.size, dim=2)
        )
        k, v = torch.cat([empty, k], dim=-2), torch.cat([empty, v], dim=-2)
        mixed = (torch.softmax(q @ k.transpose(-1, -2), -1) @ v).transpose(1, 2)
        x = x + self.c_proj(mixed.reshape(*mixed.shape[:-2], -1).contiguous())
        return x + self.c_out(torch.relu(self.c_fc(x)))


def block_plan(local=True):
    return {
        "c_attn": dt.ColwiseParallel(use_local_output=False),
        "c_proj": dt.RowwiseParallel(),
        "c_fc": dt.ColwiseParallel(use_local_output=local),
        "c_out": dt.RowwiseParallel(),
    }


@pytest.mark.parametrize("local", [True, False])
def test_transposed_weights(world, ranks, local):
    reference = filled(Block())
    start, x = copy.deepcopy(reference), drawn(2, 5, 12)
    wanted = reference(x)
    wanted.square().sum().backward()

    def program(group):
        model = dt.parallelize_module(copy.deepcopy(start), line(group), block_plan(local))
        found = model(x)
        found.square().sum().backward()
        assert close(found, wanted.detach())
        assert same_gradients(model, reference)
        state = dt.module_state(model)
        assert state["c_fc.weight"].placements == (Shard(1),)
        assert state["c_fc.bias"].placements == (Shard(0),)
        assert state["c_out.weight"].placements == (Shard(0),)
        assert state["c_out.bias"].placements == (Replicate(),)

    world.run(ranks, program)


def test_transposed_weights_two_dimensions(world, ranks):
    """Rows over one dimension of the mesh, columns over the other; steps as one process."""
    reference = filled(Block())
    start, x = copy.deepcopy(reference), drawn(6, 5, 12)
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.01)
    for _ in range(2):
        optimizer.zero_grad()
        reference(x).square().sum().backward()
        optimizer.step()

    def program(group):
        mesh = grid(group)
        model = dt.parallelize_module(copy.deepcopy(start), mesh["tp"], block_plan())
        dt.fully_shard(model, mesh, "dp", fold="sum")
        mine = x.tensor_split(mesh.size("dp"))[mesh["dp"].rank]
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(2):
            optimizer.zero_grad()
            model(mine).square().sum().backward()
            optimizer.step()
        assert same_parameters(model, reference)

    world.run(ranks, program)


class Grouped(nn.Module):
    """Attention in which two heads of queries share one of keys and values."""

    def __init__(self, size=16, heads=4, kept=2):
        super().__init__()
        self.head_size = size // heads
        self.q = nn.Linear(size, size)
        self.k, self.v = (nn.Linear(size, kept * self.head_size) for _ in range(2))
        self.o = nn.Linear(size, size)

    def forward(self, x):
        q, k, v = (
            w(x).view(*x.shape[:-1], -1, self.head_size).transpose(1, 2)
            for w in (self.q, self.k, self.v)
        )
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
        return self.o(mixed.transpose(1, 2).reshape(*x.shape[:-1], -1))


def grouped_plan(queries=4, local=True):
    return {
        "q": dt.ColwiseParallel(multiple_of=queries, use_local_output=local),
        "[kv]": dt.ColwiseParallel(multiple_of=4, use_local_output=local),
        "o": dt.RowwiseParallel(multiple_of=queries),
    }


@pytest.mark.parametrize("kept", [2, 4, 6])
def test_heads_that_share(world, ranks, kept):
    """On 4 ranks 2 heads of keys were paired with queries of others, without a word."""
    reference = filled(Grouped(8 * kept, 2 * kept, kept))
    start, x = copy.deepcopy(reference), drawn(2, 5, 8 * kept)
    wanted = reference(x)
    wanted.square().sum().backward()
    aligned = kept % ranks == 0

    def program(group):
        if aligned:
            model = dt.parallelize_module(copy.deepcopy(start), line(group), grouped_plan())
            found = model(x)
            found.square().sum().backward()
            assert close(found, wanted.detach())
            assert same_gradients(model, reference)
        elif -(-2 * kept // group.size) != 2 * -(-kept // group.size):

            def cut():
                dt.parallelize_module(copy.deepcopy(start), line(group), grouped_plan())

            raises_everywhere(group, ValueError, cut, "do not belong together")
        model = dt.parallelize_module(copy.deepcopy(start), line(group), grouped_plan(local=False))
        with dt.implicit_replication():
            found = model(x)
        found.square().sum().backward()
        assert close(found, wanted.detach())
        assert same_gradients(model, reference)

    world.run(ranks, program)


def test_inputs_of_another_width(world, ranks):
    def program(group):
        model = dt.parallelize_module(filled(Block()), line(group), block_plan())
        words = "the layer takes 12 features"
        with pytest.raises(ValueError, match=words):
            model.c_fc(drawn(2, 5, 11))

    world.run(ranks, program)


def test_empty_tensors_beside_distributed_ones(world, ranks):
    """torch.cat ignores a tensor of shape (0,); another one still has to say how it lies."""
    x = drawn(5, 4)

    def program(group):
        given = dt.distribute_tensor(x, line(group), [Shard(0)])
        found = torch.cat([torch.tensor([], dtype=x.dtype), given], dim=-1)
        assert close(found.full_tensor(), x)

        def joined():
            torch.cat([torch.zeros(2, 4, dtype=x.dtype), given])

        raises_everywhere(group, RuntimeError, joined, "does not say how it is laid out")

    world.run(ranks, program)


@pytest.mark.parametrize("dim", [0, 1])
def test_softmax_of_masked_rows(world, ranks, dim):
    """As attention without a kernel of its own takes it: a row of which nothing is left is zero."""
    x = drawn(5, 6)
    x[2], x[:, 4] = -torch.inf, -torch.inf
    wanted = torch.ops.aten._safe_softmax(x, dim)

    def program(group):
        for cut in (0, 1):
            given = dt.distribute_tensor(x, line(group), [Shard(cut)])
            found = torch.ops.aten._safe_softmax(given, dim)
            assert found.placements == (Shard(cut),)
            assert close(found.full_tensor(), wanted)
            half = torch.ops.aten._safe_softmax(given, dim, torch.float32)
            assert half.dtype is torch.float32

    world.run(ranks, program)
