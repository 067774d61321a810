"""Gradients averaged over a mesh dimension, and parameters divided over it."""

from __future__ import annotations

import copy
import gc
import weakref

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import distarray as da  # noqa: E402
import distarray.torch as dt  # noqa: E402

nn = torch.nn


class Net(nn.Module):
    """One of everything: an embedding, layers, a recurrent one, a number, an unused and a frozen
    layer, and a weight used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 6)
        self.middle = nn.Sequential(nn.Linear(6, 7), nn.ReLU(), nn.Linear(7, 6))
        self.memory = nn.LSTM(6, 5, batch_first=True)
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.head = nn.Linear(5, 6)
        self.out = nn.Linear(6, 11)
        self.out.weight = self.words.weight
        self.unused = nn.Linear(2, 2)
        self.frozen = nn.Linear(11, 11).requires_grad_(False)

    def forward(self, x):
        y = self.words(x)
        y = y + self.middle(y)
        y, _ = self.memory(y)
        return self.frozen(self.out(self.head(y[:, -1]) * self.scale))


def net() -> Net:
    torch.manual_seed(0)
    return Net().double()


def batch(rows: int = 5):
    generator = torch.Generator().manual_seed(1)
    x = torch.randint(0, 11, (rows, 4), generator=generator)
    return x, torch.randint(0, 11, (rows,), generator=generator)


def loss_of(model, x, t, count):
    return nn.functional.cross_entropy(model(x), t, reduction="sum") / count


def train(model, x, t, count, steps=3):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05, weight_decay=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(model, x, t, count).backward()
        optimizer.step()
    return model


def mine(tensors, group):
    return [t.tensor_split(group.size)[group.rank] for t in tensors]


def line(group):
    return da.DeviceMesh(group, (group.size,))


def sharded(model, mesh, **options):
    for part in (model.middle, model.memory, model):
        dt.fully_shard(part, mesh, fold="sum", **options)
    return model


ALONE = None


def alone():
    """Trained in one process."""
    global ALONE
    if ALONE is None:
        ALONE = train(net(), *batch(), 5)
    return ALONE


def values(model):
    return {name: p.detach().numpy() for name, p in model.named_parameters()}


def rows(whole, group):
    """This rank's part of what is divided along its first dimension."""
    return whole if not whole.ndim else np.array_split_like(whole, group)


@pytest.mark.parametrize("bucket_bytes", [1, 300, 1 << 20])
def test_replicas_train_as_one_process(world, ranks, bucket_bytes):
    """Five rows on up to six ranks: parts differ in size, and one may be empty."""
    x, t = batch()
    expected = values(alone())
    starts = [net() for _ in range(ranks)]

    def program(group):
        model = dt.data_parallel(
            starts[group.rank], line(group), fold="sum", bucket_bytes=bucket_bytes
        )
        return values(train(model, *mine((x, t), group), 5))

    results = world.run(ranks, program)
    for name, value in expected.items():
        for result in results:
            np.testing.assert_allclose(result[name], value, rtol=1e-11, atol=1e-13)
