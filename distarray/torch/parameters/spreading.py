"""Conversion of parts of parameters to distributed tensors, and back.

A parameter that is cut stays the same object, with this rank's part in its memory. Autograd,
optimizers and this package work on this memory. For programs the parameter is the distributed
tensor of all ranks' parts. `distributed` returns this tensor, over the same memory and in the same
autograd graph.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from distarray.comm import DeviceMesh
from distarray.errors import MeshError
from distarray.layout import Layout
from distarray.torch.bridge.plain import is_part, local_of
from distarray.torch.bridge.transforms import Differentiable, outside, transforming
from distarray.torch.collectives.graphs import named
from distarray.torch.collectives.passes import graphed
from distarray.torch.tensor import autograd
from distarray.torch.tensor.dist_tensor import DistTensor, of_array, of_part

if TYPE_CHECKING:
    from distarray.torch.parameters.placed import Placed

__all__ = [
    "KEY",
    "as_part",
    "distributed",
    "layout_of",
    "like_part",
    "own_part",
    "placed_on",
    "spread",
]


#: Attribute of modules, parameters and parts that contains their layout.
KEY = "_distarray_placed"


def placed_on(part: Tensor) -> "Placed":
    """Return the layout of the parameter that a tensor is a part of."""
    found: Placed = vars(part)[KEY]
    return found


def as_part(tensor: Tensor, placed: "Placed", kind: type) -> Tensor:
    """Give a tensor the layout and the class of parts; return the same object."""
    setattr(tensor, KEY, placed)
    tensor.__class__ = kind
    return tensor


def like_part(tensor: Tensor, part: Tensor) -> Tensor:
    """Turn a plain tensor into a part with the layout of another part; return the same object."""
    return as_part(tensor, placed_on(part), type(part))


# -- to the distributed tensor ----------------------------------------------------------------


def spread(part: Tensor) -> DistTensor:
    """Return the distributed tensor of all ranks' parts, in the shape of their layout.

    It shares the part's memory, and its gradient flows back to the part. Where autograd records
    nothing, writes go to the part's memory.
    """
    if transforming():  # no transform has wrapped a part
        with outside():
            return _spread(part)
    return _spread(part)


def _spread(part: Tensor) -> DistTensor:
    return _entered_as(placed_on(part), local_of(part))


@graphed
def entered_in_graph(name: str, local: Tensor) -> DistTensor:
    """Convert a part within a compiled graph, given as a plain tensor and the layout's name."""
    placed = named(name)
    return _in_shape(_entered_as(placed, local), placed)


def _entered_as(placed: "Placed", local: Tensor) -> DistTensor:
    if placed.viewed is not None:
        local = local.view(placed.layout.local_shape(placed.mesh.coords))
    if not (local.requires_grad and torch.is_grad_enabled()):
        return of_part(local.detach(), placed.mesh, placed.layout)
    found: DistTensor = _enter(local, placed.mesh, placed.layout)
    return found


def distributed(part: Tensor) -> DistTensor:
    """Return `spread` in the parameter's shape; collective if it packs several matrices."""
    return _in_shape(spread(part), placed_on(part))


def _in_shape(x: DistTensor, placed: "Placed") -> DistTensor:
    """Return a distributed tensor in the shape of the parameter."""
    return x if placed.viewed is None else x.view(placed.whole)


def _enter_forward(ctx: FunctionCtx, local: Tensor, mesh: DeviceMesh, layout: Layout) -> Any:
    ctx.mesh, ctx.layout = mesh, layout
    found = of_part(local.detach(), mesh, layout)
    return found.view_as(found)  # torch refuses to record writes to this view, as for a leaf


def _enter_backward(ctx: FunctionCtx, grad: Any) -> Any:
    return autograd.left(autograd.returned(grad, DistTensor, ctx.mesh, ctx.layout)), None, None


_entered: Any = type(
    "Distributed",
    (Differentiable,),
    {"forward": staticmethod(_enter_forward), "backward": staticmethod(_enter_backward)},
)
_enter: Any = _entered.apply


def layout_of(part: Tensor) -> Layout:
    """Return the layout of a parameter; raise an error if it packs several matrices.

    Raises
    ------
    RuntimeError
        If each packed matrix is cut: no layout of the parameter's own shape describes this.
    """
    placed = placed_on(part)
    if placed.viewed is not None:
        raise RuntimeError(
            f"{placed.called} packs matrices each of which is cut: as a tensor of shape "
            f"{placed.viewed} it is {placed.layout}, and in its own shape {placed.whole} it has no "
            "placements. p.redistribute(placements) gives it in any layout"
        )
    return placed.layout


# -- from the distributed tensor --------------------------------------------------------------


def own_part(value: Tensor, placed: "Placed") -> Tensor:
    """Return this rank's part of a tensor of a parameter's global shape.

    A distributed tensor is redistributed to the parameter's layout, and gradients flow. A plain
    tensor is assumed to be equal on all ranks.

    Raises
    ------
    RuntimeError
        If the tensor has another shape.
    """
    if tuple(value.shape) != placed.whole:
        raise RuntimeError(
            f"{placed.called} has the shape {placed.whole} over all ranks, and was given a tensor "
            f"of shape {tuple(value.shape)}; what is a rank's own part is said by "
            "DistTensor.from_local(part, mesh, placements)"
        )
    if is_part(value):
        theirs = placed_on(value)
        if theirs.mesh is placed.mesh and theirs.layout is placed.layout:
            return local_of(value)
        value = distributed(value)
    if type(value) is DistTensor:
        return _moved(value, placed).reshape(placed.local_shape())
    return _section(value, placed)


def _moved(value: DistTensor, placed: "Placed") -> Tensor:
    if placed.viewed is not None:
        value = value.view(placed.viewed)
    if value.mesh != placed.mesh:
        if value.requires_grad and torch.is_grad_enabled():
            raise MeshError(
                f"{placed.called} is on {placed.mesh!r}, and a tensor of {value.mesh!r} would not "
                "get its gradient: compute it on the parameter's mesh"
            )
        return _of_other_mesh(value.detach(), placed)
    return autograd.left(autograd.redistributed(value, placed.layout))


def _of_other_mesh(value: DistTensor, placed: "Placed") -> Tensor:
    """Return this rank's part of a tensor on another mesh.

    Each group of ranks may have a mesh of its own, like the replicas of a tensor-parallel model. An
    exchange cannot have several target meshes. In this case the tensor is made whole on its own
    mesh first.
    """
    ours, theirs = placed.mesh.group.world_ranks, value.mesh.group.world_ranks
    if value.mesh.coords is None or sorted(ours) == sorted(theirs):
        array = value.to_array().redistribute(placed.mesh, placed.layout.placements)
        return autograd.left(autograd.redistributed(of_array(array), placed.layout))
    return _section(value.full_tensor(), placed)


def _section(whole: Tensor, placed: "Placed") -> Tensor:
    """Return a copy of this rank's part of a whole tensor."""
    section = tuple([slice(a, b) for a, b in placed.spans])
    part = whole.reshape(placed.layout.shape)[section].reshape(placed.local_shape())
    return part.clone(memory_format=torch.contiguous_format)
