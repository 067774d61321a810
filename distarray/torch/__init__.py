"""The torch bridge: blocks and tensors that share memory, and torch models on a device mesh.

Everything here works on CPU, CUDA and HPU (Intel Gaudi) tensors. It communicates over MPI, without
``torch.distributed``. Names are loaded on first use, so importing this package imports no torch.
"""

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from distarray.array import DistArray
from distarray.array.exporting import tensor_of
from distarray.lazy import lazy_names

if TYPE_CHECKING:
    from distarray.errors import CopyRequiredError as CopyRequiredError
    from distarray.torch.bridge.counting import transfers as transfers
    from distarray.torch.bridge.dtensor import ensure_process_group as ensure_process_group
    from distarray.torch.bridge.dtensor import from_dtensor as from_dtensor
    from distarray.torch.bridge.dtensor import to_dtensor as to_dtensor
    from distarray.torch.bridge.hosting import host as host
    from distarray.torch.bridge.hosting import shares_memory as shares_memory
    from distarray.torch.bridge.launch import start as start
    from distarray.torch.bridge.sharing import from_torch as from_torch
    from distarray.torch.bridge.sharing import to_torch as to_torch
    from distarray.torch.collectives.borders import copy_to as copy_to
    from distarray.torch.collectives.borders import gather_from as gather_from
    from distarray.torch.collectives.borders import reduce_from as reduce_from
    from distarray.torch.collectives.borders import scatter_to as scatter_to
    from distarray.torch.collectives.functions import Work as Work
    from distarray.torch.collectives.functions import all_gather as all_gather
    from distarray.torch.collectives.functions import all_reduce as all_reduce
    from distarray.torch.collectives.functions import all_reduce_ as all_reduce_
    from distarray.torch.collectives.functions import all_to_all as all_to_all
    from distarray.torch.collectives.functions import broadcast as broadcast
    from distarray.torch.collectives.functions import reduce_scatter as reduce_scatter
    from distarray.torch.modules.attention import AttentionParallel as AttentionParallel
    from distarray.torch.modules.distribute import distribute_module as distribute_module
    from distarray.torch.modules.experts import ExpertParallel as ExpertParallel
    from distarray.torch.modules.handing import ParallelStyle as ParallelStyle
    from distarray.torch.modules.loss import loss_parallel as loss_parallel
    from distarray.torch.modules.loss import parallel_cross_entropy as parallel_cross_entropy
    from distarray.torch.modules.plans import parallelize_module as parallelize_module
    from distarray.torch.modules.preparing import PrepareModuleInput as PrepareModuleInput
    from distarray.torch.modules.preparing import (
        PrepareModuleInputOutput as PrepareModuleInputOutput,
    )
    from distarray.torch.modules.preparing import PrepareModuleOutput as PrepareModuleOutput
    from distarray.torch.modules.replicas import data_parallel as data_parallel
    from distarray.torch.modules.replicas import no_sync as no_sync
    from distarray.torch.modules.styles import ColwiseParallel as ColwiseParallel
    from distarray.torch.modules.styles import DropoutParallel as DropoutParallel
    from distarray.torch.modules.styles import RowwiseParallel as RowwiseParallel
    from distarray.torch.modules.styles import SequenceParallel as SequenceParallel
    from distarray.torch.parameters.distribute import distribute_parameter as distribute_parameter
    from distarray.torch.parameters.optimizers import clip_grad_norm_ as clip_grad_norm_
    from distarray.torch.parameters.optimizers import optimizer_state as optimizer_state
    from distarray.torch.parameters.states import module_state as module_state
    from distarray.torch.sharded.sharding import fully_shard as fully_shard
    from distarray.torch.tensor.dist_tensor import DistTensor as DistTensor
    from distarray.torch.tensor.distribute import distribute_tensor as distribute_tensor
    from distarray.torch.tensor.operands import implicit_replication as implicit_replication
    from distarray.torch.tensor.streams import manual_seed as manual_seed

#: The module that defines each public name.
_WHERE = {
    "parallel_cross_entropy": "distarray.torch.modules.loss",
    "loss_parallel": "distarray.torch.modules.loss",
    "AttentionParallel": "distarray.torch.modules.attention",
    "ColwiseParallel": "distarray.torch.modules.styles",
    "DistTensor": "distarray.torch.tensor.dist_tensor",
    "DropoutParallel": "distarray.torch.modules.styles",
    "ExpertParallel": "distarray.torch.modules.experts",
    "ParallelStyle": "distarray.torch.modules.handing",
    "PrepareModuleInput": "distarray.torch.modules.preparing",
    "PrepareModuleInputOutput": "distarray.torch.modules.preparing",
    "PrepareModuleOutput": "distarray.torch.modules.preparing",
    "RowwiseParallel": "distarray.torch.modules.styles",
    "SequenceParallel": "distarray.torch.modules.styles",
    "distribute_module": "distarray.torch.modules.distribute",
    "distribute_parameter": "distarray.torch.parameters.distribute",
    "implicit_replication": "distarray.torch.tensor.operands",
    "manual_seed": "distarray.torch.tensor.streams",
    "module_state": "distarray.torch.parameters.states",
    "parallelize_module": "distarray.torch.modules.plans",
    "CopyRequiredError": "distarray.errors",
    "distribute_tensor": "distarray.torch.tensor.distribute",
    "Work": "distarray.torch.collectives.functions",
    "all_gather": "distarray.torch.collectives.functions",
    "all_reduce": "distarray.torch.collectives.functions",
    "all_reduce_": "distarray.torch.collectives.functions",
    "all_to_all": "distarray.torch.collectives.functions",
    "broadcast": "distarray.torch.collectives.functions",
    "copy_to": "distarray.torch.collectives.borders",
    "gather_from": "distarray.torch.collectives.borders",
    "reduce_from": "distarray.torch.collectives.borders",
    "reduce_scatter": "distarray.torch.collectives.functions",
    "scatter_to": "distarray.torch.collectives.borders",
    "clip_grad_norm_": "distarray.torch.parameters.optimizers",
    "data_parallel": "distarray.torch.modules.replicas",
    "ensure_process_group": "distarray.torch.bridge.dtensor",
    "from_dtensor": "distarray.torch.bridge.dtensor",
    "from_torch": "distarray.torch.bridge.sharing",
    "fully_shard": "distarray.torch.sharded.sharding",
    "host": "distarray.torch.bridge.hosting",
    "no_sync": "distarray.torch.modules.replicas",
    "optimizer_state": "distarray.torch.parameters.optimizers",
    "shares_memory": "distarray.torch.bridge.hosting",
    "start": "distarray.torch.bridge.launch",
    "to_dtensor": "distarray.torch.bridge.dtensor",
    "to_torch": "distarray.torch.bridge.sharing",
    "transfers": "distarray.torch.bridge.counting",
}

__all__ = list(_WHERE)
#: Prefix of function names in messages to users (see :mod:`distarray.comm.waits.stacks`).
SHOWN_AS = "distarray.torch."
_load, __dir__ = lazy_names(__name__, _WHERE)


#: Names that do not import torch. `start` must run before torch is imported: it sets variables that
#: the Gaudi software reads at that time.
_BEFORE_TORCH = ("CopyRequiredError", "start", "transfers")
#: The oldest supported torch; the extra `torch` requires it, too. 2.7 does not report the hooks on
#: tensors that autograd saves, and the inverse of a real Fourier transform fails in 2.8.
OLDEST = (2, 9)


@cache
def _need_torch(name: str) -> None:
    """Import torch for a public name of this package; raise ImportError if missing or too old."""
    wanted = f"distarray.torch.{name} needs PyTorch {'.'.join(map(str, OLDEST))} or newer"
    try:
        found = import_module("torch").__version__
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError(f"{wanted}: pip install 'distarray-mpi[torch]'") from error
    # The rest of a version differs by build: 2.9.1+cpu, 2.9.0a0+0a1b2c3, 2.7.1+hpu.
    if tuple(map(int, found.split(".")[:2])) < OLDEST:
        raise ImportError(
            f"{wanted}, and this is {found}: pip install --upgrade 'distarray-mpi[torch]'"
        )


def _to_tensor(x: DistArray) -> Any:
    """Implement `DistArray.to_tensor`, importing torch at the first call."""
    _need_torch("DistTensor")
    return import_module(f"{__name__}.tensor.dist_tensor").of_array(x)


tensor_of[:] = [_to_tensor]


def __getattr__(name: str) -> Any:
    if name in _WHERE and name not in _BEFORE_TORCH:
        _need_torch(name)
    return _load(name)
