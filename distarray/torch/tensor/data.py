"""Assignment ``x.data = y``, for which torch calls no method of the tensor's class.

A distributed tensor takes over another distributed tensor's part, layout, shape and data type. A
plain tensor cannot become distributed, nor the reverse: `_fits`, which torch calls first, raises
RuntimeError.
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
    """Replace the part, layout and data type of a distributed tensor by another tensor's."""
    if hasattr(value, "to_dist_tensor"):
        value = value.to_dist_tensor()
    if hasattr(value, "_spec"):
        current(value)
        _set(x, value)
        take_over(x, value)
    else:
        _set(x, value)


def _fits(check: Any, x: Any, value: Any) -> bool:
    """Replace torch's compatibility check; torch itself checks two distributed tensors."""
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
