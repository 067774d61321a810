"""Ring attention: queries stay on their rank, and keys and values are sent around a ring of ranks.

Each rank has some of the queries. In each step it attends to the keys and values of another rank,
and sends these on to the next rank. Besides its result a rank keeps the logarithm of the sum of
exponentials. With these, softmaxes over subsets of the keys combine into one over all keys (Milakov
and Gimelshein, "Online normalizer calculation for softmax", 2018; Liu, Zaharia and Abbeel, "Ring
Attention with Blockwise Transformers", 2023). A rank stores three sets of keys and values: its own,
the current ones, and the ones that it receives.
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

#: Purpose of the messages, for reports.
NOTE = "keys and values around a ring"
_attend = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
_attend_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default


class _Ring:
    """Ring of the ranks that hold the keys of the same heads and samples, for messages around it.

    Parameters
    ----------
    keys : Cut
        The cut of the keys along the sequence.
    mesh : DeviceMesh
    causal : bool
        True if queries do not attend to later keys; queries and keys are then cut alike.
    """

    def __init__(self, keys: Cut, mesh: DeviceMesh, causal: bool) -> None:
        assert mesh.coords is not None
        self.group, self.causal = mesh.subgroup(keys.mesh_dims), causal
        self.place, self.size = keys.part(mesh.coords), keys.parts
        self._lengths = [stop - start for start, stop in map(keys.interval, range(keys.parts))]

    def owner(self, step: int) -> int:
        """Return the rank whose keys are here in a step."""
        return (self.place - step) % self.size

    def meets(self, query: Tensor, key: Tensor, step: int) -> bool:
        """Return True if this rank's queries attend to any of the keys that are here in a step."""
        later = self.causal and self.owner(step) > self.place
        return bool(query.numel() and key.numel()) and not later

    def within(self, step: int) -> bool:
        """Return True if some of these keys are later than some of the queries."""
        return self.causal and self.owner(step) == self.place

    def begin(self, tensors: Sequence[Tensor], step: int) -> tuple[list[Tensor], Pending]:
        """Begin to send tensors to the next rank, and to receive those of the previous rank."""
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
    """Return the attention of this rank's queries to all keys, and the logarithms; collective."""
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
    """Combine the attention to two sets of keys."""
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
    """Return the gradients of this rank's queries, keys and values; collective.

    The gradients of keys and values travel with them, and return to their rank in the last step.
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
