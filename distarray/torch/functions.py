"""torch's functions on distributed tensors, computed from the ranks' parts.

Functions that work element by element are a table of names: operands of equal layout are taken as
they are, beside scalars and replicated tensors of one element. The few others that a model calls
between its modules are rows of their own. A function in neither table is refused with the way out:
nothing is gathered unasked.
"""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import torch
from torch import Tensor

from distarray.layout import Cut, Layout, Replicate
from distarray.torch.carrying import Route, carry, gradient_layout
from distarray.torch.elementwise import ELEMENTWISE, Args, Func, Kwargs

if TYPE_CHECKING:
    from distarray.torch.tensor import DistTensor

__all__ = ["Operators", "call", "handles", "knows"]


#: An operand beside a distributed tensor.
Operand: TypeAlias = "DistTensor | Tensor | complex"

#: The others: name -> function(func, args, kwargs), registered where it is defined.
_OTHERS: dict[str, Callable[..., Any]] = {}
#: Functions whose rules build on distributed tensors, and a public name that stands beside each:
#: asked for it, the package imports the module of both.
_LATE = {"cross_entropy": "parallel_cross_entropy", "dropout": "manual_seed"}


def handles(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function as torch's functions of these names for distributed tensors."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            _OTHERS[name] = function
        return function

    return register


def knows(name: str) -> bool:
    """Whether a function of this name takes distributed tensors."""
    return name in ELEMENTWISE or name in _OTHERS or name in _LATE


def call(kind: type, func: Func, args: Args, kwargs: Kwargs) -> Any:
    """A torch function some of whose operands are distributed.

    Parameters
    ----------
    kind : type
        DistTensor.
    func : callable
        The function or method of torch.
    args, kwargs
        What it was called with.
    """
    name = getattr(func, "__name__", "")
    if name in _LATE:
        getattr(sys.modules[__package__], _LATE[name])
    if name in _OTHERS:
        return _OTHERS[name](func, args, kwargs)
    if name not in ELEMENTWISE:
        _refuse(name, kind, args, kwargs)
    if kwargs.get("out") is not None:
        raise TypeError(f"torch.{name}: out= and distributed tensors do not go together")
    kwargs = {k: v for k, v in kwargs.items() if k != "inplace"}
    return _by_part(name, kind, func, args, kwargs)


def _by_part(name: str, kind: type, func: Func, args: Args, kwargs: Kwargs) -> Any:
    """An elementwise function of the ranks' parts."""
    found: list[Any] = [x for x in (*args, *kwargs.values()) if isinstance(x, kind)]
    settled = _alike(name, found)
    position = iter(settled)

    def local(x: Any) -> Any:
        if isinstance(x, kind):
            return next(position).local
        if isinstance(x, torch.Tensor):
            if x.numel() != 1 or x.ndim > settled[0].ndim:
                _refuse_mixture(name, settled[0], x)
            return _shared(x, settled[0])
        return x

    result = func(*[local(x) for x in args], **{k: local(v) for k, v in kwargs.items()})
    return settled[0].like(result)


def _shared(number: Tensor, x: "DistTensor") -> Tensor:
    """A tensor of one element beside a distributed one: its gradient is summed over the parts."""
    layout = Layout.replicated(tuple(number.shape), x.mesh.shape)
    apart = [m for m, p in enumerate(x.placements) if not isinstance(p, Replicate)]
    pending = tuple(sorted({*apart, *x.pending}))
    route = Route(layout, layout, layout, gradient_layout(layout, pending))
    return carry(number, x.mesh, route)


def _alike(name: str, found: list["DistTensor"]) -> list["DistTensor"]:
    """The operands in one layout, with one meaning of their gradients."""
    found = [_without_sums(x) for x in found]
    first = found[0]
    for x in found[1:]:
        if x.mesh is not first.mesh or x.layout is not first.layout:
            raise TypeError(
                f"torch.{name} wants operands laid out alike:\n    {first!r}\n    {x!r}\n"
                "  x.redistribute(placements) lays one out as the other"
            )
    pending = {m for x in found for m in x.pending}
    return [x.pended(tuple(pending)) for x in found]


def _without_sums(x: "DistTensor") -> "DistTensor":
    return x.placed(x.layout.settled()) if x.layout.partials else x


def _refuse_mixture(name: str, x: "DistTensor", plain: Tensor) -> NoReturn:
    raise TypeError(
        f"torch.{name} was given {x!r} and a plain tensor of shape {tuple(plain.shape)}, which "
        "does not say how it is laid out. Either x.to_local(), to go on with this rank's part, or "
        "DistTensor.from_local(tensor, mesh, placements)"
    )


def _refuse(name: str, kind: type, args: Args, kwargs: Kwargs) -> NoReturn:
    given = [y for x in (*args, *kwargs.values()) for y in (x if type(x) in (list, tuple) else [x])]
    found = next((x for x in given if isinstance(x, kind)), None)
    raise TypeError(
        f"torch.{name} does not take distributed tensors (here {found!r}). x.to_local() is this "
        "rank's part and x.full_tensor() the whole as plain tensors; a parallel style with "
        "use_local_output=True hands out plain ones"
    )


@handles("flatten")
def _flatten(func: Func, args: Args, kwargs: Kwargs) -> Any:
    """Dimensions joined into one; only the first of them may be cut."""

    def bound(x: "DistTensor", start_dim: int = 0, end_dim: int = -1) -> "DistTensor":
        x = _without_sums(x)
        start, end = start_dim % x.ndim, end_dim % x.ndim
        cuts = x.layout.cuts
        if any(cut.mesh_dims for cut in cuts[start + 1 : end + 1]):
            raise TypeError(
                f"flatten({start_dim}, {end_dim}) of {x!r} would join a dimension that is cut; "
                "x.redistribute(placements) first"
            )
        inner = 1
        for cut in cuts[start + 1 : end + 1]:
            inner *= cut.extent
        joined = _times(cuts[start], inner)
        layout = Layout.from_cuts(
            [*cuts[:start], joined, *cuts[end + 1 :]], x.layout.mesh_shape, x.layout.others
        )
        return x.like(x.local.flatten(start, end), layout)

    return bound(*args, **kwargs)


def _times(cut: Cut, factor: int) -> Cut:
    """The cut of a dimension `factor` times as long, with boundaries at the same places."""
    if not cut.mesh_dims:
        return Cut.whole(cut.extent * factor)
    counts = [(stop - start) * factor for start, stop in map(cut.interval, range(cut.parts))]
    return Cut.ragged(counts, cut.mesh_dims, cut.radix)


class Operators:
    """Python's operators, by torch's functions of the same meaning."""

    __slots__ = ()

    def __add__(self, other: "Operand") -> Any:
        return torch.add(self, other)

    def __radd__(self, other: "Operand") -> Any:
        return torch.add(self, other)

    def __sub__(self, other: "Operand") -> Any:
        return torch.sub(self, other)

    def __rsub__(self, other: "Operand") -> Any:
        return torch.add(torch.neg(self), other)

    def __mul__(self, other: "Operand") -> Any:
        return torch.mul(self, other)

    def __rmul__(self, other: "Operand") -> Any:
        return torch.mul(self, other)

    def __truediv__(self, other: "Operand") -> Any:
        return torch.div(self, other)

    def __rtruediv__(self, other: "Operand") -> Any:
        return torch.mul(torch.reciprocal(self), other)

    def __pow__(self, other: "Operand") -> Any:
        return torch.pow(self, other)

    def __neg__(self) -> Any:
        return torch.neg(self)

    def __lt__(self, other: "Operand") -> Any:
        return torch.lt(self, other)

    def __le__(self, other: "Operand") -> Any:
        return torch.le(self, other)

    def __gt__(self, other: "Operand") -> Any:
        return torch.gt(self, other)

    def __ge__(self, other: "Operand") -> Any:
        return torch.ge(self, other)

    def __eq__(self, other: object) -> Any:
        return torch.eq(self, other)

    def __ne__(self, other: object) -> Any:
        return torch.ne(self, other)

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(
            f"{self!r} is no NumPy array: x.full_tensor().detach().numpy() is the whole as one"
        )

    def __bool__(self) -> bool:
        raise TypeError(f"the truth of {self!r}: x.full_tensor() is the whole as a plain tensor")

    __hash__ = object.__hash__
