"""Scans along a dimension, and composed reductions: norms, counts, logsumexp, comparisons.

For a scan along a dimension that is cut, each rank scans its part. Then each rank receives the last
slabs of the parts before its own, and folds them into its result.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from distarray.comm import DeviceMesh
from distarray.layout import Fold, Layout
from distarray.torch.tensor.calls import Call
from distarray.torch.tensor.rules.extremes import delivered, exchanged, linewise
from distarray.torch.tensor.rules.reductions import reduced
from distarray.torch.tensor.table import Decision, composed, rule

_FOLDS: dict[str, Callable[..., Tensor]] = {
    "aten.cumsum": torch.add,
    "aten.cumprod": torch.mul,
}


@rule(*_FOLDS)
def _scan(call: Call) -> Decision | None:
    layout = call.first.layout
    if not layout.ndim or layout.cuts[call.dim()].parts <= 1:
        return linewise(call)
    op = call.op.overloadpacket if not call.written else getattr(torch.ops.aten, call.name[5:])
    find = partial(_scanned, layout, op, _FOLDS[call.name], call.dim())
    return Decision([layout], [layout], run=delivered(call, find), on_mesh=True)


def _scanned(
    layout: Layout,
    op: Callable[..., Tensor],
    fold: Callable[..., Tensor],
    dim: int,
    mesh: DeviceMesh,
    x: Tensor,
    _: int,
    **kwargs: Any,
) -> Tensor:
    found = op(x, dim, **kwargs)
    count = found.shape[dim]
    slabs = exchanged(found.narrow(dim, max(count - 1, 0), min(count, 1)), layout, dim, mesh)
    cut = layout.cuts[dim]
    start = layout.section(mesh.coords)[dim][0]
    parts = [(a, b) for a, b in map(cut.interval, range(cut.parts)) if a < b]
    before = sorted([(a, n) for n, (a, _) in enumerate(parts) if a < start])
    if not count or not before:
        return found
    base = slabs.narrow(dim, before[0][1], 1)
    for _, number in before[1:]:
        base = fold(base, slabs.narrow(dim, number, 1))
    return fold(found, base)


# -- reductions -----------------------------------------------------------------------------------


@composed("aten.logsumexp")
def _logsumexp(x: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    """Compute from the differences to the maximum, so that nothing overflows."""
    x = x if x.is_floating_point() else x.to(torch.get_default_dtype())
    if not x.dim():
        return x.clone()
    dims = list(dim) or list(range(x.dim()))
    if not all(x.shape[d] for d in dims):  # there is no maximum
        return x.sum(dims, keepdim=keepdim).log()
    largest = x.amax(dims, keepdim=True)
    apart = torch.where(largest.abs() == float("inf"), 0, largest)
    found = (x - apart).exp().sum(dims, keepdim=True).log() + apart
    return found if keepdim else _squeezed(found, dims)


def _squeezed(x: Tensor, dims: list[int]) -> Tensor:
    ndim = x.dim()
    for dim in sorted({d % ndim for d in dims}, reverse=True):
        x = x.squeeze(dim)
    return x


@rule("aten.count_nonzero")
def _count(call: Call) -> Decision:
    layout = call.first.layout
    return Decision([layout], [reduced(layout, call.dims(), False, Fold.SUM)])


@composed("aten.equal")
def _equal(x: Tensor, y: Tensor) -> bool:
    return x.shape == y.shape and bool((x == y).all())


@composed("aten.allclose")
def _allclose(
    x: Tensor, y: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> bool:
    return bool(torch.isclose(x, y, rtol, atol, equal_nan).all())


@rule("aten.linalg_vector_norm")
def _norm(call: Call) -> Decision | None:
    """Compute norms along dimensions that each rank has whole."""
    layout = call.first.layout
    if any(layout.cuts[dim].parts > 1 for dim in call.dims()):
        return None
    return Decision([layout], [reduced(layout, call.dims(), bool(call["keepdim"]), Fold.SUM)])


@composed("aten.linalg_vector_norm")
def _norm_of_parts(
    x: Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """Leave the sum of powers pending until its root is taken."""
    result = dtype if dtype is not None else x.dtype
    x = (x.to(dtype) if dtype is not None else x).abs()
    if x.dtype in (torch.float16, torch.bfloat16):
        x = x.float()
    dims = list(range(x.dim())) if dim is None or dim == [] else list(dim)
    if ord in (float("inf"), float("-inf")):
        found = x.amax(dims, keepdim=keepdim) if ord > 0 else x.amin(dims, keepdim=keepdim)
    elif ord == 0:
        found = (x != 0).to(x.dtype).sum(dims, keepdim=keepdim)
    elif ord == 1:
        found = x.sum(dims, keepdim=keepdim)
    elif ord == 2:
        found = (x * x).sum(dims, keepdim=keepdim).sqrt()
    else:
        found = x.pow(ord).sum(dims, keepdim=keepdim).pow(1 / ord)
    return found.to(result.to_real())
