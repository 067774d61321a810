"""Operators that compute each element by itself: those with torch's pointwise tag.

They work in the same layout as the arrays' operators: among the operands' own layouts the one for
which the fewest bytes move between ranks. Linear operators leave pending sums pending.
"""

from collections.abc import Sequence

from distarray.layout import Fold, Layout, Placement, Replicate
from distarray.plan.propagate import propagate, restrict
from distarray.torch.tensor.calls import Call
from distarray.torch.tensor.table import Decision, rule

__all__ = ["common_layout", "elementwise"]

_LINEAR = (Fold.SUM, Fold.AVG)


def common_layout(call: Call, layouts: Sequence[Layout], written: int | None = None) -> Layout:
    """Return the layout to which the operands move: that of the written operand, if any."""
    if written is not None:
        return layouts[written]
    sizes = tuple([x.itemsize for x in call.operands])
    target = propagate(tuple(layouts), sizes).result
    if target.shape != call.shape:  # an argument that is not an operand broadcasts it
        return Layout.replicated(call.shape, call.mesh_shape)
    return target


def elementwise(call: Call, layouts: Sequence[Layout]) -> Decision | None:
    """Return the decision for operands in these layouts, without pending folds."""
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


@rule("aten.masked_fill", plain=True)
def _masked(call: Call) -> Decision | None:
    """Compute element by element; torch does not tag this operator."""
    return elementwise(call, [x.layout for x in call.operands])


def _settled(call: Call) -> Decision | None:
    layouts = [x.layout.settled() for x in call.operands]
    if call.written and call.operands[call.written[0]].layout.ats:
        layouts[call.written[0]] = call.operands[call.written[0]].layout
    return elementwise(call, layouts)


@rule("aten.neg", "aten.conj_physical", "aten._conj_physical", takes=_LINEAR, by_kind=True)
def _each(call: Call) -> Decision | None:
    """Keep the pending sum of a linear operator with one operand."""
    layout = call.first.layout
    if not layout.partials:
        return _settled(call)
    return Decision([layout], [layout])


@rule("aten.add", "aten.sub", takes=_LINEAR, by_kind=True)
def _sum(call: Call) -> Decision | None:
    """Add two pending sums in the same layout as they are."""
    layouts = [x.layout for x in call.operands]
    if layouts[0].partials and len(layouts) == 2 and layouts[0] is layouts[1]:
        return Decision(layouts, layouts[:1])
    return _settled(call)


@rule("aten.mul", "aten.div.Tensor", "aten.div.Scalar", takes=_LINEAR, by_kind=True)
def _product(call: Call) -> Decision | None:
    """Keep a pending sum times an operand that is replicated along the sum's mesh dimensions."""
    return _scaled(call) or _settled(call)


def _scaled(call: Call) -> Decision | None:
    """Leave the pending operand pending; return None if that is impossible."""
    layouts = [x.layout for x in call.operands]
    pending = [n for n, layout in enumerate(layouts) if layout.partials]
    divides = call.name == "aten.div"
    if len(pending) != 1 or (divides and (pending[0] or not call.first.dtype.is_floating_point)):
        return None
    place = pending[0]
    decision = elementwise(call, [layout.settled() for layout in layouts])
    if decision is None or call.written not in ((), (place,)):
        return None
    others = {m: layouts[place].placements[m] for m in layouts[place].partials}
    operands = list(decision.wanted)
    kept = [_left_pending(x, others) for x in (operands[place], decision.results[0])]
    return _replaced(operands, place, kept, layouts[place] if call.written else kept[1])


def _replaced(
    operands: list[Layout], place: int, kept: list[Layout | None], result: Layout | None
) -> Decision | None:
    """Leave an operand and the result pending; return None if the result is not the wanted one."""
    operand, found = kept
    if operand is None or found is None or found is not result:
        return None
    operands[place] = operand
    return Decision(operands, [found])


def _left_pending(layout: Layout | None, others: dict[int, Placement]) -> Layout | None:
    """Return the layout with these folds pending; None if it uses their mesh dimensions."""
    if layout is None or any(not isinstance(layout.placements[m], Replicate) for m in others):
        return None
    return Layout.from_cuts(layout.cuts, layout.mesh_shape, others)
