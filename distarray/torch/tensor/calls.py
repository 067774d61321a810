"""Calls of operators: arguments by name, their tensors, and the results that torch infers."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from distarray.layout import Layout

__all__ = [
    "Call",
    "Outcome",
    "Operand",
    "arguments",
    "bound",
    "gives_one",
    "outcome_of",
    "replaced",
    "tensors_in",
]


class Operand(NamedTuple):
    """Tensor among the arguments of an operator, as rules see it.

    Attributes
    ----------
    layout : Layout
        Its layout. Pending folds that the operator's row does not take, and lone coordinates, are
        already replaced by replication.
    dtype : torch.dtype
        Data type of its elements.
    strides : tuple of int
        Its global strides.
    """

    layout: Layout
    dtype: Any
    strides: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The global shape."""
        return self.layout.shape

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return int(self.dtype.itemsize)


class Outcome(NamedTuple):
    """Metadata of one result of an operator in one process, inferred by torch's meta tensors."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Any


class Call:
    """Call of an operator, as rules see it: layouts and arguments, no values and no ranks.

    Attributes
    ----------
    op : torch._ops.OpOverload
        The operator.
    name : str
        Its name without overload, ``"aten.sum"``; for in-place operators without the underscore.
    operands : list of Operand
        Its tensors in order, with lists expanded; without the tensors of ``out=``.
    results : list of Outcome or None
        The results in one process, tensor by tensor; None if torch cannot infer them without
        values.
    written : tuple of int
        The operands that it writes to.
    mesh_shape : tuple of int
        Shape of the operands' mesh.
    """

    __slots__ = ("mesh_shape", "name", "op", "operands", "results", "values", "written")

    def __init__(
        self,
        op: Any,
        name: str,
        values: Mapping[str, Any],
        operands: list[Operand],
        results: list[Outcome] | None,
        written: tuple[int, ...],
        mesh_shape: tuple[int, ...],
    ) -> None:
        self.op, self.name, self.values, self.operands = op, name, values, operands
        self.results, self.written, self.mesh_shape = results, written, mesh_shape

    def __getitem__(self, name: str) -> Any:
        """Return an argument by its name in the operator's schema; tensors are operands."""
        return self.values[name]

    def get(self, name: str, default: Any = None) -> Any:
        """Return an argument, or the default if the operator has no argument of this name."""
        return self.values.get(name, default)

    @property
    def first(self) -> Operand:
        """The first tensor."""
        return self.operands[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """The global shape of the first result."""
        assert self.results is not None
        return self.results[0].shape

    def dim(self, name: str = "dim", ndim: int | None = None) -> int:
        """Return a dimension argument, counted from the front; by default of the first tensor."""
        count = self.operands[0].layout.ndim if ndim is None else ndim
        return int(self.values[name]) % max(count, 1)

    def dims(self, name: str = "dim") -> tuple[int, ...]:
        """Return an argument of one or several dimensions of the first tensor; all by default."""
        count = self.operands[0].layout.ndim
        given = self.values.get(name)
        if given is None or (isinstance(given, (list, tuple)) and not given):
            return tuple(range(count))
        listed = given if isinstance(given, (list, tuple)) else [given]
        return tuple(sorted({dim % max(count, 1) for dim in listed})) if count else ()


# -- tensors among arguments ----------------------------------------------------------------------


def arguments(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[Any]:
    """Yield all arguments in order, with lists expanded."""
    for value in (*args, *kwargs.values()):
        if isinstance(value, (list, tuple)):
            yield from value
        else:
            yield value


def tensors_in(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Tensor]:
    """Return the tensors among the arguments, in order."""
    return [x for x in arguments(args, kwargs) if isinstance(x, torch.Tensor)]


def replaced(
    args: Sequence[Any], kwargs: Mapping[str, Any], tensors: Sequence[Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments with other objects in the place of their tensors, in order."""
    position = iter(tensors)

    def one(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return next(position)
        if isinstance(value, (list, tuple)) and any(isinstance(x, torch.Tensor) for x in value):
            return [next(position) if isinstance(x, torch.Tensor) else x for x in value]
        return value

    return [one(x) for x in args], {name: one(x) for name, x in kwargs.items()}


def bound(op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments by their names in the operator's schema, with its defaults."""
    values = {}
    for position, argument in enumerate(op._schema.arguments):
        if position < len(args) and not argument.kwarg_only:
            values[argument.name] = args[position]
        elif argument.name in kwargs:
            values[argument.name] = kwargs[argument.name]
        else:
            values[argument.name] = argument.default_value
    return values


def gives_one(op: Any) -> bool:
    """Return True if an operator returns one tensor, not several or a list."""
    returns = op._schema.returns
    return len(returns) == 1 and isinstance(returns[0].type, torch.TensorType)


def outcome_of(
    op: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    operands: Sequence[Operand],
    outs: Collection[int] = (),
) -> list[Outcome] | None:
    """Infer an operator's results; None if torch needs values for that. Raises torch's errors.

    All ranks call this with the same metadata, so they raise alike. `outs` are the operands of
    ``out=``, which are returned without being read. torch may give them another shape.
    """
    metas = [
        torch.empty(0, dtype=x.dtype, device="meta")
        if position in outs
        else torch.empty_strided(x.shape, x.strides, dtype=x.dtype, device="meta")
        for position, x in enumerate(operands)
    ]
    new, named = replaced(args, kwargs, metas)
    if named.get("device") is not None:
        named["device"] = torch.device("meta")
    if named.get("generator") is not None:  # some of torch's meta operators take no generator
        named["generator"] = None
    try:
        found = op(*new, **named)
    except NotImplementedError:
        return None
    return [
        Outcome(tuple(x.shape), tuple(x.stride()), x.dtype)
        for x in arguments([found], {})
        if isinstance(x, torch.Tensor)
    ]
