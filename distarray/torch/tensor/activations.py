"""A tensor of which each rank holds a part, between the modules of a distributed model."""

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
    """One global tensor in the forward pass of a model: this rank's part, a layout and a mesh.

    It is what distributed modules compute with inside. The part takes part in autograd itself, and
    its gradient has a layout of its own. What modules hand out is a `DistTensor`
    (:mod:`distarray.torch.tensor.between_modules`).

    Attributes
    ----------
    mesh : DeviceMesh
        The ranks that hold it.
    layout : Layout
        Where every element is.
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
        local, mesh, layout = layout_of_parts(local, mesh, placements, shape)
        return laid_out(local, mesh, layout)

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
    ) -> "Activation":
        """The same tensor laid out otherwise; collective, and so is its gradient.

        Parameters
        ----------
        mesh : DeviceMesh, optional
            The tensor's own; it can be left out, as for :meth:`DistArray.redistribute`.
        placements : sequence of Placement, optional
            One a mesh dimension; all `Replicate()` by default.

        Returns
        -------
        Activation

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
        """The global tensor as a plain one on every rank; collective.

        Cost
        ----
        As `redistribute`; the gradient sends nothing.
        """
        whole = Layout.replicated(self.layout.shape, self.mesh.shape)
        return self._carried(whole, whole)

    # -- within the package: layouts instead of placements -------------------------------------

    def placed(self, layout: Layout) -> "Activation":
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

    def pended(self, mesh_dims: Sequence[int]) -> "Activation":
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
    def grads(self) -> Layout:
        """How the gradient of this rank's part is laid out."""
        return self._grads

    @property
    def local(self) -> Tensor:
        """This rank's part, with gradients laid out as `pending` says."""
        return self._local

    def like(self, local: Tensor, layout: Layout | None = None) -> "Activation":
        """A tensor that the ranks computed from their parts, in the same layout or another."""
        if layout is None or layout is self.layout:
            return _made(local, self.layout, self._grads, self.mesh)
        return _made(local, layout, gradient_layout(layout, self.pending), self.mesh)

    def to_plain(self, layout: Layout) -> Tensor:
        """This rank's part in a layout, as a plain tensor."""
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
    """A plain tensor that is known to be this rank's part in a layout; checks nothing."""
    return _made(local, layout, gradient_layout(layout), mesh)
