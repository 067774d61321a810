"""Calls of operators: arguments by name, the tensors among them, and what torch says of results."""

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
    """A tensor among the arguments of an operator, as rules see it.

    Attributes
    ----------
    layout : Layout
        Where its elements are. Pending folds that the operator's row does not take, and lone
        coordinates, are already replaced by replication.
    dtype : torch.dtype
        Of its elements.
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
    """The result of an operator in one process, as torch's meta tensors tell it."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Any


class Call:
    """One call of an operator, as rules see it: layouts and arguments, no values and no ranks.

    Attributes
    ----------
    op : torch._ops.OpOverload
        The operator.
    name : str
        Its name without overload, ``"aten.sum"``; of an in-place one without the underscore.
    operands : list of Operand
        Its tensors in order, those in lists one by one; without those of ``out=``.
    results : list of Outcome or None
        What one process would get, tensor by tensor; None if torch cannot say it without values.
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
        """An argument by its name in the operator's schema; tensors are operands."""
        return self.values[name]

    def get(self, name: str, default: Any = None) -> Any:
        """An argument, or the default if the operator has none of this name."""
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
        """An argument that is a dimension, counted from the front; of the first tensor."""
        count = self.operands[0].layout.ndim if ndim is None else ndim
        return int(self.values[name]) % max(count, 1)

    def dims(self, name: str = "dim") -> tuple[int, ...]:
        """An argument of one or several dimensions of the first tensor; all by default."""
        count = self.operands[0].layout.ndim
        given = self.values.get(name)
        if given is None or (isinstance(given, (list, tuple)) and not given):
            return tuple(range(count))
        listed = given if isinstance(given, (list, tuple)) else [given]
        return tuple(sorted({dim % max(count, 1) for dim in listed})) if count else ()


# -- tensors among arguments ----------------------------------------------------------------------


def arguments(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[Any]:
    """All arguments in order, and those in lists one by one."""
    for value in (*args, *kwargs.values()):
        if isinstance(value, (list, tuple)):
            yield from value
        else:
            yield value


def tensors_in(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Tensor]:
    """The tensors among the arguments, in order."""
    return [x for x in arguments(args, kwargs) if isinstance(x, torch.Tensor)]


def replaced(
    args: Sequence[Any], kwargs: Mapping[str, Any], tensors: Sequence[Any]
) -> tuple[list[Any], dict[str, Any]]:
    """The arguments with other objects in the place of their tensors, in order."""
    position = iter(tensors)

    def one(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return next(position)
        if isinstance(value, (list, tuple)) and any(isinstance(x, torch.Tensor) for x in value):
            return [next(position) if isinstance(x, torch.Tensor) else x for x in value]
        return value

    return [one(x) for x in args], {name: one(x) for name, x in kwargs.items()}


def bound(op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments by the names of the operator's schema, with its defaults."""
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
    """Whether an operator returns one tensor, rather than several or a list of them."""
    returns = op._schema.returns
    return len(returns) == 1 and isinstance(returns[0].type, torch.TensorType)


def outcome_of(
    op: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    operands: Sequence[Operand],
    outs: Collection[int] = (),
) -> list[Outcome] | None:
    """What an operator would give, or None where torch cannot say it; raises torch's errors.

    All ranks ask with the same metadata, so that they raise alike. `outs` are the operands that are
    given back without being read, which torch may give another shape.
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
    if named.get("generator") is not None:  # some of torch's meta operators take none
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
