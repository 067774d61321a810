"""Conversion of the inputs and outputs of parallel styles, by the placements of a style."""

from abc import ABC, abstractmethod
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from distarray.array.divergence import verify_among
from distarray.comm import DeviceMesh
from distarray.config import config
from distarray.errors import LayoutError
from distarray.layout import Cut, Layout, Placement, Replicate, Shard
from distarray.torch.collectives.conversations import verify_replicas
from distarray.torch.tensor.activations import Activation, laid_out
from distarray.torch.tensor.between_modules import given, taken

__all__ = ["ParallelStyle", "annotated", "handed_out"]


class ParallelStyle(ABC):
    """Base class of styles for `parallelize_module`; subclass it for styles of your own.

    Attributes
    ----------
    shards : bool
        True if each rank stores only a part of the module's parameters.

    Examples
    --------
    >>> import distarray, torch, distarray.torch as dt
    >>> class Frozen(dt.ParallelStyle):
    ...     def apply(self, module, mesh, src_data_rank):
    ...         module.requires_grad_(False)
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 2))
    >>> model = dt.parallelize_module(model, distarray.default_mesh(), {"0": Frozen()})
    >>> model[0].weight.requires_grad
    False
    """

    shards = False

    def check(self, module: Module, mesh: DeviceMesh) -> None:
        """Raise if the style does not fit the module; changes and sends nothing."""
        return

    @abstractmethod
    def apply(self, module: Module, mesh: DeviceMesh, src_data_rank: int | None) -> None:
        """Change the module in place; collective over the one-dimensional mesh."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


def annotated(
    x: Any, mesh: DeviceMesh, placement: Placement | None, last: Cut | None = None
) -> Any:
    """Convert a plain tensor to a distributed one of a given placement; pass other values through.

    Parameters
    ----------
    x : Any
        An argument or a result of a module.
    mesh : DeviceMesh
        One-dimensional.
    placement : Placement or None
        The placement by the style.
    last : Cut, optional
        The cut of the last dimension if that is cut, so that the ranks need not exchange extents.

    Raises
    ------
    LayoutError
        If the extent of the last dimension does not match `last`. If one rank alone has a wrong
        tensor, it raises alone, because the check sends no message, and its uncaught exception ends
        the job. With ``config.check`` the ranks compare their tensors first and raise together.
    """
    x = taken(x)
    if isinstance(x, Activation) or not isinstance(x, torch.Tensor) or placement is None:
        return x
    if config.settings.check:
        _compare(x, mesh, placement)
    if isinstance(placement, Replicate):
        return _replicated(x, mesh, last)
    if last is not None and isinstance(placement, Shard) and placement.dim in (-1, x.ndim - 1):
        return _cut_at_last(x, mesh, last)
    return Activation.from_local(x, mesh, [placement])


def _replicated(x: Tensor, mesh: DeviceMesh, last: Cut | None) -> Activation:
    shape = tuple(x.shape)
    if last is not None and (not shape or shape[-1] != last.extent):
        raise LayoutError(
            f"rank {mesh.rank} was handed a tensor of shape {shape}; the layer takes "
            f"{last.extent} features"
        )
    return laid_out(x, mesh, Layout.replicated(shape, mesh.shape))


def _cut_at_last(x: Tensor, mesh: DeviceMesh, last: Cut) -> Activation:
    shape = tuple(x.shape)
    layout = _layout_with(shape, last, mesh.shape)
    if layout.local_shape(mesh.coords) != shape:
        raise LayoutError(
            f"the input's last dimension is {shape[-1]} long on rank {mesh.rank}, but the "
            f"weight's part there has {layout.local_shape(mesh.coords)[-1]} columns; cut both "
            "alike (for attention heads: multiple_of=head_dim in both styles)"
        )
    return laid_out(x, mesh, layout)


def _compare(x: Tensor, mesh: DeviceMesh, placement: Placement) -> None:
    """Raise on all ranks unless their tensors match: in shape, and if replicated in value."""
    if isinstance(placement, Replicate):
        verify_replicas(mesh.group, x, "a parallel style")
        return
    shape: list[Any] = list(x.shape)
    if isinstance(placement, Shard) and -len(shape) <= placement.dim < len(shape):
        shape[placement.dim] = "*"  # each rank has its own extent
    verify_among(mesh.group, f"a {x.dtype} tensor of shape {tuple(shape)} for a parallel style")


@lru_cache(maxsize=1024)
def _layout_with(shape: tuple[int, ...], last: Cut, mesh_shape: tuple[int, ...]) -> Layout:
    """Return the layout of a tensor that is cut along its last dimension only."""
    return Layout.from_cuts([*map(Cut.whole, shape[:-1]), last], mesh_shape)


def handed_out(x: Activation, placement: Placement, local: bool) -> Any:
    """Convert a result to the placement and type of a style: plain if `local`, else distributed."""
    if local:
        placed = x.layout.placements[0]
        wanted = Shard(placement.dim % x.ndim) if isinstance(placement, Shard) else placement
        if placed == wanted:
            return x.to_local()
        return x.to_plain(Layout.chunked(x.layout.shape, x.mesh.shape, [wanted]))
    return given(x.redistribute([placement]))
