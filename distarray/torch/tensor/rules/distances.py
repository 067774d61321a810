"""Elementwise losses, and elementwise functions that torch does not tag.

A mean or a sum is left pending. Losses of classes are in
:mod:`distarray.torch.tensor.rules.losses`.
"""

from functools import partial
from typing import Any

from torch import Tensor

from distarray.comm import DeviceMesh
from distarray.comm.agree import agree
from distarray.layout import Cut, Fold, Layout
from distarray.plan.propagate import propagate, restrict
from distarray.torch.tensor.aligning import elsewhere
from distarray.torch.tensor.calls import Call
from distarray.torch.tensor.rules.pointwise import elementwise
from distarray.torch.tensor.rules.reductions import reduced
from distarray.torch.tensor.table import Decision, rule

_LOSSES = (
    *("aten.mse_loss", "aten.smooth_l1_loss", "aten.huber_loss", "aten.soft_margin_loss"),
    "aten.binary_cross_entropy_with_logits",
)
_BACKWARD = (
    *("aten.mse_loss_backward", "aten.smooth_l1_loss_backward", "aten.huber_loss_backward"),
    *("aten.soft_margin_loss_backward", "aten.binary_cross_entropy_backward"),
)
_NONE, _MEAN, _SUM = 0, 1, 2


def _common(layouts: list[Layout], sizes: list[int]) -> Layout:
    return propagate(tuple(layouts), tuple(sizes)).result


def _decided(call: Call, checks: bool) -> Decision:
    layouts = [x.layout for x in call.operands]
    target = _common(layouts, [x.itemsize for x in call.operands])
    wanted = [restrict(target, layout.shape) for layout in layouts]
    result = target
    if call["reduction"] != _NONE:
        result = reduced(target, range(target.ndim), False, Fold.SUM)
    count = target.size if call["reduction"] == _MEAN else None
    changed = {"reduction": _SUM if call["reduction"] == _MEAN else call["reduction"]}
    spread = checks and bool(target.sharded_dims)
    run = partial(_computed, call.op, count, spread)
    return Decision(wanted, [result], lambda _: changed, run, on_mesh=True)


def _computed(
    op: Any, count: int | None, agrees: bool, mesh: DeviceMesh, *args: Any, **kwargs: Any
) -> Tensor:
    """Return the loss of a part; for a mean, its sum divided by the global number of elements."""
    found, error = None, None
    try:
        found = op(*args, **kwargs)
    except RuntimeError as raised:  # forbidden values, possibly on this rank alone
        error = raised
    if agrees:
        agree(mesh.group, error)
    elif error is not None:
        raise error
    assert found is not None
    return found if count is None else found.div_(count)  # `found` may be the tensor of ``out=``


@rule(*_LOSSES)
def _distance(call: Call) -> Decision:
    return _decided(call, checks=False)


@rule("aten.binary_cross_entropy")
def _entropy(call: Call) -> Decision:
    """Refuse values that are not probabilities on all ranks."""
    return _decided(call, checks=True)


@rule(*_BACKWARD)
def _distance_backward(call: Call) -> Decision | None:
    grad, *others = call.operands
    layouts = [x.layout for x in others]
    target = _common(layouts, [x.itemsize for x in others])
    if target.shape != call.shape:
        return None
    wanted = [restrict(target, layout.shape) for layout in layouts]
    first = restrict(target, grad.shape) if call["reduction"] == _NONE or grad.shape else None
    if first is None:
        first = Layout.replicated((), call.mesh_shape)
    count = target.size if call["reduction"] == _MEAN else None
    changed = {"reduction": _SUM if call["reduction"] == _MEAN else call["reduction"]}
    run = partial(_computed, call.op, count, False)
    return Decision([first, *wanted], [target], lambda _: changed, run, on_mesh=True)


@rule(
    *("aten.hardswish", "aten.hardswish_backward", "aten.hardtanh_backward"),
    *("aten.hardsigmoid_backward", "aten.softplus_backward", "aten.elu_backward"),
    *("aten.leaky_relu_backward", "aten.hardshrink_backward", "aten.softshrink_backward"),
    *("aten.complex", "aten.polar"),
    *("aten.rsub", "aten._prelu_kernel", "aten._prelu_kernel_backward"),
    # torch 2.9 does not tag the first of these, nor the in-place variants of the others
    *("aten.leaky_relu", "aten.celu", "aten.elu", "aten.hardsigmoid", "aten.hardtanh"),
    by_kind=True,
)
def _one_by_one(call: Call) -> Decision | None:
    """Compute element by element; some version of torch does not tag the operator."""
    return elementwise(call, [x.layout for x in call.operands])


@rule("aten.floor_divide", by_kind=True)
def _floor_divide(call: Call) -> Decision | None:
    """Refuse integer division by zero on all ranks: the ranks exchange their errors."""
    decision = elementwise(call, [x.layout for x in call.operands])
    if decision is None or call.results is None or call.results[0].dtype.is_floating_point:
        return decision
    return decision._replace(run=partial(_computed, call.op, None, True), on_mesh=True)


@rule("aten.glu", "aten.glu_backward")
def _gated(call: Call) -> Decision | None:
    """Keep the dimension that is halved whole."""
    x = call.operands[-1].layout
    dim = int(call["dim"]) % max(x.ndim, 1)
    source = elsewhere(x, [dim])
    if call.results is None or not source.sharded_dims:
        return None
    wanted = [source.replace(dim, Cut.whole(o.shape[dim])) for o in call.operands]
    return Decision(wanted, [source.replace(dim, Cut.whole(call.shape[dim]))])
