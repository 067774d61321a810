"""Support for torch.func's transforms (grad, vmap, jvp, ...), and refusals where ranks communicate.

Within a transform a tensor is a wrapper of torch's own class, without memory, around the
distributed tensor. An operator on the wrapper reaches the distributed tensor in the end, and its
result is right. A function that sends a tensor itself finds no memory in the wrapper.

Forward derivatives have one level in a process, which ranks that are threads would share. They are
refused where a level is entered, before any rank increments it.
"""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import wraps
from typing import Any, NoReturn

import torch
from torch._functorch import eager_transforms
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.autograd import forward_ad
from torch.utils._pytree import tree_leaves

from distarray.comm.threads import current_world

__all__ = [
    "Differentiable",
    "compilation",
    "is_traced",
    "is_wrapped",
    "outside",
    "refuse_constants",
    "refuse_wrapped",
    "transforming",
]

#: Returns True while a transform is active.
transforming: Any = torch._C._are_functorch_transforms_active
_is_wrapped: Any = torch._C._functorch.is_functorch_wrapped_tensor
_keys: Any = torch._C._dispatch_keys
_BATCHED: Any = torch._C._parse_dispatch_key("Batched")
_mode: Any = torch._C._get_dispatch_mode
#: Returns the compilation of ``torch.compile`` in this thread; None if there is none.
compilation: Any = torch._guards.CompileContext.try_get
_TRACING: Any = torch._C._TorchDispatchModeKey.PROXY


def outside() -> AbstractContextManager[Any]:
    """Return a context without an active transform, for tensors that no transform has wrapped."""
    found: AbstractContextManager[Any] = temporarily_clear_interpreter_stack()
    return found


def is_wrapped(x: Any) -> bool:
    """Return True if a transform is active and this is one of its wrappers.

    The same for batched gradients (``is_grads_batched``), for which torch uses an older mechanism.
    """
    if not isinstance(x, torch.Tensor):
        return False
    return bool((transforming() and _is_wrapped(x)) or _keys(x).has(_BATCHED))


def refuse_wrapped(values: Iterable[Any]) -> None:
    """Raise RuntimeError if a transform is active and one of the values is its wrapper."""
    if any(map(is_wrapped, values)):
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
    """Autograd function that takes no part in transforms."""

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Call the function outside of transforms; refuse tensors that a transform has wrapped."""
        if not transforming():
            return super().apply(*args, **kwargs)
        refuse_wrapped(tree_leaves((args, kwargs)))
        with outside():
            return super().apply(*args, **kwargs)


def is_traced(tensor: Any) -> bool:
    """Return True for a fake tensor, with which ``torch.compile`` traces a program."""
    kind: Any = type(tensor)
    return kind is not torch.Tensor and kind.__module__.startswith("torch._subclasses.")


def refuse_constants(tensors: Iterable[Any]) -> None:
    """Raise RuntimeError if ``make_fx`` traces operators on the parts of these tensors.

    ``make_fx`` traces a distributed tensor only if it is an argument. Of any other it records the
    operators on this rank's part and treats their results as constants. ``torch.compile`` uses fake
    tensors for all parts.
    """
    if _mode(_TRACING) is None:
        return
    if not any(is_traced(getattr(x, "_part", x)) for x in tensors):
        raise RuntimeError(
            "make_fx, by which torch.func.linearize works, sees this rank's part of a distributed "
            "tensor that is not among the function's arguments, and what it gives would be wrong: "
            "hand the tensor over as an argument, or take torch.func.jvp or vjp"
        )


def _of_processes(enter: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator of a torch function that enters a level: refuse it where ranks are threads."""

    @wraps(enter)
    def entering(*args: Any, **kwargs: Any) -> Any:
        world = current_world()
        if world is not None and world.size > 1:
            raise RuntimeError(
                "forward derivatives (torch.func.jvp, jacfwd, hessian, linearize, and "
                "torch.autograd.forward_ad) have one level in a process, which ranks that are "
                "threads (run_threads) would share: run the program with mpiexec, or take "
                "torch.func.vjp, jacrev, or torch.autograd.functional.jvp"
            )
        return enter(*args, **kwargs)

    return entering


# torch has no hook there; torch looks both functions up in their modules at each call.
for _module, _name in (
    (eager_transforms, "jvp_increment_nesting"),
    (forward_ad, "enter_dual_level"),
):
    setattr(_module, _name, _of_processes(getattr(_module, _name)))
