"""Comparison of the gradients of parameters that a plan does not name, which must not diverge.

Such a parameter is replicated. If its module computes with a replicated activation, every rank
computes the whole gradient. If the module gets a part of an activation, as between a
`ColwiseParallel` and a `RowwiseParallel` layer, each rank computes a contribution, and the replicas
would diverge. Only the values distinguish the two cases. They are compared in the first backward
pass, which costs one small message then, and nothing afterwards.
"""

import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from distarray.comm import DeviceMesh
from distarray.errors import DivergenceError
from distarray.torch.bridge.plain import is_part
from distarray.torch.collectives.passes import at_end_of_backward, in_backward
from distarray.torch.parameters.placed import averaged_by, placed_as

__all__ = ["compare_gradients"]

#: Number of passes after which gradients that are zero on all ranks are no longer compared.
_MOST_PASSES = 8
#: Relative tolerance for sums of replicas' gradients, which differ only by rounding.
_TOLERANCE = 1e-3


def compare_gradients(root: Module, names: Sequence[str], mesh: DeviceMesh) -> None:
    """Compare the first gradients of replicated parameters between the ranks, by hooks.

    Parameters
    ----------
    root : torch.nn.Module
        Distributed over the mesh.
    names : sequence of str
        Names of its parameters that no style has placed.
    mesh : DeviceMesh
        The ranks that have replicas.
    """
    if mesh.size() > 1:
        comparison = _Comparison(mesh)
        for name in names:
            parameter = root.get_parameter(name)
            if parameter.requires_grad and not is_part(parameter):
                comparison.watch(name, parameter)


class _Comparison:
    """Gradients of one pass, and the parameters whose gradients have not been compared yet."""

    def __init__(self, mesh: DeviceMesh) -> None:
        self.mesh = mesh
        self.handles: dict[str, Any] = {}
        self.found: dict[str, tuple[float, float, int]] = {}
        self.passes = 0

    def watch(self, name: str, parameter: Tensor) -> None:
        """Attach a hook to a parameter that records its gradient."""
        arrived = partial(self._arrived, name, weakref.ref(parameter))
        self.handles[name] = parameter.register_hook(arrived)

    def _is_replica(self, parameter: Tensor) -> bool:
        """Return True unless the parameter is by now averaged, or divided, over these ranks."""
        ranks, placed = set(self.mesh.group.world_ranks), placed_as(parameter)
        divided = set() if placed is None else placed.around.holders & ranks
        return len(averaged_by(parameter) & ranks) < 2 and len(divided) < 2

    def _arrived(self, name: str, parameter: Callable[[], Tensor], grad: Tensor | None) -> None:
        if grad is None:  # from a function without a gradient
            return
        plain = grad.layout is torch.strided and type(grad) is torch.Tensor
        if not (plain and in_backward() and name in self.handles):
            return  # a distributed gradient is that of the whole parameter
        if not self._is_replica(parameter()):
            return
        if not self.found:
            at_end_of_backward(self._finish)
        values = grad.detach()
        values = (torch.view_as_real(values) if values.is_complex() else values).float()
        total = torch.stack([values.sum(), torch.linalg.vector_norm(values)]).tolist()
        self.found[name] = (*total, values.numel())

    def _finish(self) -> None:
        """Compare the recorded gradients; collective, at the end of a backward pass."""
        found, self.found = self.found, {}
        self.passes += 1
        told = self.mesh.group.allgather_object(found, "gradients of replicated parameters")
        for name in found:
            rows = [theirs[name] for theirs in told if name in theirs]
            scale = max(row[1] for row in rows)
            if scale > 0 or self.passes >= _MOST_PASSES:
                self.handles.pop(name).remove()
            if _differ(rows, scale):
                raise DivergenceError(_different(name))


def _differ(rows: Sequence[tuple[float, float, int]], scale: float) -> bool:
    (total, norm, count), *others = rows
    return any(
        abs(row[1] - norm) > _TOLERANCE * scale
        or abs(row[0] - total) > _TOLERANCE * scale * count**0.5
        for row in others
    )


def _different(name: str) -> str:
    return (
        f"the gradient of {name} differs between the ranks. The plan does not name it, so that it "
        "is replicated, but it is used where each rank has a part of an activation, and finds a "
        "contribution to the gradient. Let the layer before give distributed tensors "
        "(use_local_output=False), or use distarray.torch.copy_to(p, mesh) in the forward pass, "
        "which sums the contributions"
    )
