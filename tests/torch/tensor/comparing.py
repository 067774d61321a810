"""Functions of distributed tensors beside plain ones, on drawn layouts; shared by families."""

from __future__ import annotations

import torch

import distarray
from distarray import DeviceMesh
from distarray.testing import mesh_shapes, recipes

__all__ = ["compare_drawn", "runs_without_gather"]

KINDS = ("plain", "ragged", "transposed", "partial")


def compare_drawn(world, ranks, data, values, call, gradients=True):
    """A function's result and gradient, of a tensor in a drawn layout and of a plain one."""
    shape = data.draw(mesh_shapes(ranks))
    recipe = data.draw(recipes(values.shape, shape, "f8", KINDS))
    plain = torch.from_numpy(values.copy()).requires_grad_(gradients)
    wanted = call(plain)
    weights = torch.linspace(-1, 2, max(wanted.numel(), 1), dtype=wanted.dtype)[: wanted.numel()]
    weights = weights.view(wanted.shape)
    if gradients:
        (wanted * weights).sum().backward()

    def program(group):
        x = recipe.build(values, DeviceMesh(group, shape)).to_tensor()
        with distarray.config.override(fallback="allow"):
            found = call(x.requires_grad_(gradients))
            assert found.shape == wanted.shape
            assert found.dtype == wanted.dtype
            here = found.detach()
            assert here.dist_layout.local_shape(x.mesh.coords) == tuple(here.to_local().shape)
            torch.testing.assert_close(here.full_tensor(), wanted.detach())
            if gradients:
                (found.full_tensor() * weights).sum().backward()
                torch.testing.assert_close(x.grad.full_tensor(), plain.grad)

    world.run(ranks, program)


def runs_without_gather(world, ranks, values, call, dims, gradients=True):
    """Call a function, and its backward pass, of tensors cut along each of some dimensions."""

    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        for dim in dims:
            x = distarray.distribute(values, mesh, [distarray.Shard(dim)], src=None).to_tensor()
            with distarray.config.override(fallback="error"):
                found = call(x.requires_grad_(gradients))
                if gradients:
                    found.sum().backward()
                    assert x.grad.dist_layout is x.dist_layout

    world.run(ranks, program)
