"""Operators that draw random numbers: every rank draws all numbers and keeps its part."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from distarray.comm import DeviceMesh
from distarray.torch.tensor.streams import generator_lock, next_seed

__all__ = ["drawn_alike"]


def drawn_alike(run: Callable[..., Any], mesh: DeviceMesh, *args: Any, **kwargs: Any) -> Any:
    """Call an operator that draws random numbers so that all ranks of the mesh draw the same.

    A generator that the program passes is used as it is. Otherwise torch's own generators are
    seeded, for this call, with a number that the ranks share.
    """
    if any(isinstance(x, torch.Generator) for x in (*args, *kwargs.values())):
        return run(*args, **kwargs)
    with _beginning_at(next_seed(mesh)):
        return run(*args, **kwargs)


@contextmanager
def _beginning_at(seed: int) -> Iterator[None]:
    """Set the seed of torch's generators within the context; ranks that are threads take turns."""
    generators = [torch.default_generator]
    if torch.cuda.is_initialized():
        generators.append(torch.cuda.default_generators[torch.cuda.current_device()])
    with generator_lock:
        states = [(generator, generator.get_state()) for generator in generators]
        for generator in generators:
            generator.manual_seed(seed)
        try:
            yield
        finally:
            for generator, state in states:
                generator.set_state(state)
