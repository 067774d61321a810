"""Operators on lists of tensors that treat each row of the lists alike, as optimizers use.

Each row is moved to the layout that the operator on this row's tensors alone would use. The rows
need not be cut alike. Where the tensors of a row have the same layout, nothing is sent.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from distarray.layout import Layout
from distarray.plan.propagate import propagate, restrict
from distarray.torch.tensor import optimizers
from distarray.torch.tensor.calls import Call, Operand
from distarray.torch.tensor.table import Decision, composed, rule

#: Suffixes, after "_foreach_", of the elementwise operators.
_ELEMENTWISE = (
    *("abs", "acos", "add", "addcdiv", "addcmul", "asin", "atan", "ceil", "clamp_max", "clamp_min"),
    *("clone", "copy", "cos", "cosh", "div", "erf", "erfc", "exp", "expm1", "floor", "frac"),
    *("lerp", "lgamma", "log", "log10", "log1p", "log2", "maximum", "minimum", "mul", "neg", "pow"),
    *("reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "sub", "tan"),
    *("tanh", "trunc", "zero"),
)
_STEPS = tuple([f"aten._fused_{name}" for name in ("adagrad", "adam", "adamw", "sgd")])


@rule(*[f"aten._foreach_{name}" for name in _ELEMENTWISE], *_STEPS, by_kind=True)
def _each(call: Call) -> Decision | None:
    lists = [x for x in call.values.values() if _is_list(x)]
    targets = [_target(row, bool(call.written)) for row in zip(*lists, strict=True)]
    wanted: list[Layout] = []
    for value in call.values.values():
        if _is_list(value):
            for x, target in zip(value, targets, strict=True):
                if target is None:
                    return None
                wanted.append(restrict(target, x.shape))
        elif isinstance(value, Operand):  # a number for all rows, or one number for each
            wanted.append(Layout.replicated(value.shape, call.mesh_shape))
    return Decision(wanted, [target for target in targets if target is not None])


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and bool(value) and isinstance(value[0], Operand)


def _target(row: Sequence[Operand], written: bool) -> Layout | None:
    """Return the layout in which a row is computed; None if its first tensor is broadcast."""
    if written:
        return row[0].layout
    layouts = tuple([x.layout for x in row])
    found = propagate(layouts, tuple([x.itemsize for x in row])).result
    return found if found.shape == row[0].shape else None


@composed("aten._foreach_norm")
def _norms(tensors: Sequence[Tensor], ord: Any = 2, dtype: Any = None) -> list[Tensor]:
    return [torch.linalg.vector_norm(x, ord, dtype=dtype) for x in tensors]


@composed("aten._foreach_powsum")
def _sums_of_powers(tensors: Sequence[Tensor], ord: Any = 2, dtype: Any = None) -> list[Tensor]:
    return [torch.ops.aten.linalg__powsum.default(x, ord, dtype=dtype) for x in tensors]


@composed("aten._foreach_mm")
def _products(tensors: Sequence[Tensor], others: Sequence[Tensor]) -> list[Tensor]:
    return [torch.mm(x, y) for x, y in zip(tensors, others, strict=True)]


@composed("aten._foreach_max")
def _greatest(tensors: Sequence[Tensor]) -> list[Tensor]:
    return [x.max() for x in tensors]


optimizers.watch()
