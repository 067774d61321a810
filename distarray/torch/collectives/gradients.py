"""Collectives as autograd functions: the gradient of each is another of them.

So gradients can be differentiated again. The callers in
:mod:`distarray.torch.collectives.functions` and :mod:`distarray.torch.collectives.borders` have
checked shapes, sizes and groups.
"""

from collections.abc import Callable
from contextvars import copy_context
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from distarray.comm.group import Group
from distarray.layout.placement import Fold
from distarray.torch.bridge.transforms import Differentiable
from distarray.torch.collectives import conversations as talk

__all__ = [
    "LINEAR",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "broadcast",
    "copy_to",
    "extreme",
    "gather_from",
    "records",
    "reduce_from",
    "reduce_scatter",
    "scatter_to",
    "sum_on_root",
]

Apply = Callable[..., Tensor]

#: Folds that are linear maps.
LINEAR = (Fold.SUM, Fold.AVG)


def records(tensor: Tensor) -> bool:
    """Return True if autograd records operations on the tensor."""
    return bool(tensor.requires_grad and torch.is_grad_enabled())


def _function(
    name: str, forward: Callable[..., Tensor], backward: Callable[..., Tensor], arguments: int
) -> Apply:
    """Make an autograd function of a tensor and more arguments, which it keeps for the gradient."""

    def run(ctx: FunctionCtx, tensor: Tensor, *rest: Any) -> Tensor:
        ctx.rest, ctx.context = rest, None
        if tensor.device.type != "cpu":
            # A device's backward pass runs in a thread of its own, where no ledger is set.
            ctx.context = copy_context()
        return forward(tensor, *rest)

    def gradient(ctx: FunctionCtx, grad: Tensor) -> tuple[Any, ...]:
        if ctx.context is None:
            return backward(grad, ctx.rest), *(None,) * arguments
        return ctx.context.copy().run(backward, grad, ctx.rest), *(None,) * arguments

    methods = {"forward": staticmethod(run), "backward": staticmethod(gradient)}
    made: Any = type(name, (Differentiable,), methods)
    apply: Apply = made.apply
    return apply


def _share(total: Tensor, group: Group, fold: Fold) -> Tensor:
    return total if fold is Fold.SUM else total / group.size


# -- linear maps: gradients of the sum of all ranks' losses -----------------------------------

all_reduce: Apply = _function(
    "AllReduce", talk.folded, lambda grad, rest: all_reduce(grad, *rest), 2
)
all_gather: Apply = _function(
    "AllGather",
    talk.gathered,
    lambda grad, rest: reduce_scatter(grad, *rest, Fold.SUM),
    3,
)
reduce_scatter: Apply = _function(
    "ReduceScatter",
    talk.scattered,
    lambda grad, rest: _share(all_gather(grad, *rest[:-1]), rest[0], rest[-1]),
    4,
)
all_to_all: Apply = _function(
    "AllToAll",
    talk.swapped,
    lambda grad, rest: all_to_all(grad, rest[0], *rest[3:], *rest[1:3]),
    5,
)
broadcast: Apply = _function("Broadcast", talk.sent, lambda grad, rest: sum_on_root(grad, *rest), 2)


def _sum_on_root(tensor: Tensor, group: Group, root: int) -> Tensor:
    total = talk.folded(tensor, group, Fold.SUM)
    return total if group.rank == root else torch.zeros_like(total)


sum_on_root: Apply = _function(
    "SumOnRoot", _sum_on_root, lambda grad, rest: broadcast(grad, *rest), 2
)

# -- borders of replicated tensors: gradients of one loss -------------------------------------

copy_to: Apply = _function(
    "CopyTo",
    lambda tensor, group: tensor.view_as(tensor),
    lambda grad, rest: reduce_from(grad, *rest, Fold.SUM),
    1,
)
reduce_from: Apply = _function(
    "ReduceFrom",
    talk.folded,
    lambda grad, rest: _share(copy_to(grad, rest[0]), *rest),
    2,
)
gather_from: Apply = _function(
    "GatherFrom",
    talk.gathered,
    lambda grad, rest: scatter_to(grad, *rest),
    3,
)
scatter_to: Apply = _function(
    "ScatterTo",
    talk.own_part,
    lambda grad, rest: gather_from(grad, *rest),
    3,
)

# -- folds whose gradient depends on the values -----------------------------------------------


def _extreme(ctx: FunctionCtx, tensor: Tensor, group: Group, fold: Fold) -> Tensor:
    result = talk.folded(tensor, group, fold)
    ctx.rest = group, fold
    ctx.save_for_backward(tensor, result)
    return result


def _extreme_gradient(ctx: FunctionCtx, grad: Tensor) -> tuple[Any, ...]:
    group, fold = ctx.rest
    tensor, result = ctx.saved_tensors
    if fold is Fold.PROD:
        rows = all_gather(tensor[None], group, 0, (1,) * group.size)
        others = torch.cat([rows[: group.rank], rows[group.rank + 1 :]]).prod(0)
        return all_reduce(grad, group, Fold.SUM) * others.conj(), None, None
    # NaN is the result wherever it occurs, and is not equal to itself.
    holds = ((tensor == result) | (tensor != tensor)).to(grad.dtype)
    total, holders = all_reduce(torch.stack([grad, holds]), group, Fold.SUM)
    return holds * total / holders, None, None


_made: Any = type(
    "Extreme",
    (Differentiable,),
    {"forward": staticmethod(_extreme), "backward": staticmethod(_extreme_gradient)},
)
#: Folds by MIN, MAX and PROD.
extreme: Apply = _made.apply
