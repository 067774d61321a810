"""Checks of operands: plain tensors beside distributed ones, and tensors of several meshes."""

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
    """Take plain tensors beside distributed ones as replicated, within the context.

    Every rank must pass the same values. The gradient of such a tensor is a plain tensor, whole and
    the same on every rank. Outside of the context, plain tensors of more than one element are
    refused: their layout is unknown.

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
    """Take plain tensors that torch makes inside of an operator as replicated."""
    token = _replicated.set(True)
    try:
        yield
    finally:
        _replicated.reset(token)


class PlainOperandError(RuntimeError):
    """Error for a plain tensor beside distributed ones, whose layout is unknown."""

    # Not a TypeError: Python's operators would hide it and try the other operand.
    def __init__(self, name: str, x: Tensor) -> None:
        super().__init__(
            f"{name} was given a distributed tensor and a plain one of shape {tuple(x.shape)}, "
            "which does not say how it is laid out: DistTensor.from_local(tensor, mesh, "
            "placements) says it; what every rank has whole goes in "
            "`with distarray.torch.implicit_replication():`"
        )


class DifferentIndexError(PlainOperandError):
    """Error for a plain index that differs between ranks, beside a parameter of all ranks."""

    def __init__(self, name: str, called: str) -> None:
        RuntimeError.__init__(
            self,
            f"{name} was given {called}, which is distributed, and a plain index that differs "
            "between the ranks: each would get part of another's result. Call the module that "
            "distributes the parameter, whose forward takes every rank's own; or say with "
            "DistTensor.from_local(index, mesh, placements) how the indices are laid out",
        )


def plain_operand(row: Row, x: Tensor) -> tuple[Any, ...]:
    """Return the key entry of a plain tensor beside distributed ones; raises if it is refused."""
    nothing = x.shape == (0,)  # torch.cat ignores it, and key-value caches begin with it
    if not row.plain and not nothing and is_refused(x):
        raise PlainOperandError(row.name, x)
    if x.requires_grad and torch.is_grad_enabled() and not hasattr(x, _WATCHED):
        _watch(x)
    return "plain", x.shape, x.stride(), x.dtype, x.device


#: Attribute of plain tensors whose gradients are made plain.
_WATCHED = "_distarray_watched"


def _watch(x: Any) -> None:
    """Add a hook that makes the gradient of a plain tensor plain, before the program's hooks."""
    x.register_hook(_made_plain)
    hooks = x._backward_hooks
    *before, last = hooks.items()
    hooks.clear()  # torch calls hooks in the order of insertion
    hooks.update([last, *before])
    setattr(x, _WATCHED, True)


def _made_plain(grad: Any) -> Tensor:
    """Return the gradient of a plain tensor as a plain tensor; operators make it distributed.

    The plain tensor may be computed from parts that differ between ranks, and their operators do
    not handle distributed gradients.
    """
    return grad.full_tensor() if hasattr(grad, "_spec") else grad


def is_number(x: Tensor) -> bool:
    """Return True if a plain tensor is one number, perhaps expanded, or a "meta" tensor.

    The zeros that torch's forward derivatives use for an operand without a derivative are such
    tensors.
    """
    if x.numel() == 1 or x.is_meta:
        return True
    return all(step == 0 or extent == 1 for step, extent in zip(x.stride(), x.shape))


def is_refused(x: Tensor) -> bool:
    """Return True if a plain tensor cannot be taken as replicated.

    In a backward pass plain tensors come from torch's own formulas, and from tensors that the
    forward pass took as replicated.
    """
    whole = _replicated.get() or is_number(x)
    return not whole and not in_backward()


def in_backward() -> bool:
    """Return True if autograd runs a backward pass in this thread."""
    return bool(torch._C._current_graph_task_id() != -1)


def common_mesh(cls: Any, name: str, operands: Sequence[Any]) -> DeviceMesh:
    """Return the mesh of all distributed operands; raises MeshError if there are several."""
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
