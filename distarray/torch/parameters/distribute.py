"""Distribution of parameters: each rank keeps its part, in the same Parameter object."""

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module

from distarray.array.divergence import verify_among
from distarray.array.movement import moved
from distarray.comm import DeviceMesh
from distarray.config import config
from distarray.errors import LayoutError
from distarray.layout import Layout, Placement
from distarray.torch.bridge.plain import is_part, local_of, plainly
from distarray.torch.bridge.transforms import is_traced, refuse_wrapped
from distarray.torch.collectives import conversations as talk
from distarray.torch.collectives.blocks import movable, moved_back
from distarray.torch.collectives.carrying import Route, carry, gradient_layout
from distarray.torch.parameters.guards import take_whole_states, watch_optimizers
from distarray.torch.parameters.memory import watch_memory
from distarray.torch.parameters.placed import Placed, averaged_by, placed_as, placed_of
from distarray.torch.parameters.spreading import KEY, own_part
from distarray.torch.parameters.transforms import watch_transforms
from distarray.torch.tensor import autograd
from distarray.torch.tensor.dist_tensor import DistTensor
from distarray.typing import Placements

__all__ = [
    "adopt",
    "become",
    "distribute_parameter",
    "names_of",
    "owned",
    "place",
    "place_rest",
    "remember",
    "surround",
    "used",
    "whole_shape",
]


# -- placing ----------------------------------------------------------------------------------


def distribute_parameter(
    module: Module,
    name: str,
    mesh: DeviceMesh,
    placements: Placements,
    src_data_rank: int | None = 0,
) -> None:
    """Keep only this rank's part of a module's parameter (or buffer); collective.

    The Parameter stays the same object, so existing optimizers, and modules that share the
    parameter, continue to work. It is a `DistTensor` from now on, and its memory contains this
    rank's part. A `partition_fn` calls this function.

    Parameters
    ----------
    module : torch.nn.Module
        The module that owns the parameter.
    name : str
        Name of the parameter in the module, without a dot.
    mesh : DeviceMesh
        The ranks.
    placements : sequence of Placement
        Shard or Replicate for each mesh dimension.
    src_data_rank : int or None
        The rank of the mesh whose values are distributed. None if the values are already equal on
        all ranks.

    Raises
    ------
    LayoutError
        If the placements do not fit, or the parameter is already distributed differently.

    Cost
    ----
    One exchange, in which each rank receives its part; none if `src_data_rank` is None.

    Examples
    --------
    >>> import distarray, torch, distarray.torch as dt
    >>> mesh = distarray.default_mesh()
    >>> layer = torch.nn.Linear(4, 6)
    >>> dt.distribute_parameter(layer, "weight", mesh, [distarray.Shard(0)])
    >>> layer.weight.shape, layer.weight.placements
    (torch.Size([6, 4]), (Shard(0),))
    >>> rows = torch.tensor(layer.weight.to_local().shape[0])  # on this rank
    >>> dt.all_reduce(rows, mesh).item()
    6
    """
    layout = Layout.chunked(
        whole_shape(module, name),
        mesh.shape,
        [placements] if isinstance(placements, Placement) else list(placements),
    )
    place(module, name, mesh, layout, src_data_rank)


def whole_shape(module: Module, name: str) -> tuple[int, ...]:
    """Return the global shape of a module's parameter, distributed or not."""
    tensor = owned(module, name)
    known = placed_of(module).get(name) or placed_as(tensor)
    return tuple(tensor.shape) if known is None else known.whole


def owned(module: Module, name: str) -> Tensor:
    """Return a module's own parameter or buffer."""
    for kind in (module._parameters, module._buffers):
        if kind.get(name) is not None:
            return kind[name]
    raise AttributeError(f"{type(module).__name__} has no parameter or buffer {name!r} of its own")


def place(
    module: Module,
    name: str,
    mesh: DeviceMesh,
    layout: Layout,
    src: int | None = 0,
    viewed: tuple[int, ...] | None = None,
) -> None:
    """Replace a module's parameter by this rank's part of a layout; see `distribute_parameter`."""
    if mesh.coords is None:
        return
    if layout.partials:
        raise LayoutError(f"{name}: a parameter is cut or replicated, not {layout.placements}")
    if config.settings.check:
        verify_among(mesh.group, f"{type(module).__name__}.{name} distributed as {layout}")
    tensor = owned(module, name)
    known: Placed | None = placed_of(module).get(name) or vars(tensor).get(KEY)
    if known is not None and known.layout is layout and known.mesh is mesh:
        remember(module, name, tensor, known)
        return
    placed = Placed(mesh, layout, viewed)
    _check_free(f"{type(module).__name__}.{name}", tensor, known, placed)
    if known is not None and known.mesh is mesh:
        src = None
    part = _part(local_of(tensor).detach(), mesh, layout, src, viewed)
    if part is not None:
        become(tensor, part.reshape(placed.local_shape()))
    remember(module, name, tensor, placed)


def _check_free(name: str, tensor: Tensor, known: Placed | None, placed: Placed) -> None:
    """Raise LayoutError if the parameter has another layout, or the same ranks average it."""
    if known is not None and (not known.layout.is_replicated or known.viewed is not None):
        raise LayoutError(
            f"{name} is distributed already, as {known.layout} on {known.mesh!r}; it cannot become "
            f"{placed.layout} on {placed.mesh!r} as well. Tied parameters are placed once: give "
            "all modules that share one styles that agree"
        )
    if len(placed.holders & averaged_by(tensor)) > 1:
        raise LayoutError(
            f"{name} cannot be cut as {placed.layout}: data_parallel averages its gradients over "
            "the same ranks, whose parts would be mixed up. Cut it first, and average over another "
            "dimension of the mesh"
        )


def become(tensor: Tensor, part: Tensor) -> None:
    """Replace the memory of a parameter by a tensor of another shape.

    An existing autograd graph, such as that of ``torch.nn.utils.weight_norm``, keeps the node that
    accumulates the parameter's gradient. That node would still expect the old shape. torch creates
    a new node when the data type changes, so this function changes it in between.
    """
    with plainly():
        if tensor.requires_grad:
            other = torch.float32 if tensor.dtype is torch.float16 else torch.float16
            tensor.data = part.new_empty(0, dtype=other)
        tensor.data = part


def remember(module: Module, name: str, tensor: Tensor, placed: Placed) -> None:
    """Record the layout of a module's parameter on the module and on the parameter."""
    module.__dict__.setdefault(KEY, {})[name] = placed
    placed.called = f"{type(module).__name__}.{name}"
    placed.note_on(tensor)
    watch_optimizers()
    watch_transforms()
    watch_memory()
    take_whole_states(module)


def _part(
    tensor: Tensor,
    mesh: DeviceMesh,
    layout: Layout,
    src: int | None,
    viewed: tuple[int, ...] | None,
) -> Tensor | None:
    """Return this rank's part in memory of its own; None if the tensor itself is the part."""
    if viewed is not None:
        tensor = tensor.reshape(viewed)
    if layout.is_replicated:
        if src is not None and mesh.size() > 1 and tensor.numel():
            tensor.copy_(talk.sent(tensor, mesh.group, src))
        return None
    if src is None:
        section = tuple([slice(a, b) for a, b in layout.section(mesh.coords)])
        return tensor[section].clone(memory_format=torch.contiguous_format)
    lone = Layout.lone(layout.shape, mesh.shape, mesh.coords_of(src))
    block = movable(tensor if mesh.rank == src else tensor[(slice(0, 0),) * tensor.ndim])
    result = moved(block.reshape(lone.local_shape(mesh.coords)), lone, layout, mesh.on("cpu"))
    return moved_back(result.copy() if np.may_share_memory(result, block) else result, tensor)


def adopt(root: Module) -> None:
    """Convert distributed tensors that a program registered as parameters or buffers.

    Each becomes this rank's part, as after `distribute_parameter`. Modules that share a distributed
    tensor share the part afterwards.
    """
    known: dict[int, Tensor] = {}
    for module in root.modules():
        for kind in (module._parameters, module._buffers):
            for name, tensor in kind.items():
                if type(tensor) is DistTensor:
                    kind[name] = known.setdefault(id(tensor), _adopted(tensor))
                    own = Placed(tensor.mesh, tensor.dist_layout.settled())
                    remember(module, name, kind[name], placed_as(kind[name]) or own)


def _adopted(tensor: DistTensor) -> Tensor:
    """Return this rank's part as a tensor; a Parameter if the distributed tensor is one."""
    local = autograd.left(autograd.redistributed(tensor.detach(), tensor.dist_layout.settled()))
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(local, tensor.requires_grad)
    return local


def place_rest(root: Module, mesh: DeviceMesh, src: int | None) -> None:
    """Replicate all parameters and buffers without a layout, with the values of rank `src`."""
    for module in root.modules():
        for name in names_of(module):
            if name not in placed_of(module):
                shared = vars(owned(module, name)).get(KEY)
                if shared is not None:
                    remember(module, name, owned(module, name), shared)
                    continue
                layout = Layout.replicated(tuple(owned(module, name).shape), mesh.shape)
                place(module, name, mesh, layout, src)


def names_of(module: Module) -> Iterator[str]:
    """Yield the names of a module's own parameters and buffers."""
    for kind in (module._parameters, module._buffers):
        for name, tensor in kind.items():
            if tensor is not None:
                yield name


def surround(root: Module, mesh: DeviceMesh) -> None:
    """Record a larger mesh, which contains the meshes of a module's parameters and buffers."""
    for module in root.modules():
        for placed in placed_of(module).values():
            placed.surround(mesh)


# -- use in forward passes --------------------------------------------------------------------


def used(module: Module, name: str, alike: Sequence[int], layout: Layout | None = None) -> Tensor:
    """Return a parameter as a forward pass needs it; None if it is None in the module.

    Parameters
    ----------
    module : torch.nn.Module
        The module that owns the parameter.
    name : str
        Name of the parameter in the module.
    alike : sequence of int
        Mesh dimensions along which all ranks do the same computation with the parameter, so that
        each computes the whole gradient. Along the other dimensions each rank computes a
        contribution, and the contributions are summed.
    layout : Layout, optional
        The required layout; the parameter's own by default.
    """
    if name not in module._parameters and name not in vars(module):
        tensor = _computed(module, name)
    else:
        tensor = getattr(module, name)
        if tensor is None:
            return None
    placed = placed_of(module)[name]
    if placed.cutting and not is_part(tensor) and not is_traced(tensor):
        refuse_wrapped((tensor,))
        tensor = _part_of_other(tensor, placed)
    here = placed.layout
    route = _route(here, here if layout is None else layout, tuple(alike))
    return carry(tensor, placed.mesh, route)


def _computed(module: Module, name: str) -> Tensor:
    """Return a weight that a parametrization computes from whole tensors."""
    with torch._C._EnableTorchFunction():
        return getattr(module, name)


def _part_of_other(tensor: Tensor, placed: Placed) -> Tensor:
    """Return this rank's part of a tensor that has replaced a parameter.

    Raises
    ------
    RuntimeError
        If the tensor is plain: only this rank's part of the tensor would get a gradient.
    """
    if type(tensor) is DistTensor:
        return own_part(tensor, placed)
    raise RuntimeError(
        f"{placed.called} was distributed as {placed.layout}, and has been replaced by a plain "
        f"tensor of shape {tuple(tensor.shape)}. Write to the parameter (with torch.no_grad(): "
        "p.copy_(q)), or put a distributed one in its place, as in "
        "torch.nn.Parameter(distribute_tensor(q, mesh, placements))"
    )


@lru_cache(maxsize=1024)
def _route(here: Layout, wanted: Layout, alike: tuple[int, ...]) -> Route:
    """Return the route of a parameter; its gradient is summed along dimensions not in `alike`."""
    pending = tuple([m for m in range(len(here.mesh_shape)) if m not in alike])
    return Route(here, wanted, gradient_layout(here), gradient_layout(wanted, pending))
