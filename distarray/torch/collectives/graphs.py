"""The torch operator for communication of ranks in the graphs that ``torch.compile`` makes.

The compiler runs a program on fake tensors and records the operators that are called. A function
that communicates cannot run then: it is recorded as one operator, which communicates when the graph
runs. Its other data (the function, ranks, layouts) are stored in a table of this process, and the
graph contains their key.

All ranks must communicate in the same order, but the compiler on each rank reorders operators by
itself, as their results are needed. So each of these operators takes an empty tensor that the
previous one returns.
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
    """Description of a result on this rank: its shape, data type and strides (None: C order)."""

    shape: Sequence[int]
    dtype: torch.dtype
    strides: Sequence[int] | None = None

    def empty(self, beside: Tensor) -> Tensor:
        """Return an uninitialized tensor of this description, on the device of another tensor."""
        if self.strides is None:
            return beside.new_empty(self.shape, dtype=self.dtype)
        return beside.new_empty_strided(self.shape, self.strides, dtype=self.dtype)

    def lying(self, tensor: Tensor) -> Tensor:
        """Return the tensor with these strides, copied if its own differ."""
        if self.strides is None:
            return tensor.contiguous()
        lies = tensor.stride() == tuple(self.strides)
        return tensor if lies else self.empty(tensor).copy_(tensor)


class _Conversation(NamedTuple):
    """Function that communicates, and its arguments, with None in place of each tensor."""

    function: Callable[..., Any]
    values: list[Any]
    places: list[int]
    tree: Any
    results: Sequence[Like]

    def talk(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Call the function with these tensors; return results with memory of their own."""
        values = list(self.values)
        for place, tensor in zip(self.places, tensors, strict=True):
            values[place] = tensor
        args, kwargs = tree_unflatten(values, self.tree)
        found = self.function(*args, **kwargs)
        taken = {x.untyped_storage().data_ptr() for x in tensors}
        several = [found] if isinstance(found, torch.Tensor) else found
        listed = [like.lying(x) for like, x in zip(self.results, several, strict=True)]
        return [x.clone() if x.untyped_storage().data_ptr() in taken else x for x in listed]


#: Part of every name. The compiler caches graphs on disk, so names must differ between processes.
_PROCESS = secrets.token_hex(8)
_numbers = itertools.count()
_known: dict[str, _Conversation] = {}
#: The empty tensor that the last operator returned, for each tracing by the compiler.
_last: Any = weakref.WeakKeyDictionary()
_READING = torch._C._TorchDispatchModeKey.FUNCTIONAL


#: Objects that graphs refer to by name, while they exist.
_named: Any = weakref.WeakValueDictionary()


def name_of(thing: Any) -> str:
    """Register an object under a name by which graphs of this process find it."""
    name = f"{_PROCESS}:{type(thing).__name__} {next(_numbers)}"
    _named[name] = thing
    return name


def named(name: str) -> Any:
    """Return the object that `name_of` has registered under this name."""
    return _named[name]


def leave_out(call: Any) -> NoReturn:
    """Make the compiler end its graph before a call that needs values or communication."""
    raise DataDependentOutputException(call)


def written_down(
    function: Callable[..., Any], results: Sequence[Like], *args: Any, **kwargs: Any
) -> list[Tensor]:
    """Record a call, to be made when the graph runs; return fake tensors as its results.

    Parameters
    ----------
    function : callable
        Function that communicates; returns one tensor or several.
    results : sequence of Like
        Descriptions of its results on this rank.
    args, kwargs
        Its arguments: fake tensors, and values, which the graph stores as constants.
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
    """Return True if the compiler traces a function that is to be recomputed for the gradient."""
    reader = sys.modules["torch._dynamo.symbolic_convert"].InstructionTranslator.current_tx()
    tracer = reader.output.current_tracer
    while tracer is not None:
        if tracer.source_target is torch.ops.higher_order.tag_activation_checkpoint:
            return True
        tracer = tracer.parent
    return False


def conversation(result: Callable[..., Like]) -> Callable[[_Call], _Call]:
    """Decorator: record calls of a function that communicates if its tensor is fake.

    Parameters
    ----------
    result : callable
        Called with the function's arguments; returns the description of its result.
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
if hasattr(torch._library, "effects"):  # so that the compiler removes no operator as unused
    _operator = torch._library.simple_registry.singleton.find("distarray::conversation")
    _operator.effect.register(torch._library.effects.EffectType.ORDERED)


# -- meshes and placements as constants in graphs -------------------------------------------------


_meshes: dict[str, DeviceMesh] = {}


def mesh_called(name: str) -> DeviceMesh:
    """Return the mesh that has this name in graphs of this process."""
    return _meshes[name]


def _mesh_in_graphs(mesh: DeviceMesh) -> tuple[str, dict[str, Any]]:
    name = f"{_PROCESS}:{hash(mesh)}"
    _meshes[name] = mesh
    return f"mesh_called({name!r})", {"mesh_called": mesh_called}


def _in_graphs(placement: Any) -> tuple[str, dict[str, Any]]:
    return repr(placement), {type(placement).__name__: type(placement)}


def _take_as_constant(kind: Any, written: Callable[[Any], Any], *members: str) -> None:
    """Make the compiler treat values of a type as constants, and read these attributes of them."""
    kind.__fx_repr__ = written
    opaque.register_opaque_type(
        kind, typ="value", members=dict.fromkeys(members, opaque.MemberType.USE_REAL)
    )


if hasattr(torch._library, "opaque_object"):
    opaque = torch._library.opaque_object
    _members = ("shape", "ndim", "size", "rank", "coords", "mesh_dim_names")
    # Torch 2.11 refuses these types as constants; there a graph ends where one of them is used.
    with suppress(TypeError):
        _take_as_constant(DeviceMesh, _mesh_in_graphs, *_members)
        _take_as_constant(Shard, _in_graphs, "dim")
        _take_as_constant(Replicate, _in_graphs)
        _take_as_constant(Partial, _in_graphs, "op")
