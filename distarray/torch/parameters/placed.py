"""Layouts of parameters, recorded on modules and parameters."""

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor
from torch.nn import Module

from distarray.array import DistArray, wrap
from distarray.comm import DeviceMesh
from distarray.errors import LayoutError, MeshError
from distarray.layout import Layout
from distarray.torch.bridge.dtypes import numpy_view
from distarray.torch.bridge.plain import local_of
from distarray.torch.collectives.graphs import name_of
from distarray.torch.parameters.parts import guard
from distarray.torch.parameters.spreading import KEY, distributed

__all__ = ["AVERAGED", "Placed", "averaged_by", "placed_as", "placed_of"]


#: Attribute of a parameter: the world ranks that average its gradient.
AVERAGED = "_distarray_averaged"


#: Methods of parts that replicated parameters of distributed modules get as well.
_SAID = ("to_local", "full_tensor", "redistribute", "to_array", "to_dist_tensor")


class Placed:
    """Layout of one parameter (or buffer) of a module, with its mesh.

    Attributes
    ----------
    mesh : DeviceMesh
        The ranks that hold the parameter.
    layout : Layout
        Layout of the global parameter, viewed in the shape `viewed` if there is one.
    viewed : tuple of int or None
        The global shape of the layout if it differs from the parameter's own: (3, n, m) for the
        packed weight (3 * n, m) of queries, keys and values.
    around : Placed
        Layout on a larger mesh, if one is recorded, along whose other dimensions the parameter is
        replicated. Otherwise this object.
    called : str
        Name of the parameter in error messages.
    cutting : tuple of int
        The mesh dimensions that cut the parameter; the same on all ranks.
    """

    __slots__ = (
        "__weakref__",
        "_around",
        "_arrays",
        "_owner",
        "called",
        "cutting",
        "layout",
        "mesh",
        "name",
        "viewed",
    )

    def __init__(
        self, mesh: DeviceMesh, layout: Layout, viewed: tuple[int, ...] | None = None
    ) -> None:
        self.mesh, self.layout, self.viewed = mesh, layout, viewed
        dims = {m for cut in layout.cuts if cut.parts > 1 for m in cut.mesh_dims}
        self.cutting = tuple(sorted(dims))
        self._around: Placed | None = None
        self._arrays: list[weakref.ref[DistArray]] = []
        self._owner: Callable[[], Tensor | None] = lambda: None
        self.called = "a parameter"
        self.name = name_of(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Placed":
        copy = Placed(self.mesh, self.layout, self.viewed)  # without arrays of the original
        copy._around = self._around and self._around.__deepcopy__(memo)
        copy.called = self.called
        # A module's parameters are copied before this object, without their recorded attributes.
        tensor = memo.get(id(self._owner()))
        if tensor is not None:
            copy.note_on(tensor)
        return copy

    def __reduce__(self) -> Any:
        raise TypeError(
            "a distributed module cannot be pickled, for each rank has a part of it: save the "
            "whole, torch.save(model.state_dict(), file), or, for any number of ranks, "
            'distarray.checkpoint.save(path, {"model": model}); both collectively'
        )

    def note_on(self, tensor: Tensor) -> None:
        """Record this layout on its parameter."""
        self._owner = weakref.ref(tensor)
        if self.cutting:
            for name in _SAID:
                vars(tensor).pop(name, None)  # set while it was whole
            guard(tensor, self)
        else:
            self._speak_for(tensor)

    def _speak_for(self, tensor: Tensor) -> None:
        """Give a parameter that is whole on this rank the attributes and methods of parts.

        So the same program runs on any number of ranks. If more ranks would cut the parameter, it
        counts as a `DistTensor`.
        """
        setattr(tensor, KEY, self)
        tensor._is_dist_tensor = any(cut.mesh_dims for cut in self.layout.cuts)
        tensor.mesh = tensor.device_mesh = self.mesh
        tensor.dist_layout, tensor.placements = self.layout, self.layout.placements
        for name in _SAID:
            setattr(tensor, name, partial(self._said, name))

    def _said(self, name: str, *args: Any, **kwargs: Any) -> Any:
        owner: Any = self._owner()
        if name == "to_local" and not kwargs:
            return owner
        found = distributed(owner)
        return found if name == "to_dist_tensor" else getattr(found, name)(*args, **kwargs)

    @property
    def around(self) -> "Placed":
        """The layout of the parameter over all ranks together."""
        return self if self._around is None else self._around

    def surround(self, mesh: DeviceMesh) -> "Placed":
        """Record a larger mesh that contains this one; its other dimensions replicate."""
        if mesh is not self.mesh:
            self._around = Placed(mesh, self.lifted(mesh), self.viewed)
        return self.around

    @property
    def holders(self) -> set[int]:
        """World ranks that together hold one copy of the parameter, this rank among them."""
        at = self.mesh.coords or (0,) * self.mesh.ndim
        where = tuple([slice(None) if m in self.cutting else c for m, c in enumerate(at)])
        return set(np.reshape(self.mesh.group.world_ranks, self.mesh.shape)[where].ravel().tolist())

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """Start and stop index of this rank's part, along each dimension of the layout."""
        return self.layout.section(self.mesh.coords)

    def dims_in(self, mesh: DeviceMesh) -> tuple[int, ...]:
        """Return the dimensions of a larger mesh that correspond to the parameter's mesh.

        Raises
        ------
        MeshError
            If the larger mesh does not contain the parameter's mesh.
        """
        own = self.mesh
        if own is mesh:
            return tuple(range(mesh.ndim))
        names, others = own.mesh_dim_names, mesh.mesh_dim_names
        if names is None or others is None or not set(names) <= set(others):
            raise MeshError(
                f"the module is distributed over {own!r}, which is no part of {mesh!r}; give the "
                'mesh that has both dimensions, as in fully_shard(module, mesh, "dp") after '
                'parallelize_module(module, mesh["tp"], plan)'
            )
        return tuple([mesh.mesh_dim(name) for name in names])

    def lifted(self, mesh: DeviceMesh) -> Layout:
        """Return the layout on a larger mesh, replicated along its other dimensions."""
        dims = self.dims_in(mesh)
        cuts = [
            cut._replace(mesh_dims=tuple([dims[m] for m in cut.mesh_dims]))
            for cut in self.layout.cuts
        ]
        return Layout.from_cuts(cuts, mesh.shape)

    @property
    def whole(self) -> tuple[int, ...]:
        """Shape of the global parameter."""
        shape = self.layout.shape
        return shape if self.viewed is None else (shape[0] * shape[1], *shape[2:])

    def local_shape(self) -> tuple[int, ...]:
        """Return the shape of this rank's part of the parameter."""
        shape = self.layout.local_shape(self.mesh.coords)
        return shape if self.viewed is None else (shape[0] * shape[1], *shape[2:])

    def array(self, name: str, tensor: Tensor) -> DistArray:
        """Return the distributed array over the parameter's memory."""
        tensor = local_of(tensor).detach()
        self._check(name, tensor)
        if self.viewed is not None:
            tensor = tensor.view(self.layout.local_shape(self.mesh.coords))
        array = wrap(_block_of(tensor, self.mesh), self.layout, self.mesh)
        # The array of a tensor on a device is a copy and does not follow the parameter.
        self._arrays = [known for known in self._arrays if known() is not None]
        if tensor.device.type == self.mesh.device_type == "cpu":
            self._arrays.append(weakref.ref(array))
        return array

    def _check(self, name: str, tensor: Tensor) -> None:
        if tuple(tensor.shape) != self.local_shape():
            raise LayoutError(
                f"{name} has become a tensor of shape {tuple(tensor.shape)}; {self.layout} puts "
                f"one of {self.local_shape()} on rank {self.mesh.rank}. Assign values in place, "
                "as in p.data.copy_(values), or load them with load_state_dict"
            )
        if any(_is_elsewhere(known(), tensor) for known in self._arrays):
            raise RuntimeError(
                f"{name} no longer shares memory with a DistArray that module_state gave before "
                "and that is still in use: p.data = ..., module.to(dtype) or "
                "load_state_dict(assign=True) gave it other memory. Assign in place, as in "
                "p.data.copy_(values), or drop the old arrays and call module_state again"
            )


def _is_elsewhere(array: DistArray | None, tensor: Tensor) -> bool:
    """Return True if an array is still in use and does not share the tensor's memory."""
    if array is None or not array.block.size:
        return False
    return bool(array.block.ctypes.data != tensor.data_ptr())


def placed_of(module: Module) -> dict[str, Placed]:
    """Return the layouts of a module's own parameters and buffers, by name."""
    found: dict[str, Placed] = vars(module).get(KEY, {})
    return found


def placed_as(tensor: Tensor) -> Placed | None:
    """Return the layout of a parameter; None if it is not distributed."""
    found: Placed | None = vars(tensor).get(KEY)
    return found


def averaged_by(tensor: Tensor) -> set[int]:
    """Return the world ranks among which `data_parallel` averages a parameter's gradient."""
    found: set[int] = vars(tensor).get(AVERAGED, set())
    return found


def _block_of(tensor: Tensor, mesh: DeviceMesh) -> Any:
    if tensor.device.type == "cpu":
        block = numpy_view(tensor)
        return block if mesh.device_type == "cpu" else mesh.asarray(block)
    if tensor.device.type == mesh.device_type == "cuda":
        return mesh.asarray(tensor)
    return numpy_view(tensor.cpu())
