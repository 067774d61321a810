"""Passes through a model: whether a backward pass is under way, and the tensors it starts from."""

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
#: What ``torch.compile`` has torch call for each frame that begins; None or False: nothing.
watching: Callable[[], Any] = getattr(_frames, "get_eval_frame_callback", lambda: None)


def at_end_of_backward(callback: Callable[[], None]) -> None:
    """Call a function at the end of the backward pass that is under way."""
    torch.autograd.Variable._execution_engine.queue_callback(callback)


def in_backward() -> bool:
    """Whether a backward pass is under way in this thread."""
    return bool(torch._C._current_graph_task_id() != -1)


def compiled() -> bool:
    """Whether ``torch.compile`` watches the frames that run now."""
    if torch.compiler.is_compiling():
        return True  # it reads this very function now, and cannot read the rest of it
    return watching() not in (None, False)


def uncompiled(function: _Call) -> _Call:
    """A function that ``torch.compile`` leaves as it is, with all that it calls.

    What is between the modules of a model is compiled; what talks to other ranks is not, since
    torch runs a program on made-up tensors, or parts of it again, as it likes, and not alike on all
    ranks.
    """
    return left_alone(_watched(function))


def graphed(function: _Call) -> _Call:
    """A function that ``torch.compile`` puts into its graph as it is, without reading it.

    It is called with made-up tensors for that, so that it has conversations written down
    (:mod:`distarray.torch.collectives.graphs`). Another shape makes another graph, since layouts
    are of known ones. Where no graph takes its arguments it is left alone, as `uncompiled` ones
    are.
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
    """Have the compiler, which reads this, make a graph for these numbers and shapes alone."""
    for x in values.values() if isinstance(values, dict) else values:
        if isinstance(x, torch.Tensor):
            _ask_for_numbers(x.shape)
        elif isinstance(x, (list, tuple, dict)):
            _ask_for_numbers(x)
        elif isinstance(x, (int, float)):
            hash(x)  # which no symbol has


def _of_numbers(x: Any) -> Any:
    """A number, or a tensor of a shape of numbers, for what the compiler has symbols for."""
    if isinstance(x, torch.SymInt):
        return int(x)
    return x if all(type(n) is int for n in x.shape) else x.expand([int(n) for n in x.shape])


def _watched(function: _Call) -> _Call:
    apart = torch._disable_dynamo(function)  # which imports the compiler when it is called

    @functools.wraps(function)
    def watched(*args: Any, **kwargs: Any) -> Any:
        # None while nothing is compiled, False in what the compiler has been told to leave alone.
        return (apart if watching() else function)(*args, **kwargs)

    return watched  # type: ignore[return-value]


def left_alone(function: _Call) -> _Call:
    """A function that the compiler does not read itself, though it may read those that it calls."""
    called: Any = function
    called._torchdynamo_disable = True  # as a part of what calls it
    called._torchdynamo_disable_msg = (
        "ranks talk to one another in it; without fullgraph=True the graph ends before it and goes "
        "on after it"
    )
    return run_as_it_is(function)


def run_as_it_is(function: _Call) -> _Call:
    """A function of which the compiler makes no graph, unless it reads what calls it."""
    code = cast("Any", function).__code__
    if hasattr(_frames, "set_code_exec_strategy"):
        action = _frames._FrameAction
        how = _frames._FrameExecStrategy(action.SKIP, action.DEFAULT)
        _frames.set_code_exec_strategy(code, how)
    elif hasattr(_frames, "skip_code"):
        _frames.skip_code(code)
    return function


# -- names of functions for graphs, given to the compiler once it is imported ----------------------

_COMPILER = "torch._dynamo"
_graphed: list[Any] = []


def _allow() -> None:
    known = sys.modules[_COMPILER].trace_rules._allowed_callable_ids
    for function in _graphed:
        known.add(id(function))


class _WhenImported(MetaPathFinder):
    """Tells the compiler, which takes a second to import, when a program does that."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """What others find, with something to do after it."""
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
    """The tensors in what a module returned: itself, or in lists, tuples, dicts, dataclasses."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    elif dataclasses.is_dataclass(value):
        value = [getattr(value, field.name, None) for field in dataclasses.fields(value)]
    if isinstance(value, (list, tuple)):
        return [tensor for part in value for tensor in tensors_in(part)]
    return []
