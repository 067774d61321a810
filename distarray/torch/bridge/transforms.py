"""What torch.func's transforms (grad, vmap, jvp, ...) do to tensors, as far as ranks must know.

Within a transform a tensor is a wrapper without memory, of no class of ours, around the distributed
tensor; operators come to that in the end, and are right. What talks to other ranks about a tensor
by itself finds nothing there that it could send.

Forward derivatives have one level in a process, which ranks that are threads would share: these are
refused where a level is entered, before any of them counts.
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

#: Whether a transform is under way.
transforming: Any = torch._C._are_functorch_transforms_active
_is_wrapped: Any = torch._C._functorch.is_functorch_wrapped_tensor
_keys: Any = torch._C._dispatch_keys
_BATCHED: Any = torch._C._parse_dispatch_key("Batched")
_mode: Any = torch._C._get_dispatch_mode
#: What ``torch.compile`` reads in this thread; None if it reads nothing.
compilation: Any = torch._guards.CompileContext.try_get
_TRACING: Any = torch._C._TorchDispatchModeKey.PROXY


def outside() -> AbstractContextManager[Any]:
    """A context in which no transform is under way: for tensors that none of them has wrapped."""
    found: AbstractContextManager[Any] = temporarily_clear_interpreter_stack()
    return found


def is_wrapped(x: Any) -> bool:
    """Whether a transform is under way, and this is a wrapper of its.

    So are many gradients at once (``is_grads_batched``), by an older way of torch's.
    """
    if not isinstance(x, torch.Tensor):
        return False
    return bool((transforming() and _is_wrapped(x)) or _keys(x).has(_BATCHED))


def refuse_wrapped(values: Iterable[Any]) -> None:
    """Raise RuntimeError if a transform is under way and one of the values is a wrapper of its."""
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
    """A function with a gradient of its own, which is no part of a transform's."""

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Call it: beside the transforms that have wrapped none of its tensors; refuse others."""
        if not transforming():
            return super().apply(*args, **kwargs)
        refuse_wrapped(tree_leaves((args, kwargs)))
        with outside():
            return super().apply(*args, **kwargs)


def is_traced(tensor: Any) -> bool:
    """Whether a tensor is made up, by which ``torch.compile`` reads a program."""
    kind: Any = type(tensor)
    return kind is not torch.Tensor and kind.__module__.startswith("torch._subclasses.")


def refuse_constants(tensors: Iterable[Any]) -> None:
    """Raise RuntimeError if ``make_fx`` writes down what is done to these tensors' parts.

    It sees distributed tensors that are arguments as they are, and for any other one the operators
    on its part, whose results it takes for constants. ``torch.compile`` makes all parts up.
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
    """A function of torch that enters a level, refused by ranks that are threads."""

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


# torch has no hook there; both are looked up in their modules at each call.
for _module, _name in (
    (eager_transforms, "jvp_increment_nesting"),
    (forward_ad, "enter_dual_level"),
):
    setattr(_module, _name, _of_processes(getattr(_module, _name)))
