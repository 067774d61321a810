"""New tensors like others: in the other tensor's layout if the shape is the same."""

from typing import Any

import torch

from distarray.layout import Coords, Fold, Layout
from distarray.torch.tensor.calls import Call
from distarray.torch.tensor.filling import fill
from distarray.torch.tensor.spec import strides_like
from distarray.torch.tensor.table import Decision, instead, rule

_ALL = tuple(Fold)


@rule(
    *("aten.zeros_like", "aten.ones_like", "aten.full_like", "aten.empty_like"),
    takes=_ALL,
    lone=True,
)
def _like(call: Call) -> Decision:
    """Skip settling: the values are not read."""
    layout = call.first.layout.settled()
    return Decision([layout], [layout], unread=[0])


@rule("aten.rand_like", "aten.randn_like", "aten.randint_like", takes=_ALL, lone=True)
def _drawn_like(call: Call) -> Decision:
    """Draw the global tensor on every rank, so that all layouts get the same numbers."""
    layout = call.first.layout
    whole = Layout.replicated(layout.shape, layout.mesh_shape)
    return Decision([whole], [layout.settled()], unread=[0], made=[whole])


@rule(
    *("aten.normal_", "aten.uniform_", "aten.random_", "aten.exponential_", "aten.cauchy_"),
    *("aten.log_normal_", "aten.geometric_"),
    *("aten.bernoulli_.float",),
    takes=_ALL,
    lone=True,
)
def _drawn_into(call: Call) -> Decision:
    layout = call.first.layout
    whole = Layout.replicated(layout.shape, layout.mesh_shape)
    return Decision([whole], [whole], unread=[0])


@instead(*[f"aten.normal.{kind}_out" for kind in ("float_Tensor", "Tensor_float", "Tensor_Tensor")])
def _drawn_around(mean: Any, std: Any = 1, *, generator: Any = None, out: Any) -> Any:
    fill(out, torch.normal(mean, std, generator=generator))
    return out


@rule(
    *("aten.new_zeros", "aten.new_ones", "aten.new_full", "aten.new_empty"),
    "aten.new_empty_strided",
    takes=_ALL,
    lone=True,
)
def _new(call: Call) -> Decision:
    """Keep the tensor's layout for the same shape; replicate any other shape."""
    layout = call.first.layout.settled()
    if call.shape != layout.shape:
        layout = Layout.replicated(call.shape, call.mesh_shape)
    strided = call.get("stride")

    def sizes(coords: Coords | None) -> dict[str, object]:
        here = layout.local_shape(coords)
        if strided is None:
            return {"size": here}
        return {"size": here, "stride": strides_like(here, tuple(strided))}

    return Decision([call.first.layout], [layout], sizes)
