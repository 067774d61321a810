"""Distributed tensors beside plain ones, and beside those of other meshes."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor

from distarray.comm import DeviceMesh
from distarray.errors import MeshError
from distarray.torch.tensor.table import Row

__all__ = [
    "DifferentIndexError",
    "PlainOperandError",
    "common_mesh",
    "implicit_replication",
    "in_backward",
    "is_number",
    "is_refused",
    "plain_operand",
    "replicating",
]

_replicated: ContextVar[bool] = ContextVar("distarray_implicit_replication", default=False)


@contextmanager
def implicit_replication() -> Iterator[None]:
    """Take plain tensors beside distributed ones as replicated, while the block lasts.

    Every rank has to bring the same values; a gradient comes back as a plain tensor, whole and the
    same on every rank. Without it, plain tensors of more than one element are refused: they do not
    say how they are laid out.

    Examples
    --------
    >>> import distarray, torch, distarray.torch as dt
    >>> mesh = distarray.default_mesh()
    >>> x = dt.DistTensor.from_local(torch.ones(2, 3), mesh, [distarray.Shard(0)])
    >>> with dt.implicit_replication():
    ...     y = x + torch.arange(3.0)
    >>> y.placements
    (Shard(0),)
    """
    with replicating():
        yield


@contextmanager
def replicating() -> Iterator[None]:
    """Take plain tensors as replicated that torch makes inside of an operator."""
    token = _replicated.set(True)
    try:
        yield
    finally:
        _replicated.reset(token)


class PlainOperandError(RuntimeError):
    """A plain tensor beside distributed ones, which does not say how it is laid out."""

    # A TypeError would be hidden by Python's operators, which then ask the other operand.
    def __init__(self, name: str, x: Tensor) -> None:
        super().__init__(
            f"{name} was given a distributed tensor and a plain one of shape {tuple(x.shape)}, "
            "which does not say how it is laid out: DistTensor.from_local(tensor, mesh, "
            "placements) says it; what every rank has whole goes in "
            "`with distarray.torch.implicit_replication():`"
        )


class DifferentIndexError(PlainOperandError):
    """A plain index beside a parameter of all ranks that is another one on each."""

    def __init__(self, name: str, called: str) -> None:
        RuntimeError.__init__(
            self,
            f"{name} was given {called}, which is distributed, and a plain index that differs "
            "between the ranks: each would get part of another's result. Call the module that "
            "distributes the parameter, whose forward takes every rank's own; or say with "
            "DistTensor.from_local(index, mesh, placements) how the indices are laid out",
        )


def plain_operand(row: Row, x: Tensor) -> tuple[Any, ...]:
    """What decisions know of a plain tensor beside distributed ones; an error if it is refused."""
    nothing = x.shape == (0,)  # which torch.cat ignores, and caches of keys and values begin with
    if not row.plain and not nothing and is_refused(x):
        raise PlainOperandError(row.name, x)
    if x.requires_grad and torch.is_grad_enabled() and not hasattr(x, _WATCHED):
        _watch(x)
    return "plain", x.shape, x.stride(), x.dtype, x.device


#: The attribute of plain tensors whose gradients are made plain.
_WATCHED = "_distarray_watched"


def _watch(x: Any) -> None:
    """Have the gradient of a plain tensor made plain, before the program's own hooks see it."""
    x.register_hook(_made_plain)
    hooks = x._backward_hooks
    *before, last = hooks.items()
    hooks.clear()  # torch reads them in the order in which they came
    hooks.update([last, *before])
    setattr(x, _WATCHED, True)


def _made_plain(grad: Any) -> Tensor:
    """The gradient of a plain tensor, which operators on distributed ones find distributed.

    What the tensor was computed from may be parts that differ between ranks, which know nothing of
    distributed gradients.
    """
    return grad.full_tensor() if hasattr(grad, "_spec") else grad


def is_number(x: Tensor) -> bool:
    """Whether a plain tensor is one number, perhaps stretched, or none: a shape on "meta".

    So are the zeros that torch's forward derivatives put in the place of a derivative that an
    operand does not have.
    """
    if x.numel() == 1 or x.is_meta:
        return True
    return all(step == 0 or extent == 1 for step, extent in zip(x.stride(), x.shape))


def is_refused(x: Tensor) -> bool:
    """Whether a plain tensor cannot be taken as replicated.

    In a backward pass plain tensors come from torch's own formulas, and from what a forward pass
    took as replicated.
    """
    whole = _replicated.get() or is_number(x)
    return not whole and not in_backward()


def in_backward() -> bool:
    """Whether autograd goes backward here."""
    return bool(torch._C._current_graph_task_id() != -1)


def common_mesh(cls: Any, name: str, operands: Sequence[Any]) -> DeviceMesh:
    """The mesh of all distributed operands; MeshError if there are several."""
    mesh: DeviceMesh | None = None
    for x in operands:
        if type(x) is cls:
            own = x._spec.mesh
            if mesh is not None and own is not mesh and own != mesh:
                raise MeshError(
                    f"{name} was given tensors of two meshes, {mesh!r} and {own!r}: a tensor stays "
                    "on its mesh; x.full_tensor() is a plain one, for distribute_tensor there"
                )
            mesh = own if mesh is None else mesh
    assert mesh is not None
    return mesh
