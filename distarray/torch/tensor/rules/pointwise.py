"""Operators that compute each element by itself: those that torch's tag names.

They work in the layout that the arrays' operators work in: of the operands' own layouts the one for
which the fewest bytes change rank. What is linear leaves pending sums pending.
"""

from collections.abc import Sequence

from distarray.layout import Fold, Layout, Replicate
from distarray.plan.propagate import propagate, restrict
from distarray.torch.tensor.calls import Call
from distarray.torch.tensor.table import Decision, rule

__all__ = ["common_layout", "elementwise"]

_LINEAR = (Fold.SUM, Fold.AVG)


def common_layout(call: Call, layouts: Sequence[Layout], written: int | None = None) -> Layout:
    """The layout in which operands are brought together: that of the written one, if there is."""
    if written is not None:
        return layouts[written]
    sizes = tuple([x.itemsize for x in call.operands])
    target = propagate(tuple(layouts), sizes).result
    if target.shape != call.shape:  # an argument that is no operand stretches it
        return Layout.replicated(call.shape, call.mesh_shape)
    return target


def elementwise(call: Call, layouts: Sequence[Layout]) -> Decision | None:
    """The decision for operands in these layouts, nothing of them pending."""
    if call.results is None or any(x.shape != call.shape for x in call.results):
        return None
    target = common_layout(call, layouts, call.written[0] if call.written else None)
    if target.shape != call.shape:
        return None
    wanted = [restrict(target, layout.shape) for layout in layouts]
    return Decision(wanted, [target] * len(call.results))


@rule(by_kind=True, pointwise=True)
def _pointwise(call: Call) -> Decision | None:
    return elementwise(call, [x.layout for x in call.operands])


def _settled(call: Call) -> Decision | None:
    layouts = [x.layout.settled() for x in call.operands]
    if call.written and call.operands[call.written[0]].layout.ats:
        layouts[call.written[0]] = call.operands[call.written[0]].layout
    return elementwise(call, layouts)


@rule("aten.neg", "aten.conj_physical", "aten._conj_physical", takes=_LINEAR, by_kind=True)
def _each(call: Call) -> Decision | None:
    """Linear in one operand."""
    layout = call.first.layout
    if not layout.partials:
        return _settled(call)
    return Decision([layout], [layout])


@rule("aten.add", "aten.sub", takes=_LINEAR, by_kind=True)
def _sum(call: Call) -> Decision | None:
    """Two pending sums that lie alike are added as they are."""
    layouts = [x.layout for x in call.operands]
    if layouts[0].partials and len(layouts) == 2 and layouts[0] is layouts[1]:
        return Decision(layouts, layouts[:1])
    return _settled(call)


@rule("aten.mul", "aten.div.Tensor", "aten.div.Scalar", takes=_LINEAR, by_kind=True)
def _product(call: Call) -> Decision | None:
    """A pending sum times what is the same on the ranks that have contributions to it."""
    layouts = [x.layout for x in call.operands]
    pending = [n for n, layout in enumerate(layouts) if layout.partials]
    divides = call.name == "aten.div" and pending != [0]
    if len(pending) != 1 or divides or (call.written and call.written != tuple(pending)):
        return _settled(call)
    layout = layouts[pending[0]]
    if not call.first.dtype.is_floating_point and call.name == "aten.div":
        return _settled(call)
    decision = elementwise(call, [x.settled() for x in layouts])
    if decision is None:
        return None
    target = decision.results[0]
    assert target is not None
    if any(not isinstance(target.placements[m], Replicate) for m in layout.partials):
        return _settled(call)
    others = {m: layout.placements[m] for m in layout.partials}
    result = Layout.from_cuts(target.cuts, target.mesh_shape, others)
    wanted = list(decision.wanted)
    own = wanted[pending[0]]
    wanted[pending[0]] = Layout.from_cuts(own.cuts, own.mesh_shape, others)
    if call.written and result is not layout:
        return _settled(call)
    return Decision(wanted, [result])
