"""Reductions: each rank reduces its part, and leaves the reduction between ranks a pending fold."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from distarray.layout import Cut, Fold, Layout, Partial
from distarray.torch.tensor.calls import Call
from distarray.torch.tensor.table import Decision, composed, rule

__all__ = ["reduced"]


def reduced(layout: Layout, dims: Sequence[int], keepdim: bool, fold: Fold) -> Layout:
    """Return the layout of reduced parts: pending along the mesh dimensions that cut `dims`."""
    cuts: list[Cut] = []
    others = dict(layout.others)
    for dim, cut in enumerate(layout.cuts):
        if dim not in dims:
            cuts.append(cut)
            continue
        if keepdim:
            cuts.append(Cut.whole(1))
        for m in cut.mesh_dims:
            if layout.mesh_shape[m] > 1:
                others[m] = Partial(fold)
    return Layout.from_cuts(cuts, layout.mesh_shape, others)


@rule("aten.sum", "aten.nansum", takes={Fold.SUM})
def _sum(call: Call) -> Decision:
    layout = call.first.layout
    if layout.partials and call.name == "aten.nansum":
        layout = layout.settled()
    result = reduced(layout, call.dims(), bool(call.get("keepdim")), Fold.SUM)
    return Decision([layout], [result])


@rule("aten.linalg__powsum")
def _sum_of_powers(call: Call) -> Decision:
    layout = call.first.layout
    return Decision([layout], [reduced(layout, call.dims(), bool(call["keepdim"]), Fold.SUM)])


@rule("aten.mean", takes={Fold.SUM})
def _mean(call: Call) -> Decision:
    """Sum the parts, divided by the number of elements of the global tensor."""
    layout, dims = call.first.layout, call.dims()
    result = reduced(layout, dims, bool(call.get("keepdim")), Fold.SUM)
    if result.partials == layout.partials:
        return Decision([layout], [result])
    count = 1
    for dim in dims:
        count *= layout.shape[dim]
    return Decision([layout], [result], run=partial(_share, count))


def _share(
    count: int, x: Tensor, dim: Any = None, keepdim: bool = False, dtype: Any = None, **out: Any
) -> Tensor:
    dtype = x.dtype if dtype is None else dtype
    wide = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
    return x.sum(dim, keepdim=keepdim, dtype=wide).div_(count).to(dtype)


@rule("aten.prod")
def _product(call: Call) -> Decision:
    layout = call.first.layout
    return Decision([layout], [reduced(layout, call.dims(), bool(call.get("keepdim")), Fold.PROD)])


@rule("aten.any", "aten.all")
def _logical(call: Call) -> Decision | None:
    """Return None for uint8, which stays uint8 in torch, but not in a pending fold."""
    layout = call.first.layout
    fold = Fold.ANY if call.name == "aten.any" else Fold.ALL
    assert call.results is not None
    if call.results[0].dtype is not torch.bool:
        return None
    return Decision([layout], [reduced(layout, call.dims(), bool(call.get("keepdim")), fold)])


@rule("aten.amax", "aten.amin", "aten.max", "aten.min")
def _extreme(call: Call) -> Decision | None:
    """Reduce to extremes; :mod:`~distarray.torch.tensor.rules.extremes` also finds their places."""
    assert call.results is not None
    if len(call.results) != 1 or len(call.operands) != 1:
        return None
    fold = Fold.MAX if call.name.endswith("max") else Fold.MIN
    layout = call.first.layout
    if not layout.size and "dim" not in call.values:
        call.op(torch.empty(layout.shape, dtype=call.first.dtype))  # this raises, on all ranks
    result = reduced(layout, call.dims(), bool(call.get("keepdim")), fold)
    run = partial(_or_neutral, call.op, fold, call.dims(), bool(call.get("keepdim")))
    return Decision([layout], [result], run=run)


def _or_neutral(
    op: Callable[..., Tensor],
    fold: Fold,
    dims: Sequence[int],
    keepdim: bool,
    x: Tensor,
    *args: Any,
    **kwargs: Any,
) -> Tensor:
    """Return the extreme of a part; of an empty part the neutral element of the fold."""
    if x.numel():
        return op(x, *args, **kwargs)
    shape = [1 if d in dims else n for d, n in enumerate(x.shape) if keepdim or d not in dims]
    return x.new_full(shape, _least(x.dtype, fold))


def _least(dtype: torch.dtype, fold: Fold) -> float | int | bool:
    if dtype is torch.bool:
        return fold is Fold.MIN
    if dtype.is_floating_point:
        return float("-inf") if fold is Fold.MAX else float("inf")
    limits = torch.iinfo(dtype)
    return int(limits.min if fold is Fold.MAX else limits.max)


@composed("aten.var.correction", "aten.var.correction_out")
def _variance(
    x: Tensor,
    dim: Any = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> Tensor:
    return _mean_and_variance(x, dim, correction, keepdim)[0]


@composed("aten.std.correction", "aten.std.correction_out")
def _deviation(
    x: Tensor, dim: Any = None, *, correction: float | None = None, keepdim: bool = False
) -> Tensor:
    return _variance(x, dim, correction=correction, keepdim=keepdim).sqrt()


@composed("aten.var_mean.correction")
def _variance_and_mean(
    x: Tensor, dim: Any = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    return _mean_and_variance(x, dim, correction, keepdim)


@composed("aten.std_mean.correction")
def _deviation_and_mean(
    x: Tensor, dim: Any = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    variance, mean = _mean_and_variance(x, dim, correction, keepdim)
    return variance.sqrt(), mean


def _mean_and_variance(
    x: Tensor, dim: Any, correction: float | None, keepdim: bool
) -> tuple[Tensor, Tensor]:
    """Compute in two passes: the mean, then the sum of squared deviations."""
    aten = torch.ops.aten
    dims = list(range(x.dim())) if dim is None or dim == [] else [d % x.dim() for d in dim]
    count = 1
    for d in dims:
        count *= x.shape[d]
    degrees = max(count - (1 if correction is None else correction), 0)
    mean = aten.mean.dim(x, dims, True)
    apart = aten.sub.Tensor(x, mean)
    square = aten.mul.Tensor(apart, apart.conj() if x.is_complex() else apart)
    square = aten.real(square) if x.is_complex() else square
    total = aten.sum.dim_IntList(square, dims, keepdim)
    variance = aten.div.Tensor(total, degrees) if degrees else aten.mul.Tensor(total, float("inf"))
    if not keepdim:
        mean = mean.reshape(variance.shape)
    return variance, mean
