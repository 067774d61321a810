"""Parts of parameters, which torch's functions would take for the whole.

A parameter that is cut stays the same object, with this rank's part in it. Outside of the forward
that gathers it, or that computes with parts on purpose, a function of torch would give a result of
the part alone: other logits on every rank, a norm of some rows. So parts have a class of their own,
:class:`Part`. A function that works element by element gives a part again, questions about dtype or
shape are answered, and all else is refused.

Within ``with plainly():``, which this package uses, torch ignores the class. Optimizers make their
steps so, too (:mod:`distarray.torch.parameters.guards`).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, SupportsIndex

import torch
from torch import Tensor

from distarray.layout.placement import Fold
from distarray.torch.bridge.plain import local_of, plainly
from distarray.torch.parameters.elementwise import (
    ASKING,
    ELEMENTWISE,
    KEPT,
    OF_VALUES,
    Args,
    Func,
    Kwargs,
)
from distarray.typing import Shape

if TYPE_CHECKING:
    from distarray.torch.parameters.placed import Placed

__all__ = [
    "KEY",
    "Part",
    "Saved",
    "check_unrecorded",
    "guard",
    "guard_gradient",
    "loaded_part",
    "unguard",
]


#: The attribute of modules, of parameters and of parts with their layout.
KEY = "_distarray_placed"

_TENSOR: Any = torch.Tensor
_GRAD: Any = torch.Tensor.grad


#: From where to where a part reaches, along each dimension.
Spans = tuple[tuple[int, int], ...]


class Saved(NamedTuple):
    """The description of a part that was read from a file.

    Attributes
    ----------
    whole : tuple of int
        The shape of the whole parameter.
    spans : tuple
        Where the part lies in it.
    called : str
        The parameter, as errors name it.
    """

    whole: Shape
    spans: Spans
    called: str


def _grad(part: Tensor) -> Tensor | None:
    with plainly():
        found: Tensor | None = _GRAD.__get__(part)
    return guard_gradient(found, _placed(part)) if type(found) is _TENSOR else found


def _set_grad(part: Tensor, value: Tensor | None) -> None:
    with plainly():
        _GRAD.__set__(part, value)


class Part:
    """The common base of the classes of this rank's parts of parameters.

    ``to_local()`` is the part as a plain tensor, ``full_tensor()`` the whole, as DTensor has them.
    """

    #: This rank's part of the gradient. Training loops read it in each step, so it avoids
    #: ``__torch_function__``.
    grad = property(_grad, _set_grad, partial(_set_grad, value=None))

    @classmethod
    def __torch_function__(
        cls, func: Func, types: Sequence[type], args: Args = (), kwargs: Kwargs | None = None
    ) -> Any:
        act = _ACTS.get(func)
        if act is None:
            act = _ACTS[func] = _act_for(func)
        with plainly():
            return act(func, args, kwargs or {})

    def to_local(self) -> Tensor:
        """This rank's part as a plain tensor over the same memory; gradients flow."""
        return local_of(self)

    def full_tensor(self) -> Tensor:
        """The whole, without gradient, on every rank; collective.

        Raises
        ------
        RuntimeError
            Where autograd would record it: the gradient would be lost.

        Cost
        ----
        One exchange.
        """
        tensor: Any = self
        with plainly():
            placed = _placed(self)
            check_unrecorded(tensor, placed.called)
            if isinstance(placed, Saved):
                raise RuntimeError(f"{_described(self)} was loaded from a file that has no more")
            return placed.full(tensor.detach())

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) not in memo:
            tensor: Any = self
            with plainly():
                copy = tensor.detach().clone(memory_format=torch.preserve_format)
                if isinstance(self, torch.nn.Parameter):
                    copy = torch.nn.Parameter(copy)
                copy.requires_grad_(tensor.requires_grad)
                memo[id(self)] = guard(copy, _placed(self))
        return memo[id(self)]

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        placed = _placed(self)
        with plainly():
            local = local_of(self).detach()
        return loaded_part, (local, placed.whole, placed.spans, placed.called)

    def __repr__(self, **_: Any) -> str:
        with plainly():
            return f"<{_described(self)}: {local_of(self)!r}>"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)


class GradientPart:
    """The common base of the classes of parts' gradients: a norm is that of the whole."""

    @classmethod
    def __torch_function__(
        cls, func: Func, types: Sequence[type], args: Args = (), kwargs: Kwargs | None = None
    ) -> Any:
        act: Callable[..., Any] = _NORMS.get(getattr(func, "__name__", ""), _ask)
        with plainly():
            return act(func, args, kwargs or {})


def check_unrecorded(tensor: Tensor, called: str) -> None:
    """Refuse to give a whole tensor where autograd would record it."""
    if torch.is_grad_enabled() and tensor.requires_grad:
        raise RuntimeError(
            f"full_tensor() of {called} has no gradient: call it under torch.no_grad()"
        )


def guard(tensor: Tensor, placed: "Placed | Saved") -> Tensor:
    """Give a tensor that is this rank's part of a parameter the class `Part`; the same object."""
    setattr(tensor, KEY, placed)
    if not isinstance(tensor, Part):
        unguard(tensor)
        tensor.__class__ = _kind_of(Part, type(tensor))
    return tensor


def guard_gradient(tensor: Tensor, placed: "Placed | Saved") -> Tensor:
    """The same for the gradient of a part, which may be None."""
    if type(tensor) is _TENSOR:
        setattr(tensor, KEY, placed)
        tensor.__class__ = _kind_of(GradientPart, _TENSOR)
    return tensor


def unguard(tensor: Tensor) -> None:
    """Make a part, or a gradient of one, a plain tensor again; the same object."""
    plain = getattr(type(tensor), "plain_class", None)
    if plain is not None:
        tensor.__class__ = plain


#: By `Part` or `GradientPart` and the class that tensors were of before, their class since.
_KINDS: dict[tuple[Any, Any], Any] = {}


def _kind_of(guarding: type, plain: type) -> Any:
    if (guarding, plain) not in _KINDS:
        kind = type(f"{plain.__name__}Part", (guarding, plain), {"plain_class": plain})
        _KINDS[guarding, plain] = kind
    return _KINDS[guarding, plain]


def loaded_part(local: Tensor, whole: Shape, spans: Spans, called: str) -> Tensor:
    """A part that was saved."""
    return guard(local, Saved(tuple(whole), tuple(spans), called))


torch.serialization.add_safe_globals([loaded_part])


def _placed(part: Tensor) -> "Placed | Saved":
    found: Placed | Saved = vars(part)[KEY]
    return found


def _described(part: Tensor) -> str:
    placed = _placed(part)
    return f"this rank's part {tuple(part.shape)} of {placed.called} {placed.whole}"


# -- torch's functions on parts ----------------------------------------------------------------


def _act_for(func: Func) -> Callable[..., Any]:
    """The action for a function that is called with parts."""
    name = getattr(func, "__name__", "")
    if name in ("__get__", "__set__", "__delete__"):
        return _act_for_attribute(_attribute_of(func), name)
    if func is torch.autograd.grad:
        return _differentiate
    if name in ASKING:
        return _ask
    if name in _NORMS or name in _FOLDS:
        return _NORMS.get(name) or _FOLDS[name]
    bare = name.removeprefix("_foreach_").strip("_")
    if bare in ELEMENTWISE or bare in KEPT:
        return _keep_each if name.startswith("_foreach_") else _keep
    return _refuse


def _attribute_of(accessor: Any) -> str:
    """The name of the attribute that an accessor gets, sets or deletes."""
    found: str = accessor.__self__.__name__
    return found


def _act_for_attribute(attribute: str, access: str) -> Callable[..., Any]:
    if attribute == "data" and access == "__get__":
        return _keep
    return _refuse if attribute in OF_VALUES else _ask


def _ask(func: Func, args: Args, kwargs: Kwargs) -> Any:
    return func(*args, **kwargs)


def _differentiate(func: Func, args: Args, kwargs: Kwargs) -> Any:
    """Gradients with respect to parts, which are parts of gradients."""
    inputs = args[1] if len(args) > 1 else kwargs["inputs"]
    found = func(*args, **kwargs)
    for tensor, grad in zip([inputs] if isinstance(inputs, Part) else inputs, found):
        if isinstance(tensor, Part):
            guard_gradient(grad, _placed(tensor))
    return found


def _keep(func: Func, args: Args, kwargs: Kwargs) -> Any:
    """A function that works element by element, whose result is a part as well."""
    like = _common(func, (*args, *kwargs.values()))
    written = _written(func, args, kwargs)
    if written is not None and not isinstance(written, Part):
        _refuse(func, args, kwargs)
    shape = tuple(like.shape)
    result = func(*args, **kwargs)
    if isinstance(result, Part):
        return result
    if tuple(result.shape) != shape:
        _refuse(func, args, kwargs)
    return guard(result, _placed(like))


def _keep_each(func: Func, args: Args, kwargs: Kwargs) -> Any:
    """As `_keep`, for functions of lists of tensors."""
    first = args[0]
    lists = [x for x in (*args, *kwargs.values()) if isinstance(x, (list, tuple))]
    likes = []
    for row in zip(*lists):
        found = any(isinstance(x, Part) for x in row)
        likes.append(_common(func, row) if found else None)
        if found and func.__name__.endswith("_") and not isinstance(row[0], Part):
            _refuse(func, row, {})
    results = func(*args, **kwargs)
    for result, like in zip(results or (), likes):
        if like is not None and result is not first:
            guard(result, _placed(like))
    return results


def _written(func: Func, args: Args, kwargs: Kwargs) -> Any:
    """The operand that a function writes to; None if it makes a new tensor."""
    name = func.__name__
    if name.endswith("_") and not name.endswith("__"):
        return args[0] if args else kwargs.get("tensor")
    return kwargs.get("out")


def _common(func: Func, operands: Sequence[Any]) -> Any:
    """The first part among the operands; raises if they are different parts of a whole."""
    found = [x for x in operands if isinstance(x, Part)]
    first = found[0]
    mine = _placed(first)
    for other in found[1:]:
        theirs = _placed(other)
        if mine is theirs or getattr(mine, "layout", 0) is getattr(theirs, "layout", 1):
            continue
        if (mine.whole, mine.spans) != (theirs.whole, theirs.spans):
            raise RuntimeError(
                f"torch.{func.__name__} was given {_described(first)} and {_described(other)}, "
                "which lie elsewhere in it"
            )
    return first


def _refuse(func: Func, args: Args, kwargs: Kwargs) -> NoReturn:
    """Raise, naming the part and the ways to use it."""
    name = getattr(func, "__name__", str(func))
    name = _attribute_of(func) if name == "__get__" else name
    found = next(_parts_in((*args, *kwargs.values())))
    raise RuntimeError(
        f"torch's {name} was given {_described(found)}, and would take it for the whole. A "
        "parameter is whole while the module runs that was given to fully_shard, and is used by "
        "the forward of its own module where it is cut by a plan; a module that another one reads "
        "belongs to the same unit. Otherwise p.full_tensor(), under torch.no_grad(), is the whole, "
        "collectively, and p.to_local() this part as a plain tensor. To save a model there is "
        "distarray.checkpoint.save, for any number of ranks"
    )


def _parts_in(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, (Part, GradientPart)):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _parts_in(value)


# -- numbers that are those of the whole -------------------------------------------------------


def _fold(fold: Fold, func: Func, args: Args, kwargs: Kwargs) -> Tensor:
    """A sum, or whether any or all elements are true, of the whole; collective."""
    part = next(_parts_in((*args, *kwargs.values())))
    if len(args) != 1 or kwargs or _records(part):
        _refuse(func, args, kwargs)
    return _layout_of(func, part).folded(func(local_of(part).detach()), fold)


def _norm(func: Func, args: Args, kwargs: Kwargs) -> Tensor:
    """The norm of the whole; collective."""
    named = dict(zip(("part", "ord"), args)) | kwargs
    part = next(_parts_in(named.values()))
    order = named.get("ord", named.get("p", 2))
    order = 2 if order in (None, "fro") else order
    odd = len(args) > 2 or named.get("dim") is not None or named.get("out") is not None
    if odd or _records(part) or not isinstance(order, (int, float)) or order <= 0:
        _refuse(func, args, kwargs)
    return _whole_norm(func, part, float(order), named.get("dtype"))


def _records(part: Tensor) -> bool:
    return bool(torch.is_grad_enabled() and part.requires_grad)


def _layout_of(func: Func, part: Tensor) -> "Placed":
    placed = _placed(part)
    if isinstance(placed, Saved):
        _refuse(func, (part,), {})
    return placed


def _norms(func: Func, args: Args, kwargs: Kwargs) -> list[Tensor]:
    order = args[1] if len(args) > 1 else kwargs.get("ord", 2)
    dtype = kwargs.get("dtype")
    return [
        _whole_norm(func, x, float(order), dtype)
        if isinstance(x, (Part, GradientPart))
        else torch.linalg.vector_norm(x, order, dtype=dtype)
        for x in args[0]
    ]


def _whole_norm(func: Func, part: Tensor, order: float, dtype: Any) -> Tensor:
    local = local_of(part).detach()
    mine = local.new_zeros((), dtype=dtype)
    if local.numel():
        mine = torch.linalg.vector_norm(local, order, dtype=dtype)
    placed = _layout_of(func, part)
    if order == float("inf"):
        return placed.folded(mine, Fold.MAX)
    return placed.folded(mine**order, Fold.SUM) ** (1 / order)


def _refuse_scaler(func: Func, args: Args, kwargs: Kwargs) -> NoReturn:
    raise RuntimeError(
        "a GradScaler looks for infinities in this rank's parts of the gradients alone, and ranks "
        "would skip different steps: train in bfloat16, which needs no scaler, or keep the "
        "parameters whole (data_parallel)"
    )


_NORMS: dict[str, Callable[..., Any]] = {
    "_amp_foreach_non_finite_check_and_unscale_": _refuse_scaler,
    "_foreach_norm": _norms,
    "linalg_matrix_norm": _refuse,
    "linalg_norm": _refuse,
    "linalg_vector_norm": _norm,
    "norm": _norm,
}
_FOLDS: dict[str, Callable[..., Any]] = {
    name: partial(_fold, fold)
    for name, fold in (("all", Fold.ALL), ("any", Fold.ANY), ("sum", Fold.SUM))
}
#: The action for each function that has been called with a part.
_ACTS: dict[Any, Callable[..., Any]] = {}
