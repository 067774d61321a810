"""Attention: each rank does it for its samples and heads, of which it has whole sequences.

What is cut along the sequence is cut along samples or heads instead: every element travels once.
"""

from collections.abc import Sequence

from distarray.layout import Cut, Layout
from distarray.torch.tensor.aligning import elsewhere, guarded, is_spread, with_lead
from distarray.torch.tensor.calls import Call, Operand
from distarray.torch.tensor.table import Decision, rule

_NAME = "aten._scaled_dot_product_flash_attention_for_cpu"


def _lead(operands: Sequence[Operand]) -> tuple[Cut, ...] | None:
    """How samples and heads are cut; None if they are not the same, or cannot be cut."""
    if len({x.shape[:2] for x in operands}) != 1:
        return None
    leads = [elsewhere(x.layout, [2, 3]).cuts[:2] for x in operands]
    spread = [lead for lead in leads if any(map(is_spread, lead))]
    return spread[0] if spread else None


def _mask(call: Call, lead: Sequence[Cut]) -> list[Layout]:
    """The layout of what is added to the products, if anything is; it may be stretched."""
    mask = call.get("attn_mask")
    if not isinstance(mask, Operand):
        return []
    ahead = max(len(mask.shape) - 2, 0)
    cuts = [
        cut if mask.shape[n] == cut.extent else Cut.whole(mask.shape[n])
        for n, cut in enumerate(lead[2 - ahead :] if ahead else [])
    ]
    return [with_lead(cuts, mask.shape, call.mesh_shape)]


@rule(_NAME)
def _attended(call: Call) -> Decision | None:
    lead = _lead(call.operands[:3])
    if lead is None or call.results is None or call["dropout_p"]:
        return None
    wanted = [with_lead(lead, x.shape, call.mesh_shape) for x in call.operands[:3]]
    results = [with_lead(lead, x.shape, call.mesh_shape) for x in call.results]
    return guarded(call, [*wanted, *_mask(call, lead)], results)


@rule(f"{_NAME}_backward")
def _attended_backward(call: Call) -> Decision | None:
    """The result and the sums of its exponentials lie as the queries do."""
    lead = _lead(call.operands[1:4])
    if lead is None or call["dropout_p"]:
        return None
    wanted = [with_lead(lead, x.shape, call.mesh_shape) for x in call.operands[:6]]
    return guarded(call, [*wanted, *_mask(call, lead)], wanted[1:4])
