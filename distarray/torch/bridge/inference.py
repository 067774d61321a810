"""Support for torch.inference_mode, which distributed tensors treat as no_grad.

Tensors made under inference mode have no version, and torch does not decompose some operators that
it decomposes everywhere else. Distributed tensors need versions to keep moved views up to date, and
their rules are written for the decomposed operators. So their functions leave the mode.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = ["apart", "inferring", "with_versions"]

#: Returns True in inference mode.
inferring: Any = torch.is_inference_mode_enabled


def apart(call: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call a function outside of the mode, without gradients."""
    with torch.inference_mode(False), torch.no_grad():
        return call(*args, **kwargs)


def with_versions(x: Tensor) -> Tensor:
    """Return a tensor over the same memory that has a version, which counts the writes to it."""
    if not x.is_inference():
        return x
    with torch.inference_mode(False), torch.no_grad():
        same = torch.empty(0, dtype=x.dtype, device=x.device)
        return same.set_(x.untyped_storage(), x.storage_offset(), x.shape, x.stride())
