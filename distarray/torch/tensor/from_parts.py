"""Layouts of parts that become a distributed tensor, with the checks on the parts."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from torch import Tensor

from distarray.comm import DeviceMesh, default_mesh
from distarray.config import config
from distarray.errors import LayoutError, MeshError
from distarray.layout import Cut, Layout, Partial, Placement, Replicate, Shard
from distarray.layout.layout import normalize_placements
from distarray.torch.bridge.transforms import is_traced
from distarray.torch.collectives.blocks import plain
from distarray.torch.collectives.conversations import verify_replicas
from distarray.torch.collectives.graphs import leave_out
from distarray.typing import Array, Placements

__all__ = ["layout_of_parts", "listed", "normalized"]


def listed(placements: Placements) -> list[Placement]:
    """Return placements as a list; a single placement is that of a one-dimensional mesh."""
    return [placements] if isinstance(placements, Placement) else list(placements)


def layout_of_parts(
    local: Tensor,
    mesh: DeviceMesh | None,
    placements: Placements | None,
    shape: Sequence[int] | None,
    compare: bool = False,
) -> tuple[Tensor, DeviceMesh, Layout]:
    """Return this rank's part as a plain tensor, the mesh, and the layout of all parts.

    Collective if parts are cut and no `shape` is given, and where replicas are compared.
    """
    local = plain("DistTensor.from_local", local)
    mesh = default_mesh() if mesh is None else mesh
    if placements is None:
        placements = [Shard(0) if not m and local.ndim else Replicate() for m in range(mesh.ndim)]
    placed = normalize_placements(listed(placements), local.ndim, mesh.shape)
    if (compare or config.settings.check) and mesh.coords is not None:
        along = tuple([m for m, p in enumerate(placed) if isinstance(p, Replicate)])
        with config.override(check=True):
            verify_replicas(mesh.subgroup(along), local, "DistTensor.from_local")
    return local, mesh, _layout_of(local, mesh, placed, shape)


def normalized(
    x: Any, mesh: DeviceMesh | Placements | None, placements: Placements | None
) -> Layout:
    """Return the layout for ``x.redistribute(mesh, placements)``."""
    spec = x._spec
    if isinstance(mesh, DeviceMesh):
        if mesh != spec.mesh:
            raise MeshError(
                f"a DistTensor stays on its mesh, {spec.mesh!r}, with its gradient; what goes to "
                f"{mesh!r} is an array: x.detach().to_array().redistribute(mesh, placements)"
            )
    elif mesh is not None:
        placements = mesh
    shape = tuple(spec.shape)
    wanted = [Replicate()] * spec.mesh.ndim if placements is None else listed(placements)
    placed = normalize_placements(wanted, len(shape), spec.mesh.shape)
    if placed == spec.layout.placements:
        return spec.layout  # type: ignore[no-any-return]
    return Layout.chunked(shape, spec.mesh.shape, placed)


def _layout_of(
    local: Tensor, mesh: DeviceMesh, placed: Sequence[Placement], shape: Sequence[int] | None
) -> Layout:
    here = tuple(local.shape)
    if shape is None:
        if is_traced(local) and any(isinstance(p, Shard) for p in placed):
            leave_out("DistTensor.from_local without a shape")
        return _layout_of_lengths(here, mesh, placed)
    layout = Layout.chunked(tuple(shape), mesh.shape, placed)
    if mesh.coords is not None and layout.local_shape(mesh.coords) != here:
        raise LayoutError(
            f"DistTensor.from_local: rank {mesh.rank} brings a part of shape {here}, but {layout} "
            f"puts one of shape {layout.local_shape(mesh.coords)} there; leave out `shape` for "
            "parts of any length"
        )
    return layout


def _layout_of_lengths(
    here: tuple[int, ...], mesh: DeviceMesh, placed: Sequence[Placement]
) -> Layout:
    """Return the layout of the ranks' parts, whose shapes the ranks exchange; collective."""
    sharding = [m for m, p in enumerate(placed) if isinstance(p, Shard)]
    others = {m: p for m, p in enumerate(placed) if isinstance(p, Partial)}
    if not sharding or mesh.coords is None or prod(mesh.shape[m] for m in sharding) == 1:
        cuts = []
        for dim, extent in enumerate(here):
            dims = tuple([m for m in sharding if placed[m] == Shard(dim)])
            cuts.append(Cut.chunked(extent, dims, tuple([mesh.shape[m] for m in dims])))
        return Layout.from_cuts(cuts, mesh.shape, others)
    group = mesh.subgroup(tuple(sharding))
    shapes = group.allgather(np.array(here), "DistTensor.from_local: lengths")
    grid = shapes.reshape(*[mesh.shape[m] for m in sharding], len(here))
    return Layout.from_cuts(
        [_cut_of_parts(grid, dim, here, mesh, sharding, placed) for dim in range(len(here))],
        mesh.shape,
        others,
    )


def _cut_of_parts(
    grid: Array,
    dim: int,
    here: tuple[int, ...],
    mesh: DeviceMesh,
    sharding: Sequence[int],
    placed: Sequence[Placement],
) -> Cut:
    dims = tuple([m for m in sharding if placed[m] == Shard(dim)])
    across = tuple([k for k, m in enumerate(sharding) if m not in dims])
    lengths = grid[..., dim]
    if across and (lengths.max(across) != lengths.min(across)).any():
        raise LayoutError(
            f"DistTensor.from_local: along dimension {dim}, which {list(placed)} do not cut there, "
            f"the ranks' parts have lengths {sorted(set(lengths.ravel().tolist()))}"
        )
    if not dims:
        return Cut.whole(here[dim])
    counts = lengths[tuple([slice(None) if m in dims else 0 for m in sharding])].ravel().tolist()
    return Cut.ragged(counts, dims, tuple([mesh.shape[m] for m in dims]))
