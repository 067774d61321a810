"""Passes through a model: whether a backward pass is under way, and the tensors it starts from."""

import dataclasses
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

__all__ = ["at_end_of_backward", "compiled", "in_backward", "tensors_in"]


def at_end_of_backward(callback: Callable[[], None]) -> None:
    """Call a function at the end of the backward pass that is under way."""
    torch.autograd.Variable._execution_engine.queue_callback(callback)


def in_backward() -> bool:
    """Whether a backward pass is under way in this thread."""
    return bool(torch._C._current_graph_task_id() != -1)


def compiled() -> bool:
    """Whether ``torch.compile`` watches the frames that run now."""
    if torch.compiler.is_compiling():
        return True  # it reads this very function now, and cannot read the rest of it
    if "torch._dynamo" not in sys.modules:
        return False
    asked = getattr(torch._C._dynamo.eval_frame, "get_eval_frame_callback", lambda: None)
    return asked() not in (None, False)


def tensors_in(value: Any) -> list[Tensor]:
    """The tensors in what a module returned: itself, or in lists, tuples, dicts, dataclasses."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    elif dataclasses.is_dataclass(value):
        value = [getattr(value, field.name, None) for field in dataclasses.fields(value)]
    if isinstance(value, (list, tuple)):
        return [tensor for part in value for tensor in tensors_in(part)]
    return []
