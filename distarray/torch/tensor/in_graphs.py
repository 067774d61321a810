"""Distributed tensors in the graphs that ``torch.compile`` makes."""

from typing import Any

from torch import Tensor

from distarray.layout import Layout
from distarray.torch.bridge.transforms import is_traced
from distarray.torch.collectives.carrying import gradient_layout
from distarray.torch.tensor import autograd
from distarray.torch.tensor.ladder import made
from distarray.torch.tensor.moved_views import current
from distarray.torch.tensor.moving import moved
from distarray.torch.tensor.spec import Spec

__all__ = ["InGraphs"]


class InGraphs:
    """Protocol of torch's wrapper tensors: a graph contains this rank's part."""

    __slots__ = ()

    _spec: Spec

    def __tensor_flatten__(self) -> tuple[list[str], Spec]:
        """Return the names of inner tensors, and the spec; another spec gives another graph."""
        part, spec = current(self), self._spec
        if spec.copied and is_traced(part) and not _is_of_input(self):
            spec = spec.owned()  # the base of this view is internal to the graph
        return ["_part"], spec

    @classmethod
    def __tensor_unflatten__(
        cls, inner: dict[str, Tensor], spec: Spec, shape: Any, strides: Any
    ) -> Any:
        part = inner["_part"]
        found = _with_part(cls, part, spec)
        found._is_given = is_traced(part)
        return found

    def __coerce_tangent_metadata__(self) -> Any:
        """Return a tensor with the layout that the gradient of this graph's result will have."""
        return autograd.redistributed(self, gradient_layout(self._spec.layout))

    def __coerce_same_metadata_as_tangent__(self, spec: Spec | None, kind: Any = None) -> Any:
        """Return the gradient of a graph's result in the layout that the graph expects."""
        if spec is None:  # a plain gradient is expected
            own = self._spec
            whole = Layout.replicated(tuple(own.shape), own.mesh.shape)
            return autograd.left(autograd.redistributed(self, whole))
        part = moved(current(self), spec.mesh, self._spec.layout, spec.layout)
        return _with_part(type(self), part, spec)

    def _stable_hash_for_caching(self) -> str:
        """Disable the cache: other jobs would find the files on disk."""
        from torch._functorch._aot_autograd.autograd_cache import BypassAOTAutogradCache

        raise BypassAOTAutogradCache("a DistTensor belongs to this job")


def _as_tangent(x: Tensor, spec: Any, kind: Any = None) -> Any:
    """Return a plain gradient of a distributed result of a graph as a distributed tensor.

    Autograd makes zeros of the global shape for a result without a gradient, such as the logits
    that a model returns beside its loss.
    """
    if kind is None or not issubclass(kind, InGraphs):
        return None  # as torch handles a tensor without this method
    whole = Layout.replicated(tuple(x.shape), spec.mesh.shape)
    return _with_part(kind, moved(x, spec.mesh, whole, spec.layout), spec)


def _with_part(kind: Any, part: Tensor, spec: Spec) -> Any:
    """Make a distributed tensor that is not a view."""
    found = made(kind, part, spec)
    found._source = None
    return found


_METHOD = "__coerce_same_metadata_as_tangent__"
if not hasattr(Tensor, _METHOD):  # torch calls this method of the gradient
    setattr(Tensor, _METHOD, _as_tangent)


def _is_of_input(x: Any) -> bool:
    """Return True if the base of a moved view was an argument of the graph."""
    while x._spec.copied:
        if x._source is None:
            return True
        x = x._source.base
    return bool(getattr(x, "_is_given", False))
