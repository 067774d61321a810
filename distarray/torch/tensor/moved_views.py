"""Moved views: views whose elements had to move to other ranks.

A view shares the memory of its base where every element stays on its rank. A moved view has memory
of its own, and a `Source` that records how to compute its values. These are fetched again after a
write to the base. Values written to the view are also written to the base.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

from torch import Tensor

from distarray.layout import Layout
from distarray.torch.bridge.transforms import is_traced
from distarray.torch.collectives.graphs import leave_out
from distarray.torch.tensor.moving import moved, refilled
from distarray.torch.tensor.versions import counted

__all__ = ["Source", "current", "written_back"]


class Source(NamedTuple):
    """Origin of the values of a moved view.

    Attributes
    ----------
    base : DistTensor
        The base of the view.
    op, args, kwargs
        The operator, and its arguments after the base.
    place : int
        Index of the view among the operator's results.
    version : int
        The base's version when the values were fetched.
    """

    base: Any
    op: Any
    args: Sequence[Any]
    kwargs: dict[str, Any]
    place: int
    version: int


def current(x: Any) -> Tensor:
    """Return this rank's part of a distributed tensor; collective for an outdated moved view.

    All ranks find the same views outdated: versions count the writes of torch's operators on all
    ranks.
    """
    if not x._spec.copied:
        return x._part
    source: Source | None = x._source
    if source is None:  # it is an argument or a result of a graph
        return x._part
    if source.base._version != source.version:
        found = _taken(source.op(source.base, *source.args, **source.kwargs), source.place)
        counted(x._part.copy_, (found._part,), {})
        x._source = source._replace(version=source.base._version)
    return x._part


def written_back(x: Any) -> None:
    """Write the values of a moved view back to its base; collective."""
    source: Source | None = x._source
    if source is None:
        _refuse(x)
    base, spec = source.base, source.base._spec
    here, whole = current(base), Layout.replicated(tuple(spec.shape), spec.mesh.shape)
    values = moved(here, spec.mesh, spec.layout, whole)
    values = values.clone() if values is here else values
    view = _taken(source.op(values, *source.args, **source.kwargs), source.place)
    own = Layout.replicated(tuple(x._spec.shape), spec.mesh.shape)
    view.copy_(moved(x._part, spec.mesh, x._spec.layout, own))
    refilled(here, moved(values, spec.mesh, whole, spec.layout), spec)
    if spec.copied:
        written_back(base)


def _refuse(x: Any) -> NoReturn:
    if is_traced(x._part):
        leave_out("a write to a view whose elements had to move")
    raise RuntimeError(
        "a compiled graph returned this view of one of its arguments, whose elements had to move, "
        "and what is written to it would not reach the argument: write to it inside of the graph, "
        "or to its clone()"
    )


def _taken(found: Any, place: int) -> Any:
    return found[place] if isinstance(found, (list, tuple)) else found
