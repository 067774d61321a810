"""Helpers for backward passes, and decorators for functions called under ``torch.compile``."""

import dataclasses
import functools
import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any, TypeVar, cast

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

__all__ = [
    "at_end_of_backward",
    "compiled",
    "graphed",
    "in_backward",
    "left_alone",
    "run_as_it_is",
    "tensors_in",
    "uncompiled",
    "watching",
]

_Call = TypeVar("_Call", bound=Callable[..., Any])

_frames: Any = torch._C._dynamo.eval_frame
#: Returns the callback that ``torch.compile`` sets for new frames; None or False if there is none.
watching: Callable[[], Any] = getattr(_frames, "get_eval_frame_callback", lambda: None)


def at_end_of_backward(callback: Callable[[], None]) -> None:
    """Call a function at the end of the current backward pass."""
    torch.autograd.Variable._execution_engine.queue_callback(callback)


def in_backward() -> bool:
    """Return True if a backward pass is in progress in this thread."""
    return bool(torch._C._current_graph_task_id() != -1)


def compiled() -> bool:
    """Return True if ``torch.compile`` is active for the frames that run now."""
    if torch.compiler.is_compiling():
        return True  # the compiler traces this function now, and cannot trace the rest
    return watching() not in (None, False)


def uncompiled(function: _Call) -> _Call:
    """Decorator: exclude a function, and all functions that it calls, from ``torch.compile``.

    Code between the modules of a model is compiled. Code that communicates is not: torch runs a
    program on fake tensors, and may run parts of it again, not alike on all ranks.
    """
    return left_alone(_watched(function))


def graphed(function: _Call) -> _Call:
    """Decorator: make ``torch.compile`` put a call into its graph without tracing the function.

    For that purpose the function is called with fake tensors, so its communication is recorded
    (:mod:`distarray.torch.collectives.graphs`). Every shape has a graph of its own, since layouts
    need known extents. If a graph cannot take the arguments, the function is excluded, like those
    under `uncompiled`.
    """
    apart = torch._disable_dynamo(function)

    @functools.wraps(function)
    def written(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = tree_map_only((torch.Tensor, torch.SymInt), _of_numbers, (args, kwargs))
        return function(*args, **kwargs)

    def called(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_dynamo_compiling():
            _ask_for_numbers(args)
            _ask_for_numbers(kwargs)
            return written(*args, **kwargs)
        return (apart if watching() else function)(*args, **kwargs)

    run_as_it_is(called)
    functools.update_wrapper(called, function)
    _graphed.append(written)
    if _COMPILER in sys.modules:
        _allow()
    return called  # type: ignore[return-value]


def _ask_for_numbers(values: Any) -> None:
    """Make the compiler, which traces this, specialize its graph on these numbers and shapes."""
    for x in values.values() if isinstance(values, dict) else values:
        if isinstance(x, torch.Tensor):
            _ask_for_numbers(x.shape)
        elif isinstance(x, (list, tuple, dict)):
            _ask_for_numbers(x)
        elif isinstance(x, (int, float)):
            hash(x)  # a symbol cannot be hashed


def _of_numbers(x: Any) -> Any:
    """Replace a symbolic number, or the symbols in a tensor's shape, by numbers."""
    if isinstance(x, torch.SymInt):
        return int(x)
    return x if all(type(n) is int for n in x.shape) else x.expand([int(n) for n in x.shape])


def _watched(function: _Call) -> _Call:
    apart = torch._disable_dynamo(function)  # the compiler is imported when `apart` is called

    @functools.wraps(function)
    def watched(*args: Any, **kwargs: Any) -> Any:
        # None if nothing is compiled, False within code that the compiler has orders to ignore.
        return (apart if watching() else function)(*args, **kwargs)

    return watched  # type: ignore[return-value]


def left_alone(function: _Call) -> _Call:
    """Exclude a function from tracing, though not the functions that it calls."""
    called: Any = function
    called._torchdynamo_disable = True  # where a traced caller would inline it
    called._torchdynamo_disable_msg = (
        "ranks talk to one another in it; without fullgraph=True the graph ends before it and goes "
        "on after it"
    )
    return run_as_it_is(function)


def run_as_it_is(function: _Call) -> _Call:
    """Make the compiler start no graph in a function; a traced caller may still inline it."""
    code = cast("Any", function).__code__
    if hasattr(_frames, "set_code_exec_strategy"):
        action = _frames._FrameAction
        how = _frames._FrameExecStrategy(action.SKIP, action.DEFAULT)
        _frames.set_code_exec_strategy(code, how)
    elif hasattr(_frames, "skip_code"):
        _frames.skip_code(code)
    return function


# -- names of functions for graphs, registered with the compiler after its import ------------------

_COMPILER = "torch._dynamo"
_graphed: list[Any] = []


def _allow() -> None:
    known = sys.modules[_COMPILER].trace_rules._allowed_callable_ids
    for function in _graphed:
        known.add(id(function))


class _WhenImported(MetaPathFinder):
    """Import hook that registers the functions when a program imports the compiler.

    This module does not import the compiler itself, because that takes a second.
    """

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """Return the spec that the other finders return, extended by the registration."""
        if fullname != _COMPILER or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        loader: Any = spec and spec.loader
        if loader is not None:
            execute = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                _allow()

            loader.exec_module = exec_module
        return spec


if _COMPILER not in sys.modules:
    sys.meta_path.insert(0, _WhenImported())


def tensors_in(value: Any) -> list[Tensor]:
    """Return the tensors in a module's result: in lists, tuples, dicts, dataclasses, or itself."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    elif dataclasses.is_dataclass(value):
        value = [getattr(value, field.name, None) for field in dataclasses.fields(value)]
    if isinstance(value, (list, tuple)):
        return [tensor for part in value for tensor in tensors_in(part)]
    return []
