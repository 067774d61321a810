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


#: Optimizers that fold over a parameter or over all of them: norms, factors, line searches.
_OF_WHOLES = tuple(
    [getattr(torch.optim, n) for n in ("Adafactor", "LBFGS", "Muon") if hasattr(torch.optim, n)]
)


def watch_optimizers() -> None:
    """Have optimizers looked at before their next step, for a parameter has been distributed."""
    global _distributed
    if _distributed is None:
        register_optimizer_step_pre_hook(_check_optimizer)
    _distributed = (_distributed or 0) + 1


def _check_optimizer(optimizer: Any, args: Any, kwargs: Any) -> None:
    """Refuse an optimizer that would take parts for wholes, now or in what it remembers."""
    if vars(optimizer).get(KEY) == _distributed:
        return
    for group in optimizer.param_groups:
        for tensor in group["params"]:
            placed = vars(tensor).get(KEY)
            if placed is not None:
                _check_step(optimizer, tensor, placed)
    setattr(optimizer, KEY, _distributed)


def _check_step(optimizer: Any, tensor: Any, placed: Any) -> None:
    kind = type(optimizer).__name__
    if isinstance(optimizer, _OF_WHOLES) and _is_cut(placed):
        raise RuntimeError(
            f"{kind} makes its steps of whole parameters, of which each rank has a part here, so "
            "that ranks would go different ways: keep the parameters whole (data_parallel), or "
            "take an optimizer that treats every element by itself (SGD, AdamW, ...)"
        )
    if tuple(tensor.shape) == placed.whole:
        return
    for value in optimizer.state.get(tensor, {}).values():
        if isinstance(value, torch.Tensor) and tuple(value.shape) == placed.whole:
            raise RuntimeError(
                f"this {kind} has made steps before its model was distributed: it keeps state of "
                f"shape {tuple(value.shape)} for a parameter of which each rank has a part now. "
                "Distribute the model first, or make a new optimizer"
            )


def _is_cut(placed: Any) -> bool:
    """Whether any rank has less than the whole parameter; all ranks say the same."""
    return any(cut.parts > 1 for cut in placed.around.layout.cuts)


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
