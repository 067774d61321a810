"""Moves of this rank's part to another layout, without gradients."""

from typing import Any

import torch
from torch import Tensor

from distarray.comm import DeviceMesh
from distarray.layout import Layout
from distarray.torch.collectives.carrying import carried
from distarray.torch.tensor.spec import Spec
from distarray.torch.tensor.versions import counted, written

__all__ = ["moved", "refilled"]


def moved(part: Tensor, mesh: DeviceMesh, src: Layout, dst: Layout, keeper: Any = None) -> Tensor:
    """Return this rank's part in another layout, in C order; collective where elements move.

    Parameters
    ----------
    part : torch.Tensor
        The plain part, in layout `src`.
    mesh, src, dst
        The ranks, and the two layouts.
    keeper : DistTensor, optional
        The tensor that owns the part. It caches the results of its pending folds, so that the next
        call sends nothing for them.
    """
    if src is dst:
        return part
    if mesh.coords is None:
        return part.new_empty(dst.local_shape(None))
    remembers = keeper is not None and not part.is_inference()  # an inference tensor has no version
    if not remembers or not src.partials or dst.partials:
        return carried(part, mesh, src, dst).contiguous()
    known = getattr(keeper, "_settled", None)
    if known is None or known[0] != part._version or known[1] is not part:
        settled = src.settled() if dst.settled() is not dst or dst.is_replicated else dst
        known = (part._version, part, settled, carried(part, mesh, src, settled).contiguous())
        keeper._settled = known
    return carried(known[3], mesh, known[2], dst).contiguous()


def refilled(part: Tensor, values: Tensor, spec: Spec) -> None:
    """Copy values into a part, whose memory other tensors may share."""
    if spec.layout.holds(spec.mesh.coords):
        with torch.no_grad():
            counted(part.copy_, (values,), {})
    else:
        written([part])
