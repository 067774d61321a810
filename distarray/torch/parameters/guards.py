"""Guards that keep torch's optimizers and `load_state_dict` from treating a part as the whole."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from distarray.torch.bridge.plain import plainly
from distarray.torch.parameters.parts import Part, guard, unguard
from distarray.torch.parameters.spreading import KEY, own_part, placed_on
from distarray.torch.tensor.between_modules import is_distributed

__all__ = ["prepare_again", "prepare_optimizer", "take_whole_states", "watch_optimizers"]


#: Number of parameters distributed in this process; None before optimizers are watched.
_distributed: int | None = None


#: Optimizers that need whole parameters for norms, factors or line searches.
_OF_WHOLES = tuple(
    [getattr(torch.optim, n) for n in ("Adafactor", "LBFGS", "Muon") if hasattr(torch.optim, n)]
)


def watch_optimizers() -> None:
    """Count a distributed parameter; optimizers are prepared again before their next step."""
    global _distributed
    if _distributed is None:
        register_optimizer_step_pre_hook(_before_step)
    _distributed = (_distributed or 0) + 1


# -- steps -------------------------------------------------------------------------------------


class _Watched:
    """Record of an optimizer from its last preparation.

    Attributes
    ----------
    seen : tuple
        Numbers of distributed parameters and of the optimizer's parameter groups.
    state : dict
        The optimizer's state. A loaded state is another object.
    parts : list of Part
        The optimizer's parameters that are cut.
    elementwise : bool
        True if the step is torch's own. It treats every element by itself, so it may work on plain
        tensors. A step from another library may compute a norm or a mean.
    opened : list of Part
        Parameters, and gradients that the program has read, which are plain tensors within a step.
    steps : int
        Number of steps begun since the preparation.
    """

    __slots__ = ("elementwise", "opened", "parts", "seen", "state", "steps")

    def __init__(self, optimizer: Optimizer) -> None:
        self.seen = _seen(optimizer)
        self.state = optimizer.state
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self.parts = [p for p in parameters if isinstance(p, Part)]
        self.elementwise = type(optimizer).step.__module__.startswith("torch.optim.")
        self.opened: list[Tensor] = []
        self.steps = 0

    def open(self) -> None:
        """Turn the parameters and their gradients into plain tensors."""
        self.cover()
        with plainly():
            grads = [part.grad for part in self.parts]
        self.opened = [x for x in (*self.parts, *grads) if type(x) is Part]
        for part in self.opened:
            unguard(part)

    def cover(self) -> None:
        """Turn opened tensors into parts again, also gradients that only the program holds."""
        for part in self.opened:
            guard(part, placed_on(part))
        self.opened = []


def _seen(optimizer: Optimizer) -> tuple[Any, int]:
    return _distributed, len(optimizer.param_groups)


def prepare_optimizer(optimizer: Optimizer) -> _Watched:
    """Cut an optimizer's state to this rank's parts; raise an error if it needs whole parameters.

    Raises
    ------
    RuntimeError
        If it would treat parts as wholes, or has loaded the state of another part.
    """
    known: _Watched | None = vars(optimizer).get(KEY)
    if known is not None and known.state is optimizer.state and known.seen == _seen(optimizer):
        return known
    if known is not None:
        known.cover()
    found = _Watched(optimizer)
    if found.parts and isinstance(optimizer, _OF_WHOLES):
        raise RuntimeError(
            f"{type(optimizer).__name__} makes its steps of whole parameters, of which each "
            "rank has a part here, so that ranks would go different ways: keep the parameters "
            "whole (data_parallel), or take an optimizer that treats every element by itself "
            "(SGD, AdamW, ...)"
        )
    with torch.no_grad():
        for parameter, kept in optimizer.state.items():
            for name, value in kept.items() if isinstance(kept, dict) else ():
                kept[name] = _own_state(value, parameter, not found.elementwise)
    if known is None and found.parts:
        optimizer.register_state_dict_post_hook(_mark_state)
    setattr(optimizer, KEY, found)
    return found


def prepare_again(optimizer: Optimizer) -> None:
    """Request a new preparation before an optimizer's next step, since its state has changed."""
    if KEY in vars(optimizer):
        vars(optimizer)[KEY].seen = None


def _before_step(optimizer: Optimizer, *_: Any) -> None:
    """Open the optimizer's parameters for its step only, not for the program's hooks.

    A hook of the program would treat this rank's part of a gradient as the whole, for example for
    its norm. torch calls global hooks, of which this function is one, before the optimizer's own.
    """
    watched = prepare_optimizer(optimizer)
    if not (watched.parts and watched.elementwise):
        return
    own: Any = optimizer
    _place(own._optimizer_step_pre_hooks, _open, own.register_step_pre_hook, last=True)
    _place(own._optimizer_step_post_hooks, _close, own.register_step_post_hook, last=False)


def _place(hooks: Any, hook: Any, register: Any, last: bool) -> None:
    """Move a hook to the end (`last`) or the beginning of the hooks; register it if necessary."""
    key = next((key for key, known in hooks.items() if known is hook), None)
    hooks.move_to_end(register(hook).id if key is None else key, last)


class _Step(dict[str, Any]):
    """Keyword arguments of a step; when torch releases them, all parameters are parts again.

    After an error torch calls no hooks, so the end of the step shows only in this release.
    """

    def __init__(self, kwargs: dict[str, Any], watched: _Watched) -> None:
        super().__init__(kwargs)
        watched.steps += 1
        self.watched, self.number = watched, watched.steps

    def __del__(self) -> None:
        if self.number == self.watched.steps:  # a stored exception may delay this into another step
            self.watched.cover()


def _open(optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Make parameters and gradients plain tensors for the step, and parts within its closure."""
    watched: _Watched = vars(optimizer)[KEY]
    named = _Step(kwargs, watched)
    closure: Any = args[1] if len(args) > 1 else kwargs.get("closure")

    def covered() -> Any:
        watched.cover()
        found = closure()
        watched.open()  # not after an exception, which ends the step
        return found

    if len(args) > 1 and closure is not None:
        args = (args[0], covered, *args[2:])
    elif closure is not None:
        named["closure"] = covered
    watched.open()
    return args, named


def _close(optimizer: Optimizer, *_: Any) -> None:
    vars(optimizer)[KEY].cover()


# -- states ------------------------------------------------------------------------------------


def _mark_state(optimizer: Optimizer, state_dict: dict[str, Any]) -> Any:
    """Turn the parts in an optimizer's ``state_dict`` into objects of class `Part`."""
    prepare_optimizer(optimizer)
    parameters: list[Any] = [p for group in optimizer.param_groups for p in group["params"]]
    state = dict(state_dict["state"])
    for number, parameter in enumerate(parameters):
        if number in state and isinstance(parameter, Part):
            placed = placed_on(parameter)
            state[number] = {
                name: guard(value.detach(), placed)
                if isinstance(value, torch.Tensor) and tuple(value.shape) == placed.local_shape()
                else value
                for name, value in state[number].items()
            }
    return {**state_dict, "state": state}


def take_whole_states(module: Module) -> None:
    """Make ``load_state_dict`` also accept whole parameters, and keep this rank's part of them."""
    if not any(hook is _cut_state for hook in _loaders(module)):
        module.register_load_state_dict_pre_hook(_cut_state)


def _loaders(module: Module) -> list[Any]:
    return [getattr(h, "hook", h) for h in module._load_state_dict_pre_hooks.values()]


@torch.no_grad()  # type: ignore[untyped-decorator]
def _cut_state(module: Module, state: dict[str, Any], prefix: str, *rest: Any) -> None:
    for name, placed in vars(module)[KEY].items():
        value = state.get(prefix + name)
        if isinstance(value, torch.Tensor) and tuple(value.shape) == placed.whole:
            if placed.cutting:
                state[prefix + name] = guard(own_part(value, placed), placed)
            elif is_distributed(value):
                state[prefix + name] = own_part(value, placed)


def _own_state(value: Any, parameter: Tensor, spread: bool) -> Any:
    """Return this rank's part of an optimizer's state value; of class `Part` if `spread`.

    A value of another shape than the parameter's stays unchanged. A distributed value of a plain
    parameter becomes whole.
    """
    if not isinstance(value, torch.Tensor) or hasattr(parameter, "_spec"):
        return value
    if not isinstance(parameter, Part):
        return value.full_tensor() if is_distributed(value) else value
    placed, shape = placed_on(parameter), tuple(value.shape)
    here = not is_distributed(value) and shape == placed.local_shape()
    if not here and shape != placed.whole:
        return value
    part = value if here else own_part(value, placed)
    return guard(part, placed) if spread else part
