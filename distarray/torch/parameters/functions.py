"""Implementations of torch's functions for parts of parameters.

torch recognizes a part only by its class: it calls ``__torch_function__`` in place of the function.
Most functions then compute with the distributed tensor of all parts. Some are about the object
itself (its data type, its hooks), some about the global shape, and a few copy the part.
"""

import weakref
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor

from distarray.torch.bridge.plain import is_part, local_of, plainly
from distarray.torch.bridge.transforms import is_traced, transforming
from distarray.torch.parameters.spreading import (
    as_part,
    distributed,
    like_part,
    own_part,
    placed_on,
    spread,
)
from distarray.torch.tensor.adopting import same_everywhere
from distarray.torch.tensor.between_modules import is_distributed
from distarray.torch.tensor.calls import replaced, tensors_in
from distarray.torch.tensor.dist_tensor import DistTensor
from distarray.torch.tensor.operands import DifferentIndexError, in_backward

__all__ = ["Act", "Args", "Func", "Kwargs", "act_for"]

Func = Callable[..., Any]
Args = Sequence[Any]
Kwargs = dict[str, Any]
#: Implementation of a torch function for parts; called with the function and its arguments.
Act = Callable[[Func, Args, Kwargs], Any]

#: Functions and attributes whose results depend on the global shape.
_OF_SHAPE = frozenset(
    {"__len__", "dim", "dim_order", "is_contiguous", "nbytes", "ndim", "ndimension", "nelement"}
    | {"numel", "shape", "size", "storage_offset", "stride"}
)
#: Functions about the object itself, independent of its values.
_OF_ITSELF = frozenset(
    {"__dir__", "_has_compatible_shallow_copy_type", "_is_view", "backward", "data_ptr"}
    | {"element_size", "get_device", "is_complex", "is_conj", "is_floating_point", "is_inference"}
    | {"is_neg", "is_pinned", "is_shared", "is_signed"}
    | {"register_post_accumulate_grad_hook", "requires_grad_", "result_type", "retain_grad"}
)
#: Attributes that are computed from the elements.
_OF_VALUES = frozenset({"H", "T", "__cuda_array_interface__", "imag", "mH", "mT", "real"})
#: Functions whose result is a part in the layout of the operand.
_KEPT = frozenset(
    {"bfloat16", "clone", "contiguous", "cpu", "cuda", "detach", "double", "empty_like", "float"}
    | {"full_like", "half", "hpu", "ones_like", "pin_memory", "share_memory_", "to", "type"}
    | {"type_as", "zeros_like"}
)


def act_for(func: Func) -> Act:
    """Return the implementation of a torch function for parts of parameters."""
    name = getattr(func, "__name__", "")
    if name in ("__get__", "__set__", "__delete__"):
        return _act_for_attribute(_attribute_of(func), name)
    if name in _BY_NAME:
        return _BY_NAME[name]
    if name.startswith("_foreach_"):
        return _each
    rows = ((_OF_SHAPE, _of_shape), (_OF_ITSELF, _of_itself), (_KEPT, _kept))
    return next((act for names, act in rows if name in names), _of_whole)


def _attribute_of(accessor: Any) -> str:
    found: str = accessor.__self__.__name__
    return found


def _act_for_attribute(attribute: str, access: str) -> Act:
    if attribute == "data":
        return _kept if access == "__get__" else _set_data
    if attribute in _OF_SHAPE:
        return _of_shape
    return _of_whole if attribute in _OF_VALUES else _of_itself


def _of_itself(func: Func, args: Args, kwargs: Kwargs) -> Any:
    with plainly():
        return func(*args, **kwargs)


def _of_shape(func: Func, args: Args, kwargs: Kwargs) -> Any:
    """Call the function on a meta tensor of the global shape."""
    part = args[0] if args else kwargs.pop("input")
    stand_in = torch.empty(placed_on(part).whole, dtype=part.dtype, device="meta")
    return func(stand_in, *args[1:], **kwargs)


def _kept(func: Func, args: Args, kwargs: Kwargs) -> Any:
    if transforming():
        return _of_whole(func, args, kwargs)
    part = args[0] if args else kwargs["input"]
    with plainly():
        found = func(*args, **kwargs)
    if not is_part(part) or not isinstance(found, torch.Tensor) or found is part:
        return found
    return like_part(local_of(found), part)


def _of_whole(func: Func, args: Args, kwargs: Kwargs, into: Any = distributed) -> Any:
    """Call a function on the distributed tensors; operands that it returns become parts again."""
    operands = tensors_in(args, kwargs)
    there = {id(x): into(x) for x in operands if is_part(x)}
    _check_indices(func, operands)
    new, named = replaced(args, kwargs, [there.get(id(x), x) for x in operands])
    try:
        found = func(*new, **named)
    except RuntimeError as error:
        if "Output 0 of Distributed" in str(error):  # like torch's error for leaves
            raise RuntimeError(
                f"{func.__name__}: a parameter that requires grad is written to where autograd "
                "records it: do it under torch.no_grad()"
            ) from None
        raise
    back = {id(there[id(x)]): x for x in operands if id(x) in there}
    results = tensors_in([found], {})
    if not any(id(x) in back for x in results):
        return found  # unchanged, so that a named tuple stays one
    return replaced([found], {}, [back.get(id(x), x) for x in results])[0][0]


def _check_indices(func: Func, operands: Sequence[Any]) -> None:
    """Raise an error on all ranks if plain index tensors differ between ranks.

    In a data-parallel program each rank has indices of its own.
    """
    plain = [x for x in operands if _is_plain_index(x)]
    part = next((x for x in operands if is_part(x)), None)
    if not plain or part is None or transforming() or any(map(is_traced, operands)):
        return
    placed = placed_on(part)
    if not in_backward() and not same_everywhere(plain, placed.mesh):
        raise DifferentIndexError(func.__name__, placed.called)


def _is_plain_index(x: Any) -> bool:
    if is_distributed(x) or x.is_meta or not x.ndim:
        return False
    return not (x.is_floating_point() or x.is_complex())


# -- lists of tensors --------------------------------------------------------------------------


def _each(func: Func, args: Args, kwargs: Kwargs) -> Any:
    """Call a ``_foreach_`` function, which works row by row and element by element.

    Rows of parts are computed from this rank's parts. Rows without distributed tensors are passed
    to torch.
    """
    if transforming():
        return _of_whole(func, args, kwargs)
    lists = [x for x in (*args, *kwargs.values()) if isinstance(x, (list, tuple))]
    acts = [_act_for_row(row) for row in zip(*lists)]
    results: list[Any] = [None] * len(acts)
    for act in dict.fromkeys(acts):
        places = [n for n, other in enumerate(acts) if other is act]
        named = {name: _picked(x, places) for name, x in kwargs.items()}
        found = act(func, [_picked(x, places) for x in args], named)
        for n, x in zip(places, found or ()):
            results[n] = x
    return None if all(x is None for x in results) else results


def _act_for_row(row: Sequence[Any]) -> Act:
    if not any(map(is_distributed, row)):
        return _of_itself
    others = [x for x in row if isinstance(x, torch.Tensor) and not is_distributed(x)]
    here = is_part(row[0]) and all(x.numel() == 1 for x in others)
    return _of_parts if here else _of_whole


def _picked(x: Any, places: Sequence[int]) -> Any:
    if isinstance(x, (list, tuple)):
        return [x[n] for n in places]
    return x[places] if isinstance(x, torch.Tensor) and x.ndim else x


def _of_parts(func: Func, args: Args, kwargs: Kwargs) -> Any:
    """Compute from this rank's parts, in the layouts of the parts in the first list."""
    first = args[0]

    def here(x: Any) -> Any:
        if not isinstance(x, (list, tuple)):
            return x
        return [own_part(y, placed_on(p)) if is_distributed(y) else y for y, p in zip(x, first)]

    found = func(*map(here, args), **{name: here(x) for name, x in kwargs.items()})
    if func.__name__.endswith("_"):
        return None
    return [like_part(x, p) for x, p in zip(found, first)]


# -- numbers, which are plain and equal on all ranks -------------------------------------------


def _norm(func: Func, args: Args, kwargs: Kwargs) -> Any:
    """Compute the global norm; a scalar result is plain, like the norms of plain tensors."""
    named = dict(zip(("part", "ord", "dim"), args)) | kwargs
    flat = named.get("dim") is None and named.get("p") != "nuc" and named.get("ord") != "nuc"
    found = _of_whole(func, args, kwargs, spread if flat else distributed)
    return found.full_tensor() if type(found) is DistTensor and not found.ndim else found


def _norms(func: Func, args: Args, kwargs: Kwargs) -> list[Any]:
    order = args[1] if len(args) > 1 else kwargs.get("ord", 2)
    return [torch.linalg.vector_norm(x, order, dtype=kwargs.get("dtype")) for x in args[0]]


def _greatest(func: Func, args: Args, kwargs: Kwargs) -> list[Any]:
    return [x.max() for x in args[0]]


# -- gradients ---------------------------------------------------------------------------------


def _differentiate(func: Func, args: Args, kwargs: Kwargs) -> Any:
    """Compute gradients with respect to parts; they are returned as parts."""
    inputs = args[1] if len(args) > 1 else kwargs["inputs"]
    inputs = [inputs] if isinstance(inputs, torch.Tensor) else inputs
    args, kwargs = _with_grads_as_outputs(list(args), kwargs)
    with plainly():
        found = func(*args, **kwargs)
    return tuple(
        [
            like_part(_alias(grad), x) if is_part(x) and grad is not None else grad
            for x, grad in zip(inputs, found, strict=True)
        ]
    )


def _with_grads_as_outputs(args: list[Any], kwargs: Kwargs) -> tuple[list[Any], Kwargs]:
    """Replace parts in ``grad_outputs`` by distributed tensors if their outputs are no parts."""
    outputs = args[0] if args else kwargs["outputs"]
    grads = args[2] if len(args) > 2 else kwargs.get("grad_outputs")
    if grads is None:
        return args, kwargs
    outputs = [outputs] if isinstance(outputs, torch.Tensor) else outputs
    grads = [grads] if isinstance(grads, torch.Tensor) else grads
    given = [
        distributed(grad) if is_part(grad) and not is_part(output) else grad
        for output, grad in zip(outputs, grads, strict=True)
    ]
    if len(args) > 2:
        return [*args[:2], given, *args[3:]], kwargs
    return args, {**kwargs, "grad_outputs": given}


def _alias(grad: Tensor) -> Tensor:
    """Return a new object for a gradient, since autograd may pass the old one to other code."""
    with plainly():
        return grad.as_subclass(torch.Tensor)


def _register_hook(func: Func, args: Args, kwargs: Kwargs) -> Any:
    """Register a hook on a part; it receives the gradient as a distributed tensor."""
    part, hook = (*args, *kwargs.values())
    kind, owner = type(part), weakref.ref(part)

    def told(grad: Tensor | None) -> Tensor | None:
        placed = placed_on(owner())
        found = hook(None if grad is None else as_part(_alias(grad), placed, kind))
        return None if found is None else own_part(found, placed)

    with plainly():
        return func(part, told)


# -- assignment to data, and refusals ----------------------------------------------------------


def _set_data(func: Func, args: Args, kwargs: Kwargs) -> None:
    part, value = args  # torch does not call this for a plain tensor's data
    with torch.no_grad():
        value = own_part(value, placed_on(part))
    with plainly():
        func(part, value)


def _refuse_memory(func: Func, args: Args, kwargs: Kwargs) -> NoReturn:
    raise RuntimeError(
        f"torch's {func.__name__} was asked for the memory of {placed_on(args[0]).called}, of "
        "which this rank has a part. To write the whole to a file, give it whole tensors: "
        "{name: x.full_tensor() if isinstance(x, distarray.torch.DistTensor) else x "
        "for name, x in model.state_dict().items()}, as the argument state_dict= of "
        "save_pretrained; or torch.save(model.state_dict(), file), or distarray.checkpoint.save, "
        "for any number of ranks; all collectively. x.to_local() is this rank's part"
    )


def _refuse_scaler(func: Func, args: Args, kwargs: Kwargs) -> NoReturn:
    raise RuntimeError(
        "a GradScaler looks for infinities in this rank's parts of the gradients alone, and ranks "
        "would skip different steps: train in bfloat16, which needs no scaler, or keep the "
        "parameters whole (data_parallel)"
    )


_BY_NAME: dict[str, Act] = {
    "_amp_foreach_non_finite_check_and_unscale_": _refuse_scaler,
    "_foreach_max": _greatest,
    "_foreach_norm": _norms,
    "_typed_storage": _refuse_memory,
    "grad": _differentiate,
    "linalg_vector_norm": _norm,
    "norm": _norm,
    "register_hook": _register_hook,
    "storage": _refuse_memory,
    "untyped_storage": _refuse_memory,
}
