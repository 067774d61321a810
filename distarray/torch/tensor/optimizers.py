"""States of optimizers of distributed tensors, also after a plain state has been loaded.

``optimizer.load_state_dict`` accepts the state that a program of one process has saved. It contains
whole tensors without layouts.
"""

from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from distarray.layout import Replicate
from distarray.torch.tensor.distribute import distribute_tensor

__all__ = ["watch"]

#: Attribute of an optimizer that holds the state that was checked last.
_SEEN = "_distarray_state"


def watch() -> None:
    """Register a hook that checks optimizers before each step, from now on."""
    register_optimizer_step_pre_hook(_before_step)


@torch.no_grad()  # type: ignore[untyped-decorator]
def _before_step(optimizer: Optimizer, *_: Any) -> None:
    """Distribute the plain tensors of a loaded state, which is another object than the last one.

    States of parts are handled by :mod:`distarray.torch.parameters`.
    """
    if vars(optimizer).get(_SEEN) is optimizer.state:
        return
    for parameter, kept in optimizer.state.items():
        if hasattr(parameter, "_spec") and isinstance(kept, dict):
            kept.update({name: _laid_out(value, parameter) for name, value in kept.items()})
    setattr(optimizer, _SEEN, optimizer.state)


def _laid_out(value: Any, parameter: Any) -> Any:
    """Distribute a tensor as its parameter if the shapes agree, else replicate it; keep numbers."""
    plain = type(value) is torch.Tensor and value.ndim > 0
    if not plain:
        return value
    layout = parameter._spec.layout
    alike = value.shape == parameter.shape
    placements = layout.placements if alike else [Replicate()] * len(layout.mesh_shape)
    return distribute_tensor(value, parameter.mesh, placements, src=None)
