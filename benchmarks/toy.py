"""A tensor-parallel MLP, trained by this library and by PyTorch's DTensor: one step of each.

The model of PyTorch's own example of tensor parallelism, which Intel's page on DTensor runs on
four Gaudis: 10 features in, 32 hidden ones cut over the ranks, 5 out.
"""

from collections.abc import Callable
from typing import Any

import torch

__all__ = ["ToyModel", "step_of"]


class ToyModel(torch.nn.Module):
    """Two linear layers and what is between them."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.in_proj = torch.nn.Linear(10, hidden)
        self.relu = torch.nn.ReLU()
        self.out_proj = torch.nn.Linear(hidden, 5)

    def forward(self, x: Any) -> Any:
        return self.out_proj(self.relu(self.in_proj(x)))


def step_of(library: str, hidden: int = 32) -> Callable[[], float]:
    """A function that makes one step: forward, backward, AdamW."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    model = ToyModel(hidden)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.rand(parameter.shape, generator=generator) - 0.5)
    if library == "dtensor":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.parallel import (
            ColwiseParallel,
            RowwiseParallel,
            parallelize_module,
        )

        mesh: Any = init_device_mesh("cpu", (torch.distributed.get_world_size(),))
    else:
        from distarray import default_mesh
        from distarray.torch import ColwiseParallel, RowwiseParallel, parallelize_module

        mesh = default_mesh()
    plan = {"in_proj": ColwiseParallel(), "out_proj": RowwiseParallel()}
    parallelize_module(model, mesh, plan)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.25)
    inputs = torch.rand(20, 10, generator=generator)

    def step() -> float:
        optimizer.zero_grad()
        loss = model(inputs).sum()
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step
