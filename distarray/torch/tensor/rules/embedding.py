"""Embeddings: rows of a table, cut along its rows or columns, or along the places that are read.

Each rank looks up the rows that it has; where rows are cut, the result is a pending sum. The
gradient of a table is a pending sum where the places are cut.
"""

from functools import partial
from math import prod
from typing import Any

import torch
from torch import Tensor

from distarray.comm import DeviceMesh
from distarray.layout import Cut, Fold, Layout, Partial
from distarray.torch.tensor.calls import Call
from distarray.torch.tensor.rules.extremes import delivered
from distarray.torch.tensor.rules.indexing import (
    busy,
    checked,
    found_here,
    local_places,
    pending,
    whole_along,
)
from distarray.torch.tensor.table import Decision, rule

_OUT = "index out of range in self"


@rule("aten.embedding", plain=True)
def _embedding(call: Call) -> Decision | None:
    """Make the smaller one of table and places whole where the same ranks cut both."""
    table, index = [x.layout for x in call.operands]
    if call["sparse"]:
        return None
    both = busy(table.cuts) & busy(index.cuts)
    if both and table.size * call.first.itemsize > call.operands[1].itemsize * index.size:
        index = whole_along(index, both)
    elif both:
        table = whole_along(table, both)
    rows, columns = table.cuts
    result = pending([*index.cuts, columns], table, rows.mesh_dims, call.first.dtype)
    find = partial(_looked_up, table, bool(busy(index.cuts)))
    return Decision([table, index], [result], run=delivered(call, find), on_mesh=True)


def _looked_up(
    table: Layout, apart: bool, mesh: DeviceMesh, x: Tensor, index: Tensor, *_: Any
) -> Tensor:
    checked(index, table.shape[0], _OUT, IndexError, mesh if apart else None)
    if table.cuts[0].parts == 1:
        return torch.embedding(x, index)
    local, here = local_places(index, *table.section(mesh.coords)[0])
    return found_here(x, 0, lambda x: torch.embedding(x, local), here.unsqueeze(-1))


@rule("aten.embedding_dense_backward", takes={Fold.SUM}, plain=True)
def _embedding_backward(call: Call) -> Decision:
    """Sum the gradient's rows by place, on each rank for its own places."""
    grad, index = [x.layout for x in call.operands]
    if call["scale_grad_by_freq"]:  # the operator counts all places
        grad = grad.without_cut(range(grad.ndim - 1)).settled()
    elif prod(index.shape) and busy(index.cuts) - busy(grad.cuts) and not busy(grad.cuts[:-1]):
        taken = whole_along(index, busy(grad.cuts) | set(grad.partials))
        grad = grad.with_cuts([*taken.cuts, grad.cuts[-1]])
    index = Layout.from_cuts(grad.cuts[:-1], grad.mesh_shape)
    others: dict[int, Any] = {m: Partial() for m in busy(index.cuts)} | grad.others
    cuts = [Cut.whole(int(call["num_weights"])), grad.cuts[-1]]
    result = Layout.from_cuts(cuts, grad.mesh_shape, others)
    return Decision([grad, index], [result])
