"""A model with one of everything, what one process learns with it, and how to compare."""

from __future__ import annotations

import copy
import functools

import numpy as np
import torch

import distarray as da
import distarray.torch as dt
from tests.everywhere import line
from tests.torch.models import local_of

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


@functools.cache
def start() -> Net:
    torch.manual_seed(0)
    return Net().double()


def net() -> Net:
    return copy.deepcopy(start())


def batch(rows: int = 5):
    generator = torch.Generator().manual_seed(1)
    x = torch.randint(0, 11, (rows, 4), generator=generator)
    return x, torch.randint(0, 11, (rows,), generator=generator)


def loss_of(model, x, t, count):
    return nn.functional.cross_entropy(model(x), t, reduction="sum") / count


def train(model, x, t, count=5, steps=3):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05, weight_decay=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(model, x, t, count).backward()
        optimizer.step()
    return model


def mine(group, *tensors, device="cpu"):
    return [t.tensor_split(group.size)[group.rank].to(device) for t in tensors]


def sharded(model, mesh, **options):
    for part in (model.middle, model.memory, model):
        dt.fully_shard(part, mesh, fold="sum", **options)
    return model


@functools.cache
def alone():
    """What one process learns."""
    return values(train(net(), *batch()))


def values(model):
    return {name: p.detach().cpu().numpy().copy() for name, p in model.named_parameters()}


def full(model):
    return {name: array.full() for name, array in dt.module_state(model).items()}


def same(found, expected, **tolerance):
    tolerance = tolerance or {"rtol": 1e-10, "atol": 1e-12}
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, err_msg=name, **tolerance)


def grid(group):
    """dp and tp; with an odd number of ranks, tp alone or dp alone."""
    shape = {1: (1, 1), 2: (1, 2), 3: (3, 1), 4: (2, 2), 6: (3, 2)}[group.size]
    return da.DeviceMesh(group, shape, ("dp", "tp"))


class Feed(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(6)
        self.up, self.down = nn.Linear(6, 9), nn.Linear(9, 6)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


def full_gradient(p, module, name, group):
    """A divided parameter's gradient, whole."""
    layout = dt.module_state(module)[name].layout
    array = da.DistArray.from_local(
        local_of(p.grad).numpy(), line(group), layout.placements, layout.shape
    )
    return array.full()
