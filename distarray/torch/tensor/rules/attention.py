"""Attention: each rank computes its samples and heads, with whole sequences.

A cut along the sequence is moved to samples or heads; every element is sent at most once. Where
there are too few samples and heads for the ranks, sequences stay cut, and keys and values are sent
around a ring. Queries that are cut stay in place if keys and values are whole.
"""

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

from distarray.layout import Cut, Layout, Partial
from distarray.torch.tensor.aligning import elsewhere, guarded, is_spread, with_lead
from distarray.torch.tensor.calls import Call, Operand, Outcome
from distarray.torch.tensor.ring_attention import attended, attended_backward
from distarray.torch.tensor.table import Decision, rule

_NAME = "aten._scaled_dot_product_flash_attention_for_cpu"


#: Cuts of the samples and heads of a tensor.
Lead = tuple[Cut, ...]


def _busy(cuts: Sequence[Cut]) -> int:
    """Return the number of ranks along the cuts that have elements."""
    counts = [sum(a < b for a, b in map(cut.interval, range(cut.parts))) for cut in cuts]
    return prod(counts)


def _along_a_ring(call: Call, operands: Sequence[Operand]) -> bool:
    """Return True if sequences stay cut, because more ranks then have work."""
    query, key, value = [x.layout.cuts for x in operands]
    if (
        not _is_simple(call)
        or not _lie_alike(query, key, value)
        or (call["is_causal"] and query[2] != key[2])
    ):
        return False
    leads = _leads(operands)
    return leads is None or _busy(leads[0]) < _busy(query[:3])


def _is_simple(call: Call) -> bool:
    """Return True if the call has no dropout and no mask."""
    return not call["dropout_p"] and not isinstance(call.get("attn_mask"), Operand)


def _lie_alike(query: Sequence[Cut], key: Sequence[Cut], value: Sequence[Cut]) -> bool:
    """Return True if `_belong_together` is True and queries and keys cut the sequence alike."""
    cut = key[2]
    there = cut.extent > 0 and is_spread(cut) and cut.mesh_dims == query[2].mesh_dims
    return there and _belong_together(query, key, value)


def _belong_together(query: Sequence[Cut], key: Sequence[Cut], value: Sequence[Cut]) -> bool:
    """Return True if ranks have the same samples and heads of all three, and whole features."""
    together = [a == b or not (is_spread(a) or is_spread(b)) for a, b in zip(query[:2], key[:2])]
    whole = [not is_spread(cuts[3]) for cuts in (query, key, value)]
    return key[:3] == value[:3] and all(together + whole)


def _leads(operands: Sequence[Operand]) -> tuple[Lead, Lead] | None:
    """Return the cuts of samples and heads of queries, and of keys and values; None if impossible.

    Where several heads of queries share one head of keys and values, they are on that head's rank.
    """
    (samples, heads), (same, kept) = operands[0].shape[:2], operands[1].shape[:2]
    if operands[1].shape[:2] != operands[2].shape[:2] or samples != same:
        return None
    if not kept or heads % kept:
        return None
    leads = [elsewhere(x.layout, [2, 3]).cuts[:2] for x in operands]
    spread = [lead for lead in leads if any(map(is_spread, lead))]
    if not spread:
        return None
    if heads == kept:
        return spread[0], spread[0]
    batch, own = spread[0]
    shared = own if own.extent == kept else Cut.chunked(kept, own.mesh_dims, own.radix)
    return (batch, _times(shared, heads // kept)), (batch, shared)


def _times(cut: Cut, share: int) -> Cut:
    """Return the cut of `share` times as many elements; groups of `share` stay on one rank."""
    spans = map(cut.interval, range(cut.parts))
    lengths = [(stop - start) * share for start, stop in spans]
    return Cut.ragged(lengths, cut.mesh_dims, cut.radix)


def _mask(call: Call, lead: Sequence[Cut]) -> list[Layout]:
    """Return the layout of the mask that is added to the products, if any; it may be broadcast."""
    mask = call.get("attn_mask")
    if not isinstance(mask, Operand):
        return []
    ahead = max(len(mask.shape) - 2, 0)
    cuts = [
        cut if mask.shape[n] == cut.extent else Cut.whole(mask.shape[n])
        for n, cut in enumerate(lead[2 - ahead :] if ahead else [])
    ]
    return [with_lead(cuts, mask.shape, call.mesh_shape)]


def _around(
    call: Call,
    run: Callable[..., Any],
    three: Sequence[Operand],
    places: Sequence[int],
    outs: Sequence[int],
) -> Decision | None:
    """Return the decision for a ring.

    `places` gives for each operand the index of the query, key or value whose layout it has; `outs`
    does so for results.
    """
    if call.results is None or not _along_a_ring(call, three):
        return None
    laid = _lying_as(call, three, places, call.operands)
    results = _lying_as(call, three, outs, call.results)
    keys = three[1].layout.cuts[2]
    return Decision(laid, results, run=partial(run, keys), on_mesh=True, draws=False)


def _lying_as(
    call: Call,
    three: Sequence[Operand],
    places: Sequence[int],
    tensors: Sequence[Operand | Outcome],
) -> list[Layout]:
    """Return the layouts of tensors; `places` gives the one of the three that each is cut like."""
    leads = [x.layout.cuts[:3] for x in three]
    return [
        with_lead(leads[place], x.shape, call.mesh_shape)
        for place, x in zip(places, tensors, strict=True)
    ]


def _beside_whole_keys(
    call: Call, three: Sequence[Operand], places: Sequence[int], outs: Sequence[int]
) -> Decision | None:
    """Return the decision for cut queries where every rank has all keys and values.

    `places` and `outs` are as in `_around`. Each rank's gradients of keys and values are the
    contributions of its queries.
    """
    query, key, value = [x.layout.cuts for x in three]
    if call.results is None or not _is_simple(call) or call["is_causal"]:
        return None
    if is_spread(key[2]) or not is_spread(query[2]) or not _belong_together(query, key, value):
        return None
    pending = dict.fromkeys(query[2].mesh_dims, Partial())
    laid = _lying_as(call, three, places, call.operands)
    results = [
        Layout.from_cuts(layout.cuts, call.mesh_shape, pending) if place else layout
        for place, layout in zip(outs, _lying_as(call, three, outs, call.results), strict=True)
    ]
    return guarded(call, laid, results)._replace(draws=False)


@rule(_NAME)
def _attended(call: Call) -> Decision | None:
    beside = _beside_whole_keys(call, call.operands[:3], (0, 1, 2), (0, 0))
    if beside is not None:
        return beside
    around = _around(call, attended, call.operands[:3], (0, 1, 2), (0, 0))
    if around is not None:
        return around
    leads = _leads(call.operands[:3])
    if leads is None or call.results is None or call["dropout_p"]:
        return None
    own, shared = leads
    each = zip((own, shared, shared), call.operands)
    wanted = [with_lead(lead, x.shape, call.mesh_shape) for lead, x in each]
    results = [with_lead(own, x.shape, call.mesh_shape) for x in call.results]
    return guarded(call, [*wanted, *_mask(call, own)], results)._replace(draws=False)


@rule(f"{_NAME}_backward")
def _attended_backward(call: Call) -> Decision | None:
    """Use the layout of the queries for the result and its logarithms of sums of exponentials."""
    three, places = call.operands[1:4], (0, 0, 1, 2, 0, 0)
    beside = _beside_whole_keys(call, three, places, (0, 1, 2))
    if beside is not None:
        return beside
    around = _around(call, attended_backward, three, places, (0, 1, 2))
    if around is not None:
        return around
    leads = _leads(call.operands[1:4])
    if leads is None or call["dropout_p"]:
        return None
    own, shared = leads
    each = zip((own, own, shared, shared, own, own), call.operands)
    wanted = [with_lead(lead, x.shape, call.mesh_shape) for lead, x in each]
    return guarded(call, [*wanted, *_mask(call, own)], wanted[1:4])
