"""The libraries measured: how a rank of each starts, places an array, and waits for the others."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy

__all__ = ["STARTS", "Library", "done"]


@dataclass(frozen=True)
class Library:
    """One rank of a library at work.

    Attributes
    ----------
    rank, ranks : int
    names : mapping
        What its statements may use, `place` and `local` among them.
    barrier : callable
        Returns when every rank has called it.
    """

    rank: int
    ranks: int
    names: Mapping[str, Any]
    barrier: Callable[[], object]


def done(result: Any) -> Any:
    """Ask for the blocks of a result: operations on large ones are put off until then."""
    for x in result if isinstance(result, (tuple, list)) else (result,):
        getattr(x, "block", None)
    return result


def start_numpy() -> Library:
    """NumPy in one process, as it comes."""
    names = {"np": numpy, "place": lambda values, dim=0: values, "local": lambda a: a}
    return Library(0, 1, names, lambda: None)


def start_distarray() -> Library:
    """This library on all ranks of an MPI job."""
    import distarray
    import distarray.numpy
    from distarray import Replicate, Shard

    mesh = distarray.default_mesh()

    def place(values: Any, dim: int | None = 0) -> Any:
        placement = Replicate() if dim is None else Shard(dim)
        return distarray.distribute(values, mesh, [placement], src=None)

    names = {
        "np": distarray.numpy,
        "Shard": Shard,
        "place": place,
        "local": distarray.DistArray.to_local,
    }
    return Library(mesh.rank, mesh.size(), names, mesh.group.barrier)


def start_heat() -> Library:
    """Heat on all ranks of an MPI job."""
    import heat
    import torch

    torch.set_num_threads(1)
    comm = heat.get_comm()

    def place(values: Any, dim: int | None = 0) -> Any:
        return heat.array(values, split=dim)

    names = {"ht": heat, "place": place, "local": lambda a: a.larray}
    return Library(comm.rank, comm.size, names, comm.handle.Barrier)


def start_dtensor() -> Library:
    """PyTorch's DTensor, on processes that find one another by the environment, with gloo."""
    import torch
    import torch.distributed as dist
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh

    torch.set_num_threads(1)
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (ranks,))

    def place(values: Any, dim: int | None = 0) -> Any:
        placement = Replicate() if dim is None else Shard(dim)
        return distribute_tensor(torch.as_tensor(values), mesh, [placement])

    names = {"torch": torch, "Shard": Shard, "place": place, "local": lambda a: a.to_local()}
    return Library(rank, ranks, names, dist.barrier)


def start_jax() -> Library:
    """JAX in one process, with as many devices as ranks; a statement has to wait for its result."""
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    jax.config.update("jax_enable_x64", True)
    ranks = len(jax.devices())
    mesh = Mesh(numpy.array(jax.devices()), ("ranks",))

    def place(values: Any, dim: int | None = 0) -> Any:
        cut = () if dim is None else (*[None] * dim, "ranks")
        if dim is not None and values.shape[dim] % ranks:
            cut = ()
        return jax.device_put(values, NamedSharding(mesh, PartitionSpec(*cut)))

    names = {"jax": jax, "np": jax.numpy, "place": place, "ready": jax.block_until_ready}
    return Library(0, ranks, names, lambda: None)


def start_dask() -> Library:
    """Dask's arrays in one process, with as many threads as ranks and a chunk for each."""
    import dask
    import dask.array

    ranks = int(os.environ["BENCHMARKS_RANKS"])
    dask.config.set(scheduler="threads", num_workers=ranks)

    def place(values: Any, dim: int | None = 0) -> Any:
        chunks = list(values.shape)
        if dim is not None:
            chunks[dim] = -(-chunks[dim] // ranks)
        return dask.array.from_array(values, chunks=tuple(chunks))

    names = {"np": dask.array, "place": place}
    return Library(0, ranks, names, lambda: None)


def start_mpi4py_fft() -> Library:
    """mpi4py-fft on all ranks of an MPI job; placing an array plans its complex transform."""
    from mpi4py import MPI
    from mpi4py_fft import PFFT, newDistArray

    comm = MPI.COMM_WORLD

    def place(values: Any, dim: int | None = 0) -> Any:
        plan = PFFT(comm, values.shape, dtype=complex)
        block, result = newDistArray(plan, False), newDistArray(plan, True)
        block[:] = values[block.local_slice()]
        return lambda: plan.forward(block, result, normalize=False)

    return Library(comm.Get_rank(), comm.Get_size(), {"place": place}, comm.Barrier)


STARTS = {
    "numpy": start_numpy,
    "numpy-2": start_numpy,
    "distarray": start_distarray,
    "heat": start_heat,
    "dtensor": start_dtensor,
    "jax": start_jax,
    "dask": start_dask,
    "mpi4py-fft": start_mpi4py_fft,
}
