"""Parameters that lie side by side in one memory, as cuDNN has those of an LSTM."""

from __future__ import annotations

import pytest
import torch

import distarray.torch as dt
from distarray import DeviceMesh


class _Packed(torch.nn.Module):
    def __init__(self, first: slice, second: slice) -> None:
        super().__init__()
        memory = torch.arange(10.0)
        self.first = torch.nn.Parameter(memory[first])
        self.second = torch.nn.Parameter(memory[second])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.first.sum() + self.second.sum()


def test_neighbours_are_taken(world, ranks):
    def program(group):
        model = _Packed(slice(0, 4), slice(4, 10))
        replica = dt.data_parallel(model, DeviceMesh(group, (ranks,)))
        replica(torch.ones(2)).sum().backward()
        assert model.first.grad.tolist() == [2.0] * 4
        assert model.second.grad.tolist() == [2.0] * 6

    world.run(ranks, program)


def test_shared_elements_are_refused(world, ranks):
    def program(group):
        model = _Packed(slice(0, 5), slice(4, 10))
        with pytest.raises(ValueError, match="same memory"):
            dt.data_parallel(model, DeviceMesh(group, (ranks,)))

    world.run(ranks, program)
