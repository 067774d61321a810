"""What optimizers keep of distributed tensors, also after a plain state has been loaded.

``optimizer.load_state_dict`` takes what a program of one process has saved: whole tensors, which
say nothing of how they are to lie.
"""

from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from distarray.layout import Replicate
from distarray.torch.tensor.distribute import distribute_tensor

__all__ = ["watch"]

#: The attribute of an optimizer that has the state which was looked at last.
_SEEN = "_distarray_state"


def watch() -> None:
    """Look at optimizers before each step, from now on."""
    register_optimizer_step_pre_hook(_before_step)


@torch.no_grad()  # type: ignore[untyped-decorator]
def _before_step(optimizer: Optimizer, *_: Any) -> None:
    """Lay out what is plain in a state that has been loaded: that is another object.

    States of parts are those of :mod:`distarray.torch.parameters`.
    """
    if vars(optimizer).get(_SEEN) is optimizer.state:
        return
    for parameter, kept in optimizer.state.items():
        if hasattr(parameter, "_spec") and isinstance(kept, dict):
            kept.update({name: _laid_out(value, parameter) for name, value in kept.items()})
    setattr(optimizer, _SEEN, optimizer.state)


def _laid_out(value: Any, parameter: Any) -> Any:
    """A tensor as its parameter lies, if it has its shape, else replicated; numbers stay."""
    plain = type(value) is torch.Tensor and value.ndim > 0
    if not plain:
        return value
    layout = parameter._spec.layout
    alike = value.shape == parameter.shape
    placements = layout.placements if alike else [Replicate()] * len(layout.mesh_shape)
    return distribute_tensor(value, parameter.mesh, placements, src=None)
