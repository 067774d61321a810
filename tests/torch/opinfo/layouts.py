"""How the operands of a sample are laid out over the ranks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

import distarray.torch as dt
from distarray.comm import DeviceMesh
from distarray.layout import Placement, Replicate, Shard

__all__ = ["WAYS", "Operands", "gradients", "is_distributed", "laid_out", "placed"]

#: Each way: where the first operand is cut, and where the others. All are cut along the first
#: dimension, or the last; all are replicated; the first is cut and the others replicated; the
#: first is replicated and the others are cut.
WAYS: dict[str, tuple[str, str]] = {
    "first": ("first", "first"),
    "last": ("last", "last"),
    "replicated": ("whole", "whole"),
    "head": ("first", "whole"),
    "tail": ("whole", "first"),
}


def laid_out(tensor: Tensor, mesh: DeviceMesh, placements: tuple[Placement, ...]) -> Any:
    """The distributed tensor of one that every rank has; a leaf that requires what it requires."""
    made = dt.distribute_tensor(tensor.detach(), mesh, placements, src=None)
    return made.requires_grad_(tensor.requires_grad)


def is_distributed(x: Any) -> bool:
    """Whether it is a distributed tensor."""
    return isinstance(x, dt.DistTensor)


def gradients(total: Tensor, leaves: list[Any]) -> list[Any]:
    """The gradient of a number with respect to distributed tensors, laid out as they are."""
    found = torch.autograd.grad(total, leaves, allow_unused=True)
    return [torch.zeros_like(x) if grad is None else grad for x, grad in zip(leaves, found)]


def placed(tensor: Tensor, where: str) -> tuple[Placement, ...]:
    """The placements of an operand on a mesh of one dimension; what has no dimension is whole."""
    if where == "whole" or not tensor.ndim:
        return (Replicate(),)
    return (Shard(0 if where == "first" else tensor.ndim - 1),)


class Operands:
    """The tensors of a sample and how one way lays them out."""

    def __init__(self, way: str, found: list[Tensor]) -> None:
        head, others = WAYS[way]
        self.placements = [placed(tensor, others if k else head) for k, tensor in enumerate(found)]

    def __str__(self) -> str:
        return " ".join(str(placements[0]) for placements in self.placements)

    def of(self, tree: Any, mesh: DeviceMesh) -> tuple[Any, list[Any]]:
        """Arguments with distributed tensors in the places of plain ones, and those in order."""
        order = iter(self.placements)
        made: list[Any] = []
        known: dict[int, Any] = {}

        def distributed(x: Any) -> Any:
            if not isinstance(x, torch.Tensor):
                return x
            placements = next(order)
            if id(x) not in known:
                known[id(x)] = laid_out(x, mesh, placements)
                made.append(known[id(x)])
            return known[id(x)]

        return pytree.tree_map(distributed, tree), made
