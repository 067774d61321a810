"""Views whose elements had to move.

A view shares the memory of its base where every element stays on its rank. Otherwise it has memory
of its own, and a `Source` says where its values come from: they are fetched again when the base has
been written to, and what is written to the view is written to the base.
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
    """Where the values of a moved view come from.

    Attributes
    ----------
    base : DistTensor
        What it is a view of.
    op, args, kwargs
        The operator, and its arguments after the base.
    place : int
        Which of the operator's results it is.
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
    """This rank's part of a distributed tensor; collective where a moved view is out of date.

    Ranks agree on that: versions count what programs write by torch's operators, on all ranks.
    """
    if not x._spec.copied:
        return x._part
    source: Source | None = x._source
    if source is None:  # it was given to a graph, or by one
        return x._part
    if source.base._version != source.version:
        found = _taken(source.op(source.base, *source.args, **source.kwargs), source.place)
        counted(x._part.copy_, (found._part,), {})
        x._source = source._replace(version=source.base._version)
    return x._part


def written_back(x: Any) -> None:
    """Bring what has been written to a moved view to its base; collective."""
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
