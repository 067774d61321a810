"""Table of rules: how torch's operators act on layouts.

How to add a rule
-----------------

A rule is a function of a :class:`~distarray.torch.tensor.calls.Call`. It returns a `Decision`, or
None if it has none, and then the operands are gathered. The rule is defined in the file of its
family in ``distarray/torch/tensor/rules/``, with the names of its operators in its decorator::

    @rule("aten.tril", "aten.triu")
    def _triangle(call):
        x = call.first.layout.without_cut([-2 % call.first.layout.ndim])
        return Decision([x], [x])

* A name is that of an operator (``"aten.sum"``: all its overloads, in-place and ``out=`` variants
  too) or of one overload (``"aten.sum.dim_IntList"``), which takes precedence.
* ``wanted`` lists the required layout of each tensor argument, in order. The dispatcher moves the
  arguments to these layouts. ``results`` lists the layout of each tensor of the result. Their
  shapes are global. The dispatcher compares the shapes of the parts with those of the operator's
  results.
* The dispatcher then calls the operator with the parts. Arguments that are sizes or indices must be
  those of this rank's part: ``changed`` is a function that maps the rank's mesh coordinates to
  these arguments by name. Where the parts need another function than the operator, ``run`` is
  called instead.
* Rules are pure: they read layouts, shapes, data types and arguments, never values, ranks or
  messages, so all ranks decide alike. A decision is cached by the operands' specs and by the values
  of the other arguments (by their types alone with ``by_kind=True``).
* Rules need not handle errors of the operator itself: torch's meta tensors have raised them before.
* ``takes={Fold.SUM}``: the rule receives pending sums, and leaves them pending or asks for another
  layout. By default the rule receives layouts without pending folds. ``lone=True``: the rule
  receives lone coordinates, as rules of views do.
* ``always=True``: the rule is also called if no operand is cut; by default the operator itself is
  called then.
* ``plain=True``: plain tensors among the arguments count as replicated, such as index tensors that
  a program makes from its own lists.

`composed` is for operators that are better expressed by other operators. It registers a function
with the operator's own arguments, distributed tensors among them, that is called if any of these is
not replicated. Where the operator also has a rule, listed before it in the file, the function is
called if the rule returns None. `instead` is for operators that are never called themselves.

An operator without a row whose tag marks it as elementwise uses the rule of
:mod:`distarray.torch.tensor.rules.pointwise`. Any other operator gathers.

A test of the rule is a line in the table of its family in ``tests/torch/tensor/``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import torch

from distarray.layout import Coords, Fold, Layout
from distarray.torch.tensor.calls import Call

__all__ = ["Decision", "Row", "composed", "families", "instead", "row_of", "rule"]

#: Files of rules, one for each family of operators.
_FAMILIES = (
    *("arranging", "attention", "convolution", "copying", "decomposed", "distances", "embedding"),
    *("extremes", "factories", "fancy", "foreach", "fourier", "indexing", "linear_algebra"),
    *("losses", "matmul"),
    *("norms", "pointwise", "reductions", "restriding", "sampling", "scattering", "scans"),
    *("softmax", "views"),
)


class Decision(NamedTuple):
    """Decision of a rule: how to compute an operator from the parts of its operands.

    Attributes
    ----------
    wanted : sequence of Layout
        The required layout of each tensor among the arguments.
    results : sequence of Layout or None
        The layout of each tensor of the result; None for a replicated tensor of any shape.
    changed : callable, optional
        Function from this rank's coordinates to the arguments that differ for its part, by name.
    run : callable, optional
        Called with the parts instead of the operator.
    unread : sequence of int, optional
        Operands whose values do not matter: they are not moved; uninitialized parts are made.
    made : sequence of Layout, optional
        The layouts in which the results are computed, if they are then moved to `results`.
    on_mesh : bool
        True if `run` takes the mesh as its first argument, for its coordinates or to communicate.
    moves : bool
        True if `run` receives elements from other ranks, so no result is a view of an operand.
    draws : bool
        False for an operator that can draw random numbers but draws none in this call.
    """

    wanted: Sequence[Layout]
    results: Sequence[Layout | None]
    changed: Callable[[Coords | None], Mapping[str, Any]] | None = None
    run: Callable[..., Any] | None = None
    unread: Sequence[int] = ()
    made: Sequence[Layout] | None = None
    on_mesh: bool = False
    moves: bool = False
    draws: bool = True


Rule = Callable[[Call], Decision | None]


class Row:
    """Row of the table: the properties of one operator, and its cached decisions.

    Attributes
    ----------
    op : torch._ops.OpOverload
        The operator.
    name : str
        Its name, as in `Call`.
    rule, composed : callable or None
        See :func:`rule` and :func:`composed`; if both are None the operator gathers.
    takes : frozenset of Fold
        The pending folds that the rule receives.
    always, lone, plain, by_kind : bool
        See the module's text.
    apart : bool
        True if the operator is always expressed by other operators.
    written : dict
        The arguments that the operator writes to, by name. The value is True for arguments of
        ``out=``, which it does not read.
    lists : bool
        True if these arguments are lists.
    is_view : bool
        True if its result is a view of its first argument.
    draws : bool
        True if the operator draws random numbers.
    plans : dict
        Cached plans, by specs and arguments.
    """

    __slots__ = (
        "always",
        "apart",
        "by_kind",
        "composed",
        "draws",
        "is_view",
        "lists",
        "lone",
        "name",
        "op",
        "plain",
        "plans",
        "rule",
        "takes",
        "written",
    )

    def __init__(self, op: Any, name: str, entry: "_Entry") -> None:
        self.op, self.name = op, name
        self.rule, self.composed, self.takes = entry.rule, entry.composed, entry.takes
        self.lone, self.plain, self.by_kind = entry.lone, entry.plain, entry.by_kind
        self.apart, self.always = entry.apart, entry.always
        self.plans: dict[Any, Any] = {}
        self.draws = torch.Tag.nondeterministic_seeded in op.tags
        self.written = {
            argument.name: argument.is_out
            for argument in op._schema.arguments
            if argument.alias_info is not None and argument.alias_info.is_write
        }
        self.lists = any(
            argument.name in self.written and isinstance(argument.type, torch.ListType)
            for argument in op._schema.arguments
        )
        self.is_view = any(
            argument.alias_info is not None and not argument.alias_info.is_write
            for argument in op._schema.returns
        )


class _Entry(NamedTuple):
    rule: Rule | None = None
    composed: Callable[..., Any] | None = None
    takes: frozenset[Fold] = frozenset()
    lone: bool = False
    plain: bool = False
    by_kind: bool = False
    apart: bool = False
    always: bool = False


_entries: dict[str, _Entry] = {}
_rows: dict[Any, Row] = {}
#: Entry of elementwise operators that have no entry of their own.
_pointwise: list[_Entry] = []


def rule(
    *names: str,
    takes: Iterable[Fold] = (),
    lone: bool = False,
    plain: bool = False,
    by_kind: bool = False,
    pointwise: bool = False,
    always: bool = False,
) -> Callable[[Rule], Rule]:
    """Register a function as the rule of operators; the module's text describes the options."""

    def enter(function: Rule) -> Rule:
        entry = _Entry(function, None, frozenset(takes), lone, plain, by_kind, always=always)
        for name in names:
            _enter(name, entry)
        if pointwise:
            _pointwise[:] = [entry]
        return function

    return enter


def composed(
    *names: str, plain: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function that expresses operators by others, for operands that are cut."""

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            _enter(name, _Entry(None, function, plain=plain))
        return function

    return enter


def instead(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function that is called instead of operators, whatever their operands' layouts."""

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            _enter(name, _Entry(None, function, apart=True))
        return function

    return enter


def _enter(name: str, entry: _Entry) -> None:
    known = _entries.get(name)
    if known is not None:
        if known.composed is not None or entry.rule is not None:
            raise ValueError(f"{name} has a rule already")
        entry = known._replace(composed=entry.composed)
    _entries[name] = entry


def families() -> dict[str, list[str]]:
    """Return the names of operators with a rule or a composed function, by file of rules."""
    _load()
    found: dict[str, list[str]] = {family: [] for family in _FAMILIES}
    for name, entry in _entries.items():
        function: Any = entry.rule or entry.composed
        module = getattr(function, "func", function).__module__
        found[module.rpartition(".")[2]].append(name)
    return {family: sorted(names) for family, names in found.items()}


def _load() -> None:
    for family in _FAMILIES:
        import_module(f"{__package__}.rules.{family}")


def row_of(op: Any) -> Row:
    """Return the row of an operator."""
    found = _rows.get(op)
    if found is None:
        if not _rows:
            _load()
        packet = str(op.overloadpacket)
        name = packet[:-1] if packet.endswith("_") and not packet.endswith("__") else packet
        entry = _entries.get(str(op)) or _entries.get(packet) or _entries.get(name)
        found = _rows[op] = Row(op, name, entry or _default(op))
    return found


def _default(op: Any) -> _Entry:
    """Return the entry of an operator that no rule names.

    torch decomposes most composite operators before they get here, but not those that other rules
    call.
    """
    if torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd"):
        return _Entry(composed=op.decompose, apart=True, plain=True)
    return _pointwise[0] if _is_pointwise(op) else _Entry()


def _is_pointwise(op: Any) -> bool:
    """Return True if the tag of an operator, or of its namesake, marks it as elementwise.

    torch tags few in-place and ``out=`` variants. It tags no operator of its own namespace "prims",
    which its forward derivatives call.
    """
    space, _, name = op._schema.name.partition("::")
    there = getattr(torch.ops, "aten" if space == "prims" else space)
    packets = [getattr(there, x, None) for x in {name, name.removesuffix("_")}]
    namesakes = [getattr(packet, x) for packet in packets if packet for x in packet.overloads()]
    return any(torch.Tag.pointwise in one.tags for one in (op, *namesakes))
