"""Operators on a tensor's shape alone, or that change it in place: ``squeeze_``, ``resize_``.

The tensor becomes the view that the operator without the underscore returns. Its memory, its place
in autograd's graph and its other views stay.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import prod
from typing import Any

import torch

from distarray.torch.tensor.filling import turned_into
from distarray.torch.tensor.spec import contiguous_strides
from distarray.torch.tensor.table import composed, instead

_aten = torch.ops.aten
#: Dispatch key of the layer where torch lets views share a version count; rules run below it.
_VIEWS = torch._C._parse_dispatch_key("ADInplaceOrView")


def _become(view: Callable[..., Any], x: Any, *args: Any, **kwargs: Any) -> Any:
    """Replace a tensor by a view of itself."""
    with _sharing_versions():
        before = _aten.alias(x)
        if x._spec.copied:
            before._source = x._source
        found = view(before, *args, **kwargs)
    x._part, x._spec = found._part, found._spec
    if found._spec.copied:
        x._source = found._source
    with torch._C._DisableTorchDispatch():
        x.as_strided_(x._spec.shape, x._spec.strides)
    return x


@contextmanager
def _sharing_versions() -> Iterator[None]:
    """Let views share the version count of their bases, as for views that programs make."""
    excluded = torch._C._dispatch_tls_is_dispatch_key_excluded(_VIEWS)
    torch._C._dispatch_tls_set_dispatch_key_excluded(_VIEWS, False)
    try:
        yield
    finally:
        torch._C._dispatch_tls_set_dispatch_key_excluded(_VIEWS, excluded)


for _name, _view in {
    "squeeze_": _aten.squeeze,
    "unsqueeze_": _aten.unsqueeze,
    "as_strided_": _aten.as_strided,
    "transpose_": _aten.transpose,
    "t_": _aten.t,
}.items():
    instead(f"aten.{_name}")(partial(_become, _view))


@instead("aten.set_.source_Tensor")
def _set(x: Any, source: Any) -> Any:
    """Take over the memory of another tensor."""
    if x.dtype is not source.dtype:
        raise RuntimeError(f"set_: a tensor of {x.dtype} was given one of {source.dtype}")
    with _sharing_versions():
        turned_into(x, _aten.alias(source))
    return x


@instead("aten.resize_")
def _resized(x: Any, size: Sequence[int], *, memory_format: Any = None) -> Any:
    """Resize within the tensor's memory: the tensor becomes its first elements."""
    shape = tuple(size)
    if memory_format not in (None, torch.contiguous_format, torch.preserve_format):
        raise NotImplementedError(f"resize_: a DistTensor does not get the order {memory_format}")
    if shape == tuple(x.shape):
        return x
    if prod(shape) > x.numel() or x._spec.strides != contiguous_strides(tuple(x.shape)):
        raise NotImplementedError(
            f"resize_: a DistTensor of shape {tuple(x.shape)} and strides {x.stride()} cannot "
            f"become one of shape {shape} in the same memory; x.new_empty({shape}) is a new one"
        )
    return _become(_beginning, x, shape)


def _beginning(x: Any, shape: tuple[int, ...]) -> Any:
    flat = _aten.view(x, [x.numel()])
    return _aten.view(_aten.slice(flat, 0, 0, prod(shape)), list(shape))


@instead("aten.resize_as_")
def _resized_as(x: Any, other: Any, *, memory_format: Any = None) -> Any:
    return _resized(x, other.shape, memory_format=memory_format)


# -- operators of forward derivatives -------------------------------------------------------------


@composed("aten.is_same_size", plain=True)
def _same_shape(x: Any, other: Any) -> bool:
    return bool(x.shape == other.shape)


@composed("aten._has_same_storage_numel", plain=True)
def _same_count(x: Any, other: Any) -> bool:
    return bool(x.numel() == other.numel())
