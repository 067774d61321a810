"""Tensors: the bridge, collectives, and models beside PyTorch's DTensor."""

from benchmarks.case import MILLION, Case

__all__ = ["CASES"]

TOY = """
from benchmarks.toy import step_of
step = step_of("dtensor" if "torch" in globals() else "distarray")
"""
TRANSFORMER = """
from benchmarks.transformer import step_of
library = "dtensor" if "torch" in globals() else "distarray"
step = step_of(library, p, tp, width, context, batch)
"""
LARGE_MODEL = {"width": 128, "context": 64, "batch": 12}
TINY_MODEL = {"width": 32, "context": 4, "batch": 6}
ALLREDUCE = """
if "torch" in globals():
    from torch.distributed import all_reduce
else:
    import torch, distarray.torch
    from functools import partial
    all_reduce = partial(distarray.torch.all_reduce_, mesh=distarray.default_mesh())
t = torch.zeros(n) + 0
"""
BRIDGE = """
from distarray.torch import from_torch, to_torch
a = place(rng.random((n, n)))
t = to_torch(a)
mesh, placements, shape = a.mesh, a.placements, a.shape
"""

CASES = [
    Case(
        "torch: tensor-parallel MLP, a step",  # forward, backward, AdamW
        TOY,
        {"distarray": "step()", "dtensor": "step()"},
        messages="1",
    ),
    # Gathered: two blocks twice, the rest once; scattered: three units.
    Case(
        "torch: transformer, dp, a step",
        TRANSFORMER,
        {"distarray": "step()", "dtensor": "step()"},
        LARGE_MODEL | {"tp": 1},
        TINY_MODEL | {"tp": 1},
        messages="8",
    ),
    Case(
        "torch: transformer, dp x tp, a step",
        TRANSFORMER,
        {"distarray": "step()", "dtensor": "step()"},
        LARGE_MODEL | {"tp": 2},
        TINY_MODEL | {"tp": 2},
        messages="(8 if p > 2 else 0) + (10 if p % 2 == 0 else 0)",
    ),
    Case(
        "torch: allreduce 1 KiB",
        ALLREDUCE,
        {"distarray": "all_reduce(t)", "dtensor": "all_reduce(t)"},
        {"n": 256},
        {"n": 256},
        messages="1",
    ),
    Case(
        "torch: allreduce 32 MiB",
        ALLREDUCE,
        {"distarray": "all_reduce(t)", "dtensor": "all_reduce(t)"},
        {"n": 8 * MILLION},
        {"n": 1000},
        messages="1",
    ),
    Case("to_torch 32 MiB", BRIDGE, {"distarray": "to_torch(a)"}, {"n": 2048}, {"n": 16}),
    Case(
        "from_torch 32 MiB",
        BRIDGE,
        {"distarray": "from_torch(t, mesh=mesh, placements=placements, shape=shape, check=False)"},
        {"n": 2048},
        {"n": 16},
    ),
    Case(
        "from_torch, compared",
        BRIDGE,
        {"distarray": "from_torch(t, mesh=mesh, placements=placements, shape=shape)"},
        {"n": 2048},
        {"n": 16},
        messages="1",
    ),
]
