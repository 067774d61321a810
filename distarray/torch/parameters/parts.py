"""Class of the parameters of which each rank has a part.

A parameter that is cut stays the same object, with this rank's part in its memory. Autograd,
optimizers and the forward of its module work on this memory. For all other code its class makes it
a distributed tensor: :class:`Part` passes calls of torch's functions to
:mod:`distarray.torch.parameters.functions`. Gradients of parts, and the values of ``state_dict``,
are parts as well.

Within ``with plainly():``, which this package uses, torch ignores the class. In the steps of
optimizers, parts are plain tensors (:mod:`distarray.torch.parameters.guards`).
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, SupportsIndex

import torch
from torch import Tensor

from distarray.comm import DeviceMesh
from distarray.layout import Layout, Placement
from distarray.torch.bridge.plain import local_of, plainly
from distarray.torch.bridge.transforms import compilation
from distarray.torch.collectives.passes import run_as_it_is, uncompiled
from distarray.torch.parameters.functions import Act, act_for
from distarray.torch.parameters.spreading import (
    KEY,
    as_part,
    distributed,
    entered_in_graph,
    layout_of,
    like_part,
    own_part,
    placed_on,
    spread,
)
from distarray.torch.tensor.dist_tensor import DistTensor
from distarray.typing import Placements

__all__ = ["Part", "guard", "unguard"]

_GRAD: Any = torch.Tensor.grad
_OPERATORS = "add and floordiv lshift matmul mod mul or pow rshift sub truediv xor"
#: Methods that write to an operand although their names do not end with a single underscore.
_WRITERS = {"__set__", "__delete__", "__setitem__"} | {f"__i{op}__" for op in _OPERATORS.split()}
_asks = torch._C._is_torch_function_enabled
#: Implementation of each function that has been called with a part.
_ACTS: dict[Any, Act] = {}


def _grad(part: Tensor) -> Tensor | None:
    if not _asks():
        return _GRAD.__get__(part)
    with plainly():
        found: Tensor | None = _GRAD.__get__(part)
        return like_part(found, part) if type(found) is torch.Tensor else found


def _set_grad(part: Tensor, value: Tensor | None) -> None:
    if value is not None and _asks():
        with torch.no_grad():
            value = own_part(value, placed_on(part))
    with plainly():
        _GRAD.__set__(part, value)


def _by_whole(name: str) -> Any:
    """Return a method that calls the distributed tensor's; within `plainly`, the plain tensor's."""
    plain = getattr(torch.Tensor, name, None)

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        if plain is not None and not _asks():
            return plain(self, *args, **kwargs)
        return getattr(distributed(self), name)(*args, **kwargs)

    method.__name__, method.__doc__ = name, getattr(DistTensor, name).__doc__
    return method


@uncompiled
def _asked(func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Call a torch function on parts."""
    if compilation() is not None:  # the compiler creates a fake tensor like a part
        with plainly():
            return func(*args, **kwargs)
    act = _ACTS.get(func)
    if act is None:
        act = _ACTS[func] = act_for(func)
    return act(func, args, kwargs)


def _writes(func: Callable[..., Any], kwargs: dict[str, Any]) -> bool:
    """Return True if a function writes to one of its arguments."""
    name = func.__name__
    return name in _WRITERS or (name[-1] == "_" and name[-2] != "_") or "out" in kwargs


def _in_graph(x: Any) -> Any:
    """Replace parts in an argument by distributed tensors in the compiler's graph."""
    if type(x) is Part:
        return entered_in_graph(getattr(x, KEY).name, x.in_graphs)
    if isinstance(x, (list, tuple)):
        return type(x)([_in_graph(item) for item in x])
    if isinstance(x, dict):
        return {key: _in_graph(item) for key, item in x.items()}
    return x


class _AsPlain:
    """Descriptor of this rank's part as a plain tensor, which the compiler reads at each run.

    It returns the same object until the part gets other memory, since the compiler identifies
    tensors by object.
    """

    @run_as_it_is
    def __get__(self, part: Any, kind: Any = None) -> Any:
        return self if part is None else _plain_of(part)


@uncompiled
def _plain_of(part: Tensor) -> Tensor:
    known: Tensor | None = vars(part).get("_plain")
    with plainly():
        if known is None or _told(known) != _told(part):
            with torch.enable_grad():
                known = vars(part)["_plain"] = local_of(part)
    return known


def _told(x: Tensor) -> tuple[Any, ...]:
    """Return properties that change with a parameter's memory and with ``requires_grad``."""
    return x.data_ptr(), x.shape, x.stride(), x.dtype, x.requires_grad


class Part(torch.Tensor):  # type: ignore[misc]
    """This rank's part of a parameter; a program sees it as a :class:`DistTensor`."""

    #: Attribute that marks parts: the class of the tensor for torch's own code.
    plain_class = torch.Tensor
    _is_dist_tensor = True

    in_graphs = _AsPlain()

    #: The gradient, a part as well. It bypasses ``__torch_function__``, since training loops
    #: read it in each step.
    grad = property(_grad, _set_grad, partial(_set_grad, value=None))

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if torch.compiler.is_dynamo_compiling() and not _writes(func, kwargs or {}):
            return func(*[_in_graph(x) for x in args], **_in_graph(kwargs or {}))
        return _asked(func, args, kwargs or {})

    # -- interface of a DistTensor ------------------------------------------------------------

    @property
    def mesh(self) -> DeviceMesh:
        """The ranks that hold the parameter."""
        return placed_on(self).mesh

    device_mesh = mesh

    @property
    def dist_layout(self) -> Layout:
        """The layout of the parameter."""
        return layout_of(self)

    @property
    def placements(self) -> tuple[Placement, ...]:
        """The placement of the parameter along each mesh dimension."""
        return layout_of(self).placements

    def to_local(self, *, grad_placements: Placements | None = None) -> Tensor:
        """Return this rank's part as a plain tensor over the same memory; differentiable."""
        if grad_placements is None:
            return local_of(self)
        return distributed(self).to_local(grad_placements=grad_placements)

    def full_tensor(self, *, grad_placements: Placements | None = None) -> Tensor:
        """Return the whole on every rank; collective and differentiable."""
        whole = spread(self).full_tensor(grad_placements=grad_placements)
        return whole.reshape(placed_on(self).whole)

    def to_dist_tensor(self) -> DistTensor:
        """Return the distributed tensor over the same memory, in the same autograd graph."""
        return distributed(self)

    redistribute = _by_whole("redistribute")
    to_array = _by_whole("to_array")
    new = _by_whole("new")
    new_tensor = _by_whole("new_tensor")
    numpy = _by_whole("numpy")
    tolist = _by_whole("tolist")
    __array__ = _by_whole("__array__")
    __dlpack__ = _by_whole("__dlpack__")
    __dlpack_device__ = _by_whole("__dlpack_device__")
    __iter__ = _by_whole("__iter__")

    # -- copies, files, texts ----------------------------------------------------------------

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) not in memo:
            with plainly():
                copy = self.detach().clone(memory_format=torch.preserve_format)
                copy.requires_grad_(self.requires_grad)
                memo[id(self)] = like_part(copy, self)
                copy._is_param = isinstance(self, torch.nn.Parameter)
        return memo[id(self)]

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        """Pickle the whole, as a plain tensor; collective."""
        with torch.no_grad():
            whole = self.full_tensor()
        whole = torch.nn.Parameter(whole) if isinstance(self, torch.nn.Parameter) else whole
        return whole.requires_grad_(self.requires_grad).__reduce_ex__(protocol)

    def __repr__(self, **_: Any) -> str:
        called = "Parameter containing:\n" if isinstance(self, torch.nn.Parameter) else ""
        return called + repr(spread(self))

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)


def guard(tensor: Tensor, placed: Any) -> Tensor:
    """Turn a tensor that holds this rank's part of a parameter into a `Part`; the same object."""
    if type(tensor) is not Part:
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
            raise TypeError(
                f"{placed.called} is a {type(tensor).__name__}, a kind of tensor of its own, and "
                "cannot be cut: replicate it"
            )
        if isinstance(tensor, torch.nn.Parameter):
            tensor._is_param = True
    return as_part(tensor, placed, Part)


def unguard(tensor: Tensor) -> None:
    """Turn a part into a plain tensor again; the same object."""
    if type(tensor) is Part:
        kept = isinstance(tensor, torch.nn.Parameter)
        tensor.__class__ = torch.nn.Parameter if kept else torch.Tensor
