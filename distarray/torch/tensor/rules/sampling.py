"""Operators that draw a number for each element or row, from probabilities that are cut.

Every rank draws for the global tensor, so that all layouts get the numbers of one process. It
inserts its own part of the probabilities; the other values do not matter. Nothing is sent.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from distarray.comm import DeviceMesh
from distarray.comm.agree import agree
from distarray.layout import Layout
from distarray.torch.tensor.aligning import elsewhere, is_spread, with_lead
from distarray.torch.tensor.calls import Call, replaced, tensors_in
from distarray.torch.tensor.drawing import drawn_alike
from distarray.torch.tensor.fallback import refuse_or_warn
from distarray.torch.tensor.rules.extremes import delivered
from distarray.torch.tensor.rules.pointwise import elementwise
from distarray.torch.tensor.spec import strides_like
from distarray.torch.tensor.table import Decision, composed, rule

_NORMAL = tuple([f"aten.normal.{kind}" for kind in ("Tensor_float", "float_Tensor")])


@rule("aten.bernoulli", *_NORMAL, "aten.normal.Tensor_Tensor")
def _each(call: Call) -> Decision | None:
    decision = elementwise(call, [x.layout for x in call.operands])
    return None if decision is None else _drawn(call, decision)


@rule("aten.multinomial")
def _rows(call: Call) -> Decision | None:
    """Keep rows of probabilities whole."""
    x = call.first.layout
    rows = elsewhere(x, [x.ndim - 1])
    if any(map(is_spread, x.cuts)) and not any(map(is_spread, rows.cuts)):
        return None
    return _drawn(call, Decision([rows], [with_lead(rows.cuts[:-1], call.shape, call.mesh_shape)]))


def _drawn(call: Call, decision: Decision) -> Decision:
    strides = [x.strides for x in call.operands]
    find = partial(_of_the_whole, call.op.overloadpacket, decision, strides)
    return decision._replace(run=delivered(call, find), on_mesh=True, draws=False)


def _of_the_whole(
    op: Any,
    decision: Decision,
    strides: Sequence[tuple[int, ...]],
    mesh: DeviceMesh,
    *args: Any,
    **kwargs: Any,
) -> Tensor:
    """Return this rank's part of the global tensor's draw; torch's errors raise on all ranks."""
    parts = zip(tensors_in(args, kwargs), decision.wanted, strides, strict=True)
    new, named = replaced(args, kwargs, [_padded(x, y, order, mesh) for x, y, order in parts])
    found, error = None, None
    try:
        found = drawn_alike(op, mesh, *new, **named)
    except RuntimeError as raised:
        error = raised
    agree(mesh.group, error)
    assert found is not None
    (layout,) = decision.results
    assert layout is not None
    part: Tensor = found[_section(layout, mesh)]
    shape = tuple(part.shape)
    return part.new_empty_strided(shape, strides_like(shape, tuple(found.stride()))).copy_(part)


def _section(layout: Layout, mesh: DeviceMesh) -> tuple[slice, ...]:
    return tuple([slice(*ends) for ends in layout.section(mesh.coords)])


def _padded(x: Tensor, layout: Layout, order: tuple[int, ...], mesh: DeviceMesh) -> Tensor:
    """Embed a part in the global tensor; the rest is 1, which every operator here accepts."""
    if layout.is_replicated:
        return x
    whole = x.new_empty_strided(layout.shape, strides_like(layout.shape, order)).fill_(1)
    whole[_section(layout, mesh)] = x
    return whole


@composed("aten.multinomial")
def _places(
    x: Tensor, num_samples: int, replacement: bool = False, *, generator: Any = None
) -> Tensor:
    """Sample from one row that is cut, as torch does if nothing is drawn twice."""
    _check(x, num_samples, replacement)
    if replacement and num_samples > 1:
        refuse_or_warn("aten.multinomial", [x._spec])
        whole = x.redistribute()
        found: Tensor = torch.multinomial(whole, num_samples, True, generator=generator)
        return found
    scores = x / torch.empty_like(x).exponential_(1, generator=generator)
    if num_samples == 1:
        return scores.argmax(-1, keepdim=True)
    return scores.topk(num_samples).indices


def _check(x: Tensor, num_samples: int, replacement: bool) -> None:
    """Raise torch's errors, on all ranks."""
    too_many = not replacement and x.ndim > 0 and num_samples > x.shape[-1]
    wrong = {
        "prob_dist must be 1 or 2 dim": not 0 < x.ndim <= 2,
        f"multinomial only supports floating-point dtypes, got {x.dtype}": not (
            x.is_floating_point()
        ),
        "cannot sample n_sample <= 0 samples": num_samples <= 0,
        "cannot sample n_sample > prob_dist.size(-1) samples without replacement": too_many,
    }
    for words, is_wrong in wrong.items():
        if is_wrong:
            raise RuntimeError(words)
    if not bool(((x.amax() < torch.inf) & (x.amin() >= 0)).item()):
        raise RuntimeError("probability tensor contains either `inf`, `nan` or element < 0")
    if bool((x.sum(-1) == 0).any().item()):
        raise RuntimeError("invalid multinomial distribution (sum of probabilities <= 0)")
