"""torch.func's transforms of functions of distributed parameters.

A transform wraps the tensors that it is given, and asks nobody: a parameter's class is hidden, and
this rank's part would be taken for the whole. Therefore what wraps is given the distributed tensor
of a part instead, for which it is right.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

from torch import Tensor
from torch._functorch import eager_transforms, vmap

from distarray.torch.bridge.plain import is_part
from distarray.torch.parameters.spreading import distributed

__all__ = ["watch_transforms"]

#: What wraps a tensor in a transform: the module in which torch looks for it, and its name.
_WRAPPING = ((eager_transforms, "_wrap_for_grad"), (vmap, "_add_batch_dim"))


def watch_transforms() -> None:
    """Have transforms see distributed tensors where they are given parts; again, nothing."""
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
