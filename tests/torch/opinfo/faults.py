"""Faults to plant in operators, by which the harness shows that it finds them."""

from __future__ import annotations

import functools
import os
import signal
import warnings
from collections.abc import Callable
from typing import Any

from mpi4py import MPI
from torch.utils import _pytree as pytree

from distarray.errors import PerformanceWarning
from tests.torch.opinfo.layouts import is_distributed
from tests.torch.opinfo.variants import variants

__all__ = ["FAULTS", "plant"]

#: The rank that does what the others do not.
ODD = 1


def wrong(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Twice the result, on one rank."""
    result = func(*args, **kwargs)
    return result * 2 if MPI.COMM_WORLD.rank == ODD else result * 1


def gathers(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The result, with the warning of an operator that has no rule."""
    warnings.warn("planted", PerformanceWarning, stacklevel=2)
    return func(*args, **kwargs)


def lone(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """An exception on one rank."""
    if MPI.COMM_WORLD.rank == ODD:
        raise ValueError("planted")
    return func(*args, **kwargs)


def leaves(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """An exception on one rank, for which the others wait."""
    if MPI.COMM_WORLD.rank == ODD:
        raise ValueError("planted")
    MPI.COMM_WORLD.recv(source=ODD)
    return func(*args, **kwargs)


def waits(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A message that nobody sends, on one rank."""
    if MPI.COMM_WORLD.rank == ODD:
        MPI.COMM_WORLD.recv(source=0)
    return func(*args, **kwargs)


def dies(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The end of one rank, as by an error in compiled code."""
    if MPI.COMM_WORLD.rank == ODD:
        os.kill(os.getpid(), signal.SIGKILL)
    return func(*args, **kwargs)


FAULTS = {fault.__name__: fault for fault in (wrong, gathers, lone, leaves, waits, dies)}


def plant(planted: dict[str, str]) -> None:
    """Put a fault, by its name, into each named variant, where an operand is distributed."""
    for name, fault in planted.items():
        op = variants()[name]
        op.op = functools.partial(_faulty, FAULTS[fault], op.op)


def _faulty(fault: Callable[..., Any], func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if any(map(is_distributed, pytree.tree_leaves((args, kwargs)))):
        return fault(func, *args, **kwargs)
    return func(*args, **kwargs)
