"""torch.inference_mode: distributed tensors take part in it as in no_grad.

Tensors that are made under it have no versions, and torch lets operators through whole that it
takes apart everywhere else. Views that have moved are up to date by versions, and rules are about
the operators that others are made of. So what works on distributed tensors steps out of the mode.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = ["apart", "inferring", "with_versions"]

#: Whether the mode is on.
inferring: Any = torch.is_inference_mode_enabled


def apart(call: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call a function outside of the mode, without gradients."""
    with torch.inference_mode(False), torch.no_grad():
        return call(*args, **kwargs)


def with_versions(x: Tensor) -> Tensor:
    """A tensor over the same memory that counts what is written to it."""
    if not x.is_inference():
        return x
    with torch.inference_mode(False), torch.no_grad():
        same = torch.empty(0, dtype=x.dtype, device=x.device)
        return same.set_(x.untyped_storage(), x.storage_offset(), x.shape, x.stride())
