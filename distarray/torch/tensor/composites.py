"""Operators that torch makes of others, with plain tensors of its own or from the values of one.

torch takes such an operator apart before it asks a tensor's own code, which then sees a distributed
tensor beside a plain one and cannot tell whose that is. For the operators named here distributed
tensors carry a dispatch key under which they come here first, whole: what the program gives is
checked, and what torch makes after that counts as replicated, since it comes of sizes and numbers.
For all other operators the key costs nothing.
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
#: What distributed tensors have beside the keys of all tensors.
KEYS = torch._C.DispatchKeySet(torch._C._parse_dispatch_key(_NAME))

_aten = torch.ops.aten
_MAKING = (
    _aten.combinations.default,
    _aten.scaled_dot_product_attention.default,
    _aten._scaled_dot_product_attention_math.default,
)


def _apart(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Let torch take an operator apart."""
    for x in tensors_in(args, kwargs):
        if not hasattr(x, "_spec") and is_refused(x):
            raise PlainOperandError(str(op.overloadpacket), x)
    with torch._C._ExcludeDispatchKeyGuard(KEYS), replicating():
        return op(*args, **kwargs)


def _split(op: Any, x: Any, sections: Any, dim: int = 0) -> Any:
    """Split at the places that a tensor says, which every rank has to know."""
    whole = sections.full_tensor() if hasattr(sections, "_spec") else sections
    with torch._C._ExcludeDispatchKeyGuard(KEYS):
        return op(x, whole, dim)


def _one_hot(op: Any, x: Any, num_classes: int = -1) -> Any:
    """Look at the classes, which torch does not where it makes this of other operators."""
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
    """Fill `out` with the result, of which torch would fill a view that may have moved."""
    fill(out, op.overloadpacket(*args))
    return out


def enter(op: Any, function: Callable[..., Any]) -> None:
    """Have a function called with an operator and its arguments where some are distributed."""
    _own.impl(op, uncompiled(partial(function, op)), _NAME)


_all = torch.library.Library("_", "IMPL")
_all.fallback(torch.library.fallthrough_kernel, _NAME)
_own = torch.library.Library("aten", "IMPL")
for _op in _MAKING:
    enter(_op, _apart)
enter(_aten.one_hot.default, _one_hot)
enter(_aten.tensor_split.tensor_indices_or_sections, _split)
enter(_aten.kron.out, _filled)
