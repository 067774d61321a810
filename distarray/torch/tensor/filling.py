"""Filling of ``out=`` tensors with the results of the operator without ``out=``."""

from collections.abc import Sequence
from typing import Any

import torch

from distarray.torch.tensor.calls import arguments

__all__ = ["fill", "filling", "take_over", "turned_into"]


def filling(row: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Call an operator without its ``out=``, and fill those tensors with the results."""
    names = [name for name, is_out in row.written.items() if is_out]
    read = {name: x for name, x in kwargs.items() if name not in names}
    found = row.op.overloadpacket(*args, **read)
    targets = list(arguments([kwargs[name] for name in names], {}))
    for target, result in zip(targets, arguments([found], {}), strict=True):
        fill(target, result)
    if not row.op._schema.returns:
        return None
    return targets[0] if len(targets) == 1 else tuple(targets)


def fill(target: Any, found: Any) -> None:
    """Copy the values of a distributed tensor to a tensor; an empty one also gets its shape.

    Raises
    ------
    ValueError
        If `target` has elements and another shape.
    RuntimeError
        If the data type of `target` cannot hold the values.
    """
    if not torch.can_cast(found.dtype, target.dtype):
        raise RuntimeError(f"out=: a result of {found.dtype} cannot become {target.dtype}")
    found = found.to(target.dtype)
    if target.shape == found.shape:
        _copy(target, found)
    elif target.numel():
        raise ValueError(
            f"out=: a tensor of shape {tuple(target.shape)} is to be written to, and the result "
            f"has shape {tuple(found.shape)}; distributed tensors keep theirs"
        )
    elif hasattr(target, "_spec"):
        turned_into(target, found)
    else:
        _copy(target.resize_(found.shape), found)


def take_over(target: Any, found: Any) -> None:
    """Replace the part and the layout of a distributed tensor; torch's own metadata is not changed.

    Its cached results are dropped, and its gradients get its new layout.
    """
    target._part, target._spec = found._part, found._spec
    target._settled = target._light = None
    watched = getattr(target, "_watched", None)
    if watched is not None:
        watched.spec = found._spec
    if found._spec.copied:
        target._source = found._source


def turned_into(target: Any, found: Any) -> None:
    """Replace the memory, layout and shape of a distributed tensor by another tensor's."""
    take_over(target, found)
    torch._functionalize_unsafe_set(target, found)
    with torch._C._DisableTorchDispatch():
        target.as_strided_(found._spec.shape, found._spec.strides)


def _copy(target: Any, found: Any) -> None:
    """Copy the values of a distributed tensor; a plain `target` receives the global tensor."""
    target.copy_(found if hasattr(target, "_spec") else found.redistribute().to_local())
