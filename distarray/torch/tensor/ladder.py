"""Dispatcher: the steps of every operator on distributed tensors.

torch calls an operator below autograd, with distributed tensors among its arguments. The dispatcher
looks up the operator's row, and the row's plan for such operands and arguments. At the first call
there is none: then the row's rule is called, or the plan is to gather. Then the dispatcher calls
the operator with the parts in the layouts of the plan, and makes distributed tensors of the
results. Where the operands already have these layouts this costs a lookup and a call.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from distarray.comm import DeviceMesh
from distarray.layout import Layout
from distarray.torch.bridge.inference import apart, inferring, with_versions
from distarray.torch.bridge.transforms import is_traced, refuse_constants
from distarray.torch.tensor.adopting import adopting
from distarray.torch.tensor.calls import replaced, tensors_in
from distarray.torch.tensor.composites import KEYS
from distarray.torch.tensor.moved_views import Source, current, written_back
from distarray.torch.tensor.moving import moved, refilled
from distarray.torch.tensor.operands import PlainOperandError, common_mesh, plain_operand
from distarray.torch.tensor.planning import Plan, plan_for, wrong_shape
from distarray.torch.tensor.spec import Spec
from distarray.torch.tensor.table import Row, row_of
from distarray.torch.tensor.versions import counted, tied, written

__all__ = ["dispatch", "made"]

_make: Any = torch.Tensor._make_wrapper_subclass
_unsafe_set: Any = torch._functionalize_unsafe_set
#: Function that returns the number of active torch dispatch modes.
_modes: Any = torch._C._len_torch_dispatch_stack
_STRIDED = torch.strided
#: Types of arguments that a key contains by value, or by type alone.
_VALUES = frozenset(
    {int, float, bool, complex, str, type(None), torch.dtype, torch.device, torch.layout}
    | {torch.memory_format, torch.Size}
)
_rows: dict[Any, Row] = {}
#: Maximum number of plans cached for one operator; beyond it all of its plans are dropped.
_MOST_PLANS = 512


def made(cls: Any, part: Tensor, spec: Spec) -> Any:
    """Return the distributed tensor of this rank's part; checks nothing."""
    if inferring():
        return apart(made, (cls, with_versions(part), spec), {})
    self = _make(
        *(cls, spec.shape, spec.strides, None, None, spec.dtype, _STRIDED, spec.device),
        *(False, False, None, False, False, KEYS),
    )
    self._part, self._spec = part, spec
    return self


def _alias(view: Any, base: Any) -> None:
    """Register with torch that a view shares the memory of its base.

    Skipped where the compiler traces a program: it would rebuild the view from strides.
    """
    if not is_traced(view._part):
        _unsafe_set(view, base)


def dispatch(cls: Any, op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Call an operator that has distributed tensors among its arguments.

    Parameters
    ----------
    cls : type
        The type of distributed tensors.
    op : torch._ops.OpOverload
        The operator.
    args, kwargs
        Its arguments.
    """
    if _modes():
        refuse_constants(tensors_in(args, kwargs))
    row = _rows.get(op) or _rows.setdefault(op, row_of(op))
    try:
        key, parts = _key(cls, row, args)
        named = _named(cls, row, kwargs, key) if kwargs else kwargs
    except PlainOperandError as error:
        call = partial(dispatch, cls, op)
        return adopting(call, made, cls, row, args, kwargs, error)
    known = tuple(key)
    plan = row.plans.get(known)
    if plan is None:
        plan = plan_for(cls, row, args, kwargs)
        if len(row.plans) >= _MOST_PLANS:
            row.plans.clear()
        row.plans[known] = plan
    elif plan.spec is not None:
        if not plan.is_view:
            return made(cls, plan.run(*parts, **named), plan.spec)
        part = counted(plan.run, parts, named)
        result = made(cls, part if part._is_view() else tied(part, parts[0]), plan.spec)
        _alias(result, args[0])
        return result
    elif plan.in_place:
        counted(plan.run, parts, named)
        return args[0]
    return perform(cls, plan, args, kwargs)


def _key(cls: Any, row: Row, args: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Return the key under which the plan is cached, and the arguments with parts for tensors."""
    by_value = not row.by_kind
    key: list[Any] = []
    parts: list[Any] = []
    for x in args:
        kind = type(x)
        if kind is cls:
            key.append(x._spec)
            parts.append(x._part)
        elif kind in _VALUES:
            key.append(kind)
            if by_value:
                key.append(x)
            parts.append(x)
        else:
            part, entry = _other(cls, row, x)
            key.append(entry)
            parts.append(part)
    return key, parts


def _other(cls: Any, row: Row, x: Any) -> tuple[Any, Any]:
    """Return an argument of another kind as the operator receives it, and its entry of the key."""
    if isinstance(x, (list, tuple)):
        pairs = [
            (y._part, y._spec)
            if type(y) is cls
            else (y, (type(y), y))
            if type(y) in _VALUES
            else _other(cls, row, y)
            for y in x
        ]
        return [part for part, _ in pairs], tuple([entry for _, entry in pairs])
    if isinstance(x, torch.Tensor):
        if type(x) is cls:
            return x._part, x._spec
        return x, plain_operand(row, x)
    return x, (type(x), x if not isinstance(x, torch.Generator) else id(x))


def _named(cls: Any, row: Row, kwargs: dict[str, Any], key: list[Any]) -> dict[str, Any]:
    """Return the keyword arguments with parts for tensors; append their entries to `key`."""
    parts = {}
    for name, x in kwargs.items():
        kind = type(x)
        if kind in _VALUES:
            parts[name] = x
            key.append((name, kind, x))
        else:
            parts[name], entry = (x._part, x._spec) if kind is cls else _other(cls, row, x)
            key.append((name, entry))
    return parts


# -- the general case -----------------------------------------------------------------------------


def perform(cls: Any, plan: Plan, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Carry out a plan: move the operands, compute, write back, wrap the results."""
    if plan.composed is not None:
        return _compose(cls, plan, args, kwargs)
    if plan.before is not None:
        plan.before()
    operands = tensors_in(args, kwargs)
    mesh = common_mesh(cls, plan.row.name, operands)
    here = []
    for position, (x, wanted) in enumerate(zip(operands, plan.wanted, strict=True)):
        here.append(_brought(cls, plan, x, position, wanted))
    new, named = replaced(args, kwargs, here)
    if plan.changed is not None:
        _change(plan, new, named, plan.changed(mesh.coords))
    out = _computed(plan, mesh, new, named)
    for position, found in zip(plan.fills, tensors_in([out], {})):
        here[position] = found
    for position, layout in plan.after.items():
        _write(cls, operands[position], here[position], layout, mesh)
    if plan.skips or plan.row.lists:  # torch does not count these writes
        written([operands[position] for position in plan.writes])
    return _laid_out(cls, plan, out, args, kwargs, mesh)


def _compose(cls: Any, plan: Plan, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Compute an operator by other operators, and copy the results to the operands it writes to."""
    assert plan.composed is not None
    returns = plan.row.op._schema.returns
    if plan.apart or (returns and all(r.alias_info is None for r in returns)):
        return plan.composed(*args, **kwargs)
    names = [argument.name for argument in plan.row.op._schema.arguments]
    given = dict(zip(names, args)) | kwargs
    outs = [given[name] for name, is_out in plan.row.written.items() if is_out and name in given]
    read = {name: x for name, x in kwargs.items() if not plan.row.written.get(name)}
    result = plan.composed(*args, **read)
    targets = outs or [given[name] for name in plan.row.written]
    if not targets:
        return result
    results = result if isinstance(result, (list, tuple)) else [result]
    for target, found in zip(targets, results, strict=True):
        target.copy_(found)
    return targets[0] if len(targets) == 1 else tuple(targets)


def _brought(cls: Any, plan: Plan, x: Any, position: int, wanted: Layout | None) -> Tensor:
    """Return this rank's part of an operand in the wanted layout; a copy if a write needs one."""
    if type(x) is not cls:
        spec = plan.plain[position]
        if wanted is None or wanted is spec.layout:
            return x
        return moved(x, spec.mesh, spec.layout, wanted)
    part = current(x)
    if plan.fresh and plan.writes.get(position):
        return part.new_empty(0)
    if wanted is None or wanted is x._spec.layout:
        return part
    mesh = x._spec.mesh
    if position in plan.unread:
        return part.new_empty(wanted.local_shape(mesh.coords))
    if plan.is_view or position in plan.after:  # the result shares, or becomes, this memory
        there = moved(part, mesh, x._spec.layout, wanted)
        return there.clone() if there is part else there
    return moved(part, mesh, x._spec.layout, wanted, x)


def _computed(plan: Plan, mesh: DeviceMesh, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Call the operator with the parts."""
    if plan.is_view or plan.writes:
        return counted(plan.computed, (mesh, args, kwargs), {})
    return plan.computed(mesh, args, kwargs)


def _change(plan: Plan, args: list[Any], kwargs: dict[str, Any], changed: Any) -> None:
    places = {a.name: n for n, a in enumerate(plan.row.op._schema.arguments) if not a.kwarg_only}
    for name, value in changed.items():
        place = places.get(name, len(args))
        if place < len(args):
            args[place] = value
        else:
            kwargs[name] = value


def _write(cls: Any, x: Any, there: Tensor, layout: Layout, mesh: DeviceMesh) -> None:
    """Move values that an operator wrote in another layout back into the operand."""
    if type(x) is cls:
        spec = x._spec
        part = current(x)
        if there is not part:
            if tuple(there.shape) != layout.local_shape(spec.mesh.coords):
                raise ValueError(wrong_shape("out=", layout.shape, tuple(there.shape)))
            refilled(part, moved(there, spec.mesh, layout, spec.layout), spec)
        if spec.copied:
            written_back(x)
    elif there is not x:  # a plain operand counts as replicated
        x.copy_(moved(there, mesh, layout, Layout.replicated(layout.shape, mesh.shape)))


def _laid_out(
    cls: Any, plan: Plan, out: Any, args: Sequence[Any], kwargs: dict[str, Any], mesh: DeviceMesh
) -> Any:
    """Return the operator's results as distributed tensors."""
    operands, op = tensors_in(args, kwargs), plan.row.op
    if plan.gives:
        targets = [operands[position] for position in plan.gives]
        return targets[0] if not isinstance(out, (list, tuple)) else type(out)(targets)
    specs = plan.finished(out, mesh)
    results = []
    for number, part in enumerate(tensors_in([out], {})):
        spec = specs[number] if specs else None
        if plan.is_view and part.layout is _STRIDED and (plan.copied or not part._is_view()):
            part = tied(part, args[0]._part)
        result = _result(cls, plan, part, number, spec, mesh)
        if plan.is_view:
            _alias(result, args[0])
            if result._spec.copied:
                result._source = Source(args[0], op, args[1:], kwargs, number, args[0]._version)
        results.append(result)
    return replaced([out], {}, results)[0][0]


def _result(
    cls: Any, plan: Plan, part: Tensor, number: int, spec: Spec | None, mesh: DeviceMesh
) -> Any:
    """Return one result in the plan's layout; replicated if there is no spec, plain if sparse."""
    if part.layout is not _STRIDED:
        return part
    part = part.resolve_conj().resolve_neg()  # the global tensor has no conjugate or negative bit
    if spec is None:
        whole = Layout.replicated(tuple(part.shape), mesh.shape)
        spec = Spec(mesh, whole, tuple(part.stride()), part.dtype, part.device, plan.copied)
    elif plan.made is not None:
        part = moved(part, mesh, plan.made[number], spec.layout)
    return made(cls, part, spec)
