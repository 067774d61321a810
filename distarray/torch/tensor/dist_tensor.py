"""Distributed tensor: a torch.Tensor of which each rank holds a part."""

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from distarray.array import DistArray, wrap
from distarray.array.storage import is_contiguous
from distarray.comm import DeviceMesh
from distarray.layout import Layout, Placement
from distarray.torch.bridge.inference import apart, inferring
from distarray.torch.bridge.sharing import block_of, to_torch
from distarray.torch.collectives.passes import graphed, left_alone, uncompiled, watching
from distarray.torch.tensor import autograd
from distarray.torch.tensor.data import taken_over
from distarray.torch.tensor.from_parts import layout_of_parts, normalized
from distarray.torch.tensor.in_graphs import InGraphs
from distarray.torch.tensor.ladder import dispatch, made
from distarray.torch.tensor.moved_views import current
from distarray.torch.tensor.operands import PlainOperandError, is_refused
from distarray.torch.tensor.spec import Spec, contiguous_strides, strides_like
from distarray.typing import Array, Placements

__all__ = ["DistTensor", "of_array", "of_part"]


_dispatch_apart = torch._disable_dynamo(dispatch)


class _Kinds(type(torch.Tensor)):  # type: ignore[misc]
    """Metaclass: parameters of distributed modules also count as instances (same methods)."""

    def __instancecheck__(cls, x: Any) -> bool:
        return bool(super().__instancecheck__(x) or getattr(x, "_is_dist_tensor", False))


class DistTensor(InGraphs, torch.Tensor, metaclass=_Kinds):  # type: ignore[misc]
    """Global tensor of which each rank holds a part; a ``torch.Tensor``.

    torch's functions accept it. It has the global shape. Results of functions equal those of one
    process, distributed as the operands are. Gradients are distributed tensors, too. Every method
    that reads values on other ranks is collective.

    Attributes
    ----------
    mesh, device_mesh : DeviceMesh
        The ranks that hold the tensor.
    placements : tuple of Placement
        The placement of the tensor along each mesh dimension.
    dist_layout : Layout
        The rank and position of every element. (``layout`` is torch's: ``torch.strided``.)

    Examples
    --------
    >>> import distarray, torch, distarray.torch as dt
    >>> mesh = distarray.default_mesh()
    >>> x = dt.DistTensor.from_local(torch.ones(2, 3), mesh, [distarray.Shard(0)])
    >>> x.shape == (2 * mesh.size(), 3)
    True
    >>> weight = torch.nn.Parameter(dt.distribute_tensor(torch.ones(3, 3), mesh))
    >>> (x @ weight).sum().backward()
    >>> bool((weight.grad == 2 * mesh.size()).all())
    True
    """

    __slots__ = ("_light", "_part", "_settled", "_source", "_spec")

    _part: Any
    _spec: Spec
    _light: Any
    _settled: Any
    _source: Any

    __torch_function__ = torch._C._disabled_torch_function_impl

    def __new__(cls, *args: Any, **kwargs: Any) -> "DistTensor":
        """Raise TypeError: `from_local` and `distribute_tensor` make distributed tensors."""
        raise TypeError(
            "make a DistTensor with DistTensor.from_local(tensor, mesh, placements) or "
            "distribute_tensor(tensor, mesh, placements)"
        )

    @classmethod
    @left_alone
    def __torch_dispatch__(
        cls,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if inferring():
            return apart(func, args, kwargs or {})
        # Inlined `uncompiled`, to save time: the operators of a program take only microseconds.
        found = _dispatch_apart if watching() else dispatch
        return found(DistTensor, func, args, kwargs or {})

    # -- making --------------------------------------------------------------------------------

    @staticmethod
    @graphed
    def from_local(
        local: Tensor,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
        shape: Sequence[int] | None = None,
        *,
        device_mesh: DeviceMesh | None = None,
        run_check: bool = False,
        grad_placements: Placements | None = None,
    ) -> "DistTensor":
        """Make a distributed tensor of the ranks' parts; contiguous parts are not copied.

        Parameters
        ----------
        local : torch.Tensor
            This rank's part; may require a gradient.
        mesh : DeviceMesh
            The ranks; the default mesh if not given.
        placements : sequence of Placement
            A placement for each mesh dimension; by default Shard(0) along the first and Replicate
            along the others. Replicated parts must be equal on the ranks; they are compared under
            ``config.check``.
        shape : tuple of int, optional
            The global shape, if the parts are cut as ``torch.chunk`` cuts it. Without it the parts
            may have any lengths, and the ranks exchange these.
        device_mesh : DeviceMesh
            `mesh` by DTensor's name.
        run_check : bool
            Compare replicated parts, whatever the configuration is.
        grad_placements : sequence of Placement, optional
            Placements of the gradient of `local`. By default those of the tensor, with replication
            for a pending fold.

        Raises
        ------
        LayoutError
            If the part does not fit.

        Cost
        ----
        None with `shape` or if nothing is sharded; else one allgather of a few integers.
        """
        mesh = device_mesh if mesh is None else mesh
        local, mesh, layout = layout_of_parts(local, mesh, placements, shape, run_check)
        found: DistTensor = autograd.entered(DistTensor, local, mesh, layout, grad_placements)
        return found

    # -- attributes ----------------------------------------------------------------------------

    @property
    def mesh(self) -> DeviceMesh:
        """The ranks that hold the tensor."""
        return self._spec.mesh

    @property
    def device_mesh(self) -> DeviceMesh:
        """The mesh, by DTensor's name."""
        return self._spec.mesh

    @property
    def dist_layout(self) -> Layout:
        """The rank and position of every element."""
        return self._spec.layout

    @property
    def placements(self) -> tuple[Placement, ...]:
        """The placement of the tensor along each mesh dimension."""
        return self._spec.layout.placements

    # -- moving --------------------------------------------------------------------------------

    @graphed
    def to_local(self, *, grad_placements: Placements | None = None) -> Tensor:
        """Return this rank's part as a plain tensor.

        Parameters
        ----------
        grad_placements : sequence of Placement, optional
            Placements of the part's gradient, one for each mesh dimension. By default the gradient
            is laid out as the tensor is. Along mesh dimensions that replicate the tensor or have a
            pending fold, it counts as replicated, that is, equal on the ranks.

        Cost
        ----
        None.
        """
        return autograd.left(self, grad_placements)

    @graphed
    def redistribute(
        self,
        mesh: "DeviceMesh | Placements | None" = None,
        placements: Placements | None = None,
        *,
        device_mesh: DeviceMesh | None = None,
        async_op: bool = False,
    ) -> "DistTensor":
        """Return the same tensor in another layout; collective, as is the backward pass.

        Parameters
        ----------
        mesh : DeviceMesh, optional
            The tensor's own; it can be left out, as for :meth:`DistArray.redistribute`.
        placements : sequence of Placement, optional
            A placement for each mesh dimension; all `Replicate()` by default.
        device_mesh : DeviceMesh
            `mesh` by DTensor's name.
        async_op : bool
            Accepted for DTensor's programs; the result is complete on return in any case.

        Raises
        ------
        MeshError
            If `mesh` is another mesh.

        Cost
        ----
        One exchange; before it an allreduce or a reduce-scatter along the mesh dimensions of a
        pending fold. The gradient takes the reverse exchange.
        """
        mesh = device_mesh if mesh is None else mesh
        layout = normalized(self, mesh, placements)
        found: DistTensor = autograd.redistributed(self, layout)
        return found

    @graphed
    def full_tensor(self, *, grad_placements: Placements | None = None) -> Tensor:
        """Return the global tensor as a plain tensor on every rank; collective.

        Parameters
        ----------
        grad_placements : sequence of Placement, optional
            Placements of the gradient of the global tensor; by default it is equal on the ranks.
            ``[Partial()]``: each rank's gradient is a contribution.

        Cost
        ----
        As `redistribute`; by default the gradient needs no communication.
        """
        whole = Layout.replicated(tuple(self.shape), self._spec.mesh.shape)
        return autograd.left(autograd.redistributed(self, whole), grad_placements)

    @uncompiled
    def to_array(self) -> DistArray:
        """Return the distributed array over the same memory; without gradients.

        Raises
        ------
        ValueError
            If the tensor requires a gradient: pass ``x.detach().to_array()``.

        Cost
        ----
        None, unless the tensor is on another device than the blocks of its mesh: then one copy.
        """
        if self.requires_grad and torch.is_grad_enabled():
            raise ValueError(
                "to_array: the tensor requires grad, and what is done to the array would be hidden "
                "from autograd; pass x.detach().to_array()"
            )
        mesh = self._spec.mesh
        return wrap(block_of(current(self), mesh, call="to_array"), self._spec.layout, mesh)

    # -- gradients -----------------------------------------------------------------------------

    def requires_grad_(self, requires_grad: bool = True) -> "DistTensor":
        """Request gradients of a tensor; those of a leaf get the layout of the leaf."""
        super().requires_grad_(requires_grad)
        autograd.watch(self)
        return self

    #: The tensor without gradients; assigning replaces its part and layout.
    data = property(torch.Tensor.data.__get__, taken_over)

    # -- tensors like it -----------------------------------------------------------------------

    @uncompiled
    def new_tensor(
        self, data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
    ) -> "DistTensor":
        """Make a replicated tensor of values that are the same on every rank.

        Parameters
        ----------
        data : array_like
            Numbers, lists of numbers, or NumPy arrays; a distributed tensor is copied in its
            layout.
        dtype, device, requires_grad
            As for ``torch.Tensor.new_tensor``.

        Raises
        ------
        RuntimeError
            If `data` is a plain tensor, which may differ between the ranks.
        """
        dtype = self.dtype if dtype is None else dtype
        if hasattr(data, "to_dist_tensor"):
            data = data.to_dist_tensor()
        if isinstance(data, torch.Tensor) and not hasattr(data, "_spec") and is_refused(data):
            raise PlainOperandError("new_tensor", data)
        if hasattr(data, "_spec"):
            found: DistTensor = data.detach().clone().to(dtype)
        else:
            whole = torch.tensor(
                data, dtype=dtype, device=self.device if device is None else device
            )
            mesh = self._spec.mesh
            found = of_part(whole, mesh, Layout.replicated(tuple(whole.shape), mesh.shape))
        return found.requires_grad_(requires_grad)

    def new(self, *args: Any) -> "DistTensor":
        """Call `new_empty` if the arguments are a shape, else `new_tensor`."""
        if len(args) == 1 and not isinstance(args[0], (int, torch.Size)):
            return self.new_tensor(args[0])
        sizes = args[0] if args and isinstance(args[0], torch.Size) else args
        found: DistTensor = self.new_empty(sizes or (0,))
        return found

    # -- values --------------------------------------------------------------------------------

    @uncompiled
    def tolist(self) -> Any:
        """Return the values as nested lists; collective."""
        return self.full_tensor().tolist()

    @uncompiled
    def numpy(self, *, force: bool = False) -> Array:
        """Return the global tensor as a NumPy array; collective. The array is read-only.

        Parameters
        ----------
        force : bool
            As for ``torch.Tensor.numpy``: also convert a tensor that requires a gradient.
        """
        whole: Array = self.full_tensor().numpy(force=force)
        whole.flags.writeable = False
        return whole

    def storage(self) -> NoReturn:
        """Raise RuntimeError: a file of this memory would contain only this rank's part."""
        raise RuntimeError(
            "the memory of a DistTensor was asked for, of which this rank has a part: write the "
            "whole, x.full_tensor(), or the array, x.to_array(); both collectively. This rank's "
            "part is x.to_local()"
        )

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.asarray(self.detach().to_array(), dtype)

    def __dlpack__(self, **_: Any) -> NoReturn:
        raise BufferError(
            "a DistTensor has no memory of its own: x.to_local() is this rank's part, x.to_array() "
            "the distributed array over it"
        )

    def __dlpack_device__(self) -> NoReturn:
        self.__dlpack__()

    def share_memory_(self) -> NoReturn:
        """Raise RuntimeError: torch would abort the process, since there is no memory to share."""
        raise RuntimeError(
            "a DistTensor has no memory of its own to share with other processes: "
            "x.to_local().share_memory_() shares this rank's part"
        )

    # -- copies, files, texts ------------------------------------------------------------------

    def __deepcopy__(self, memo: dict[int, Any]) -> "DistTensor":
        if not self.is_leaf:
            raise RuntimeError(
                "copy.deepcopy takes tensors that the program made (leaves of the graph); this one "
                "was computed with gradients: x.detach() first"
            )
        if id(self) in memo:
            found: DistTensor = memo[id(self)]
            return found
        with torch.no_grad():
            copied = self.detach().clone()
        copied.requires_grad_(self.requires_grad)
        if self.grad is not None:
            copied.grad = self.grad.__deepcopy__(memo)
        if getattr(self, "_is_param", False):
            copied._is_param = True
        memo[id(self)] = copied
        result: DistTensor = copied
        return result

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle the global tensor as a plain one: files do not depend on the number of ranks."""
        whole = self.detach().full_tensor()
        whole = torch.nn.Parameter(whole) if getattr(self, "_is_param", False) else whole
        return whole.requires_grad_(self.requires_grad).__reduce_ex__(protocol)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        grad = ", requires_grad=True" if self.requires_grad else ""
        values = repr(self._part).replace("\n", "\n    ")
        return (
            f"DistTensor({tuple(self.shape)} {self.dtype}, {list(self.placements)} on "
            f"{self.mesh!r}{grad}, here {tuple(self._part.shape)}:\n    {values})"
        )

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return repr(self) if self.ndim or not spec else format(self.item(), spec)


def of_part(part: Tensor, mesh: DeviceMesh, layout: Layout) -> DistTensor:
    """Return the distributed tensor of a part that is known to fit its layout, in C order."""
    return _made(part, mesh, layout, contiguous_strides(layout.shape))


def of_array(x: DistArray) -> DistTensor:
    """Return a distributed tensor over the memory of an array; see :meth:`DistArray.to_tensor`."""
    shape = x.layout.shape
    if is_contiguous(x, "C"):
        strides = contiguous_strides(shape)
    elif is_contiguous(x, "F"):
        strides = contiguous_strides(shape[::-1])[::-1]
    else:
        strides = strides_like(shape, contiguous_strides(shape), gaps=1)
    return _made(to_torch(x), x.mesh, x.layout, strides)


def _made(part: Tensor, mesh: DeviceMesh, layout: Layout, strides: tuple[int, ...]) -> DistTensor:
    found: DistTensor = made(DistTensor, part, Spec(mesh, layout, strides, part.dtype, part.device))
    return found
