"""Callables that replace a module's forward, and their form in graphs of ``torch.compile``.

The compiler cannot trace such a function, because it communicates. It records only the call: with
the module's tensors (of a cut parameter, this rank's part) and with the module's numeric and string
attributes, so that other values make another graph. When the compiler makes the graph it calls the
function with fake tensors, and so obtains its operators and communication.
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

#: Attributes of every module; types of other attributes whose values the compiler reads.
_OF_MODULES = frozenset(vars(Module())) | {"forward"}
_NUMBERS = (bool, int, float, str)


class Forward:
    """Callable that replaces ``module.forward``: ``function(module, *how, ...)``.

    Attributes
    ----------
    function : callable
        The replacement, which the compiler skips unless it makes a graph of the call.
    module : torch.nn.Module
        The module whose forward is replaced.
    how : tuple
        Arguments that precede those of a call.
    name : str
        Name of this object in graphs.
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
        """Call the function, or make the compiler record the call."""
        if torch.compiler.is_dynamo_compiling():
            return _in_graph(self.name, *_read(self.module), args, kwargs)
        return self.function(self.module, *self.how, *args, **kwargs)


class InputHook(Forward):
    """Pre-forward hook ``function(module, *how, args, kwargs)`` of a module."""

    @run_as_it_is
    def __call__(self, module: Module, args: Any, kwargs: Any) -> Any:
        """Call the function, or make the compiler record the call."""
        if not torch.compiler.is_dynamo_compiling():
            return self.function(self.module, *self.how, args, kwargs)
        found = _inputs_in_graph(self.name, args, kwargs)
        if found is None:
            return None
        count = len(found) - len(kwargs)
        return found[:count], dict(zip(kwargs, found[count:], strict=True))


class OutputHook(Forward):
    """Forward hook ``function(module, *how, output)`` of a module."""

    @run_as_it_is
    def __call__(self, module: Module, args: Any, output: Any) -> Any:
        """Call the function, or make the compiler record the call."""
        if torch.compiler.is_dynamo_compiling():
            return _in_graph(self.name, (), (), (output,), {})
        return self.function(self.module, *self.how, output)


def _read(module: Module) -> tuple[Any, Any]:
    """Return the tensors and other values of a module and its submodules, for the compiler."""
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
    """End a graph before a program's own module with attributes that the compiler cannot read."""
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
    """Call a hook; return the new arguments, positional and then keyword ones, in one tuple."""
    called = named(name)
    found = called.function(called.module, *called.how, args, kwargs)
    return None if found is None else (*found[0], *found[1].values())


@contextmanager
def _computing_with(module: Module, tensors: Sequence[Mapping[str, Tensor]]) -> Iterator[None]:
    """Return a context in which a module's tensors are replaced by fake ones."""
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
