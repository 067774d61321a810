"""A kernel: a short NumPy program with loops, written once and run with any array library."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy

__all__ = ["KERNELS", "Kernel", "kernel"]

#: Arrays and numbers that a kernel is given; arrays are NumPy's and become the library's own.
Inputs = tuple[Any, ...]


@dataclass(frozen=True)
class Kernel:
    """A kernel and what it is given.

    Attributes
    ----------
    name : str
        Name of the function.
    function : callable
        Takes the array library, then the inputs; returns the result. It may write into inputs.
    inputs : callable
        Makes the inputs from a random generator, the same ones at each call.
    """

    name: str
    function: Callable[..., Any]
    inputs: Callable[[numpy.random.Generator], Inputs]

    def prepared(self, library: Any) -> Inputs:
        """New inputs, as the library's arrays."""
        given = self.inputs(numpy.random.default_rng(7))
        return tuple(library.array(x) if isinstance(x, numpy.ndarray) else x for x in given)


#: All kernels by name, in the order of their files.
KERNELS: dict[str, Kernel] = {}


def kernel(inputs: Callable[[numpy.random.Generator], Inputs]) -> Callable[[Any], Any]:
    """Put a function into the table, with what makes its inputs."""

    def entered(function: Any) -> Any:
        KERNELS[function.__name__] = Kernel(function.__name__, function, inputs)
        return function

    return entered
