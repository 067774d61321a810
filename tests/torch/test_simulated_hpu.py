"""The simulated HPU goes wrong where a real one does, so that the other tests mean something."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

pytestmark = pytest.mark.accelerator


@pytest.fixture
def hpu(device):
    torch.hpu.synchronize()
    torch.hpu.reset_stats()
    return torch.hpu


def test_it_is_a_device_of_torch_and_its_tensors_are_tensors(hpu):
    t = torch.arange(6.0, device="hpu").reshape(2, 3)
    assert type(t) is torch.Tensor
    assert t.device == torch.device("hpu:0")
    assert torch.accelerator.current_accelerator() == torch.device("hpu")
    assert "device='hpu:0'" in repr(t)
    assert (t @ t.t()).tolist() == [[5.0, 14.0], [14.0, 50.0]]
    assert copy.deepcopy(t).device == t.device


def test_the_ways_to_the_host_that_torch_closes(hpu):
    t = torch.ones(3, device="hpu")
    closed = [
        (t.__dlpack__, BufferError),
        (t.__dlpack_device__, ValueError),
        (lambda: np.from_dlpack(t), (BufferError, ValueError)),
        (lambda: torch.from_dlpack(t), ValueError),
        (lambda: torch.from_dlpack(np.ones(3), device="hpu"), BufferError),
        (lambda: np.asarray(t), TypeError),
        (t.numpy, TypeError),
        (lambda: t + torch.ones(3), RuntimeError),
        (lambda: torch.cat([t, torch.ones(3)]), RuntimeError),
    ]
    for way, kind in closed:
        with pytest.raises(kind):
            way()
    assert np.from_dlpack(t, device="cpu").tolist() == [1.0, 1.0, 1.0]


def test_float64_loses_its_last_bits(hpu):
    x = torch.tensor([1 + 2.0**-40], dtype=torch.float64)
    y = x.to("hpu").cpu()
    assert y.dtype is torch.float64
    assert y.item() == 1.0
    hpu.set_lossy(False)
    assert x.to("hpu").item() == x.item()
    hpu.set_lossy(True)
    odd = torch.tensor([2**53 + 1])
    assert odd.to("hpu").item() == 2**53 + 1


def test_copies_that_do_not_wait(hpu):
    t = torch.ones(3, device="hpu")
    there = t.to("cpu", non_blocking=True)
    assert (there != 1).all()
    hpu.synchronize()
    assert (there == 1).all()

    pinned = torch.ones(3).pin_memory()
    assert pinned.is_pinned()
    late = pinned.to("hpu", non_blocking=True)
    pinned.fill_(-1)
    assert late.tolist() == [-1, -1, -1]

    usual = torch.ones(3)
    early = usual.to("hpu", non_blocking=True)
    usual.fill_(-1)
    assert early.tolist() == [1, 1, 1]


def test_copies_are_counted(hpu):
    t = torch.ones(4).to("hpu")
    u = (t * 2).sqrt()
    u[1:3].cpu()
    u.sum().item()
    stats = hpu.stats()
    assert (stats.h2d, stats.h2d_bytes) == (1, 16)
    assert (stats.d2h, stats.d2h_bytes) == (2, 8 + 4)


def test_memory_is_given_back(hpu):
    before = hpu.stats().live_blocks
    t = torch.ones(10, device="hpu", requires_grad=True)
    (t * 3).sum().backward()
    assert hpu.stats().live_blocks > before
    del t
    assert hpu.stats().live_blocks == before


def test_it_trains_as_the_cpu_does(hpu):
    def train(where):
        torch.manual_seed(0)
        layers = [torch.nn.Embedding(10, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 4)]
        model = torch.nn.Sequential(*layers).to(where)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        for _ in range(3):
            optimizer.zero_grad()
            out = model(torch.arange(10).to(where))
            torch.nn.functional.cross_entropy(out, torch.arange(10).to(where) % 4).backward()
            optimizer.step()
        return [p.detach().cpu() for p in model.parameters()]

    for ours, theirs in zip(train("hpu"), train("cpu"), strict=True):
        torch.testing.assert_close(ours, theirs)
