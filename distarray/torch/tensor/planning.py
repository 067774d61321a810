"""Plans: how one operator is computed, for operands of given specs and given arguments."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from distarray.comm import DeviceMesh
from distarray.layout import At, Layout, Partial, Replicate
from distarray.torch.bridge.transforms import is_traced
from distarray.torch.tensor.calls import (
    Call,
    Operand,
    Outcome,
    arguments,
    bound,
    gives_one,
    outcome_of,
    replaced,
    tensors_in,
)
from distarray.torch.tensor.drawing import drawn_alike
from distarray.torch.tensor.fallback import gathering, refuse_or_warn
from distarray.torch.tensor.filling import filling
from distarray.torch.tensor.operands import common_mesh
from distarray.torch.tensor.spec import Spec, contiguous_strides
from distarray.torch.tensor.table import Decision, Row
from distarray.torch.tensor.talking import Talking

__all__ = ["Plan", "plan_for", "wrong_shape"]


class Plan:
    """Plan of an operator on this rank's parts.

    Attributes
    ----------
    row : Row
        The operator.
    run : callable
        Called with the parts.
    spec : Spec or None
        The spec of the result, if calling `run` is the only step.
    in_place : bool
        True if calling `run` is the only step, and the first argument is the result.
    is_view : bool
        True if results share the memory of the first argument.
    copied : bool
        True if the results are views whose elements had to move.
    draws : bool
        True if random numbers are drawn, the same on all ranks.
    composed : callable or None
        Called with the distributed arguments instead.
    apart : bool
        True if `composed` also writes to the operands that the operator writes to.
    before : callable or None
        Called first: warns about operands that are gathered, or refuses to gather them.
    fills : list of int
        Operands of ``out=`` that are the results of `run`, where `run` is not the operator.
    wanted : list of Layout or None
        The layout to which each operand is moved; None if it is already in that layout.
    plain : dict
        The specs of plain operands, by position.
    writes : dict
        Operands that are written to, by position. The value is True if the operand is not read.
    after : dict
        The layouts of these operands after they are written, by position.
    fresh : bool
        True if tensors for ``out=`` may get any shape, so that the operator receives empty ones.
    gives : list of int
        The written operands that are the results.
    changed, layouts, made, unread
        As in `Decision`; `layouts` are those of the results.
    specs : list of Spec or None
        The specs of the results; stored when the first results are computed.
    """

    __slots__ = (
        "after",
        "apart",
        "before",
        "changed",
        "composed",
        "copied",
        "draws",
        "fills",
        "fresh",
        "gives",
        "in_place",
        "is_view",
        "layouts",
        "made",
        "outcomes",
        "plain",
        "row",
        "run",
        "simple",
        "skips",
        "spec",
        "specs",
        "unread",
        "wanted",
        "writes",
    )

    def __init__(self, row: Row) -> None:
        self.row, self.run = row, row.op
        self.spec: Spec | None = None
        self.apart = self.fresh = self.in_place = self.copied = self.simple = self.skips = False
        self.is_view, self.draws = row.is_view, row.draws
        self.composed: Callable[..., Any] | None = None
        self.before: Callable[[], None] | None = None
        self.wanted: list[Layout | None] = []
        self.plain: dict[int, Spec] = {}
        self.writes: dict[int, bool] = {}
        self.after: dict[int, Layout] = {}
        self.gives: list[int] = []
        self.fills: list[int] = []
        self.changed: Callable[..., Mapping[str, Any]] | None = None
        self.layouts: Sequence[Layout | None] = ()
        self.made: Sequence[Layout] | None = None
        self.unread: frozenset[int] = frozenset()
        self.outcomes: list[Outcome] | None = None
        self.specs: list[Spec | None] | None = None

    def computed(self, mesh: DeviceMesh, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call the operator with the parts; return None if this rank has nothing to compute."""
        if self.skips:
            return None
        if mesh.coords is None and self.outcomes is not None:
            return self._nothing()
        return self.run(*args, **kwargs)

    def _nothing(self) -> Any:
        """Return the results of a rank outside of the mesh, which has no part of them."""
        parts = [
            torch.zeros(layout.local_shape(None), dtype=outcome.dtype)
            for layout, outcome in zip(self.layouts, self.outcomes or (), strict=False)
            if layout is not None
        ]
        return parts[0] if gives_one(self.row.op) else parts

    def _strides(self, number: int, part: torch.Tensor, layout: Layout) -> tuple[int, ...]:
        """Return the global strides of a result, which are the same on all ranks."""
        if layout.is_replicated:  # the part is the global tensor
            return tuple(part.stride())
        if self.outcomes is None or self.made is not None:
            return contiguous_strides(layout.shape)
        return self.outcomes[number].strides

    def finished(self, out: Any, mesh: DeviceMesh) -> list[Spec | None]:
        """Return the specs of the results, which are cached when the first results are computed.

        The specs of fake tensors are not cached: they may have other strides than those that torch
        computes.
        """
        if self.specs is not None:
            return self.specs
        tensors = [x for x in arguments([out], {}) if isinstance(x, torch.Tensor)]
        specs = self._specs_of(tensors, mesh)
        if any(map(is_traced, tensors)):
            return specs
        self.specs = specs
        if not (specs and self.simple and isinstance(out, torch.Tensor)) or self.copied:
            return specs
        if not (out.is_conj() or out.is_neg()):
            self.spec = specs[0]
        return specs

    def _specs_of(self, tensors: Sequence[torch.Tensor], mesh: DeviceMesh) -> list[Spec | None]:
        if not self.layouts and self.outcomes is None:
            return []
        specs: list[Spec | None] = []
        for number, part in enumerate(tensors):
            layout = self.layouts[number]
            if layout is None:
                specs.append(None)
                continue
            _check(self.row, part, layout if self.made is None else self.made[number], mesh)
            strides = self._strides(number, part, layout)
            specs.append(Spec(mesh, layout, strides, part.dtype, part.device, self.copied))
        return specs


def _check(row: Row, part: torch.Tensor, layout: Layout, mesh: DeviceMesh) -> None:
    shape = layout.local_shape(mesh.coords)
    if tuple(part.shape) != shape and mesh.coords is not None:
        raise AssertionError(
            f"{row.op}: rank {mesh.rank} got a part of shape {tuple(part.shape)}, where {layout} "
            f"puts one of {shape}; this is a mistake in the rule"
        )


def wrong_shape(op: Any, have: tuple[int, ...], want: tuple[int, ...]) -> str:
    """Return the error text for a written tensor of the wrong shape."""
    return (
        f"{op}: a tensor of shape {have} is to be written to, and the result has shape {want}; "
        "distributed tensors keep theirs"
    )


# -- making a plan --------------------------------------------------------------------------------


def plan_for(cls: Any, row: Row, args: Sequence[Any], kwargs: dict[str, Any]) -> Plan:
    """Make a plan; raises the errors that torch raises for these arguments, alike on all ranks."""
    operands = tensors_in(args, kwargs)
    mesh = common_mesh(cls, row.name, operands)
    plan = Plan(row)
    specs = []
    for position, x in enumerate(operands):
        if type(x) is cls:
            specs.append(x._spec)
        else:
            layout = Layout.replicated(tuple(x.shape), mesh.shape)
            spec = Spec(mesh, layout, tuple(x.stride()), x.dtype, x.device)
            plan.plain[position] = spec
            specs.append(spec)
    cut = any(not spec.layout.is_replicated for spec in specs)
    if row.apart:
        plan.composed, plan.apart = row.composed, True
        return plan
    _note_writes(plan, args, kwargs)
    if any(unread and not specs[n].layout.size for n, unread in plan.writes.items()):
        plan.composed, plan.apart = lambda *a, **k: filling(row, a, k), True
        return plan
    decision = _ruled(plan, row, specs, args, kwargs, mesh, cut)
    if decision is None and row.composed is not None and cut:
        plan.composed = row.composed
        return plan
    if decision is None:
        decision = _gathered(plan, row, specs, cut)
    return _filled(plan, decision, specs, mesh)


def _note_writes(plan: Plan, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Find the operands that are written to, and those that are the results."""
    given = bound(plan.row.op, args, kwargs)
    position = 0
    for argument in plan.row.op._schema.arguments:
        value = given[argument.name]
        count = sum([isinstance(x, torch.Tensor) for x in arguments([value], {})])
        if argument.name in plan.row.written:
            for place in range(position, position + count):
                plan.writes[place] = plan.row.written[argument.name]
        position += count
    returns = plan.row.op._schema.returns
    if any(r.alias_info is not None and r.alias_info.is_write for r in returns):
        plan.gives = list(plan.writes)


def _ruled(
    plan: Plan,
    row: Row,
    specs: Sequence[Spec],
    args: Sequence[Any],
    kwargs: dict[str, Any],
    mesh: DeviceMesh,
    cut: bool,
) -> Decision | None:
    """Return the rule's decision; None if there is none."""
    if row.rule is not None:
        operands = [Operand(_shown(row, s.layout), s.dtype, s.strides) for s in specs]
        outs = [n for n, unread in plan.writes.items() if unread]
        plan.outcomes = outcome_of(row.op, args, kwargs, operands, outs)
        _check_outs(row, outs, specs, plan.outcomes)
        if cut or row.always:
            call = _call(plan, row, operands, args, kwargs, mesh)
            decision = row.rule(call)
            if decision is not None:
                _look_again(plan, row, decision, specs, args, kwargs)
                return _with_outs(plan, decision)
    return None


def _look_again(
    plan: Plan,
    row: Row,
    decision: Decision,
    specs: Sequence[Spec],
    args: Sequence[Any],
    kwargs: dict[str, Any],
) -> None:
    """Infer the results again for operands that are moved, which are then in C order."""
    operands = []
    outs = [n for n, unread in plan.writes.items() if unread]
    wanted = iter(decision.wanted)
    for position, s in enumerate(specs):
        stays = position in outs or next(wanted) is s.layout
        strides = s.strides if stays else contiguous_strides(s.layout.shape)
        operands.append(Operand(s.layout, s.dtype, strides))
    if any(x.strides != s.strides for x, s in zip(operands, specs, strict=True)):
        plan.outcomes = outcome_of(row.op, args, kwargs, operands, outs)


def _gathered(plan: Plan, row: Row, specs: Sequence[Spec], cut: bool) -> Decision:
    """Return the decision to gather; each call warns about it or refuses it."""
    if cut:
        moving = [s for s in specs if any(c.parts > 1 for c in s.layout.cuts)]
        if moving:
            plan.before = partial(refuse_or_warn, row.name, moving)
    known = None if plan.outcomes is None else [outcome.shape for outcome in plan.outcomes]
    return gathering([spec.layout for spec in specs], known)


def _check_outs(
    row: Row, outs: Sequence[int], specs: Sequence[Spec], results: Sequence[Outcome] | None
) -> None:
    """Refuse tensors for ``out=`` of another shape, which torch would resize to the result's."""
    for position, found in zip(outs, results or ()):
        if tuple(specs[position].shape) != found.shape:
            raise ValueError(wrong_shape(row.op, tuple(specs[position].shape), found.shape))


def _call(
    plan: Plan,
    row: Row,
    operands: list[Operand],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    mesh: DeviceMesh,
) -> Call:
    read = [x for n, x in enumerate(operands) if not plan.writes.get(n)]
    written = tuple([n for n, unread in plan.writes.items() if not unread])
    new, named = replaced(args, kwargs, operands)
    values = bound(row.op, new, named)
    return Call(row.op, row.name, values, read, plan.outcomes, written, mesh.shape)


def _shown(row: Row, layout: Layout) -> Layout:
    """Return the layout of an operand as the rule receives it."""
    hidden = [
        m
        for m in layout.partials
        if isinstance(p := layout.placements[m], Partial) and p.op not in row.takes
    ]
    if not hidden and (row.lone or not layout.ats):
        return layout
    others = {
        m: p
        for m, p in layout.others.items()
        if (m in layout.partials and not hidden) or (m in layout.ats and row.lone)
    }
    return Layout.from_cuts(layout.cuts, layout.mesh_shape, others)


def _with_outs(plan: Plan, decision: Decision) -> Decision:
    """Return the decision with the layouts of the operands of ``out=``, which rules do not see."""
    outs = [n for n, unread in plan.writes.items() if unread]
    if not outs:
        return decision
    wanted: list[Any] = list(decision.wanted)
    results = iter(decision.results)
    for place in outs:
        wanted.insert(place, next(results))
    return decision._replace(wanted=wanted)


def _filled(plan: Plan, decision: Decision, specs: Sequence[Spec], mesh: DeviceMesh) -> Plan:
    """Return the plan of a decision."""
    plan.layouts, plan.changed = decision.results, decision.changed
    plan.made = decision.made
    plan.draws &= decision.draws
    outs = [n for n, unread in plan.writes.items() if unread]
    plan.unread = frozenset([*decision.unread, *outs])
    plan.fresh = plan.row.rule is None and bool(outs)
    plan.fills = [] if decision.run is None else outs
    pairs = list(zip(specs, decision.wanted, strict=True))
    plan.wanted = [None if wanted is spec.layout else wanted for spec, wanted in pairs]
    for position in plan.writes:
        spec, wanted = pairs[position]
        plan.after[position] = wanted
        if spec.layout.shape != wanted.shape:
            raise ValueError(wrong_shape(plan.row.op, spec.layout.shape, wanted.shape))
    plan.is_view = plan.is_view and not plan.writes
    plan.copied = plan.is_view and (decision.moves or specs[0].copied or plan.wanted[0] is not None)
    plan.run = _run_of(plan, decision, mesh)
    _shorten(plan, specs, mesh)
    return plan


def _run_of(plan: Plan, decision: Decision, mesh: DeviceMesh) -> Callable[..., Any]:
    """Return the function that computes the results from this rank's parts."""
    run: Callable[..., Any] = plan.row.op
    if decision.run is not None:
        run = partial(decision.run, mesh) if decision.on_mesh else decision.run
    if plan.draws:
        run = partial(drawn_alike, run, mesh)
    if plan.draws or (decision.on_mesh and (decision.moves or not plan.is_view)):
        run = Talking(plan, run, mesh)
    return run


def _shorten(plan: Plan, specs: Sequence[Spec], mesh: DeviceMesh) -> None:
    """Set the plan's flags for operators where calling `run` with the parts is the only step."""
    written = [specs[position].layout for position in plan.writes]
    plan.skips = _skips(plan, written, mesh)
    moved = any(spec.copied for spec in specs) or any(plan.wanted)
    more = plan.changed or plan.before or plan.made or plan.draws
    if moved or more or mesh.coords is None:
        return
    plan.simple = not plan.writes
    lone = any(layout.ats for layout in written)
    plan.in_place = plan.gives == [0] and len(plan.writes) == 1 and not (plan.plain or lone)


def _skips(plan: Plan, written: Sequence[Layout], mesh: DeviceMesh) -> bool:
    """Return True if this rank has nothing to compute for the operands that are written to."""
    if not written or plan.fresh:
        return False
    return not any(
        layout.holds(mesh.coords) or _shares(layout, plan.after[position])
        for position, layout in zip(plan.writes, written, strict=True)
    )


def _shares(written: Layout, computed: Layout) -> bool:
    """Return True if a rank without a part of the written tensor computes values for it."""
    return any(not isinstance(computed.placements[m], (Replicate, At)) for m in written.ats)
