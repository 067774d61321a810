"""Matrix products: cut along rows, columns or batches, or along the dimension that is summed over.

A cut along the dimension that is summed over gives a pending sum. :mod:`distarray.plan.contraction`
finds the cheapest layouts.
"""

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

from torch import Tensor

from distarray.comm import DeviceMesh
from distarray.layout import Fold, Layout, Partial, Replicate
from distarray.plan.contraction import Contraction, plan_contraction
from distarray.torch.tensor.calls import Call, Operand
from distarray.torch.tensor.table import Decision, rule

__all__ = ["contracted"]

#: Size that no result reaches: whole operands stay whole.
_ANY_SIZE = 1 << 62

#: Labels of the dimensions of both operands and of the result.
_LABELS = {
    "aten.mm": ("mk", "kn", "mn"),
    "aten.bmm": ("bmk", "bkn", "bmn"),
    "aten.mv": ("mk", "k", "m"),
    "aten.dot": ("k", "k", ""),
    "aten.vdot": ("k", "k", ""),
}
_WITH_SUMMAND = {
    "aten.addmm": "aten.mm",
    "aten.baddbmm": "aten.bmm",
    "aten.addmv": "aten.mv",
}


@lru_cache(maxsize=1024)
def _contraction(terms: tuple[str, ...], out: str, extents: tuple[int, ...]) -> Contraction:
    labels = {label: n for n, label in enumerate(dict.fromkeys("".join(terms) + out))}
    numbers = [tuple([labels[label] for label in term]) for term in terms]
    return Contraction(tuple(numbers), tuple([labels[label] for label in out]), extents)


def contracted(
    terms: Sequence[str], out: str, operands: Sequence[Operand]
) -> tuple[list[Layout], Layout]:
    """Return the required layouts of a product's operands, and the layout of its result.

    Parameters
    ----------
    terms : sequence of str
        A letter for each dimension of each operand, as in einsum.
    out : str
        The letters of the result.
    operands : sequence of Operand
        The operands; at most one has pending sums.
    """
    extents: dict[str, int] = {}
    for term, x in zip(terms, operands, strict=True):
        extents.update(zip(term, x.shape, strict=True))
    labels = dict.fromkeys("".join(terms) + out)
    spec = _contraction(tuple(terms), out, tuple([extents[label] for label in labels]))
    layouts = tuple([x.layout.settled() for x in operands])
    sizes = tuple([x.itemsize for x in operands])
    if all(layout.is_replicated for layout in layouts):
        whole = Layout.replicated(spec.shape, layouts[0].mesh_shape)
        return list(layouts), whole
    plan = plan_contraction(spec, layouts, sizes, max(sizes), _ANY_SIZE)
    return list(plan.operands), plan.local


def _with_pending(
    operands: Sequence[Operand], wanted: list[Layout], result: Layout
) -> Layout | None:
    """Return the result's layout with an operand's pending sums kept; None if impossible."""
    pending = [n for n, x in enumerate(operands) if x.layout.partials]
    if not pending:
        return result
    if len(pending) > 1:
        return None
    x = operands[pending[0]].layout
    free = [*wanted, result]
    if any(not isinstance(w.placements[m], Replicate) for w in free for m in x.partials):
        return None
    others = {m: Partial() for m in x.partials}
    own = wanted[pending[0]]
    wanted[pending[0]] = Layout.from_cuts(own.cuts, own.mesh_shape, others)
    return Layout.from_cuts(result.cuts, result.mesh_shape, {**result.others, **others})


@rule(*_LABELS, takes={Fold.SUM})
def _product(call: Call) -> Decision:
    *terms, out = _LABELS[call.name]
    wanted, result = contracted(terms, out, call.operands)
    found = _with_pending(call.operands, wanted, result)
    return Decision(wanted, [result if found is None else found])


@rule(*_WITH_SUMMAND)
def _sum_and_product(call: Call) -> Decision | None:
    """Use the product's layout for the summand; it is one rank's contribution to a pending sum."""
    *terms, out = _LABELS[_WITH_SUMMAND[call.name]]
    summand, *factors = call.operands
    wanted, result = contracted(terms, out, factors)
    if call.written:
        if result is not summand.layout:
            return None
        return Decision([summand.layout, *wanted], [result])
    decision = Decision([_stretching(result, summand.shape), *wanted], [result])
    if call.name != "aten.addmv" or summand.shape == call.shape:
        return decision
    return decision._replace(run=partial(_stretched, call.op, result), on_mesh=True)


def _stretched(
    op: Any, result: Layout, mesh: DeviceMesh, summand: Tensor, *args: Any, **kwargs: Any
) -> Tensor:
    """Expand the summand and call the operator, which does not broadcast it to an empty result."""
    found: Tensor = op(summand.expand(result.local_shape(mesh.coords)), *args, **kwargs)
    return found


def _stretching(layout: Layout, shape: tuple[int, ...]) -> Layout:
    """Return the layout of a tensor that is broadcast to `layout`; pending sums stay pending."""
    cuts = [
        cut if cut.extent == extent else type(cut).whole(extent)
        for cut, extent in zip(layout.cuts[layout.ndim - len(shape) :], shape, strict=True)
    ]
    return layout.with_cuts(cuts)
