"""The table of rules: what the operators of torch do with layouts.

How to add a rule
-----------------

A rule is a function of a :class:`~distarray.torch.tensor.calls.Call` that returns a `Decision`, or
None where it has nothing to say, so that the operands are gathered. It stands in the file of its
family in ``distarray/torch/tensor/rules/``, and is listed there under the names of its operators::

    @rule("aten.tril", "aten.triu")
    def _triangle(call):
        x = call.first.layout.without_cut([-2 % call.first.layout.ndim])
        return Decision([x], [x])

* A name is that of an operator (``"aten.sum"``: all its overloads, in-place ones and those with
  ``out=`` too) or of one overload (``"aten.sum.dim_IntList"``), which goes before.
* ``wanted`` has the layout in which each tensor argument is needed, in order. The frame brings them
  there. ``results`` has the layout of each tensor of the result. Their shapes are global; the
  frame compares those of the parts with what the operator gave.
* The operator is then called with the parts. Arguments that are sizes or places have to be those of
  this rank's part: ``changed`` is a function of the rank's mesh coordinates that gives them by
  name. Where the operator itself is not what the parts need, ``run`` is called instead.
* Rules are pure: they look at layouts, shapes, data types and arguments, never at values, ranks or
  messages, so that all ranks decide alike. A decision is kept and found by the operands' specs and
  the other arguments, by value (by type alone with ``by_kind=True``).
* Errors of the operator itself need no care: torch's meta tensors have raised them before.
* ``takes={Fold.SUM}``: the rule is shown pending sums, and leaves them pending or asks for another
  layout; by default operands are shown as if they were settled. ``lone=True``: it is shown lone
  coordinates, as views are.
* ``always=True``: the rule is asked where nothing is cut, too; else the operator itself is called.
* ``plain=True``: plain tensors among the arguments count as replicated, as index tensors do that a
  program makes of its own lists.

`composed` is for what is better said by other operators: a function with the operator's own
arguments, distributed tensors among them, that is called if any of them is not replicated. Where
the operator has a rule, too, which comes first in the file, it is called where that gives None.
`instead` is for operators that are never called themselves.

An operator without a row whose tag says that it works element by element has the rule of
:mod:`distarray.torch.tensor.rules.pointwise`; any other gathers.

A test of the rule is a line in the table of its family in ``tests/torch/tensor/``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import torch

from distarray.layout import Coords, Fold, Layout
from distarray.torch.tensor.calls import Call

__all__ = ["Decision", "Row", "composed", "families", "instead", "row_of", "rule"]

#: The files of rules, one for each family of operators.
_FAMILIES = (
    *("arranging", "attention", "convolution", "copying", "decomposed", "distances", "embedding"),
    *("extremes", "factories", "fancy", "foreach", "fourier", "indexing", "linear_algebra"),
    *("losses", "matmul"),
    *("norms", "pointwise", "reductions", "restriding", "sampling", "scattering", "scans"),
    *("softmax", "views"),
)


class Decision(NamedTuple):
    """What to do with the parts of an operator's operands.

    Attributes
    ----------
    wanted : sequence of Layout
        The layout in which each tensor among the arguments is needed.
    results : sequence of Layout or None
        The layout of each tensor of the result; None for what is replicated and of any shape.
    changed : callable, optional
        From this rank's coordinates to the arguments that are other ones for its part, by name.
    run : callable, optional
        Called with the parts instead of the operator.
    unread : sequence of int, optional
        The operands whose values do not matter: they are not moved, but empty in that layout.
    made : sequence of Layout, optional
        The layouts in which the results are computed, if they are to be moved to `results` then.
    on_mesh : bool
        `run` is given the mesh first: for its coordinates, or to talk to other ranks.
    moves : bool
        `run` brings elements from other ranks, so that no result of it is a view.
    draws : bool
        False for an operator that can draw random numbers, and draws none in this call.
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
    """What is known of one operator, and what has been decided for it.

    Attributes
    ----------
    op : torch._ops.OpOverload
        The operator.
    name : str
        Its name, as `Call` has it.
    rule, composed : callable or None
        See :func:`rule` and :func:`composed`; neither: it gathers.
    takes : frozenset of Fold
        The pending folds that the rule is shown.
    always, lone, plain, by_kind : bool
        See the module.
    apart : bool
        Whether it is always said by other operators.
    written : dict
        The arguments that it writes to, by name: whether it gives them back without reading them.
    lists : bool
        Whether these are lists.
    is_view : bool
        Whether its result is a view of its first argument.
    draws : bool
        Whether it draws random numbers.
    plans : dict
        What was decided, by specs and arguments.
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
#: The entry of operators that work element by element and have none of their own.
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
    """Enter a function as the rule of operators; see the module for what it is and the traits."""

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
    """Enter a function that says operators by others, for operands that are cut."""

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            _enter(name, _Entry(None, function, plain=plain))
        return function

    return enter


def instead(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a function to call instead of operators, however their operands lie."""

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
    """The operators that have a rule, or are said by others, in each file of rules."""
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
    """The row of an operator."""
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
    """The entry of an operator that no rule names.

    torch takes most operators that are made of others apart before they come here, but not those
    that other rules call.
    """
    if torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd"):
        return _Entry(composed=op.decompose, apart=True, plain=True)
    return _pointwise[0] if _is_pointwise(op) else _Entry()


def _is_pointwise(op: Any) -> bool:
    """Whether an operator works element by element, as its tag says, or that of a namesake.

    torch tags few operators in place and with ``out=``, and none of those in its own namespace
    "prims", which it calls in forward derivatives.
    """
    space, _, name = op._schema.name.partition("::")
    there = getattr(torch.ops, "aten" if space == "prims" else space)
    packets = [getattr(there, x, None) for x in {name, name.removesuffix("_")}]
    namesakes = [getattr(packet, x) for packet in packets if packet for x in packet.overloads()]
    return any(torch.Tag.pointwise in one.tags for one in (op, *namesakes))
