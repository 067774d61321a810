"""``x.data = y``, by which torch gives a tensor what another one is, and asks no class.

A distributed tensor takes over another one: its part, its layout, its shape and its data type. A
plain tensor cannot become distributed, nor the other way round; the check of torch's that comes
before says so.
"""

from typing import Any

import torch

from distarray.torch.tensor.composites import KEYS, enter
from distarray.torch.tensor.filling import take_over
from distarray.torch.tensor.moved_views import current

__all__ = ["taken_over"]

_check = torch.ops.aten._has_compatible_shallow_copy_type.default
_set = torch.Tensor.data.__set__


def taken_over(x: Any, value: Any) -> None:
    """Let a distributed tensor have the part, the layout and the data type of another one."""
    if hasattr(value, "to_dist_tensor"):
        value = value.to_dist_tensor()
    if hasattr(value, "_spec"):
        current(value)
        _set(x, value)
        take_over(x, value)
    else:
        _set(x, value)


def _fits(check: Any, x: Any, value: Any) -> bool:
    """What torch asks before; of two distributed tensors it knows itself."""
    if hasattr(x, "_spec") and hasattr(value, "_spec"):
        with torch._C._ExcludeDispatchKeyGuard(KEYS):
            return bool(check(x, value))
    into, what = ("distributed", "plain") if hasattr(x, "_spec") else ("plain", "distributed")
    raise RuntimeError(
        f"a {into} tensor cannot be given the memory of a {what} one (x.data = y): x.copy_(y) "
        "writes the values, y.full_tensor() is a plain one, distribute_tensor(y, mesh, placements) "
        "a distributed one, and a module takes either in the place of its parameter, as in "
        "module.weight = torch.nn.Parameter(y)"
    )


enter(_check, _fits)
