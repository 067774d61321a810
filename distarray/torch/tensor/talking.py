"""Rules that communicate, recorded for the graphs that ``torch.compile`` makes."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from distarray.comm import DeviceMesh
from distarray.layout import Layout
from distarray.torch.bridge.transforms import is_traced
from distarray.torch.collectives.graphs import Like, leave_out, written_down
from distarray.torch.tensor.calls import gives_one, replaced, tensors_in
from distarray.torch.tensor.spec import strides_like

__all__ = ["Talking"]


class Talking:
    """Wrapper of an operator's function that communicates, or draws the same numbers on all ranks.

    With the fake tensors with which ``torch.compile`` traces a program, the call is recorded in the
    graph.
    """

    __slots__ = ("mesh", "plan", "run")

    def __init__(self, plan: Any, run: Callable[..., Any], mesh: DeviceMesh) -> None:
        self.plan, self.run, self.mesh = plan, run, mesh

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function with parts."""
        tensors = tensors_in(args, kwargs)
        if not any(map(is_traced, tensors)):
            return self.run(*args, **kwargs)
        plan = self.plan
        if plan.outcomes is None or plan.fills:
            leave_out(plan.row.op)
        if plan.writes:
            return self._write(tensors, args, kwargs)
        layouts = plan.layouts if plan.made is None else plan.made
        results = [
            self._like(number, layout)
            for number, layout in enumerate(layouts)
            if layout is not None
        ]
        found = written_down(self.run, results, *args, **kwargs)
        return found[0] if gives_one(plan.row.op) else found

    def _like(self, number: int, layout: Layout) -> Like:
        """Return a result's part, its dimensions ordered in memory as the global tensor's are."""
        outcome, specs = self.plan.outcomes[number], self.plan.specs
        strides = specs[number].strides if specs else outcome.strides
        shape = layout.local_shape(self.mesh.coords)
        return Like(shape, outcome.dtype, strides_like(shape, strides))

    def _write(self, tensors: list[Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Compute on copies of the written operands, and copy the values back."""
        places = list(self.plan.writes)
        results = [Like(tensors[n].shape, tensors[n].dtype) for n in places]
        found = written_down(partial(_beside, self.run, places), results, *args, **kwargs)
        for n, values in zip(places, found, strict=True):
            tensors[n].copy_(values)
        return tensors[places[0]]


def _beside(run: Callable[..., Any], places: Sequence[int], *args: Any, **kwargs: Any) -> Any:
    """Call the function with copies of the operands that it writes to, and return these copies."""
    tensors = tensors_in(args, kwargs)
    for n in places:
        tensors[n] = tensors[n].clone()
    new, named = replaced(args, kwargs, tensors)
    run(*new, **named)
    return [tensors[n] for n in places]
