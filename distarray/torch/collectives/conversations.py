"""Collectives on tensors, without gradients; each makes one collective call of a group."""

import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from distarray.array.divergence import verify_among, verify_equal
from distarray.comm.algorithms import begin_allgather, begin_reduce_scatter, joined
from distarray.comm.devices import on_device
from distarray.comm.group import Group
from distarray.comm.mesh import DeviceMesh
from distarray.comm.pending import FINISHED, Pending
from distarray.comm.talkers import allow
from distarray.config import config
from distarray.errors import DivergenceError
from distarray.layout.placement import Fold
from distarray.torch.bridge.plain import local_of
from distarray.torch.bridge.transforms import is_traced
from distarray.torch.collectives.blocks import (
    foldable,
    folded_back,
    folds_in_place,
    movable,
    moved_back,
    plain,
    refill,
)
from distarray.torch.collectives.graphs import Like, conversation, leave_out
from distarray.typing import Array

__all__ = [
    "Coming",
    "MeshDim",
    "Sizes",
    "Work",
    "along",
    "begin_fold",
    "begin_gather",
    "begin_scatter",
    "chunk_sizes",
    "coming_sizes",
    "cut_sizes",
    "folded",
    "gathered",
    "own_part",
    "part_sizes",
    "scattered",
    "sent",
    "swapped",
    "verify_replicas",
]

MeshDim = int | str | tuple[int | str, ...] | None
Sizes = int | Sequence[int] | None
Parts = tuple[int, ...]

#: Functions that accept tensors of different shapes on the ranks.
_OF_PARTS = ("all_gather", "all_to_all", "gather_from")


def _goes_backward() -> bool:
    """Return True in autograd's thread of a device, while the calling thread waits for it."""
    on_its_own = isinstance(threading.current_thread(), threading._DummyThread)
    return on_its_own and bool(torch._C._current_graph_task_id() != -1)


allow(_goes_backward)


# -- arguments --------------------------------------------------------------------------------


def along(call: str, tensor: Tensor, mesh: DeviceMesh, mesh_dim: MeshDim) -> tuple[Tensor, Group]:
    """Return the tensor, checked to be sendable, and the group of ranks that communicate."""
    tensor = plain(call, tensor)
    if type(mesh) is not DeviceMesh:
        raise TypeError(f"{call}: mesh is a distarray.DeviceMesh, not {type(mesh).__name__}")
    if mesh_dim is None:
        group = mesh.group
    else:
        group = mesh.subgroup(mesh_dim if isinstance(mesh_dim, tuple) else (mesh_dim,))
    if config.settings.check and not is_traced(tensor):
        shape = f"{tensor.ndim}-d" if call in _OF_PARTS else tuple(tensor.shape)
        verify_among(group, f"{call}({tensor.dtype} {shape}, {mesh_dim=})")
    return tensor, group


def verify_replicas(group: Group, tensor: Tensor, user: str) -> None:
    """Under ``config.check``, raise on all ranks unless the tensor is equal on all of them."""
    if config.settings.check and group.size > 1 and not is_traced(tensor):
        block = movable(local_of(tensor).detach())
        verify_equal(group, block, f"a replicated {tensor.dtype} tensor for {user}")


def chunk_sizes(extent: int, count: int) -> Parts:
    """Return the extents of the blocks into which ``Shard`` cuts a dimension."""
    block = -(-extent // count)
    return tuple([max(0, min(block, extent - part * block)) for part in range(count)])


def part_sizes(
    call: str, tensor: Tensor, group: Group, dim: int, sizes: Sizes
) -> tuple[int, Parts]:
    """Return the dimension as a non-negative number, and the extent along it on every rank."""
    dim = _dim(call, tensor, dim)
    extent = tensor.shape[dim]
    if sizes is None:
        return dim, _gathered_extents(call, tensor, group, dim, (dim,))
    parts = _parts(call, group, sizes)
    if group.rank >= 0 and parts[group.rank] != extent:
        raise ValueError(
            f"{call}: sizes {parts} along dimension {dim} say that rank {group.rank} has "
            f"{parts[group.rank]}; it has a tensor of shape {tuple(tensor.shape)}"
        )
    return dim, parts


def cut_sizes(call: str, tensor: Tensor, group: Group, dim: int, sizes: Sizes) -> tuple[int, Parts]:
    """Return the dimension as a non-negative number, and the extents of the parts to cut."""
    dim = _dim(call, tensor, dim)
    extent = tensor.shape[dim]
    parts = _parts(call, group, extent if sizes is None else sizes)
    if sum(parts) != extent:
        raise ValueError(
            f"{call}: sizes {parts} do not cut dimension {dim} of a tensor of shape "
            f"{tuple(tensor.shape)}"
        )
    return dim, parts


def coming_sizes(
    tensor: Tensor, group: Group, split_dim: int, gone: Parts, dim: int, sizes: Sizes
) -> tuple[int, Parts]:
    """Return the dimension along which all_to_all joins, and the extents of the received parts."""
    dim = _dim("all_to_all", tensor, dim)
    if sizes is not None:
        return dim, _parts("all_to_all", group, sizes)
    if dim != split_dim:
        return dim, _gathered_extents("all_to_all", tensor, group, dim, (dim,))
    if group.rank < 0:
        return dim, gone
    if is_traced(tensor):
        leave_out("all_to_all")
    columns = group.allgather(np.array(gone), "all_to_all: sizes")
    return dim, tuple(columns[:, group.rank].tolist())


def _dim(call: str, tensor: Tensor, dim: int) -> int:
    count: int = tensor.ndim
    if not -count <= dim < count:
        raise IndexError(
            f"{call}: dimension {dim} is out of range for a tensor of {count} dimension(s)"
        )
    return dim % count


def _parts(call: str, group: Group, sizes: int | Sequence[int]) -> Parts:
    if isinstance(sizes, int):
        return chunk_sizes(sizes, group.size)
    parts = tuple([int(size) for size in sizes])
    if len(parts) != group.size or min(parts) < 0:
        raise ValueError(f"{call}: {group.size} rank(s) need as many sizes, not {parts}")
    return parts


def _gathered_extents(call: str, tensor: Tensor, group: Group, dim: int, free: Parts) -> Parts:
    """Gather the ranks' extents along `dim`; raise if other extents differ; collective."""
    if group.rank < 0:
        return (tensor.shape[dim],)
    if is_traced(tensor):
        leave_out(call)
    extents = [0 if d in free else n for d, n in enumerate(tensor.shape)]
    mine = np.array([tensor.ndim, tensor.element_size(), tensor.shape[dim], hash(tuple(extents))])
    rows = group.allgather(mine, f"{call}: sizes")
    alike = rows[:, [0, 1, 3]]
    if (alike != alike[0]).any():
        texts = group.allgather_object(f"{tensor.dtype} {tuple(tensor.shape)}")
        lines = "".join([f"\n    rank {rank}  {text}" for rank, text in enumerate(texts)])
        raise DivergenceError(
            f"{call}: the ranks' tensors differ in more than dimension {dim}:{lines}"
        )
    return tuple(rows[:, 2].tolist())


# -- collective calls -------------------------------------------------------------------------


def _like_folded(tensor: Tensor, group: Group, fold: Fold) -> Like:
    return Like(tensor.shape, torch.bool if fold in (Fold.ANY, Fold.ALL) else tensor.dtype)


@conversation(_like_folded)
def folded(tensor: Tensor, group: Group, fold: Fold) -> Tensor:
    """Fold the tensors of all ranks."""
    block = foldable(tensor, fold, group)
    _compare(group, block.size, block.itemsize)
    return folded_back(group.allreduce(block, fold), tensor, fold)


def _with(tensor: Tensor, group: Group, extents: dict[int, int], dtype: Any = None) -> Like:
    """Return a tensor's description with other extents; unchanged on ranks outside of the group."""
    changed = extents if group.rank >= 0 else {}
    shape = [changed.get(dim, extent) for dim, extent in enumerate(tensor.shape)]
    return Like(shape, tensor.dtype if dtype is None else dtype)


@conversation(lambda tensor, group, dim, parts: _with(tensor, group, {dim: sum(parts)}))
def gathered(tensor: Tensor, group: Group, dim: int, parts: Parts) -> Tensor:
    """Concatenate the tensors of all ranks along a dimension."""
    if group.rank < 0:
        return tensor
    block = np.moveaxis(movable(tensor, group), dim, 0)
    _compare(group, sum(parts) * math.prod(block.shape[1:]))
    whole = joined(group.allgather_varied(block, parts))
    return moved_back(np.moveaxis(whole, 0, dim), tensor)


def _like_scattered(tensor: Tensor, group: Group, dim: int, parts: Parts, fold: Fold) -> Like:
    dtype = _like_folded(tensor, group, fold).dtype if group.rank >= 0 else tensor.dtype
    return _with(tensor, group, {dim: parts[group.rank]}, dtype)


@conversation(_like_scattered)
def scattered(tensor: Tensor, group: Group, dim: int, parts: Parts, fold: Fold) -> Tensor:
    """Return this rank's part of the fold of all ranks' tensors."""
    if group.rank < 0:
        return tensor
    block = foldable(tensor, fold, group)
    _compare(group, block.size)
    blocks = _pieces(block, dim, parts)
    return folded_back(group.reduce_scatter(blocks, fold), tensor, fold)


def _like_swapped(
    tensor: Tensor, group: Group, split_dim: int, gone: Parts, concat_dim: int, come: Parts
) -> Like:
    return _with(tensor, group, {split_dim: gone[group.rank], concat_dim: sum(come)})


@conversation(_like_swapped)
def swapped(
    tensor: Tensor, group: Group, split_dim: int, gone: Parts, concat_dim: int, come: Parts
) -> Tensor:
    """Exchange parts among the ranks, and concatenate the parts for this rank."""
    if group.rank < 0:
        return tensor
    block = movable(tensor, group)
    shape = list(block.shape)
    shape[split_dim] = gone[group.rank]
    shape[concat_dim] = sum(come)
    result = np.empty_like(block, shape=tuple(shape), order="C")
    going, coming = _pieces(block, split_dim, gone), _pieces(result, concat_dim, come)
    others = [rank for rank in range(group.size) if rank != group.rank]
    group.exchange(
        [(rank, going[rank]) for rank in others if going[rank].size],
        [(rank, coming[rank]) for rank in others if coming[rank].size],
        "all_to_all",
    )
    coming[group.rank][...] = going[group.rank]
    return moved_back(result, tensor)


@conversation(lambda tensor, group, root: Like(tensor.shape, tensor.dtype))
def sent(tensor: Tensor, group: Group, root: int) -> Tensor:
    """Return a copy of the tensor of rank `root`."""
    block = movable(tensor, group)
    here = block.copy() if group.rank in (root, -1) else np.empty_like(block, order="C")
    return moved_back(group.broadcast(here, root), tensor)


def own_part(tensor: Tensor, group: Group, dim: int, parts: Parts) -> Tensor:
    """Return a copy of this rank's part of a tensor; nothing is sent."""
    if group.rank < 0:
        return tensor.clone()
    return tensor.narrow(dim, sum(parts[: group.rank]), parts[group.rank]).clone()


def _compare(group: Group, count: int, itemsize: int = 0) -> None:
    """Check that the ranks' batches have equal sizes, if the ranks can compare in shared memory."""
    board = group.board() if group.rank >= 0 and group.size > 1 else None
    if board is not None:
        board.compare(count, itemsize)


def _pieces(block: Array, dim: int, parts: Parts) -> list[Array]:
    """Return views of consecutive pieces along a dimension."""
    before = (slice(None),) * dim
    pieces, start = [], 0
    for size in parts:
        pieces.append(block[(*before, slice(start, start + size))])
        start += size
    return pieces


# -- begun here, finished later ---------------------------------------------------------------


class Coming:
    """Tensor that is being received."""

    __slots__ = ("_pending", "_result")

    def __init__(self, pending: Pending, result: Callable[[], Tensor]) -> None:
        self._pending = pending
        self._result: Callable[[], Tensor] | None = result

    def poke(self) -> bool:
        """Let MPI progress without waiting; return True if nothing is left to wait for."""
        return self._pending.poke()

    def wait(self) -> Tensor:
        """Wait for the tensor and return it; to be called once, as the tensor is not kept."""
        assert self._result is not None
        self._pending.wait()
        result, self._result, self._pending = self._result, None, FINISHED
        return result()


def begin_gather(tensor: Tensor, group: Group, parts: Parts) -> Coming:
    """Begin to gather along the first dimension; the caller may change the tensor meanwhile."""
    views, pending = begin_allgather(group, movable(tensor, group), parts)
    return Coming(pending, lambda: moved_back(joined(views), tensor))


def begin_scatter(tensor: Tensor, group: Group, parts: Parts, fold: Fold) -> Coming:
    """Begin to fold and cut along the first dimension; the caller must not change the tensor."""
    blocks = _pieces(foldable(tensor, fold, group), 0, parts)
    total, pending = begin_reduce_scatter(group, blocks, fold)
    return Coming(pending, lambda: folded_back(total, tensor, fold))


# -- in place ---------------------------------------------------------------------------------


class Work:
    """In-place fold that may still be in progress.

    Examples
    --------
    >>> import distarray, torch, distarray.torch as dt
    >>> mesh = distarray.default_mesh()
    >>> x = torch.ones(2)
    >>> work = dt.all_reduce_(x, mesh, async_op=True)
    >>> work.wait() is x
    True
    """

    __slots__ = ("_finish", "_pending", "_tensor")

    def __init__(self, tensor: Tensor, pending: Pending, finish: Callable[[], None]) -> None:
        self._tensor = tensor
        self._pending: Pending | None = pending
        self._finish = finish

    def poke(self) -> bool:
        """Let MPI progress without waiting; return True if nothing is left to wait for."""
        return self._pending is None or self._pending.poke()

    def wait(self) -> Tensor:
        """Wait for the fold and return the tensor, which then holds the result."""
        if self._pending is not None:
            self._pending.wait()
            self._pending = None
            self._finish()
        return self._tensor


def begin_fold(tensor: Tensor, group: Group, fold: Fold, async_op: bool) -> Work:
    """Begin to fold the ranks' tensors in place; without `async_op`, finish, too."""
    ready = foldable(tensor, fold, group)
    direct = folds_in_place(tensor, fold) and not on_device(ready)
    block = ready if direct else ready.copy("C")
    # A mean is computed as a sum, which `finish` divides.
    count = group.size if fold is Fold.AVG and group.rank >= 0 else 1
    summing = Fold.SUM if fold is Fold.AVG else fold

    def finish() -> None:
        if count > 1:
            np.divide(block, count, out=block)
        if direct:
            torch.autograd.graph.increment_version(tensor)
        else:
            refill(tensor, block)

    if not block.size:
        return Work(tensor, FINISHED, finish)
    if async_op:
        return Work(tensor, group.begin_allreduce(block, summing), finish)
    group.allreduce_in_place(block, summing)
    work = Work(tensor, FINISHED, finish)
    work.wait()
    return work
