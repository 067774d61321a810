"""Attention along a ring: queries stay where they are, and keys and values travel.

Each rank has some of the queries, and meets the keys and values of all ranks in turn, as they go
from each rank to the next. Beside its result it keeps the logarithm of the sum of exponentials, by
which softmaxes over some of the keys become one over all of them (Milakov and Gimelshein, "Online
normalizer calculation for softmax", 2018; Liu, Zaharia and Abbeel, "Ring Attention with Blockwise
Transformers", 2023). A rank has its own keys, those that it works with, and those that are coming.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from distarray.comm import DeviceMesh
from distarray.comm.pending import FINISHED, Pending
from distarray.layout import Cut
from distarray.torch.collectives.blocks import movable

__all__ = ["attended", "attended_backward"]

#: What the messages are for.
NOTE = "keys and values around a ring"
_attend = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
_attend_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default


class _Ring:
    """The ranks that have the keys of the same heads and samples, and what goes around.

    Parameters
    ----------
    keys : Cut
        How the keys are cut along the sequence.
    mesh : DeviceMesh
    causal : bool
        Whether queries have nothing to do with later keys; both are cut alike then.
    """

    def __init__(self, keys: Cut, mesh: DeviceMesh, causal: bool) -> None:
        assert mesh.coords is not None
        self.group, self.causal = mesh.subgroup(keys.mesh_dims), causal
        self.place, self.size = keys.part(mesh.coords), keys.parts
        self._lengths = [stop - start for start, stop in map(keys.interval, range(keys.parts))]

    def owner(self, step: int) -> int:
        """Whose keys are here in a step."""
        return (self.place - step) % self.size

    def meets(self, query: Tensor, key: Tensor, step: int) -> bool:
        """Whether the queries here have something to do with the keys that are here in a step."""
        later = self.causal and self.owner(step) > self.place
        return bool(query.numel() and key.numel()) and not later

    def within(self, step: int) -> bool:
        """Whether some of these keys are later than some of the queries."""
        return self.causal and self.owner(step) == self.place

    def begin(self, tensors: Sequence[Tensor], step: int) -> tuple[list[Tensor], Pending]:
        """Begin to hand tensors on to the next rank, and to take those of the one before."""
        length = self._lengths[self.owner(step + 1)]
        coming = [x.new_empty((*x.shape[:2], length, x.shape[3])) for x in tensors]
        following, before = (self.place + 1) % self.size, (self.place - 1) % self.size
        sends = [(following, movable(x.contiguous())) for x in tensors if x.numel()]
        receives = [(before, movable(x)) for x in coming if x.numel()]
        if not (sends or receives):
            return coming, FINISHED
        return coming, self.group.begin_exchange(sends, receives, NOTE)


def attended(
    keys: Cut,
    mesh: DeviceMesh,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """The attention of this rank's queries to all keys, and the logarithms; collective."""
    ring = _Ring(keys, mesh, is_causal)
    found, held, pending = None, [key, value], FINISHED
    coming: list[Tensor] = []
    for step in range(ring.size):
        if step + 1 < ring.size:
            coming, pending = ring.begin(held, step)
        if ring.meets(query, held[0], step):
            part = _attend(query, *held, 0.0, ring.within(step), scale=scale)
            found = part if found is None else _together(found, part)
        pending.wait()
        held = coming
    if found is None:
        wide = torch.promote_types(query.dtype, torch.float32)
        shape = (*query.shape[:3], value.shape[3])
        return query.new_empty(shape), query.new_empty(query.shape[:3], dtype=wide)
    return found[0].to(query.dtype), found[1]


def _together(some: tuple[Tensor, Tensor], others: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """The attention to two sets of keys, from that to each."""
    total = torch.logaddexp(some[1], others[1])
    terms = [x * (logarithm - total).exp().unsqueeze(-1) for x, logarithm in (some, others)]
    return terms[0] + terms[1], total


def attended_backward(
    keys: Cut,
    mesh: DeviceMesh,
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logarithms: Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of this rank's queries, keys and values; collective.

    Those of keys and values travel with them, and come home in the last step.
    """
    ring = _Ring(keys, mesh, is_causal)
    wide = torch.promote_types(query.dtype, torch.float32)
    own = torch.zeros_like(query, dtype=wide)
    held, pending = [key, value], FINISHED
    grads: list[Any] = [torch.zeros_like(x, dtype=wide) for x in held]
    coming: list[Tensor] = []
    for step in range(ring.size):
        if step + 1 < ring.size:
            coming, pending = ring.begin(held, step)
        if ring.meets(query, held[0], step):
            given = (grad, query, *held, out, logarithms, 0.0, ring.within(step))
            part, *others = _attend_backward(*given, scale=scale)
            own += part
            grads = [x + y for x, y in zip(grads, others, strict=True)]
        pending.wait()
        held = coming
        grads, pending = ring.begin(grads, step)
        pending.wait()
    return own.to(query.dtype), *[x.to(key.dtype) for x in grads]
