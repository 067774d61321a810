"""Optimizers of distributed parameters: their state as arrays, and norms over all ranks.

For each parameter an optimizer stores tensors of the parameter's shape. A rank that has a part of
the parameter has the same part of these tensors.
"""

import math
from collections.abc import Iterable, Iterator

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from distarray.array import DistArray
from distarray.comm.mesh import DeviceMesh
from distarray.layout import Fold
from distarray.torch.bridge.plain import local_of, plainly
from distarray.torch.parameters.guards import prepare_optimizer
from distarray.torch.parameters.placed import Placed, placed_as

__all__ = ["clip_grad_norm_", "optimizer_state", "state_tensors"]


def state_tensors(optimizer: Optimizer) -> Iterator[tuple[int, str, Tensor, Placed | None]]:
    """Yield an optimizer's state: number of the parameter, name, tensor, and layout.

    The layout is None for scalars, and for parameters that are not distributed.
    """
    prepare_optimizer(optimizer)
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for number, parameter in enumerate(parameters):
        placed = placed_as(parameter)
        for name, value in optimizer.state.get(parameter, {}).items():
            if isinstance(value, torch.Tensor):
                value = local_of(value)
                alike = placed and value.ndim and tuple(value.shape) == placed.local_shape()
                yield number, name, value, placed.around if placed and alike else None


def optimizer_state(optimizer: Optimizer, module: Module) -> dict[str, DistArray]:
    """Return an optimizer's state as distributed arrays over its memory.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        An optimizer of parameters of `module`, after at least one step.
    module : torch.nn.Module
        A module that `parallelize_module`, `distribute_module`, `data_parallel` or `fully_shard`
        has distributed.

    Returns
    -------
    dict of str to DistArray
        Arrays in the layout of the parameter. Keys are the names of the parameter and of the state,
        such as "head.weight.exp_avg". Scalars, such as the count of steps, are left out. On the CPU
        nothing is copied.

    Cost
    ----
    None.

    Examples
    --------
    >>> import distarray, torch, distarray.torch as dt
    >>> model = dt.fully_shard(torch.nn.Linear(4, 6))
    >>> optimizer = torch.optim.Adam(model.parameters())
    >>> model(torch.ones(2, 4)).sum().backward()
    >>> optimizer.step()
    >>> dt.optimizer_state(optimizer, model)["weight.exp_avg"].shape
    (6, 4)
    """
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    found = {}
    for number, what, value, placed in state_tensors(optimizer):
        if placed is not None and id(parameters[number]) in names:
            name = f"{names[id(parameters[number])]}.{what}"
            found[name] = Placed(placed.mesh, placed.layout, placed.viewed).array(name, value)
    return found


def clip_grad_norm_(
    parameters: Module | Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
) -> Tensor:
    """Scale gradients so that their norm over all parameters of all ranks is at most `max_norm`.

    ``torch.nn.utils.clip_grad_norm_`` has the same result, with an allreduce for each parameter
    that is cut.

    Parameters
    ----------
    parameters : torch.nn.Module, torch.nn.Parameter or iterable of these
        The parameters. Parameters without a gradient are left out.
    max_norm : float
        The largest norm that is left unchanged.
    norm_type : float
        The order of the norm; ``inf`` for the largest absolute value.
    error_if_nonfinite : bool
        Raise an error if the norm is infinite or NaN. Otherwise gradients become NaN in this case,
        as in torch.

    Returns
    -------
    torch.Tensor
        The norm before scaling, a scalar with the same bits on every rank.

    Raises
    ------
    RuntimeError
        If the norm is not finite and `error_if_nonfinite` is set; on all ranks.

    Cost
    ----
    One allreduce of a scalar for each set of mesh dimensions that cuts parameters; usually one or
    two.

    Examples
    --------
    >>> import distarray, torch, distarray.torch as dt
    >>> model = dt.fully_shard(torch.nn.Linear(4, 1, bias=False))
    >>> model(torch.ones(1, 4)).sum().backward()
    >>> dt.clip_grad_norm_(model, 1.0)
    tensor(2.)
    >>> dt.clip_grad_norm_(model, 1.0).round(decimals=3)
    tensor(1.)
    """
    if isinstance(parameters, torch.nn.Module):
        parameters = parameters.parameters()
    elif isinstance(parameters, torch.Tensor):
        parameters = [parameters]
    with torch.no_grad(), plainly():
        return _clipped(
            [p for p in parameters if isinstance(p, torch.Tensor)],
            max_norm,
            norm_type,
            error_if_nonfinite,
        )


#: Norms of this rank's parts, by mesh and mesh dimensions that cut the parameter.
_Shares = dict[tuple[DeviceMesh, tuple[int, ...]] | None, list[Tensor]]


def _clipped(
    parameters: list[Tensor], max_norm: float, norm_type: float, error_if_nonfinite: bool
) -> Tensor:
    shares: _Shares = {}
    for parameter in parameters:
        placed = placed_as(parameter)
        cutting = None if placed is None else _cutting(placed.around)
        own = shares.setdefault(cutting, [])  # also where this rank has no gradient
        if parameter.grad is not None:
            wide = torch.float64 if parameter.device.type in ("cpu", "cuda") else torch.float32
            own.append(torch.linalg.vector_norm(parameter.grad, norm_type, dtype=wide))
    total = _folded(shares, norm_type)
    grads = [p.grad for p in parameters if p.grad is not None]
    if error_if_nonfinite and not math.isfinite(total):
        raise RuntimeError(
            f"clip_grad_norm_: the norm of order {norm_type} of all gradients is {total}; they "
            "are not clipped"
        )
    factor = max_norm / (total + 1e-6)
    if grads and not factor >= 1:  # True for NaN, so that NaN spreads to all gradients
        torch._foreach_mul_(grads, factor)
    like = grads[0] if grads else torch.zeros(())
    return like.new_tensor(total)


def _cutting(placed: Placed) -> tuple[DeviceMesh, tuple[int, ...]] | None:
    """Return the mesh and its dimensions that cut a parameter; None if none does."""
    dims = tuple(sorted({m for cut in placed.layout.cuts for m in cut.mesh_dims}))
    return (placed.mesh, dims) if dims else None


def _folded(shares: _Shares, norm_type: float) -> float:
    """Compute the norm of all gradients from the norms of this rank's parts."""
    extreme = np.isinf(norm_type)
    totals = []
    for where, norms in shares.items():
        parts = np.array([float(norm) for norm in norms])
        part = parts.max(initial=0.0) if extreme else (parts**norm_type).sum()
        if where is not None:
            mesh, dims = where
            fold = Fold.MAX if extreme else Fold.SUM
            part = mesh.subgroup(dims).allreduce(np.array(part), fold, "norm of gradients")
        totals.append(float(part))
    return float(np.max(totals, initial=0.0)) if extreme else sum(totals) ** (1 / norm_type)
