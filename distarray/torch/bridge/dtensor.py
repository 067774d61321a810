"""PyTorch's DTensors and distributed arrays, over the same memory.

Both cut dimensions as ``torch.chunk`` does and name meshes and placements alike. So a canonical
layout has a counterpart among the DTensors, block for block. Any other layout is refused.
"""

import os
import socket
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh as TorchMesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor import placement_types as theirs

from distarray.array import DistArray, from_local
from distarray.comm import DeviceMesh, Group, current_world, network, world_group
from distarray.comm.agree import agree, agreed
from distarray.errors import LayoutError, MeshError
from distarray.layout import Fold, Layout, Partial, Placement, Replicate, Shard
from distarray.torch.bridge.refusals import refuse_gradient
from distarray.torch.bridge.sharing import block_of, to_torch

__all__ = ["ensure_process_group", "from_dtensor", "to_dtensor"]

#: The backend of the process group for each kind of device.
_BACKENDS = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl", "hpu": "hccl"}
#: The folds that DTensor has; the names are the same in both libraries.
_FOLDS = {"sum", "avg", "product", "min", "max", "band", "bor", "bxor"}
#: Timeout in seconds for the other ranks to join the process group.
_PATIENCE = 60.0

#: The default process group, if this module made it, and the world ranks of its members.
_own: tuple[Any, tuple[int, ...]] | None = None
#: The torch mesh made for a mesh, and the process group that it was made in.
_meshes: WeakKeyDictionary[DeviceMesh, tuple[Any, Any]] = WeakKeyDictionary()


def ensure_process_group(mesh: DeviceMesh | None = None, backend: str | None = None) -> Any:
    """Return the default process group of ``torch.distributed``, made of MPI ranks; collective.

    Neither environment variables nor torchrun are needed: the ranks connect to a TCP store on a
    port that rank 0 chooses and MPI broadcasts. MPI keeps working beside the process group, and
    after ``torch.distributed.destroy_process_group()``.

    Parameters
    ----------
    mesh : DeviceMesh, optional
        The members are its ranks, in ascending order of their world ranks; by default all ranks.
    backend : str, optional
        By default gloo, with nccl for the tensors of a "cuda" mesh.

    Returns
    -------
    ProcessGroup
        The existing group, if it has the same ranks.

    Raises
    ------
    MeshError
        On every rank, if a default process group with other ranks exists.

    Cost
    ----
    The first time a broadcast and the connection of the ranks, some 10 ms; later one agreement.

    Examples
    --------
    >>> import distarray, torch, distarray.torch as dt
    >>> mesh = distarray.default_mesh()
    >>> dt.ensure_process_group(mesh).size() == mesh.size()
    True
    """
    global _own
    group = world_group() if mesh is None else mesh.group
    members = tuple(sorted(group.world_ranks))
    if current_world() is not None and group.size > 1:
        raise MeshError(
            "ensure_process_group: these ranks are threads of one process; torch.distributed "
            "needs a process a rank"
        )
    if dist.is_initialized():
        agree(group, _other_ranks(members))
        return dist.group.WORLD
    backend = backend or _BACKENDS["cpu" if mesh is None else mesh.device_type]
    error = None
    try:
        # Sorted, because a mesh may list its ranks in any order.
        _join(group, members.index(group.world_ranks[group.rank]), backend)
    except Exception as problem:
        error = problem
    agree(group, error)
    _own = dist.group.WORLD, members
    return dist.group.WORLD


def _join(group: Group, rank: int, backend: str) -> None:
    """Connect to a TCP store on rank 0 of the group, and make the process group."""
    patience = timedelta(seconds=_PATIENCE)
    hosts = group.allgather_object((socket.gethostname(), network.addresses()))
    host = "127.0.0.1" if len({name for name, _ in hosts}) == 1 else _address(*hosts[0])
    _choose_device(hosts)
    store, failure = None, None
    if group.rank == 0:
        try:
            store = dist.TCPStore(host, 0, group.size, True, patience, wait_for_workers=False)
        except Exception as problem:
            failure = f"{type(problem).__name__}: {problem}"
    port, failure = group.broadcast_object((store.port if store else 0, failure))
    if failure:
        raise MeshError(f"ensure_process_group: rank 0 cannot open a TCP store: {failure}")
    if store is None:
        store = dist.TCPStore(host, port, group.size, False, patience)
    dist.init_process_group(backend, store=store, rank=rank, world_size=group.size)


def _address(name: str, addresses: Sequence[str]) -> str:
    """Return the address of a host: its name if this host can resolve it, else an IP address."""
    return name if network.name_is_known(name) or not addresses else addresses[0]


def _choose_device(hosts: Sequence[tuple[str, Sequence[str]]]) -> None:
    """Set Gloo's network device if its default cannot be reached from other hosts.

    Gloo takes the device of this host's name, which on many machines resolves to 127.0.1.1, or not
    at all.
    """
    own = socket.gethostname()
    others = [addresses for name, addresses in hosts if name != own]
    if not others or network.name_is_known(own):
        return
    devices = map(network.device_towards, others[0])
    device = next((name for name in devices if name is not None), None)
    if device is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", device)


def _other_ranks(members: tuple[int, ...]) -> MeshError | None:
    """Return an error if the existing process group does not consist of these world ranks."""
    found = _world_ranks()
    if found == members:
        return None
    have = "ranks unknown to MPI" if found is None else f"ranks {list(found)} of the job"
    return MeshError(
        f"torch.distributed's process group has {have}, and the mesh ranks {list(members)}; "
        "redistribute to a mesh of the group's ranks, or make the group of the mesh's: "
        "dist.destroy_process_group(), then ensure_process_group(mesh)"
    )


def _world_ranks() -> tuple[int, ...] | None:
    """Return the world ranks of the default process group's members; None if unknown.

    The members of a group that another library made are known if it has all ranks in MPI's order.
    """
    if _own is not None and _own[0] is dist.group.WORLD:
        return _own[1]
    world = world_group()
    if (dist.get_world_size(), dist.get_rank()) == (world.size, world.rank):
        return tuple(range(world.size))
    return None


def to_dtensor(x: DistArray, *, mesh: TorchMesh | None = None) -> Any:
    """Make a DTensor over the blocks of a distributed array; collective.

    Parameters
    ----------
    x : DistArray
        With a canonical layout, as `distribute` and `redistribute` make. Pending folds stay
        pending.
    mesh : torch.distributed.DeviceMesh, optional
        The DTensor's mesh, of the same shape and ranks as the array's. By default a mesh is made,
        and a process group if there is none.

    Returns
    -------
    DTensor
        With the placements of `x`. It shares the memory of the blocks, unless the devices of its
        mesh are of another kind.

    Raises
    ------
    LayoutError
        If the layout has no counterpart: views, ragged blocks, folds by any and all.
    MeshError
        If the meshes or the process group have other ranks, or the mesh lists its ranks in
        descending order.

    Cost
    ----
    The first time for a mesh, process groups are made along its dimensions; later one agreement.

    Examples
    --------
    >>> import distarray, torch, distarray.torch as dt
    >>> x = dt.from_torch(torch.ones(2, 3))
    >>> d = dt.to_dtensor(x)
    >>> d.placements[0].is_shard(0), dt.shares_memory(x, d.to_local())
    (True, True)
    """
    if not isinstance(x, DistArray):
        raise TypeError(f"to_dtensor: a DistArray is wanted, not {type(x).__name__}")
    layout = x.layout
    if layout.ats or layout is not Layout.chunked(x.shape, x.mesh.shape, x.placements):
        raise LayoutError(
            f"to_dtensor: {x.summary()} is a view or has blocks of other lengths than torch.chunk "
            "gives; x.redistribute(x.mesh, placements) makes one that a DTensor can share"
        )
    placements = [_their_placement(p) for p in x.placements]
    torch_mesh = _torch_mesh(x.mesh) if mesh is None else _checked_mesh(mesh, x.mesh)
    device = None if mesh is None else torch_mesh.device_type
    block = agreed(x.mesh.group, lambda: to_torch(x, device=device))
    whole = torch.empty(x.shape, device="meta")
    return DTensor.from_local(
        block, torch_mesh, placements, run_check=False, shape=whole.shape, stride=whole.stride()
    )


def _their_placement(placement: Placement) -> Any:
    if isinstance(placement, Shard):
        return theirs.Shard(placement.dim)
    if isinstance(placement, Partial):
        if placement.op.value not in _FOLDS:
            raise LayoutError(
                f"to_dtensor: DTensor has no {placement}; x.redistribute(x.mesh, placements) "
                "carries it out"
            )
        return theirs.Partial(placement.op.value)
    return theirs.Replicate()


def _torch_mesh(mesh: DeviceMesh) -> Any:
    """Return the torch mesh of the same ranks; make it once per process group."""
    known = _meshes.get(mesh)
    if known is not None and dist.is_initialized() and known[0] is dist.group.WORLD:
        return known[1]
    ensure_process_group(mesh)
    ranks = _numbers_in_group(mesh).reshape(mesh.shape)
    _check_ascending(ranks)
    made = TorchMesh(mesh.device_type, ranks, mesh_dim_names=mesh.mesh_dim_names)
    _meshes[mesh] = dist.group.WORLD, made
    return made


def _numbers_in_group(mesh: DeviceMesh) -> Any:
    """Return the mesh's ranks as ranks of the process group."""
    place = {rank: number for number, rank in enumerate(_world_ranks() or ())}
    return torch.tensor([place[rank] for rank in mesh.group.world_ranks])


def _check_ascending(ranks: torch.Tensor) -> None:
    """Refuse ranks that do not ascend: torch sorts a group's ranks and would misplace blocks."""
    if any((ranks.diff(dim=dim) < 0).any() for dim in range(ranks.ndim)):
        raise MeshError(
            f"a mesh of the ranks {ranks.tolist()}, in this order: torch.distributed sorts the "
            "ranks of a group, and its DTensors would mix up their blocks; take a mesh whose ranks "
            "ascend"
        )


def _checked_mesh(torch_mesh: TorchMesh, mesh: DeviceMesh) -> Any:
    """Return the user's torch mesh; raise unless it is the same grid of the same ranks."""
    if not isinstance(torch_mesh, TorchMesh):
        raise TypeError(
            "to_dtensor: mesh is a torch.distributed DeviceMesh, not "
            f"{type(torch_mesh).__module__}.{type(torch_mesh).__name__}"
        )
    known = _world_ranks()
    wanted = mesh.group.world_ranks
    found = None if known is None else tuple([known[r] for r in torch_mesh.mesh.flatten().tolist()])
    if tuple(torch_mesh.mesh.shape) != mesh.shape or found != wanted:
        raise MeshError(
            f"{torch_mesh} is another grid than {mesh!r} with ranks {list(wanted)} of the job; "
            "leave `mesh` out, or redistribute to a mesh of that grid first"
        )
    _check_ascending(torch_mesh.mesh)
    return torch_mesh


def from_dtensor(dt: DTensor, *, mesh: DeviceMesh | None = None) -> DistArray:
    """Make a distributed array over the blocks of a DTensor; collective over its mesh.

    Parameters
    ----------
    dt : DTensor
        Without grad. A DTensor on HPUs is copied to host memory, by one blocking copy per rank.
    mesh : DeviceMesh, optional
        Of the same shape and ranks; by default a mesh with the DTensor's dimension names is made.

    Returns
    -------
    DistArray
        With the placements of `dt`; pending folds stay pending.

    Raises
    ------
    LayoutError
        If a placement has no counterpart: strided shards, shards in another order of the mesh
        dimensions, masked and norm partials.
    MeshError
        If the meshes have other ranks.
    ValueError
        If the DTensor requires grad.

    Cost
    ----
    An agreement and one small allgather.

    Examples
    --------
    >>> import distarray, torch, distarray.torch as dt
    >>> mesh = distarray.default_mesh()
    >>> d = dt.to_dtensor(dt.from_torch(torch.ones(2, 3), mesh=mesh))
    >>> y = dt.from_dtensor(d * 2)
    >>> float(y.sum()) == 12 * mesh.size()
    True
    """
    if not isinstance(dt, DTensor):
        raise TypeError(f"from_dtensor: a DTensor is wanted, not {type(dt).__name__}")
    refuse_gradient(dt, "from_dtensor")
    placements = [_our_placement(p, dt) for p in dt.placements]
    _check_order(dt)
    mesh = _our_mesh(dt.device_mesh, mesh)
    block = agreed(mesh.group, lambda: block_of(dt.to_local(), mesh, call="from_dtensor"))
    return from_local(block, mesh, placements, tuple(dt.shape))


def _our_placement(placement: theirs.Placement, dt: DTensor) -> Placement:
    if type(placement) is theirs.Shard:
        return Shard(placement.dim)
    if type(placement) is theirs.Replicate:
        return Replicate()
    if type(placement) is theirs.Partial and placement.reduce_op in _FOLDS:
        return Partial(Fold(placement.reduce_op))
    raise LayoutError(
        f"from_dtensor: {placement!r} of {tuple(dt.shape)} on {dt.device_mesh} has no counterpart; "
        "dt.redistribute(placements=[...]) with Shard and Replicate first"
    )


def _check_order(dt: DTensor) -> None:
    """Refuse shards of one dimension that are not nested from left to right."""
    order: Sequence[Any] = getattr(dt._spec, "shard_order", None) or ()
    for entry in order:
        if list(entry.mesh_dims) != sorted(entry.mesh_dims):
            raise LayoutError(
                f"from_dtensor: dimension {entry.tensor_dim} is cut by the mesh dimensions "
                f"{tuple(entry.mesh_dims)} in this order; dt.redistribute(placements=[...]) to the "
                "default order first"
            )


def _our_mesh(torch_mesh: TorchMesh, mesh: DeviceMesh | None) -> DeviceMesh:
    """Return the mesh of a DTensor's ranks; the user's mesh if given and equal."""
    known = _world_ranks()
    if known is None:
        raise MeshError(
            "from_dtensor: torch.distributed numbers the ranks otherwise than MPI; let "
            "ensure_process_group() make the process group"
        )
    _check_ascending(torch_mesh.mesh)
    ranks = tuple([known[rank] for rank in torch_mesh.mesh.flatten().tolist()])
    shape = tuple(torch_mesh.mesh.shape)
    if mesh is None:
        kind = "cuda" if torch_mesh.device_type == "cuda" else "cpu"
        names = torch_mesh.mesh_dim_names
        return DeviceMesh(world_group(), shape, names, device_type=kind, ranks=np.array(ranks))
    if mesh.shape != shape or mesh.group.world_ranks != ranks:
        raise MeshError(
            f"from_dtensor: {mesh!r} with ranks {list(mesh.group.world_ranks)} of the job is "
            f"another grid than the DTensor's, {shape} of ranks {list(ranks)}"
        )
    return mesh
