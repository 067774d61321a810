"""Plain tensors that torch's own Python functions make and combine with distributed tensors.

`torch.svd_lowrank` draws a matrix, ``torch.nn.functional.embedding_bag`` counts offsets, an LSTM
begins with zeros. Programs never see such tensors, so programs cannot declare their layout. This
module takes them as replicated if the call comes directly from one of those functions. All ranks
then use rank 0's values. An exception is a function to which the program passed plain tensors: the
new tensors may depend on these. Then each rank keeps its values, and they must be equal on all
ranks. Empty plain tensors for ``out=``, which torch's compiled functions also make, receive the
global result if they are empty on all ranks.
"""

from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from sys import _getframe
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from distarray.comm import DeviceMesh
from distarray.layout import Layout
from distarray.torch.bridge.transforms import is_traced
from distarray.torch.collectives.blocks import movable
from distarray.torch.collectives.conversations import sent
from distarray.torch.collectives.graphs import leave_out
from distarray.torch.tensor.calls import bound, replaced, tensors_in
from distarray.torch.tensor.filling import fill
from distarray.torch.tensor.operands import common_mesh, is_number, is_refused
from distarray.torch.tensor.rows import apart, has_rows
from distarray.torch.tensor.spec import Spec
from distarray.torch.tensor.table import Row

__all__ = ["adopting", "same_everywhere"]

#: Modules whose functions make tensors besides their arguments.
_FUNCTIONS = frozenset(
    {"torch.functional", "torch.nn.functional", "torch._lowrank", "torch._linalg_utils"}
    | {"torch.masked._ops", "torch._jit_internal"}
    | {"torch.nn.modules.rnn", "torch.nn.utils.parametrizations"}
)


def adopting(
    call: Callable[..., Any],
    make: Callable[..., Any],
    cls: Any,
    row: Row,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    error: RuntimeError,
) -> Any:
    """Call an operator with distributed tensors in place of plain ones that torch made; collective.

    Parameters
    ----------
    call : callable
        Calls the operator with the replaced arguments.
    make : callable
        Makes a distributed tensor of a part and a spec.
    cls, row, args, kwargs
        The type of distributed tensors, the operator and its arguments.
    error : RuntimeError
        Raised on all ranks if the program may have made a plain tensor.
    """
    _need_values(row, tensors_in(args, kwargs))
    if has_rows(row.name):
        return apart(row.op, call, args, kwargs, error)
    outs, changed = _written(cls, row, args, kwargs)
    operands = tensors_in(args, kwargs)
    mesh = common_mesh(cls, row.name, operands)
    if changed or (outs and _differ([tuple(x.shape) for x in outs], [(0,)] * len(outs), mesh)):
        raise error
    there = {id(x): make(cls, x, _spec_of(x, mesh)) for x in outs}
    entry = _entry()
    for x in operands:
        if id(x) in there or type(x) is cls or is_number(x):
            continue
        if entry is None or not is_refused(x):
            raise error
        same = _as_replicated(x, mesh, not any(_is_plain(cls, y) for y in _given(entry)), error)
        there[id(x)] = make(cls, same, _spec_of(same, mesh))
    found = call(*replaced(args, kwargs, [there.get(id(x), x) for x in operands]))
    for x in outs:
        fill(x, there[id(x)])
    back = {id(there[id(x)]): x for x in outs}
    return replaced([found], {}, [back.get(id(x), x) for x in tensors_in([found], {})])[0][0]


def _need_values(row: Row, operands: Sequence[Any]) -> None:
    """Make ``torch.compile`` end its graph, whose tensors have no values to compare."""
    if any(is_traced(getattr(x, "_part", x)) for x in operands):
        leave_out(row.op)


def _written(
    cls: Any, row: Row, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[list[Tensor], bool]:
    """Return the plain tensors for ``out=``, and True if another plain tensor is written to."""
    given = bound(row.op, args, kwargs)
    outs = [given[name] for name, is_out in row.written.items() if is_out]
    changed = [given[name] for name, is_out in row.written.items() if not is_out]
    return [x for x in outs if _is_plain(cls, x)], any(_is_plain(cls, x) for x in changed)


def _spec_of(x: Tensor, mesh: DeviceMesh) -> Spec:
    layout = Layout.replicated(tuple(x.shape), mesh.shape)
    return Spec(mesh, layout, tuple(x.stride()), x.dtype, x.device)


def _differ(here: Any, wanted: Any, mesh: DeviceMesh) -> bool:
    """Return True if `here` differs from `wanted` on any rank."""
    if mesh.coords is None or mesh.size() == 1:
        return bool(here != wanted)
    return any(one != wanted for one in mesh.group.allgather_object(here, "plain tensors: shapes"))


def _is_plain(cls: Any, x: Any) -> bool:
    return isinstance(x, torch.Tensor) and type(x) is not cls and x.numel() != 1


def _as_replicated(x: Tensor, mesh: DeviceMesh, made_here: bool, error: RuntimeError) -> Tensor:
    """Return rank 0's tensor if torch made it; else check that all ranks have the same tensor."""
    if mesh.coords is None or mesh.size() == 1:
        return x
    if made_here:
        return sent(x.contiguous(), mesh.group, 0)
    if not same_everywhere([x], mesh):
        raise error
    return x


def same_everywhere(tensors: Sequence[Tensor], mesh: DeviceMesh) -> bool:
    """Return True if all ranks of a mesh have the same plain tensors; one allgather of digests."""
    if mesh.coords is None or mesh.size() == 1:
        return True
    bits = [movable(x.detach().contiguous()).tobytes() for x in tensors]
    here = [(tuple(x.shape), blake2b(b, digest_size=16).digest()) for x, b in zip(tensors, bits)]
    told = mesh.group.allgather_object(here, "plain tensors: equal?")
    return all(one == told[0] for one in told)


# -- the caller -----------------------------------------------------------------------------------


def _entry() -> FrameType | None:
    """Return the frame of the outermost torch function, if such a function called the operator."""
    frame: FrameType | None = _getframe(1)
    while frame is not None and _module(frame).startswith("distarray.torch.tensor."):
        frame = frame.f_back
    entry = None
    while frame is not None and _makes(_module(frame)):
        entry, frame = frame, frame.f_back
    return entry


def _makes(module: str) -> bool:
    return module in _FUNCTIONS or module.startswith("torch.distributions.")


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _given(frame: FrameType) -> Iterator[Any]:
    """Yield a function's arguments, with containers expanded; `_UNKNOWN` for other objects."""
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)
    waiting = [frame.f_locals.get(name) for name in code.co_varnames[:count]]
    while waiting:
        x = waiting.pop()
        if isinstance(x, dict):
            waiting += x.values()
        elif isinstance(x, (list, tuple)):
            waiting += x
        elif isinstance(x, torch.nn.Module):
            waiting += [*x.parameters(), *x.buffers()]
        elif isinstance(x, Distribution):
            waiting += vars(x).values()
        elif isinstance(x, _KNOWN):
            yield x
        else:
            yield _UNKNOWN


_KNOWN = (
    *(torch.Tensor, bool, int, float, complex, str, type(None), torch.Generator),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format),
)
#: Placeholder for an object that may contain tensors.
_UNKNOWN = torch.empty(2)
