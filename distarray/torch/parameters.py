"""Parameters of which each rank holds a part, and the distributed arrays over their memory."""

import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from distarray.array import DistArray, wrap
from distarray.array.divergence import verify_among
from distarray.array.movement import moved
from distarray.comm import DeviceMesh
from distarray.config import config
from distarray.errors import LayoutError, MeshError
from distarray.layout import Layout, Placement
from distarray.torch import conversations as talk
from distarray.torch.blocks import movable, moved_back
from distarray.torch.carrying import Route, carry, gradient_layout
from distarray.torch.dtypes import numpy_view
from distarray.torch.guards import KEY, take_whole_states, watch_optimizers

__all__ = [
    "Placed",
    "distribute_parameter",
    "names_of",
    "owned",
    "place",
    "place_rest",
    "placed_as",
    "placed_of",
    "remember",
    "surround",
    "used",
    "whole_shape",
]

Tensor = Any
Module = Any
Placements = Sequence[Placement] | Placement


class Placed:
    """How one parameter (or buffer) of a module is laid out.

    Attributes
    ----------
    mesh : DeviceMesh
        The ranks that hold it.
    layout : Layout
        Of the global parameter, or of what `viewed` says.
    viewed : tuple of int or None
        The global shape that the layout is about where it is not the parameter's own: that of the
        packed weight (3 * n, m) of queries, keys and values is (3, n, m).
    around : Placed
        The same on a larger mesh, if one is known, where the ranks that `mesh` does not have are
        replicas: how all ranks together hold the parameter. Otherwise this.
    """

    __slots__ = ("_around", "_arrays", "_owner", "layout", "mesh", "viewed")

    def __init__(
        self, mesh: DeviceMesh, layout: Layout, viewed: tuple[int, ...] | None = None
    ) -> None:
        self.mesh, self.layout, self.viewed = mesh, layout, viewed
        self._around: Placed | None = None
        self._arrays: list[weakref.ref[DistArray]] = []
        self._owner: Callable[[], Tensor | None] = lambda: None

    def __deepcopy__(self, memo: Any) -> "Placed":
        copy = Placed(self.mesh, self.layout, self.viewed)  # the copy's arrays are others
        copy._around = self._around and self._around.__deepcopy__(memo)
        # A module's parameters are copied before this, and come without what was noted on them.
        tensor = memo.get(id(self._owner()))
        if tensor is not None:
            copy.note_on(tensor)
        return copy

    def __reduce__(self) -> Any:
        raise TypeError(
            "a distributed module cannot be pickled, for each rank has a part of it: save its "
            "parts (torch.save(model.state_dict(), ...) on each rank) or, for any number of ranks, "
            'distarray.checkpoint.save(path, {"model": model})'
        )

    def note_on(self, tensor: Tensor) -> None:
        """Write this down on the parameter that it is about."""
        self._owner = weakref.ref(tensor)
        setattr(tensor, KEY, self)

    @property
    def around(self) -> "Placed":
        """How all ranks together hold the parameter."""
        return self if self._around is None else self._around

    def surround(self, mesh: DeviceMesh) -> "Placed":
        """Note a mesh that this one is a part of, along which there are replicas."""
        if mesh is not self.mesh:
            self._around = Placed(mesh, self.lifted(mesh), self.viewed)
        return self.around

    def dims_in(self, mesh: DeviceMesh) -> tuple[int, ...]:
        """Which dimensions of a mesh those of the parameter's are.

        Raises
        ------
        MeshError
            If it is no part of that mesh.
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
        """The layout on a mesh that this one is a part of, replicated along its rest."""
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
        """Shape of this rank's part of the parameter."""
        shape = self.layout.local_shape(self.mesh.coords)
        return shape if self.viewed is None else (shape[0] * shape[1], *shape[2:])

    def array(self, name: str, tensor: Tensor) -> DistArray:
        """The distributed array over the parameter's memory."""
        tensor = tensor.detach()
        self._check(name, tensor)
        if self.viewed is not None:
            tensor = tensor.view(self.layout.local_shape(self.mesh.coords))
        array = wrap(_block_of(tensor, self.mesh), self.layout, self.mesh)
        # A device's block is a copy, of which nobody expects that it follows.
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
    """Whether an array that is still in use is not over the tensor's memory."""
    if array is None or not array._block.size:
        return False
    return bool(array._block.ctypes.data != tensor.data_ptr())


def placed_of(module: Module) -> dict[str, Placed]:
    """How a module's own parameters and buffers are laid out, by name; empty if they are not."""
    found: dict[str, Placed] = vars(module).get(KEY, {})
    return found


def placed_as(tensor: Tensor) -> Placed | None:
    """How a parameter is laid out; None if it is not distributed."""
    found: Placed | None = vars(tensor).get(KEY)
    return found


def _block_of(tensor: Tensor, mesh: DeviceMesh) -> Any:
    if tensor.device.type == "cpu":
        block = numpy_view(tensor)
        return block if mesh.device_type == "cpu" else mesh.asarray(block)
    if tensor.device.type == mesh.device_type == "cuda":
        return mesh.asarray(tensor)
    return numpy_view(tensor.cpu())


# -- placing ----------------------------------------------------------------------------------


def distribute_parameter(
    module: Module,
    name: str,
    mesh: DeviceMesh,
    placements: Placements,
    src_data_rank: int | None = 0,
) -> None:
    """Leave of a module's parameter (or buffer) this rank's part only; collective.

    The Parameter stays the same object, so that optimizers made before and modules that share it
    go on; its ``shape`` becomes that of the part. It is what a `partition_fn` calls.

    Parameters
    ----------
    module : torch.nn.Module
        Whose own parameter it is.
    name : str
        Its name in the module, without a dot.
    mesh : DeviceMesh
        The ranks.
    placements : sequence of Placement
        One a mesh dimension: Shard or Replicate.
    src_data_rank : int or None
        The rank of the mesh whose values count. None: all ranks have the same already.

    Raises
    ------
    LayoutError
        If the placements do not fit, or the parameter is distributed already in another way.

    Cost
    ----
    One exchange, in which each rank gets its part; nothing if `src_data_rank` is None.

    Examples
    --------
    >>> import distarray, torch, distarray.torch as dt
    >>> mesh = distarray.default_mesh()
    >>> layer = torch.nn.Linear(4, 6)
    >>> dt.distribute_parameter(layer, "weight", mesh, [distarray.Shard(0)])
    >>> rows = torch.tensor(layer.weight.shape[0])  # on this rank
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
    """The global shape of a module's parameter, whether it is distributed already or not."""
    tensor = owned(module, name)
    known = placed_of(module).get(name) or placed_as(tensor)
    return tuple(tensor.shape) if known is None else known.whole


def owned(module: Module, name: str) -> Tensor:
    """A module's own parameter or buffer."""
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
    """Give a module's parameter this rank's part of a layout; see `distribute_parameter`."""
    if mesh.coords is None:
        return
    if layout.partials:
        raise LayoutError(f"{name}: a parameter is cut or replicated, not {layout.placements}")
    if config.settings.check:
        verify_among(mesh.group, f"{type(module).__name__}.{name} distributed as {layout}")
    tensor = owned(module, name)
    known: Placed | None = placed_of(module).get(name) or vars(tensor).get(KEY)
    if known is not None:
        if known.layout is layout and known.mesh is mesh:
            remember(module, name, tensor, known)
            return
        if not known.layout.is_replicated or known.viewed is not None:
            raise LayoutError(
                f"{type(module).__name__}.{name} is distributed already, as {known.layout} on "
                f"{known.mesh!r}; it cannot become {layout} on {mesh!r} as well. Tied parameters "
                "are placed once: give all modules that share one styles that agree"
            )
        src = None if known.mesh is mesh else src
    part = _part(tensor.detach(), mesh, layout, src, viewed)
    placed = Placed(mesh, layout, viewed)
    if part is not None:
        tensor.data = part.reshape(placed.local_shape())
    remember(module, name, tensor, placed)


def remember(module: Module, name: str, tensor: Tensor, placed: Placed) -> None:
    """Write down how a module's parameter is laid out, with the module and with the parameter."""
    module.__dict__.setdefault(KEY, {})[name] = placed
    placed.note_on(tensor)
    watch_optimizers()
    take_whole_states(module)


def _part(
    tensor: Tensor, mesh: DeviceMesh, layout: Layout, src: int | None, viewed: Any
) -> Tensor | None:
    """This rank's part in memory of its own; None where the tensor itself has become it."""
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


def place_rest(root: Module, mesh: DeviceMesh, src: int | None) -> None:
    """Replicate whatever of a module is not placed yet: the values of rank `src` count."""
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
    """The names of a module's own parameters and buffers."""
    for kind in (module._parameters, module._buffers):
        for name, tensor in kind.items():
            if tensor is not None:
                yield name


def surround(root: Module, mesh: DeviceMesh) -> None:
    """Note for all of a module's parameters and buffers a mesh that theirs are a part of."""
    for module in root.modules():
        for placed in placed_of(module).values():
            placed.surround(mesh)


# -- using ------------------------------------------------------------------------------------


def used(module: Module, name: str, alike: Sequence[int], layout: Layout | None = None) -> Tensor:
    """A parameter as a forward pass needs it; None if the module has none of this name.

    Parameters
    ----------
    module : torch.nn.Module
        Whose it is.
    name : str
        Its name there.
    alike : sequence of int
        Mesh dimensions along which the ranks do the same with it, so that each finds the whole
        gradient; along the others each finds a contribution, which are summed.
    layout : Layout, optional
        How it is wanted; as it is placed by default.
    """
    tensor = getattr(module, name)
    if tensor is None:
        return None
    placed = placed_of(module)[name]
    here = placed.layout
    route = _route(here, here if layout is None else layout, tuple(alike))
    return carry(tensor, placed.mesh, route)


@lru_cache(maxsize=1024)
def _route(here: Layout, wanted: Layout, alike: tuple[int, ...]) -> Route:
    """There, and the gradient back: summed along the mesh dimensions that are not `alike`."""
    pending = tuple([m for m in range(len(here.mesh_shape)) if m not in alike])
    return Route(here, wanted, gradient_layout(here), gradient_layout(wanted, pending))
