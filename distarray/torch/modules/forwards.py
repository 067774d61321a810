"""Functions in the place of a module's forward, and how ``torch.compile`` takes them.

The compiler cannot read such a function, in which ranks talk. It reads the call alone, and writes
that down: with the module's tensors, of which a parameter that is cut is this rank's part, and with
the module's numbers, so that another number makes another graph. When it makes the graph it calls
the function with made-up tensors, and finds the operators and the conversations.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from distarray.torch.bridge.transforms import compilation, is_traced
from distarray.torch.collectives.graphs import leave_out, name_of, named
from distarray.torch.collectives.passes import graphed, run_as_it_is
from distarray.torch.parameters.parts import Part

__all__ = ["Forward", "InputHook", "OutputHook", "end_before_unread"]

#: Attributes that every module has, and types of others whose values the compiler reads.
_OF_MODULES = frozenset(vars(Module())) | {"forward"}
_NUMBERS = (bool, int, float, str)


class Forward:
    """``function(module, *how, ...)``, to be called as ``module.forward(...)``.

    Attributes
    ----------
    function : callable
        Which the compiler leaves alone where it makes no graph of it.
    module : torch.nn.Module
        The module whose forward it is.
    how : tuple
        The arguments before those of a call.
    name : str
        Its name in graphs.
    """

    def __init__(self, function: Callable[..., Any], module: Module, *how: Any) -> None:
        self.function, self.module, self.how = function, module, how
        self.name = name_of(self)

    def __reduce__(self) -> Any:
        return type(self), (self.function, self.module, *self.how)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(partial(self.function, self.module, *self.how))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it, or have the compiler write the call down."""
        if torch.compiler.is_dynamo_compiling():
            return _in_graph(self.name, *_read(self.module), args, kwargs)
        return self.function(self.module, *self.how, *args, **kwargs)


class InputHook(Forward):
    """``function(module, *how, args, kwargs)``, to be called before a module's forward."""

    @run_as_it_is
    def __call__(self, module: Module, args: Any, kwargs: Any) -> Any:
        """Call it, or have the compiler write the call down."""
        if not torch.compiler.is_dynamo_compiling():
            return self.function(self.module, *self.how, args, kwargs)
        found = _inputs_in_graph(self.name, args, kwargs)
        if found is None:
            return None
        count = len(found) - len(kwargs)
        return found[:count], dict(zip(kwargs, found[count:], strict=True))


class OutputHook(Forward):
    """``function(module, *how, output)``, to be called after a module's forward."""

    @run_as_it_is
    def __call__(self, module: Module, args: Any, output: Any) -> Any:
        """Call it, or have the compiler write the call down."""
        if torch.compiler.is_dynamo_compiling():
            return _in_graph(self.name, (), (), (output,), {})
        return self.function(self.module, *self.how, output)


def _read(module: Module) -> tuple[Any, Any]:
    """The tensors and the other attributes of a module and of those in it, for the compiler."""
    tensors, others = [], []
    for part in module.modules():
        found = {}
        for kind in (part._parameters, part._buffers):
            for name, x in kind.items():
                if x is not None:
                    found[name] = x.in_graphs if type(x) is Part else x
        tensors.append(found)
        for name, x in part.__dict__.items():
            if isinstance(x, _NUMBERS):
                others.append((name, hash(x)))
    return tensors, others


def end_before_unread(root: Module) -> None:
    """End a graph before a program's own module, if it computes with what has not been read."""
    if compilation() is None:
        return
    for part in root.modules():
        own = not type(part).__module__.startswith("torch.nn.")
        for name, x in vars(part).items() if own else ():
            known = name in _OF_MODULES or name.startswith("_distarray")
            if not (known or isinstance(x, (*_NUMBERS, torch.Tensor, type(None)))):
                leave_out(f"{type(part).__name__}.{name}, which may be another one at each call")


@graphed
def _in_graph(
    name: str,
    tensors: Sequence[Mapping[str, Tensor]],
    others: Sequence[Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Any:
    called = named(name)
    with _computing_with(called.module, tensors):
        return called.function(called.module, *called.how, *args, **kwargs)


@graphed
def _inputs_in_graph(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call a hook; the new arguments by position, then by name, in one tuple for the graph."""
    called = named(name)
    found = called.function(called.module, *called.how, args, kwargs)
    return None if found is None else (*found[0], *found[1].values())


@contextmanager
def _computing_with(module: Module, tensors: Sequence[Mapping[str, Tensor]]) -> Iterator[None]:
    """Put made-up tensors before a module's own ones."""
    given = [
        (part, name, x)
        for part, found in zip(module.modules(), tensors, strict=False)
        for name, x in found.items()
        if is_traced(x)
    ]
    for part, name, x in given:
        part.__dict__[name] = x
    try:
        yield
    finally:
        for part, name, _ in given:
            part.__dict__.pop(name, None)
