"""Versions of parts, by which autograd detects writes to tensors that it saved.

Autograd may save a distributed tensor, or this rank's part of it, which ``to_local`` returns. Each
counts its writes. torch counts those of the distributed tensor. It calls this tensor's operators
below the dispatch layer that would count writes to the part.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from distarray.torch.bridge.transforms import is_traced

__all__ = ["counted", "tied", "written"]

#: Dispatch key of the layer in which torch counts writes, and lets views share their base's count.
_COUNTS = torch._C.DispatchKey.ADInplaceOrView
_is_off = torch._C._dispatch_tls_is_dispatch_key_excluded
_set_off = torch._C._dispatch_tls_set_dispatch_key_excluded


def counted(run: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call a function that writes to parts, or returns views of them; torch counts versions.

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
    """Return the part of a view so that it shares the version count of the base's part.

    Parameters
    ----------
    part : torch.Tensor
        This rank's part of the view, in memory of its own: it was moved, or is on another rank.
    base : torch.Tensor
        This rank's part of the base.
    """
    if is_traced(part):  # the compiler counts by itself
        return part
    found = counted(base.detach, (), {})
    found.data = part
    return found


def written(tensors: Sequence[Any]) -> None:
    """Count a write to distributed tensors and their parts, or to plain tensors, on this rank."""
    parts = [x._part for x in tensors if hasattr(x, "_part")]
    torch._C._increment_version([*tensors, *parts])
