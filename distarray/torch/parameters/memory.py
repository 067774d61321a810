"""Refusal to give a plain tensor the memory of a part: ``x.data = p`` and ``x.set_(p)``.

torch does not call ``__torch_function__`` for these, and the plain tensor would become this rank's
part without any record of the other parts. Therefore the operators that torch calls first, for
tensors on all devices, are replaced by operators that check their arguments.
"""

import threading
from typing import Any

import torch
from torch import Tensor

from distarray.torch.bridge.plain import is_part
from distarray.torch.collectives.passes import uncompiled
from distarray.torch.parameters.spreading import placed_on

__all__ = ["watch_memory"]

_aten = torch.ops.aten
_SELECT = torch._C.DispatchKeySet(torch._C._parse_dispatch_key("BackendSelect"))
_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd
#: Dispatch keys under which torch first checks a tensor's data type and memory.
_BEFORE = ("AutogradCPU", "AutogradCUDA", "AutogradHPU")
_asks = torch._C._is_torch_function_enabled
_watching: list[torch.library.Library] = []
#: Lock for ranks that are threads and place their first parameters at the same time: torch accepts
#: only one implementation for a key.
_lock = threading.Lock()


def watch_memory() -> None:
    """Install the checks; later calls have no effect."""
    with _lock:
        if _watching:
            return
        found = torch.library.Library("aten", "IMPL")
        for key in _BEFORE:
            found.impl("_has_compatible_shallow_copy_type", uncompiled(_fits), key)
        found.impl("set_.source_Tensor", uncompiled(_sets), "BackendSelect")
        _watching.append(found)


def _fits(x: Tensor, other: Tensor) -> Any:
    """Check the types of two tensors before ``x.data = other``."""
    _refuse(x, other, "x.data = p")
    return _aten._has_compatible_shallow_copy_type.default._op_dk(_COMPOSITE, x, other)


def _sets(x: Tensor, source: Tensor) -> Any:
    _refuse(x, source, "x.set_(p)")
    with torch._C._ExcludeDispatchKeyGuard(_SELECT):
        return _aten.set_.source_Tensor(x, source)


def _refuse(x: Tensor, other: Tensor, what: str) -> None:
    if is_part(other) and not is_part(x) and _asks():
        raise RuntimeError(
            f"{what}: a plain tensor would be this rank's part of {placed_on(other).called}, and "
            "no more: x.copy_(p) writes the values of the whole, p.full_tensor() is a plain "
            "tensor, p.to_local() the part"
        )
