"""Environment variables with a rank's numbers, which torch and the Gaudi software read.

Importing this module imports no torch: on a machine with Gaudis, importing torch imports the Gaudi
software, which reads its variables at that time.
"""

import os
import socket
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

from distarray.comm import current_world, world_group
from distarray.comm.agree import agreed
from distarray.comm.tune import own_threads, this_node
from distarray.errors import MeshError

__all__ = ["Place", "gaudi_variables", "place_by_launcher", "start", "torch_variables"]

_DEVICES = ("cpu", "cuda", "hpu")
_GAUDI = "habana_frameworks"

#: Each launcher's variables for rank, number of ranks, rank on the node and number of ranks there.
#: The last may be missing. Slurm comes last: in a Slurm job, mpiexec passes on the variables that
#: Slurm set for the batch step.
_LAUNCHERS = {
    "Open MPI": (
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    "MPICH": ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    "MVAPICH": (
        "MV2_COMM_WORLD_RANK",
        "MV2_COMM_WORLD_SIZE",
        "MV2_COMM_WORLD_LOCAL_RANK",
        "MV2_COMM_WORLD_LOCAL_SIZE",
    ),
    "PALS": ("PALS_RANKID", "PMI_SIZE", "PALS_LOCAL_RANKID", "PALS_LOCAL_SIZE"),
    "Slurm": ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"),
}


class Place(NamedTuple):
    """Numbers of a rank in the job and on its node.

    Attributes
    ----------
    rank, size : int
        In the job.
    local_rank, local_size : int
        On the node. `local_size` is 0 where the launcher does not set it.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int


def place_by_launcher(environ: Mapping[str, str]) -> Place | None:
    """Read a rank's numbers as set by MPICH, Open MPI, MVAPICH, PALS or Slurm.

    Parameters
    ----------
    environ : mapping of str
        The environment variables.

    Returns
    -------
    Place or None
        None if no launcher has set rank, size and local rank.
    """
    for names in _LAUNCHERS.values():
        said = [environ.get(name, "") for name in names]
        if all(word.isdigit() for word in said[:3]):
            rank, size, local_rank = map(int, said[:3])
            return Place(rank, size, local_rank, int(said[3]) if said[3].isdigit() else 0)
    return None


def torch_variables(place: Place) -> dict[str, str]:
    """Return the variables that torchrun sets for ``torch.distributed``, except the address."""
    return {
        "RANK": str(place.rank),
        "WORLD_SIZE": str(place.size),
        "LOCAL_RANK": str(place.local_rank),
        "LOCAL_WORLD_SIZE": str(place.local_size),
    }


def gaudi_variables(place: Place, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for the Gaudi software: this rank's module, and eager mode.

    A module that the user has chosen (``HLS_MODULE_ID``) is kept. Otherwise this rank's number on
    the node is the index into ``HABANA_VISIBLE_MODULES``, or the module itself if that is not set.

    Raises
    ------
    ValueError
        If there are fewer visible modules than ranks on the node.
    """
    module = environ.get("HLS_MODULE_ID")
    if module is None:
        visible = [m for m in environ.get("HABANA_VISIBLE_MODULES", "").split(",") if m.strip()]
        if visible and place.local_rank >= len(visible):
            raise ValueError(
                f"start('hpu'): rank {place.rank} is number {place.local_rank} on its node, but "
                f"HABANA_VISIBLE_MODULES={','.join(visible)} has {len(visible)} modules; start as "
                "many ranks a node as it has Gaudis"
            )
        module = visible[place.local_rank].strip() if visible else str(place.local_rank)
    return {"HLS_MODULE_ID": module, "ID": str(place.rank), "PT_HPU_LAZY_MODE": "0"}


def start(device: str = "cpu") -> Any:
    """Set up torch's environment variables and this rank's device; collective over all ranks.

    Call it before anything else that concerns torch, on a Gaudi before ``import torch``. It sets
    RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE, as torchrun does, and MASTER_ADDR and
    MASTER_PORT if they are not set. So ``torch.distributed.init_process_group()`` also works under
    mpiexec and srun; distarray itself does not need these variables. The ranks of a node divide
    its cores among their torch threads, unless OMP_NUM_THREADS is set.

    Parameters
    ----------
    device : {"cpu", "cuda", "hpu"}
        "cuda": the GPU with this rank's number on the node. "hpu": also set HLS_MODULE_ID (unless
        it is set; within HABANA_VISIBLE_MODULES), ID and ``PT_HPU_LAZY_MODE=0``, and import the
        Gaudi software.

    Returns
    -------
    torch.device
        This rank's device.

    Raises
    ------
    RuntimeError
        If there is no such device, or the Gaudi software was loaded before, with other settings.
    ValueError
        If a node has more ranks than visible Gaudis.

    Each of them is raised on every rank.

    Cost
    ----
    One broadcast of a host name and a port, and an agreement.

    Examples
    --------
    >>> import distarray, torch, distarray.torch as dt
    >>> device = dt.start("cpu")
    >>> torch.ones(3, device=device).device
    device(type='cpu')
    """
    if device not in _DEVICES:
        raise ValueError(f"start: device is one of {_DEVICES}, not {device!r}")
    if current_world() is not None:
        raise MeshError("start: these ranks are threads of one process, which has one environment")
    group = world_group()
    meeting = group.broadcast_object(_meeting_point(group.size) if group.rank == 0 else None)

    def tell() -> Any:
        place = _place(group.rank, group.size)
        os.environ.update(torch_variables(place))
        for name, value in zip(("MASTER_ADDR", "MASTER_PORT"), meeting, strict=True):
            os.environ.setdefault(name, value)
        return _own_device(device, place)

    return agreed(group, tell)


def _place(rank: int, size: int) -> Place:
    """Return the launcher's numbers, used to bind cores, if they are this job's; else MPI's."""
    said = place_by_launcher(os.environ)
    node = this_node()
    if said is None or (said.rank, said.size) != (rank, size):
        return Place(rank, size, node.rank, node.size)
    return said if said.local_size else said._replace(local_size=node.size)


def _meeting_point(size: int) -> tuple[str, str]:
    """Return the address of rank 0: its host, and a port that is free now."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        port = probe.getsockname()[1]
    return ("localhost" if size == this_node().size else socket.gethostname()), str(port)


def _own_device(device: str, place: Place) -> Any:
    if device == "hpu":
        _set_up_gaudi(place)
    try:
        import torch
    except ImportError as error:
        raise ImportError(
            f"start: no PyTorch ({error}): pip install 'distarray-mpi[torch]'"
        ) from None
    if own_threads():
        torch.set_num_threads(this_node().cores)
    if device == "hpu" and not hasattr(torch, "hpu"):
        try:
            import_module(f"{_GAUDI}.torch")
        except ImportError as error:
            raise RuntimeError(f"start('hpu'): no Gaudi software here: {error}") from None
    if device == "cuda":
        count = torch.cuda.device_count()
        if not count:
            raise RuntimeError("start('cuda'): torch finds no CUDA device on this node")
        torch.cuda.set_device(place.local_rank % count)
        return torch.device("cuda", place.local_rank % count)
    return torch.device(device)


def _set_up_gaudi(place: Place) -> None:
    wanted = gaudi_variables(place, os.environ)
    late = any(name.partition(".")[0] == _GAUDI for name in sys.modules)
    if late and any(os.environ.get(name) != value for name, value in wanted.items()):
        raise RuntimeError(
            "start('hpu'): the Gaudi software is loaded already (importing torch loads it), "
            "without this rank's settings; call distarray.torch.start('hpu') before import torch"
        )
    os.environ.update(wanted)
