"""The torch bridge: blocks and tensors that share memory, and torch models on a device mesh.

Everything here works on CPU, CUDA and HPU (Intel Gaudi) tensors and talks over MPI, without
``torch.distributed``. Names are loaded on first use, so that importing this imports no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from distarray.array import DistArray
from distarray.array.exporting import tensor_of
from distarray.lazy import lazy_names

if TYPE_CHECKING:
    from distarray.errors import CopyRequiredError as CopyRequiredError
    from distarray.torch.attention import AttentionParallel as AttentionParallel
    from distarray.torch.borders import copy_to as copy_to
    from distarray.torch.borders import gather_from as gather_from
    from distarray.torch.borders import reduce_from as reduce_from
    from distarray.torch.borders import scatter_to as scatter_to
    from distarray.torch.bridge import from_torch as from_torch
    from distarray.torch.bridge import to_torch as to_torch
    from distarray.torch.collectives import Work as Work
    from distarray.torch.collectives import all_gather as all_gather
    from distarray.torch.collectives import all_reduce as all_reduce
    from distarray.torch.collectives import all_reduce_ as all_reduce_
    from distarray.torch.collectives import all_to_all as all_to_all
    from distarray.torch.collectives import broadcast as broadcast
    from distarray.torch.collectives import reduce_scatter as reduce_scatter
    from distarray.torch.counting import transfers as transfers
    from distarray.torch.dtensor import ensure_process_group as ensure_process_group
    from distarray.torch.dtensor import from_dtensor as from_dtensor
    from distarray.torch.dtensor import to_dtensor as to_dtensor
    from distarray.torch.handing import ParallelStyle as ParallelStyle
    from distarray.torch.hosting import host as host
    from distarray.torch.hosting import shares_memory as shares_memory
    from distarray.torch.launch import start as start
    from distarray.torch.loss import loss_parallel as loss_parallel
    from distarray.torch.loss import parallel_cross_entropy as parallel_cross_entropy
    from distarray.torch.modules import distribute_module as distribute_module
    from distarray.torch.optimizers import clip_grad_norm_ as clip_grad_norm_
    from distarray.torch.optimizers import optimizer_state as optimizer_state
    from distarray.torch.parameters import distribute_parameter as distribute_parameter
    from distarray.torch.plans import parallelize_module as parallelize_module
    from distarray.torch.preparing import PrepareModuleInput as PrepareModuleInput
    from distarray.torch.preparing import PrepareModuleInputOutput as PrepareModuleInputOutput
    from distarray.torch.preparing import PrepareModuleOutput as PrepareModuleOutput
    from distarray.torch.replicas import data_parallel as data_parallel
    from distarray.torch.replicas import no_sync as no_sync
    from distarray.torch.sharding import fully_shard as fully_shard
    from distarray.torch.states import module_state as module_state
    from distarray.torch.streams import manual_seed as manual_seed
    from distarray.torch.styles import ColwiseParallel as ColwiseParallel
    from distarray.torch.styles import DropoutParallel as DropoutParallel
    from distarray.torch.styles import RowwiseParallel as RowwiseParallel
    from distarray.torch.styles import SequenceParallel as SequenceParallel
    from distarray.torch.tensor.dist_tensor import DistTensor as DistTensor
    from distarray.torch.tensor.distribute import distribute_tensor as distribute_tensor
    from distarray.torch.tensor.operands import implicit_replication as implicit_replication

#: Where each public name lives.
_WHERE = {
    "parallel_cross_entropy": "distarray.torch.loss",
    "loss_parallel": "distarray.torch.loss",
    "AttentionParallel": "distarray.torch.attention",
    "ColwiseParallel": "distarray.torch.styles",
    "DistTensor": "distarray.torch.tensor.dist_tensor",
    "DropoutParallel": "distarray.torch.styles",
    "ParallelStyle": "distarray.torch.handing",
    "PrepareModuleInput": "distarray.torch.preparing",
    "PrepareModuleInputOutput": "distarray.torch.preparing",
    "PrepareModuleOutput": "distarray.torch.preparing",
    "RowwiseParallel": "distarray.torch.styles",
    "SequenceParallel": "distarray.torch.styles",
    "distribute_module": "distarray.torch.modules",
    "distribute_parameter": "distarray.torch.parameters",
    "implicit_replication": "distarray.torch.tensor.operands",
    "manual_seed": "distarray.torch.streams",
    "module_state": "distarray.torch.states",
    "parallelize_module": "distarray.torch.plans",
    "CopyRequiredError": "distarray.errors",
    "distribute_tensor": "distarray.torch.tensor.distribute",
    "Work": "distarray.torch.collectives",
    "all_gather": "distarray.torch.collectives",
    "all_reduce": "distarray.torch.collectives",
    "all_reduce_": "distarray.torch.collectives",
    "all_to_all": "distarray.torch.collectives",
    "broadcast": "distarray.torch.collectives",
    "copy_to": "distarray.torch.borders",
    "gather_from": "distarray.torch.borders",
    "reduce_from": "distarray.torch.borders",
    "reduce_scatter": "distarray.torch.collectives",
    "scatter_to": "distarray.torch.borders",
    "clip_grad_norm_": "distarray.torch.optimizers",
    "data_parallel": "distarray.torch.replicas",
    "ensure_process_group": "distarray.torch.dtensor",
    "from_dtensor": "distarray.torch.dtensor",
    "from_torch": "distarray.torch.bridge",
    "fully_shard": "distarray.torch.sharding",
    "host": "distarray.torch.hosting",
    "no_sync": "distarray.torch.replicas",
    "optimizer_state": "distarray.torch.optimizers",
    "shares_memory": "distarray.torch.hosting",
    "start": "distarray.torch.launch",
    "to_dtensor": "distarray.torch.dtensor",
    "to_torch": "distarray.torch.bridge",
    "transfers": "distarray.torch.counting",
}

__all__ = list(_WHERE)
#: How users call its functions (see :mod:`distarray.comm.waits.stacks`).
SHOWN_AS = "distarray.torch."
_load, __dir__ = lazy_names(__name__, _WHERE)


def _to_tensor(x: DistArray) -> Any:
    """`DistArray.to_tensor`: torch is imported when it is called."""
    return import_module(f"{__name__}.tensor.dist_tensor").of_array(x)


tensor_of[:] = [_to_tensor]


def __getattr__(name: str) -> Any:
    try:
        return _load(name)
    except ModuleNotFoundError as error:
        if error.name == "torch":
            raise ImportError(
                f"distarray.torch.{name} needs PyTorch: pip install 'distarray-mpi[torch]'"
            ) from error
        raise
