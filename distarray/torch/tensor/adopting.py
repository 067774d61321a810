"""Plain tensors beside distributed ones that torch's own Python functions make inside themselves.

`torch.svd_lowrank` draws a matrix, ``torch.nn.functional.embedding_bag`` counts offsets. Programs
never see such tensors, so they cannot say how they are laid out. They are taken as replicated if
the call comes directly from one of those functions: with rank 0's values, or, where the program has
handed plain tensors to the function, so that what it made may depend on them, if all ranks are
found to have the same ones.
"""

from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from sys import _getframe
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from distarray.comm import DeviceMesh
from distarray.layout import Layout
from distarray.torch.blocks import movable
from distarray.torch.conversations import sent
from distarray.torch.tensor.calls import bound, replaced, tensors_in
from distarray.torch.tensor.operands import common_mesh, is_refused
from distarray.torch.tensor.spec import Spec
from distarray.torch.tensor.table import Row

__all__ = ["adopted"]

#: Modules whose functions make tensors beside those that they are given.
_FUNCTIONS = frozenset(
    {"torch.functional", "torch.nn.functional", "torch._lowrank", "torch._linalg_utils"}
    | {"torch.masked._ops", "torch._jit_internal"}
)


def adopted(
    make: Callable[..., Any],
    cls: Any,
    row: Row,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    error: RuntimeError,
) -> tuple[list[Any], dict[str, Any]]:
    """The arguments with distributed tensors for those that torch has made; collective.

    Raises
    ------
    RuntimeError
        `error`, on all ranks, if others than torch may have made one, or if one is written to.
    """
    entry = _entry()
    given = bound(row.op, args, kwargs)
    if entry is None or any(_is_plain(cls, given[name]) for name in row.written):
        raise error
    operands = tensors_in(args, kwargs)
    mesh = common_mesh(cls, row.name, operands)
    made_here = not any(_is_plain(cls, x) for x in _given(entry))
    there = []
    for x in operands:
        if _is_plain(cls, x) and is_refused(x):
            x = _same_everywhere(x, mesh, made_here, error)
            layout = Layout.replicated(tuple(x.shape), mesh.shape)
            x = make(cls, x, Spec(mesh, layout, tuple(x.stride()), x.dtype, x.device))
        there.append(x)
    return replaced(args, kwargs, there)


def _is_plain(cls: Any, x: Any) -> bool:
    return isinstance(x, torch.Tensor) and not isinstance(x, cls) and x.numel() != 1


def _same_everywhere(x: Tensor, mesh: DeviceMesh, made_here: bool, error: RuntimeError) -> Tensor:
    """Rank 0's values where torch made them, else the own ones if all ranks have the same."""
    if mesh.coords is None or mesh.size() == 1:
        return x
    if made_here:
        return sent(x.contiguous(), mesh.group, 0)
    bits = blake2b(movable(x.contiguous()).tobytes(), digest_size=16).digest()
    told = mesh.group.allgather_object((tuple(x.shape), bits), "plain tensors: equal?")
    if any(one != told[0] for one in told):
        raise error
    return x


# -- who calls ------------------------------------------------------------------------------------


def _entry() -> FrameType | None:
    """The outermost of torch's functions, if operators are called by one of them."""
    frame: FrameType | None = _getframe(1)
    while frame is not None and _module(frame).startswith("distarray.torch.tensor."):
        frame = frame.f_back
    entry = None
    while frame is not None and _module(frame) in _FUNCTIONS:
        entry, frame = frame, frame.f_back
    return entry


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _given(frame: FrameType) -> Iterator[Any]:
    """What a function was given, and what is in lists; a tensor for what may hold some."""
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
        elif isinstance(x, _KNOWN):
            yield x
        else:
            yield _UNKNOWN


_KNOWN = (
    *(torch.Tensor, bool, int, float, complex, str, type(None), torch.Generator),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format),
)
#: Stands for an object that may hold tensors.
_UNKNOWN = torch.empty(2)
