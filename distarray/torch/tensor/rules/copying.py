"""Copies, conversions and operators that return the same elements: nothing moves."""

from distarray.layout import Fold
from distarray.torch.tensor.calls import Call
from distarray.torch.tensor.table import Decision, rule

_ALL = tuple(Fold)


@rule("aten.detach", "aten.alias", "aten.clone", "aten.lift_fresh", takes=_ALL, lone=True)
def _same(call: Call) -> Decision:
    layout = call.first.layout
    return Decision([layout], [layout])


@rule("aten._to_copy", takes=(Fold.SUM, Fold.AVG))
def _converted(call: Call) -> Decision:
    """Keep a pending sum between inexact data types; settle it before a conversion to integers."""
    assert call.results is not None
    layout, (before, after) = call.first.layout, (call.first.dtype, call.results[0].dtype)
    linear = before == after or (_is_inexact(before) and _is_inexact(after))
    layout = layout if linear else layout.settled()
    return Decision([layout], [layout])


def _is_inexact(dtype: object) -> bool:
    return bool(getattr(dtype, "is_floating_point", False) or getattr(dtype, "is_complex", False))


@rule("aten.copy", takes=(), lone=True, plain=True)
def _filled(call: Call) -> Decision:
    """Move the source to the target's layout."""
    target, source = call.operands
    layout = target.layout
    cuts = [
        cut if cut.extent == extent else type(cut).whole(extent)
        for cut, extent in zip(
            layout.cuts[layout.ndim - len(source.shape) :], source.shape, strict=True
        )
    ]
    return Decision([layout, layout.with_cuts(cuts)], [layout])


@rule("aten.fill", lone=True, by_kind=True)
def _constant(call: Call) -> Decision:
    wanted = [x.layout for x in call.operands]
    return Decision(wanted, wanted[:1])


@rule("aten.zero", takes=(Fold.SUM, Fold.AVG), lone=True)
def _nothing(call: Call) -> Decision:
    layout = call.first.layout
    return Decision([layout], [layout])
