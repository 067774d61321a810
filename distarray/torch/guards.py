"""What keeps torch's optimizers and `load_state_dict` from taking a part for the whole."""

from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

__all__ = ["KEY", "take_whole_states", "watch_optimizers"]

Module = Any

#: The attribute of modules and of parameters that says how they are laid out.
KEY = "_distarray_placed"

#: How many parameters have been distributed in this process; None as long as nobody looks.
_distributed: int | None = None


def watch_optimizers() -> None:
    """Have optimizers looked at before their next step, for a parameter has been distributed."""
    global _distributed
    if _distributed is None:
        register_optimizer_step_pre_hook(_check_optimizer)
    _distributed = (_distributed or 0) + 1


def _check_optimizer(optimizer: Any, args: Any, kwargs: Any) -> None:
    """Refuse an optimizer that has gathered state about parameters while they were whole."""
    if vars(optimizer).get(KEY) == _distributed:
        return
    for group in optimizer.param_groups:
        for tensor in group["params"]:
            placed = vars(tensor).get(KEY)
            if placed is None or tuple(tensor.shape) == placed.whole:
                continue
            for value in optimizer.state.get(tensor, {}).values():
                if isinstance(value, torch.Tensor) and tuple(value.shape) == placed.whole:
                    raise RuntimeError(
                        f"this {type(optimizer).__name__} has made steps before its model was "
                        f"distributed: it keeps state of shape {tuple(value.shape)} for a "
                        f"parameter that is {tuple(tensor.shape)} on this rank now. Distribute the "
                        "model first, or make a new optimizer"
                    )
    setattr(optimizer, KEY, _distributed)


def take_whole_states(module: Module) -> None:
    """From now on ``load_state_dict`` takes whole parameters, too, and keeps this rank's part."""
    if not any(hook is _cut_state for hook in _loaders(module)):
        module.register_load_state_dict_pre_hook(_cut_state)


def _loaders(module: Module) -> list[Any]:
    return [getattr(h, "hook", h) for h in module._load_state_dict_pre_hooks.values()]


def _cut_state(module: Module, state: Any, prefix: str, *rest: Any) -> None:
    for name, placed in vars(module)[KEY].items():
        value = state.get(prefix + name)
        if value is None or tuple(value.shape) == placed.local_shape():
            continue
        if tuple(value.shape) == placed.whole:
            section = tuple([slice(a, b) for a, b in placed.layout.section(placed.mesh.coords)])
            part = value.reshape(placed.layout.shape)[section]
            state[prefix + name] = part.reshape(placed.local_shape())
