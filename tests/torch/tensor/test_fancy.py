"""Fancy indexing and embeddings: reading, writing, and the gradients that come back."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import distarray
import distarray.torch as dt
from distarray import Replicate, Shard
from tests.torch.models import drawn, line
from tests.torch.tensor.laying import agrees, layouts, line_or_grid, spread
from tests.torch.tensor.test_indexing import every, places

READS = {
    "rows": lambda x, i, j: x[i],
    "columns": lambda x, i, j: x[:, j],
    "both": lambda x, i, j: x[i, j],
    "apart": lambda x, i, j: x[i, :, j],
    "last": lambda x, i, j: x[..., j],
    "before the end": lambda x, i, j: x[i - 5],
    "stretched": lambda x, i, j: x[:, i[:, None].clamp(0, 3), j[None, :]],
    "square": lambda x, i, j: x[:, (i[:, None] + j) % 4],
}


@pytest.mark.parametrize("name", READS)
def test_reads(world, ranks, name):
    wholes = [drawn(5, 4, 4), places((6,), 5), places((6,), 4, 1)]
    world.run(ranks, lambda group: agrees(group, READS[name], wholes, every(3, 1, 1)))


def put(x, key, y, accumulate=False):
    return torch.index_put(x, key, y, accumulate=accumulate)


UNLIKE = torch.tensor([3, 0, 4, 1, 6, 2])
WRITES = {
    "rows": lambda x, i, y: put(x, (UNLIKE,), y),
    "added": lambda x, i, y: put(x, (i,), y, True),
    "in place": lambda x, i, y: (x * 1).index_put_((i,), y, True),
    "both": lambda x, i, y: put(x, (i, i.clamp(0, 3)), y.sum(1), True),
    "one number": lambda x, i, y: put(x, (i,), y.detach().sum()) * y.sum(),
    "set": lambda x, i, y: assigned(x * y.mean(), i, 2.0),
    "masked": lambda x, i, y: assigned(x * y.mean(), x.detach() > 0, 2.0),
    "rows by mask": lambda x, i, y: assigned(x * y.mean(), x.detach()[:, 1] > 0, 2.0),
}


def assigned(x, key, value):
    with dt.implicit_replication():
        x[key] = value
    return x


@pytest.mark.parametrize("name", WRITES)
def test_writes(world, ranks, name):
    wholes = [drawn(7, 4), places((6,), 7), drawn(6, 4, seed=1)]
    world.run(ranks, lambda group: agrees(group, WRITES[name], wholes, every(2, 1, 2)))


def test_places_out_of_range_are_refused_by_all(world, ranks):
    whole, wrong = drawn(5, 4), places((6,), 4)
    wrong[5] = 5

    def program(group):
        mesh = line_or_grid(group)
        for p in layouts(2, mesh):
            x = spread(whole, mesh, p)
            for q in layouts(1, mesh):
                i = spread(wrong, mesh, q)
                with pytest.raises(IndexError, match="index 5 is out of bounds"):
                    x[i]
                with pytest.raises(IndexError, match="index 5 is out of bounds"):
                    x[i] = 1.0
                with pytest.raises(IndexError, match="out of range"):
                    F.embedding(i, x)

    world.run(ranks, program)


def test_plain_places_count_as_replicated(world, ranks):
    whole, index = drawn(5, 4), places((6,), 5)

    def program(group):
        with distarray.config.override(fallback="error"):
            for p in (Shard(0), Shard(1), Replicate()):
                x = dt.distribute_tensor(whole, line(group), [p], src=None)
                assert torch.equal(x[index].full_tensor(), whole[index])
                assert torch.equal(x[[0, 2]].full_tensor(), whole[[0, 2]])
                assert torch.equal(F.embedding(index, x).full_tensor(), whole[index])

    world.run(ranks, program)


EMBEDDINGS = {
    "plain": lambda x, i: F.embedding(i, x),
    "padded": lambda x, i: F.embedding(i, x, padding_idx=2),
    "by frequency": lambda x, i: F.embedding(i, x, scale_grad_by_freq=True),
    "twice": lambda x, i: F.embedding(i, x) @ F.embedding(i[0], x).t(),
}


@pytest.mark.parametrize("name", EMBEDDINGS)
@pytest.mark.parametrize("shape", [(3, 4), (2, 2)], ids=str)
def test_embeddings(world, ranks, name, shape):
    wholes = [drawn(7, 5), places(shape, 7)]
    world.run(ranks, lambda group: agrees(group, EMBEDDINGS[name], wholes, every(2, 2)))
