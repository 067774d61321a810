"""What torch.func's transforms (grad, vmap, jvp, ...) do to tensors, as far as ranks must know.

Within a transform a tensor is a wrapper without memory, of no class of ours, around the distributed
tensor; operators come to that in the end, and are right. What talks to other ranks about a tensor
by itself finds nothing there that it could send.
"""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any, NoReturn

import torch
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.utils._pytree import tree_leaves

__all__ = ["Differentiable", "outside", "refuse_wrapped", "transforming"]

#: Whether a transform is under way.
transforming: Any = torch._C._are_functorch_transforms_active
_is_wrapped: Any = torch._C._functorch.is_functorch_wrapped_tensor


def outside() -> AbstractContextManager[Any]:
    """A context in which no transform is under way: for tensors that none of them has wrapped."""
    found: AbstractContextManager[Any] = temporarily_clear_interpreter_stack()
    return found


def refuse_wrapped(values: Iterable[Any]) -> None:
    """Raise RuntimeError if a transform is under way and one of the values is a wrapper of its."""
    if transforming() and any(isinstance(x, torch.Tensor) and _is_wrapped(x) for x in values):
        _refuse()


def _refuse() -> NoReturn:
    raise RuntimeError(
        "torch.func's transforms (grad, vmap, vjp, jvp, jacrev, ...) cannot go through a module "
        "that has been distributed, or through what talks to other ranks: they hide the tensors "
        "that are sent. torch.autograd.grad(..., create_graph=True) and torch.autograd.functional "
        "can. Or transform a function of distributed tensors: torch.func.functional_call(plain, "
        "{name: p.to_dist_tensor() for name, p in model.named_parameters()}, x), where plain is a "
        "copy of the model from before it was distributed, and x a DistTensor"
    )


class Differentiable(torch.autograd.Function):  # type: ignore[misc]
    """A function with a gradient of its own, which is no part of a transform's."""

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Call it: beside the transforms that have wrapped none of its tensors; refuse others."""
        if not transforming():
            return super().apply(*args, **kwargs)
        refuse_wrapped(tree_leaves((args, kwargs)))
        with outside():
            return super().apply(*args, **kwargs)
