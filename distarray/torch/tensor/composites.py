"""Composite operators, which torch decomposes into others with plain tensors or values of its own.

torch decomposes such an operator before it calls a tensor's own code. That code then sees a
distributed tensor beside a plain one, and cannot know who made the plain one. For the operators
listed here distributed tensors carry a dispatch key that intercepts them before they are
decomposed. This module checks the program's arguments. Tensors that torch makes after that count as
replicated, since torch computes them from sizes and numbers. For all other operators the key costs
nothing.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from distarray.torch.collectives.passes import uncompiled
from distarray.torch.tensor.calls import tensors_in
from distarray.torch.tensor.filling import fill
from distarray.torch.tensor.operands import PlainOperandError, is_refused, replicating

__all__ = ["KEYS", "enter"]

_NAME = "TESTING_ONLY_GenericWrapper"  # a key that nothing in torch uses
#: Dispatch keys of distributed tensors beside those of all tensors.
KEYS = torch._C.DispatchKeySet(torch._C._parse_dispatch_key(_NAME))

_aten = torch.ops.aten
_MAKING = (
    _aten.combinations.default,
    _aten.scaled_dot_product_attention.default,
    _aten._scaled_dot_product_attention_math.default,
)


def _apart(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Let torch decompose an operator."""
    for x in tensors_in(args, kwargs):
        if not hasattr(x, "_spec") and is_refused(x):
            raise PlainOperandError(str(op.overloadpacket), x)
    with torch._C._ExcludeDispatchKeyGuard(KEYS), replicating():
        return op(*args, **kwargs)


def _split(op: Any, x: Any, sections: Any, dim: int = 0) -> Any:
    """Split at the positions in a tensor, whose values every rank needs."""
    whole = sections.full_tensor() if hasattr(sections, "_spec") else sections
    with torch._C._ExcludeDispatchKeyGuard(KEYS):
        return op(x, whole, dim)


def _one_hot(op: Any, x: Any, num_classes: int = -1) -> Any:
    """Check the range of classes, which torch skips where it decomposes this operator."""
    if x.numel():
        least, most = int(x.amin().item()), int(x.amax().item())
        if least < 0:
            raise RuntimeError("Class values must be non-negative.")
        if num_classes == -1:
            num_classes = most + 1
        elif most >= num_classes:
            raise RuntimeError("Class values must be smaller than num_classes.")
    return _apart(op, x, num_classes)


def _filled(op: Any, *args: Any, out: Any) -> Any:
    """Copy the result to `out`; torch would fill a view of it, whose elements may have moved."""
    fill(out, op.overloadpacket(*args))
    return out


def enter(op: Any, function: Callable[..., Any]) -> None:
    """Register a function to call with an operator and its arguments if one is distributed."""
    _own.impl(op, uncompiled(partial(function, op)), _NAME)


_all = torch.library.Library("_", "IMPL")
_all.fallback(torch.library.fallthrough_kernel, _NAME)
_own = torch.library.Library("aten", "IMPL")
for _op in _MAKING:
    enter(_op, _apart)
enter(_aten.one_hot.default, _one_hot)
enter(_aten.tensor_split.tensor_indices_or_sections, _split)
enter(_aten.kron.out, _filled)
