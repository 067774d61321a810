"""Activations: tensors distributed over the ranks, between the modules of a distributed model."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from distarray.comm import DeviceMesh
from distarray.errors import MeshError
from distarray.layout import Layout, Placement, Replicate, Shard
from distarray.layout.layout import normalize_placements
from distarray.torch.collectives.carrying import Route, border, carry, gradient_layout
from distarray.torch.tensor.from_parts import layout_of_parts, listed
from distarray.typing import Placements

__all__ = ["Activation", "laid_out"]


class Activation:
    """Global tensor in the forward pass of a model: this rank's part, a layout and a mesh.

    Distributed modules compute with it inside. The part itself is recorded by autograd, and its
    gradient has a layout of its own. Modules return a `DistTensor` to the caller
    (:mod:`distarray.torch.tensor.between_modules`).

    Attributes
    ----------
    mesh : DeviceMesh
        The ranks that hold the tensor.
    layout : Layout
        The rank and position of every element.
    """

    __slots__ = ("_grads", "_local", "layout", "mesh")

    layout: Layout
    mesh: DeviceMesh
    _local: Any
    _grads: Layout

    @staticmethod
    def from_local(
        local: Tensor, mesh: DeviceMesh, placements: Placements, shape: Sequence[int] | None = None
    ) -> "Activation":
        """Make an activation of the ranks' parts; these are not copied.

        Parameters
        ----------
        local : torch.Tensor
            This rank's part; may require a gradient.
        mesh : DeviceMesh
            The ranks.
        placements : sequence of Placement
            A placement for each mesh dimension: Shard, Replicate or Partial("sum"). Replicated
            parts must be equal on the ranks; they are compared under ``config.check``.
        shape : tuple of int, optional
            The global shape, if the parts are cut as ``torch.chunk`` cuts it. Without it the parts
            may have any lengths, and the ranks exchange these.

        Raises
        ------
        LayoutError
            If the part does not fit.

        Cost
        ----
        None with `shape` or if nothing is sharded; else one allgather of a few integers.
        """
        local, mesh, layout = layout_of_parts(local, mesh, placements, shape)
        return laid_out(local, mesh, layout)

    # -- attributes ----------------------------------------------------------------------------

    @property
    def placements(self) -> tuple[Placement, ...]:
        """The placement of the tensor along each mesh dimension."""
        return self.layout.placements

    @property
    def device_mesh(self) -> DeviceMesh:
        """The mesh, by DTensor's name."""
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
        """Device of this rank's part."""
        return self._local.device

    @property
    def requires_grad(self) -> bool:
        """True if gradients flow through the tensor."""
        return bool(self._local.requires_grad)

    def size(self, dim: int | None = None) -> Any:
        """Return the global shape, or its extent along one dimension."""
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        """Return the number of dimensions."""
        return self.layout.ndim

    def numel(self) -> int:
        """Return the number of elements of the global tensor."""
        return self.layout.size

    def __len__(self) -> int:
        return len(self._local) if not self.layout.shape else self.layout.shape[0]

    # -- moving --------------------------------------------------------------------------------

    def to_local(self) -> Tensor:
        """Return this rank's part as a plain tensor.

        The gradients of a replicated part count as equal on the ranks.

        Cost
        ----
        None.
        """
        return self._carried(self.layout, gradient_layout(self.layout))

    def redistribute(
        self, mesh: "DeviceMesh | Placements | None" = None, placements: "Placements | None" = None
    ) -> "Activation":
        """Return the same tensor in another layout; collective, as is the backward pass.

        Parameters
        ----------
        mesh : DeviceMesh, optional
            The tensor's own; it can be left out, as for :meth:`DistArray.redistribute`.
        placements : sequence of Placement, optional
            A placement for each mesh dimension; all `Replicate()` by default.

        Returns
        -------
        Activation

        Raises
        ------
        MeshError
            If `mesh` is another mesh.

        Cost
        ----
        One exchange; before it an allreduce or a reduce-scatter along the mesh dimensions of a
        pending sum. The gradient takes the reverse exchange.
        """
        if isinstance(mesh, DeviceMesh):
            if mesh != self.mesh:
                raise MeshError(
                    f"a Activation stays on its mesh, {self.mesh!r}, with its gradient; what goes "
                    f"to {mesh!r} is an array: from_torch(x.to_local().detach(), ...)"
                )
        elif mesh is not None:
            placements = mesh
        wanted = [Replicate()] * self.mesh.ndim if placements is None else listed(placements)
        placed = normalize_placements(wanted, self.ndim, self.mesh.shape)
        if placed == self.placements:
            return self
        return self.placed(Layout.chunked(self.layout.shape, self.mesh.shape, placed))

    def full_tensor(self) -> Tensor:
        """Return the global tensor as a plain tensor on every rank; collective.

        Cost
        ----
        As `redistribute`; the gradient needs no communication.
        """
        whole = Layout.replicated(self.layout.shape, self.mesh.shape)
        return self._carried(whole, whole)

    # -- within the package: layouts instead of placements -------------------------------------

    def placed(self, layout: Layout) -> "Activation":
        """Return the tensor in a layout; newly replicated mesh dimensions get pending gradients."""
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

    def pended(self, mesh_dims: Sequence[int]) -> "Activation":
        """Return the tensor for uses that differ along replicating mesh dimensions.

        The gradient of the tensor is the sum of the ranks' gradients.
        """
        grads = gradient_layout(self.layout, tuple(sorted({*self.pending, *mesh_dims})))
        if grads is self._grads:
            return self
        route = Route(self.layout, self.layout, self._grads, grads)
        return _made(border(self._local, self.mesh, route), self.layout, grads, self.mesh)

    @property
    def pending(self) -> tuple[int, ...]:
        """The replicating mesh dimensions along which each rank's gradient is a contribution."""
        grads: Layout = self._grads
        return grads.partials

    @property
    def grads(self) -> Layout:
        """The layout of the gradient of this rank's part."""
        return self._grads

    @property
    def local(self) -> Tensor:
        """This rank's part; its gradient is a contribution along the mesh dimensions `pending`."""
        return self._local

    def like(self, local: Tensor, layout: Layout | None = None) -> "Activation":
        """Wrap a tensor that the ranks computed from their parts, in the same layout or another."""
        if layout is None or layout is self.layout:
            return _made(local, self.layout, self._grads, self.mesh)
        return _made(local, layout, gradient_layout(layout, self.pending), self.mesh)

    def to_plain(self, layout: Layout) -> Tensor:
        """Return this rank's part in a layout, as a plain tensor."""
        return self._carried(layout, gradient_layout(layout))

    def _carried(self, layout: Layout, grads: Layout) -> Tensor:
        return carry(self._local, self.mesh, Route(self.layout, layout, self._grads, grads))

    def __repr__(self) -> str:
        return (
            f"Activation({tuple(self.layout.shape)} {self.dtype}, {list(self.placements)} on "
            f"{self.mesh!r}, here {tuple(self._local.shape)})"
        )


def _made(local: Tensor, layout: Layout, grads: Layout, mesh: DeviceMesh) -> Activation:
    self: Activation = object.__new__(Activation)
    self._local, self.layout, self._grads, self.mesh = local, layout, grads, mesh
    return self


def laid_out(local: Tensor, mesh: DeviceMesh, layout: Layout) -> Activation:
    """Wrap a plain tensor that is known to be this rank's part in a layout; checks nothing."""
    return _made(local, layout, gradient_layout(layout), mesh)
