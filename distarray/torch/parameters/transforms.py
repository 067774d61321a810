"""torch.func's transforms of functions of distributed parameters.

A transform wraps its tensors without a call of ``__torch_function__``. The wrapper hides the class
of a parameter, so torch would treat this rank's part as the whole. Therefore the wrapping functions
receive the distributed tensor in place of a part; for a distributed tensor they are correct.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

from torch import Tensor
from torch._functorch import eager_transforms, vmap

from distarray.torch.bridge.plain import is_part
from distarray.torch.parameters.spreading import distributed

__all__ = ["watch_transforms"]

#: Functions that wrap a tensor in a transform: the module in which torch looks them up, and name.
_WRAPPING = ((eager_transforms, "_wrap_for_grad"), (vmap, "_add_batch_dim"))


def watch_transforms() -> None:
    """Make transforms wrap distributed tensors in place of parts; later calls have no effect."""
    for module, name in _WRAPPING:
        wrap = getattr(module, name)
        if not hasattr(wrap, "_distarray"):
            setattr(module, name, _of_distributed(wrap))


def _of_distributed(wrap: Callable[..., Tensor]) -> Callable[..., Tensor]:
    @wraps(wrap)
    def wrapped(tensor: Tensor, *args: Any) -> Tensor:
        return wrap(distributed(tensor) if is_part(tensor) else tensor, *args)

    wrapped._distarray = True  # type: ignore[attr-defined]
    return wrapped
