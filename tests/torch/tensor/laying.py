"""Operators on distributed tensors beside plain ones, on many layouts, for tables of tests."""

from __future__ import annotations

import torch

import distarray
import distarray.torch as dt
from distarray import DeviceMesh, Replicate, Shard

__all__ = ["agrees", "layouts", "line_or_grid", "spread"]


def line_or_grid(group):
    """The mesh of a group: a grid of 4 and 6 ranks, which have two factors; else a line."""
    shape = (2, group.size // 2) if group.size in (4, 6) else (group.size,)
    return DeviceMesh(group, shape)


def layouts(ndim, mesh):
    """Placements that cut each dimension or none; on two mesh dimensions one, two or one twice."""
    places = [Replicate(), *map(Shard, range(ndim))]
    if not ndim:
        return [(places[0],) * mesh.ndim]
    if mesh.ndim == 1:
        return [(place,) for place in places]
    last = places[-1]
    return [(places[0], last), (last, places[1]), (places[1], places[1])]


def spread(whole, mesh, placements):
    """The distributed tensor of one that every rank has, its parts of uneven lengths if it is cut.

    It is a view of a longer one, so that cuts do not lie where a new tensor's would.
    """
    longer = [1 if n > 2 else 0 for n in whole.shape]
    padded = whole.new_zeros([n + more for n, more in zip(whole.shape, longer)])
    inner = tuple([slice(more, None) for more in longer])
    padded[inner] = whole
    return dt.distribute_tensor(padded, mesh, placements, src=None)[inner].detach()


def _tensors(found):
    return list(found) if isinstance(found, (tuple, list)) else [found]


def agrees(group, call, wholes, placed, *, gathers=False, gradients=True):
    """Compare a call on distributed tensors with that on plain ones, and the gradients.

    Parameters
    ----------
    group, call, wholes
        The ranks, a function of tensors, and the whole tensors.
    placed : function
        From a mesh to the placements that are tried, a tuple for each tensor.
    gathers : bool
        Whether it may gather.
    gradients : bool
        Whether gradients are compared, too.
    """
    mesh = line_or_grid(group)
    for placements in placed(mesh):
        with distarray.config.override(fallback="allow" if gathers else "error"):
            _compare(mesh, call, wholes, placements, gradients)


def _compare(mesh, call, wholes, placements, gradients):
    plain = [x.clone().requires_grad_(gradients and x.is_floating_point()) for x in wholes]
    there = [
        spread(x, mesh, p).requires_grad_(gradients and x.is_floating_point())
        for x, p in zip(wholes, placements, strict=True)
    ]
    wanted, found = _tensors(call(*plain)), _tensors(call(*there))
    for one, other in zip(found, wanted, strict=True):
        assert type(one) is dt.DistTensor
        assert one.requires_grad == other.requires_grad
        _same(one, other, placements)
    if not gradients:
        return
    leaves = [n for n, x in enumerate(plain) if x.requires_grad]
    _loss(wanted).backward()
    _loss(found).backward()
    for n in leaves:
        _same(there[n].grad, plain[n].grad, placements)


def _loss(results):
    total = 0
    for x in results:
        if x.requires_grad:
            total = total + (x.cos() * x).sum()
    return total


def _same(found, wanted, placements):
    found = found.detach().full_tensor()
    torch.testing.assert_close(
        found, wanted.detach(), equal_nan=True, msg=lambda text: f"{placements}: {text}"
    )
