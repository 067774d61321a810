"""Versions of parts: how autograd notices that what it has kept was written to.

What autograd keeps may be a distributed tensor or this rank's part of it, which ``to_local`` gives.
Each counts how often it was written to. torch counts for the distributed tensor, and calls its
operator below the place where it would count for the part.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from distarray.torch.bridge.transforms import is_traced

__all__ = ["counted", "tied", "written"]

#: Where torch counts what is written to, and lets views count together with what they are views of.
_COUNTS = torch._C.DispatchKey.ADInplaceOrView
_is_off = torch._C._dispatch_tls_is_dispatch_key_excluded
_set_off = torch._C._dispatch_tls_set_dispatch_key_excluded


def counted(run: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call a function that writes to parts, or gives views of them, as programs call it.

    Parameters
    ----------
    run : callable
        Called with parts, inside of an operator on distributed tensors.
    args, kwargs
        Its arguments.
    """
    if not _is_off(_COUNTS):
        return run(*args, **kwargs)
    _set_off(_COUNTS, False)
    try:
        return run(*args, **kwargs)
    finally:
        _set_off(_COUNTS, True)


def tied(part: Any, base: Any) -> Any:
    """The part of a view, which counts together with the part of what it is a view of.

    Parameters
    ----------
    part : torch.Tensor
        This rank's part of the view, in memory of its own: it was moved, or is on another rank.
    base : torch.Tensor
        That of the tensor.
    """
    if is_traced(part):  # the compiler counts by itself
        return part
    found = counted(base.detach, (), {})
    found.data = part
    return found


def written(tensors: Sequence[Any]) -> None:
    """Count a write to distributed tensors and their parts, or to plain ones, on this rank."""
    parts = [x._part for x in tensors if hasattr(x, "_part")]
    torch._C._increment_version([*tensors, *parts])
