"""A small transformer on a grid of ranks, by this library and by DTensor with FSDP2: one step.

Along "tp" attention and feed-forward matrices are cut, along "dp" the batch is, and parameters,
gradients and the optimizer's state are divided.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

__all__ = ["Transformer", "step_of"]

DEPTH = 16  # of an attention head
CHARACTERS = 104


class Block(nn.Module):
    """Attention, and a feed-forward part."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.value, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        y = self.norm1(x)
        q, k, v = [
            layer(y).unflatten(-1, (-1, DEPTH)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        ]
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    """Characters in, the odds of the next one out."""

    def __init__(self, width: int, blocks: int, context: int) -> None:
        super().__init__()
        self.characters = nn.Embedding(CHARACTERS, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.ModuleList([Block(width) for _ in range(blocks)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, CHARACTERS)

    def forward(self, text: Any) -> Any:
        x = self.characters(text) + self.positions.weight[: text.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def _plan(styles: Any, replicate: Any) -> dict[str, Any]:
    """The parallel styles of either library have the same names."""
    plan = {
        f"blocks.*.{name}": styles.ColwiseParallel() for name in ("query", "key", "value", "up")
    }
    plan |= {f"blocks.*.{name}": styles.RowwiseParallel() for name in ("out", "down")}
    return plan | {"head": styles.ColwiseParallel(output_layouts=replicate())}


def _made_parallel(library: str, model: Any, ranks: int, tp: int) -> int:
    """Cut the model; the number of this rank along "dp"."""
    shape, names = (ranks // tp, tp), ("dp", "tp")
    if library == "dtensor":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        from torch.distributed.tensor import Replicate, parallel

        mesh: Any = init_device_mesh("cpu", shape, mesh_dim_names=names)
        parallel.parallelize_module(model, mesh["tp"], _plan(parallel, Replicate))
        for part in (*model.blocks, model):
            fully_shard(part, mesh=mesh["dp"])
        return int(mesh.get_local_rank("dp"))
    import distarray.torch
    from distarray import Replicate as Everywhere
    from distarray import default_mesh
    from distarray import init_device_mesh as grid_of

    grid = grid_of("cpu", shape, names, comm=default_mesh().group)
    styles: Any = distarray.torch
    styles.parallelize_module(model, grid["tp"], _plan(styles, Everywhere))
    for part in (*model.blocks, model):
        styles.fully_shard(part, grid, "dp")
    assert grid.coords is not None
    return int(grid.coords[0])


def step_of(
    library: str, ranks: int, tp: int, width: int, context: int, batch: int, blocks: int = 2
) -> Callable[[], float]:
    """A function that makes one step: forward, backward, AdamW."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    model = Transformer(width, blocks, context)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * width**-0.5)
    tp = tp if ranks % tp == 0 else 1
    text = torch.randint(0, CHARACTERS, (batch, context + 1), generator=generator)
    mine = text.tensor_split(ranks // tp)[_made_parallel(library, model, ranks, tp)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step() -> float:
        optimizer.zero_grad()
        odds = model(mine[:, :-1])
        loss = functional.cross_entropy(odds.flatten(0, 1), mine[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step
