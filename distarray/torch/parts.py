"""Parts of parameters, which torch's functions would take for the whole.

A parameter that is cut stays the object it was, with this rank's part in it. Outside of the forward
that gathers it, or that computes with parts on purpose, a function of torch would give a number
that is right for the part alone: other logits on every rank, a norm of some rows. So a part is of a
class of its own, :class:`Part`, that knows what may be done to it. What works element by element
gives a part again, what asks for its dtype or shape is answered, and the rest is refused.

Inside of this package a part is used as it is between ``with plainly():``, for which torch forgets
the class. Optimizers step so, too (:mod:`distarray.torch.guards`).
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor

from distarray.layout.placement import Fold
from distarray.torch.elementwise import ELEMENTWISE

__all__ = [
    "KEY",
    "Part",
    "Saved",
    "check_unrecorded",
    "guard",
    "guard_gradient",
    "loaded_part",
    "local_of",
    "plainly",
    "unguard",
]


#: The attribute of modules, of parameters and of parts that says how they are laid out.
KEY = "_distarray_placed"

#: What torch's functions do within it, they do with plain tensors.
plainly: Any = torch._C.DisableTorchFunctionSubclass

_TENSOR: Any = torch.Tensor
_GRAD: Any = torch.Tensor.grad


class Saved(NamedTuple):
    """What is known of a part that was read from a file.

    Attributes
    ----------
    whole : tuple of int
        The shape of the parameter that it is a part of.
    spans : tuple
        Where it lies in it.
    called : str
        Of what it is a part.
    """

    whole: tuple[int, ...]
    spans: tuple[Any, ...]
    called: str


def _grad(part: Any) -> Tensor | None:
    with plainly():
        found: Tensor | None = _GRAD.__get__(part)
    return guard_gradient(found, _placed(part)) if type(found) is _TENSOR else found


def _set_grad(part: Any, value: Tensor | None) -> None:
    with plainly():
        _GRAD.__set__(part, value)


class Part:
    """What the classes of this rank's parts of parameters have in common.

    ``to_local()`` is the part as a plain tensor, ``full_tensor()`` the whole, as DTensor has them.
    """

    #: This rank's part of the gradient. Training loops look at it in each step; it does not go by
    #: way of ``__torch_function__``.
    grad = property(_grad, _set_grad, partial(_set_grad, value=None))

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
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

    def __deepcopy__(self, memo: Any) -> Any:
        if id(self) not in memo:
            tensor: Any = self
            with plainly():
                copy = tensor.detach().clone(memory_format=torch.preserve_format)
                if isinstance(self, torch.nn.Parameter):
                    copy = torch.nn.Parameter(copy)
                copy.requires_grad_(tensor.requires_grad)
                memo[id(self)] = guard(copy, _placed(self))
        return memo[id(self)]

    def __reduce_ex__(self, protocol: Any) -> Any:
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
    """What the classes of gradients of parts have in common: a norm is that of the whole."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        act: Callable[..., Any] = _NORMS.get(getattr(func, "__name__", ""), _ask)
        with plainly():
            return act(func, args, kwargs or {})


def check_unrecorded(tensor: Tensor, called: str) -> None:
    """Refuse to give a whole tensor where autograd would record it."""
    if torch.is_grad_enabled() and tensor.requires_grad:
        raise RuntimeError(
            f"full_tensor() of {called} has no gradient: call it under torch.no_grad()"
        )


def guard(tensor: Tensor, placed: Any) -> Tensor:
    """Make a tensor of this rank's part of something one that knows it; the same object."""
    setattr(tensor, KEY, placed)
    if not isinstance(tensor, Part):
        unguard(tensor)
        tensor.__class__ = _kind_of(Part, type(tensor))
    return tensor


def guard_gradient(tensor: Tensor, placed: Any) -> Tensor:
    """The same for a gradient, or None, of a part."""
    if type(tensor) is _TENSOR:
        setattr(tensor, KEY, placed)
        tensor.__class__ = _kind_of(GradientPart, _TENSOR)
    return tensor


def unguard(tensor: Tensor) -> None:
    """Make a part, or a gradient of one, a plain tensor again; the same object."""
    plain = getattr(type(tensor), "_plain", None)
    if plain is not None:
        tensor.__class__ = plain


#: By a guard and the class that tensors were of before: the class that they are of then.
_KINDS: dict[tuple[Any, Any], Any] = {}


def _kind_of(guard: Any, plain: Any) -> Any:
    if (guard, plain) not in _KINDS:
        _KINDS[guard, plain] = type(f"{plain.__name__}Part", (guard, plain), {"_plain": plain})
    return _KINDS[guard, plain]


def local_of(tensor: Tensor) -> Tensor:
    """A part as a plain tensor, through which gradients flow; others as they are."""
    if not isinstance(tensor, (Part, GradientPart)):
        return tensor
    part: Any = tensor
    with plainly():
        return part.as_subclass(_TENSOR)


def loaded_part(local: Tensor, whole: Sequence[int], spans: Any, called: str) -> Tensor:
    """A part that was saved."""
    return guard(local, Saved(tuple(whole), tuple(spans), called))


torch.serialization.add_safe_globals([loaded_part])


def _placed(part: Any) -> Any:
    return vars(part)[KEY]


def _described(part: Any) -> str:
    placed = _placed(part)
    return f"this rank's part {tuple(part.shape)} of {placed.called} {placed.whole}"


# -- what torch's functions do with parts ------------------------------------------------------

#: Names of functions that ask or tell something that is not about values.
_ASKING = frozenset(
    {
        *("__len__", "_has_compatible_shallow_copy_type", "allclose", "backward", "data_ptr"),
        *("dim", "dim_order", "element_size", "equal", "get_device", "is_complex", "is_conj"),
        *("is_contiguous", "is_floating_point", "is_inference", "is_neg", "is_pinned"),
        *("is_same_size", "is_shared", "is_signed", "isclose", "ndimension", "nelement", "numel"),
        *("new_empty", "new_full", "new_ones", "new_tensor", "new_zeros", "register_hook"),
        *("register_post_accumulate_grad_hook", "requires_grad_", "result_type"),
        *("retain_grad", "size", "storage_offset", "stride", "swap_tensors"),
    }
)
#: Attributes whose values are elements.
_OF_VALUES = frozenset({"H", "T", "__cuda_array_interface__", "imag", "mH", "mT", "real"})
#: Names, without underscores, of what works element by element and is no row of `ELEMENTWISE`.
_KEPT = frozenset(
    {
        *("clip", "constant", "copy", "copysign", "cpu", "cuda", "empty_like", "fill", "fmax"),
        *("fmin", "full_like", "hpu", "isinf", "isneginf", "isposinf", "ones_like", "pin_memory"),
        *("rdiv", "rpow", "share_memory", "signbit", "trunc", "type", "zero"),
    }
)


def _act_for(func: Any) -> Callable[..., Any]:
    """What is done with a function when it is handed parts."""
    name = getattr(func, "__name__", "")
    if name in ("__get__", "__set__", "__delete__"):
        attribute = func.__self__.__name__
        if attribute == "data" and name == "__get__":
            return _keep
        return _refuse if attribute in _OF_VALUES else _ask
    if func is torch.autograd.grad:
        return _differentiate
    if name in _ASKING:
        return _ask
    if name in _NORMS or name in _FOLDS:
        return _NORMS.get(name) or _FOLDS[name]
    bare = name.removeprefix("_foreach_").strip("_")
    if bare in ELEMENTWISE or bare in _KEPT:
        return _keep_each if name.startswith("_foreach_") else _keep
    return _refuse


def _ask(func: Any, args: Any, kwargs: Any) -> Any:
    return func(*args, **kwargs)


def _differentiate(func: Any, args: Any, kwargs: Any) -> Any:
    """Gradients by parts, which are parts of gradients."""
    inputs = args[1] if len(args) > 1 else kwargs["inputs"]
    found = func(*args, **kwargs)
    for tensor, grad in zip([inputs] if isinstance(inputs, Part) else inputs, found):
        if isinstance(tensor, Part):
            guard_gradient(grad, _placed(tensor))
    return found


def _keep(func: Any, args: Any, kwargs: Any) -> Any:
    """A function that works element by element, the result of which is a part as well."""
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


def _keep_each(func: Any, args: Any, kwargs: Any) -> Any:
    """The same for the functions of lists of tensors."""
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


def _written(func: Any, args: Any, kwargs: Any) -> Any:
    """What a function writes to; None if that is something of its own."""
    name = func.__name__
    if name.endswith("_") and not name.endswith("__"):
        return args[0] if args else kwargs.get("tensor")
    return kwargs.get("out")


def _common(func: Any, operands: Sequence[Any]) -> Any:
    """One of the parts among some operands, which all have to be the same part of something."""
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


def _refuse(func: Any, args: Any, kwargs: Any) -> NoReturn:
    """Say what a function was given, and what would do."""
    name = getattr(func, "__name__", str(func))
    name = func.__self__.__name__ if name == "__get__" else name
    found = next(_parts_in((*args, *kwargs.values())))
    raise RuntimeError(
        f"torch's {name} was given {_described(found)}, and would take it for the whole. A "
        "parameter is whole while the module runs that was given to fully_shard, and is used by "
        "the forward of its own module where it is cut by a plan; a module that another one reads "
        "belongs to the same unit. Otherwise p.full_tensor(), under torch.no_grad(), is the whole, "
        "collectively, and p.to_local() this part as a plain tensor. To save a model there is "
        "distarray.checkpoint.save, for any number of ranks"
    )


def _parts_in(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, (Part, GradientPart)):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _parts_in(value)


# -- numbers that are those of the whole -------------------------------------------------------


def _fold(fold: Fold, func: Any, args: Any, kwargs: Any) -> Tensor:
    """A sum, or whether any or all elements are true, of the whole; collective."""
    part = next(_parts_in((*args, *kwargs.values())))
    if len(args) != 1 or kwargs or _records(part):
        _refuse(func, args, kwargs)
    return _layout_of(func, part).folded(func(local_of(part).detach()), fold)


def _norm(func: Any, args: Any, kwargs: Any) -> Tensor:
    """The norm of the whole; collective."""
    named = dict(zip(("part", "ord"), args)) | kwargs
    part = next(_parts_in(named.values()))
    order = named.get("ord", named.get("p", 2))
    order = 2 if order in (None, "fro") else order
    odd = len(args) > 2 or named.get("dim") is not None or named.get("out") is not None
    if odd or _records(part) or not isinstance(order, (int, float)) or order <= 0:
        _refuse(func, args, kwargs)
    return _whole_norm(func, part, float(order), named.get("dtype"))


def _records(part: Any) -> bool:
    return bool(torch.is_grad_enabled() and part.requires_grad)


def _layout_of(func: Any, part: Any) -> Any:
    placed = _placed(part)
    if isinstance(placed, Saved):
        _refuse(func, (part,), {})
    return placed


def _norms(func: Any, args: Any, kwargs: Any) -> list[Tensor]:
    order = args[1] if len(args) > 1 else kwargs.get("ord", 2)
    dtype = kwargs.get("dtype")
    return [
        _whole_norm(func, x, float(order), dtype)
        if isinstance(x, (Part, GradientPart))
        else torch.linalg.vector_norm(x, order, dtype=dtype)
        for x in args[0]
    ]


def _whole_norm(func: Any, part: Any, order: float, dtype: Any) -> Tensor:
    local = local_of(part).detach()
    mine = local.new_zeros((), dtype=dtype)
    if local.numel():
        mine = torch.linalg.vector_norm(local, order, dtype=dtype)
    placed = _layout_of(func, part)
    if order == float("inf"):
        return placed.folded(mine, Fold.MAX)
    return placed.folded(mine**order, Fold.SUM) ** (1 / order)


def _refuse_scaler(func: Any, args: Any, kwargs: Any) -> NoReturn:
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
#: What is done with each function that has been called with a part.
_ACTS: dict[Any, Callable[..., Any]] = {}
