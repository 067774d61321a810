"""Conversations of ranks as an operator of torch's, for the graphs that ``torch.compile`` makes.

The compiler runs a program on made-up tensors and writes down the operators that it meets. What
talks to other ranks cannot run then: it is written down as one operator, which talks when the graph
runs. What else it needs (the function, ranks, layouts) stands in a table of this process, and the
graph has its name there.

Ranks must talk in one order, and the compiler moves operators as their results are needed, on each
rank by itself. So each of these operators takes an empty tensor that the one before it gives.
"""

import functools
import itertools
import secrets
import sys
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, NoReturn, TypeVar

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException
from torch.utils._pytree import tree_flatten, tree_unflatten

from distarray.comm import DeviceMesh
from distarray.layout import Partial, Replicate, Shard
from distarray.torch.bridge.transforms import is_traced

__all__ = ["Like", "conversation", "leave_out", "mesh_called", "name_of", "named", "written_down"]

_Call = TypeVar("_Call", bound=Callable[..., Tensor])


class Like(NamedTuple):
    """A result on this rank: its shape, its data type, its strides (None: those of C order)."""

    shape: Sequence[int]
    dtype: torch.dtype
    strides: Sequence[int] | None = None

    def empty(self, beside: Tensor) -> Tensor:
        """A tensor that is like it, on the device of another one."""
        if self.strides is None:
            return beside.new_empty(self.shape, dtype=self.dtype)
        return beside.new_empty_strided(self.shape, self.strides, dtype=self.dtype)

    def lying(self, tensor: Tensor) -> Tensor:
        """A tensor with these strides."""
        if self.strides is None:
            return tensor.contiguous()
        lies = tensor.stride() == tuple(self.strides)
        return tensor if lies else self.empty(tensor).copy_(tensor)


class _Conversation(NamedTuple):
    """A function that talks to other ranks, and its arguments; None for each tensor."""

    function: Callable[..., Any]
    values: list[Any]
    places: list[int]
    tree: Any
    results: Sequence[Like]

    def talk(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The results for these tensors, each in memory of its own."""
        values = list(self.values)
        for place, tensor in zip(self.places, tensors, strict=True):
            values[place] = tensor
        args, kwargs = tree_unflatten(values, self.tree)
        found = self.function(*args, **kwargs)
        taken = {x.untyped_storage().data_ptr() for x in tensors}
        several = [found] if isinstance(found, torch.Tensor) else found
        listed = [like.lying(x) for like, x in zip(self.results, several, strict=True)]
        return [x.clone() if x.untyped_storage().data_ptr() in taken else x for x in listed]


#: Graphs are kept on disk, where a number would mean something else to another process.
_PROCESS = secrets.token_hex(8)
_numbers = itertools.count()
_known: dict[str, _Conversation] = {}
#: What the last conversation gave to the next one, by the compiler's reading of a program.
_last: Any = weakref.WeakKeyDictionary()
_READING = torch._C._TorchDispatchModeKey.FUNCTIONAL


#: Objects that graphs have by name, while they live.
_named: Any = weakref.WeakValueDictionary()


def name_of(thing: Any) -> str:
    """Give an object a name by which graphs of this process find it."""
    name = f"{_PROCESS}:{type(thing).__name__} {next(_numbers)}"
    _named[name] = thing
    return name


def named(name: str) -> Any:
    """The object that `name_of` gave this name."""
    return _named[name]


def leave_out(call: Any) -> NoReturn:
    """Have the compiler end its graph before a call that asks for values, or for other ranks."""
    raise DataDependentOutputException(call)


def written_down(
    function: Callable[..., Any], results: Sequence[Like], *args: Any, **kwargs: Any
) -> list[Tensor]:
    """Write a call down for when the graph runs; its results, without their values.

    Parameters
    ----------
    function : callable
        Talks to other ranks; returns a tensor or several.
    results : sequence of Like
        What it will return on this rank.
    args, kwargs
        Its arguments: tensors, which are made up, and values, which the graph takes as they are.
    """
    if _is_checkpointed():
        leave_out("torch.utils.checkpoint.checkpoint, for which ranks would talk twice in a graph")
    values, tree = tree_flatten((list(args), kwargs))
    places = [n for n, x in enumerate(values) if isinstance(x, torch.Tensor)]
    tensors = [values[place] for place in places]
    for place in places:
        values[place] = None
    name = f"{_PROCESS}:{next(_numbers)}"
    _known[name] = _Conversation(function, values, places, tree, results)
    reading = torch._C._get_dispatch_mode(_READING)
    before = None if reading is None else _last.get(reading)
    if before is None:
        before = tensors[0].new_empty(0)
    found: list[Tensor]
    after, *found = torch.ops.distarray.conversation([before, *tensors], name)
    if reading is not None:
        _last[reading] = after
    return found


def _is_checkpointed() -> bool:
    """Whether the compiler reads what is to be computed again for the gradient."""
    reader = sys.modules["torch._dynamo.symbolic_convert"].InstructionTranslator.current_tx()
    tracer = reader.output.current_tracer
    while tracer is not None:
        if tracer.source_target is torch.ops.higher_order.tag_activation_checkpoint:
            return True
        tracer = tracer.parent
    return False


def conversation(result: Callable[..., Like]) -> Callable[[_Call], _Call]:
    """Have a function that talks to other ranks written down where its tensor is made up.

    Parameters
    ----------
    result : callable
        Called with the function's arguments: what it will return.
    """

    def decorate(function: _Call) -> _Call:
        @functools.wraps(function)
        def called(tensor: Tensor, *rest: Any) -> Tensor:
            if is_traced(tensor):
                return written_down(function, [result(tensor, *rest)], tensor, *rest)[0]
            return function(tensor, *rest)

        return called  # type: ignore[return-value]

    return decorate


# -- the operator ---------------------------------------------------------------------------------


def _run(tensors: list[Tensor], name: str) -> list[Tensor]:
    before, *others = tensors
    return [before.new_empty(0), *_known[name].talk(others)]


def _made_up(tensors: list[Tensor], name: str) -> list[Tensor]:
    before, *others = tensors
    results = _known[name].results
    return [before.new_empty(0), *[x.empty(others[0]) for x in results]]


_library = torch.library.Library("distarray", "DEF")
_library.define("conversation(Tensor[] tensors, str name) -> Tensor[]")
_library.impl("conversation", _run, "CompositeExplicitAutograd")
torch.library.register_fake("distarray::conversation", _made_up, lib=_library)
if hasattr(torch._library, "effects"):  # so that none is left out whose result nobody needs
    _operator = torch._library.simple_registry.singleton.find("distarray::conversation")
    _operator.effect.register(torch._library.effects.EffectType.ORDERED)


# -- what programs say of layouts -----------------------------------------------------------------


_meshes: dict[str, DeviceMesh] = {}


def mesh_called(name: str) -> DeviceMesh:
    """The mesh that a graph of this process names."""
    return _meshes[name]


def _mesh_in_graphs(mesh: DeviceMesh) -> tuple[str, dict[str, Any]]:
    name = f"{_PROCESS}:{hash(mesh)}"
    _meshes[name] = mesh
    return f"mesh_called({name!r})", {"mesh_called": mesh_called}


def _in_graphs(placement: Any) -> tuple[str, dict[str, Any]]:
    return repr(placement), {type(placement).__name__: type(placement)}


def _take_as_constant(kind: Any, written: Callable[[Any], Any], *members: str) -> None:
    """Have the compiler take values of a type as constants, and read these of their members."""
    kind.__fx_repr__ = written
    opaque.register_opaque_type(
        kind, typ="value", members=dict.fromkeys(members, opaque.MemberType.USE_REAL)
    )


if hasattr(torch._library, "opaque_object"):
    opaque = torch._library.opaque_object
    _members = ("shape", "ndim", "size", "rank", "coords", "mesh_dim_names")
    # Torch 2.11 refuses these types as constants; a graph ends there where it meets one.
    with suppress(TypeError):
        _take_as_constant(DeviceMesh, _mesh_in_graphs, *_members)
        _take_as_constant(Shard, _in_graphs, "dim")
        _take_as_constant(Replicate, _in_graphs)
        _take_as_constant(Partial, _in_graphs, "op")
