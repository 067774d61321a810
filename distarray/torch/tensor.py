"""A tensor of which each rank holds a part, between the modules of a distributed model."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from distarray.comm import DeviceMesh
from distarray.config import config
from distarray.errors import LayoutError, MeshError
from distarray.layout import Cut, Fold, Layout, Partial, Placement, Replicate, Shard
from distarray.layout.layout import normalize_placements
from distarray.torch import functions
from distarray.torch.carrying import Route, border, carry, gradient_layout
from distarray.torch.conversations import verify_replicas
from distarray.torch.elementwise import Args, Func, Kwargs
from distarray.torch.refusals import checked_tensor
from distarray.typing import Array, Placements

__all__ = ["DistTensor", "laid_out"]


class DistTensor(functions.Operators):
    """One global tensor in the forward pass of a model: this rank's part, a layout and a mesh.

    Modules of a distributed model pass it to one another where a plain tensor would not say how it
    is laid out: `SequenceParallel` returns one, and so do the other styles with
    ``use_local_output=False``. Elementwise functions of torch take it, as do modules that have been
    distributed, ``dropout`` and ``cross_entropy``; for anything else there is `to_local`. Gradients
    flow through all of these.

    Attributes
    ----------
    mesh : DeviceMesh
        The ranks that hold it.
    layout : Layout
        Where every element is.

    Examples
    --------
    >>> import distarray, torch, distarray.torch as dt
    >>> mesh = distarray.default_mesh()
    >>> x = dt.DistTensor.from_local(torch.ones(2, 3), mesh, [distarray.Shard(0)])
    >>> x.shape == (2 * mesh.size(), 3)
    True
    >>> (x + 1).full_tensor().unique()
    tensor([2.])
    """

    __slots__ = ("_grads", "_local", "layout", "mesh")

    layout: Layout
    mesh: DeviceMesh
    _local: Any
    _grads: Layout

    def __init__(self) -> None:
        raise TypeError("make a DistTensor with DistTensor.from_local(tensor, mesh, placements)")

    @staticmethod
    def from_local(
        local: Tensor, mesh: DeviceMesh, placements: Placements, shape: Sequence[int] | None = None
    ) -> "DistTensor":
        """A distributed tensor of the parts that the ranks hold; not copied.

        Parameters
        ----------
        local : torch.Tensor
            This rank's part; may require a gradient.
        mesh : DeviceMesh
            The ranks.
        placements : sequence of Placement
            One a mesh dimension: Shard, Replicate or Partial("sum"). Replicated parts must be
            equal on the ranks; they are compared under ``config.check``.
        shape : tuple of int, optional
            The global shape, if the parts are cut as ``torch.chunk`` cuts it. Without it the ranks
            exchange the lengths of their parts, which may be any.

        Raises
        ------
        LayoutError
            If the part does not fit.

        Cost
        ----
        None with `shape` or if nothing is sharded; else one allgather of a few integers.
        """
        local = checked_tensor(local, "DistTensor.from_local")
        placed = normalize_placements(_listed(placements), local.ndim, mesh.shape)
        if config.settings.check and mesh.coords is not None:
            along = tuple([m for m, p in enumerate(placed) if isinstance(p, Replicate)])
            verify_replicas(mesh.subgroup(along), local, "DistTensor.from_local")
        return laid_out(local, mesh, _layout_of(local, mesh, placed, shape))

    # -- attributes ----------------------------------------------------------------------------

    @property
    def placements(self) -> tuple[Placement, ...]:
        """The placement of the tensor along each mesh dimension."""
        return self.layout.placements

    @property
    def device_mesh(self) -> DeviceMesh:
        """The mesh, under DTensor's name."""
        return self.mesh

    @property
    def shape(self) -> Any:
        """The global shape."""
        return torch.Size(self.layout.shape)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self.layout.ndim

    @property
    def dtype(self) -> Any:
        """Data type of the elements."""
        return self._local.dtype

    @property
    def device(self) -> Any:
        """Where this rank's part is."""
        return self._local.device

    @property
    def requires_grad(self) -> bool:
        """Whether gradients flow through it."""
        return bool(self._local.requires_grad)

    def size(self, dim: int | None = None) -> Any:
        """The global shape, or its extent along one dimension."""
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        """Number of dimensions."""
        return self.layout.ndim

    def numel(self) -> int:
        """Number of elements of the global tensor."""
        return self.layout.size

    def __len__(self) -> int:
        return len(self._local) if not self.layout.shape else self.layout.shape[0]

    # -- moving --------------------------------------------------------------------------------

    def to_local(self) -> Tensor:
        """This rank's part as a plain tensor; where it is replicated, gradients count as alike.

        Cost
        ----
        None.
        """
        return self._carried(self.layout, gradient_layout(self.layout))

    def redistribute(
        self, mesh: "DeviceMesh | Placements | None" = None, placements: "Placements | None" = None
    ) -> "DistTensor":
        """The same tensor laid out otherwise; collective, and so is its gradient.

        Parameters
        ----------
        mesh : DeviceMesh, optional
            The tensor's own; it can be left out, as for :meth:`DistArray.redistribute`.
        placements : sequence of Placement, optional
            One a mesh dimension; all `Replicate()` by default.

        Returns
        -------
        DistTensor

        Raises
        ------
        MeshError
            If it is another mesh.

        Cost
        ----
        One exchange; an allreduce or a reduce-scatter first along the mesh dimensions of a pending
        sum. The gradient goes the same way back.
        """
        if isinstance(mesh, DeviceMesh):
            if mesh != self.mesh:
                raise MeshError(
                    f"a DistTensor stays on its mesh, {self.mesh!r}, with its gradient; what goes "
                    f"to {mesh!r} is an array: from_torch(x.to_local().detach(), ...)"
                )
        elif mesh is not None:
            placements = mesh
        wanted = [Replicate()] * self.mesh.ndim if placements is None else _listed(placements)
        placed = normalize_placements(wanted, self.ndim, self.mesh.shape)
        if placed == self.placements:
            return self
        return self.placed(Layout.chunked(self.layout.shape, self.mesh.shape, placed))

    def full_tensor(self) -> Tensor:
        """The global tensor as a plain one on every rank; collective.

        Cost
        ----
        As `redistribute`; the gradient sends nothing.
        """
        whole = Layout.replicated(self.layout.shape, self.mesh.shape)
        return self._carried(whole, whole)

    # -- within the package: layouts instead of placements -------------------------------------

    def placed(self, layout: Layout) -> "DistTensor":
        """The tensor in a layout; where that newly replicates it, gradients are pending."""
        if layout is self.layout:
            return self
        news = [
            m
            for m, placement in enumerate(layout.placements)
            if isinstance(placement, Replicate)
            and (m in self.pending or isinstance(self.layout.placements[m], Shard))
        ]
        grads = gradient_layout(layout, tuple(news))
        return _made(self._carried(layout, grads), layout, grads, self.mesh)

    def pended(self, mesh_dims: Sequence[int]) -> "DistTensor":
        """The tensor for uses that differ along these mesh dimensions, if it is replicated there.

        Its gradient is the sum of the ranks' gradients.
        """
        grads = gradient_layout(self.layout, tuple(sorted({*self.pending, *mesh_dims})))
        if grads is self._grads:
            return self
        route = Route(self.layout, self.layout, self._grads, grads)
        return _made(border(self._local, self.mesh, route), self.layout, grads, self.mesh)

    @property
    def pending(self) -> tuple[int, ...]:
        """Mesh dimensions along which it is replicated and each rank's gradient a contribution."""
        grads: Layout = self._grads
        return grads.partials

    @property
    def local(self) -> Tensor:
        """This rank's part, with gradients laid out as `pending` says."""
        return self._local

    def like(self, local: Tensor, layout: Layout | None = None) -> "DistTensor":
        """A tensor that the ranks computed from their parts, in the same layout or another."""
        if layout is None or layout is self.layout:
            return _made(local, self.layout, self._grads, self.mesh)
        return _made(local, layout, gradient_layout(layout, self.pending), self.mesh)

    def to_plain(self, layout: Layout) -> Tensor:
        """This rank's part in a layout, as a plain tensor."""
        return self._carried(layout, gradient_layout(layout))

    def _carried(self, layout: Layout, grads: Layout) -> Tensor:
        return carry(self._local, self.mesh, Route(self.layout, layout, self._grads, grads))

    # -- torch's functions ---------------------------------------------------------------------

    @classmethod
    def __torch_function__(
        cls, func: Func, types: Sequence[type], args: Args = (), kwargs: Kwargs | None = None
    ) -> Any:
        return functions.call(DistTensor, func, args, kwargs or {})

    def __getattr__(self, name: str) -> Any:
        method = getattr(torch.Tensor, name, None)
        if name.startswith("__") or not functions.knows(name) or method is None:
            raise AttributeError(
                f"a DistTensor has no {name!r}: x.to_local() is this rank's part, x.full_tensor() "
                "the whole as a plain tensor"
            )
        return lambda *args, **kwargs: functions.call(DistTensor, method, (self, *args), kwargs)

    def __repr__(self) -> str:
        return (
            f"DistTensor({tuple(self.layout.shape)} {self.dtype}, {list(self.placements)} on "
            f"{self.mesh!r}, here {tuple(self._local.shape)})"
        )


def _made(local: Tensor, layout: Layout, grads: Layout, mesh: DeviceMesh) -> DistTensor:
    self: DistTensor = object.__new__(DistTensor)
    self._local, self.layout, self._grads, self.mesh = local, layout, grads, mesh
    return self


def laid_out(local: Tensor, mesh: DeviceMesh, layout: Layout) -> DistTensor:
    """A plain tensor that is known to be this rank's part in a layout; checks nothing."""
    return _made(local, layout, gradient_layout(layout), mesh)


def _listed(placements: Placements) -> list[Placement]:
    return [placements] if isinstance(placements, Placement) else list(placements)


def _layout_of(
    local: Tensor, mesh: DeviceMesh, placed: Sequence[Placement], shape: Sequence[int] | None
) -> Layout:
    for placement in placed:
        if isinstance(placement, Partial) and placement.op is not Fold.SUM:
            raise LayoutError(
                f"a DistTensor's pending fold is a sum, not {placement}: fold it first, with "
                "distarray.torch.all_reduce"
            )
    here = tuple(local.shape)
    if shape is None:
        return _layout_of_parts(here, mesh, placed)
    layout = Layout.chunked(tuple(shape), mesh.shape, placed)
    if mesh.coords is not None and layout.local_shape(mesh.coords) != here:
        raise LayoutError(
            f"DistTensor.from_local: rank {mesh.rank} brings a part of shape {here}, but {layout} "
            f"puts one of shape {layout.local_shape(mesh.coords)} there; leave out `shape` for "
            "parts of any length"
        )
    return layout


def _layout_of_parts(
    here: tuple[int, ...], mesh: DeviceMesh, placed: Sequence[Placement]
) -> Layout:
    """The layout that the ranks' parts make, whose shapes they exchange; collective."""
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
