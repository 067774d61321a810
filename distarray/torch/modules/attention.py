"""Multi-head attention with the heads divided among the ranks."""

from math import sqrt
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module, functional

from distarray.comm import DeviceMesh
from distarray.layout import Cut, Layout, Placement, Replicate
from distarray.torch.bridge.plain import plainly
from distarray.torch.collectives.borders import reduce_from
from distarray.torch.collectives.passes import uncompiled
from distarray.torch.modules.forwards import Forward
from distarray.torch.modules.handing import ParallelStyle, annotated, handed_out
from distarray.torch.modules.layers import cut_in_units, linear, mark
from distarray.torch.parameters.distribute import place
from distarray.torch.tensor.activations import Activation, laid_out
from distarray.torch.tensor.streams import mask as dropout_mask

__all__ = ["AttentionParallel"]


class AttentionParallel(ParallelStyle):
    """Style for torch.nn.MultiheadAttention that divides its heads, of any number, among the ranks.

    Parameters
    ----------
    input_layouts : Placement
        Placement of plain queries, keys and values; ``Replicate()`` by default. Masks are
        replicated.
    output_layouts : Placement
        Placement of the output; ``Replicate()`` by default.
    use_local_output : bool
        Return a plain tensor (default) or a `DistTensor`.

    Notes
    -----
    In `module_state` the packed weight and bias of queries, keys and values are arrays of shape
    (3, embed_dim, embed_dim) and (3, embed_dim), cut along dimension 1. In checkpoints they have
    torch's own shape.

    For attention of your own, made of several Linear layers, use `ColwiseParallel` and
    `RowwiseParallel` with ``multiple_of=head_dim``, and let its code count the heads by
    ``view(..., -1, head_dim)``.

    Cost
    ----
    Forward one allreduce of the output, backward one of the gradient of each distinct input; with
    ``need_weights`` one more of the weights.

    Examples
    --------
    >>> import distarray, torch, distarray.torch as dt
    >>> attention = torch.nn.MultiheadAttention(8, 4, batch_first=True)
    >>> attention = dt.parallelize_module(attention, None, dt.AttentionParallel())
    >>> x = torch.ones(2, 5, 8)
    >>> attention(x, x, x, need_weights=False)[0].shape
    torch.Size([2, 5, 8])
    """

    shards = True

    def __init__(
        self,
        *,
        input_layouts: Placement | None = None,
        output_layouts: Placement | None = None,
        use_local_output: bool = True,
    ) -> None:
        self.input_layouts = Replicate() if input_layouts is None else input_layouts
        self.output_layouts = Replicate() if output_layouts is None else output_layouts
        self.use_local_output = use_local_output

    def check(self, module: Module, mesh: DeviceMesh) -> None:
        """Raise TypeError for anything but torch.nn.MultiheadAttention."""
        kind = torch.nn.MultiheadAttention
        if not isinstance(module, kind) or type(module).forward is not kind.forward:
            raise TypeError(
                f"AttentionParallel is for torch.nn.MultiheadAttention, not {type(module).__name__}"
            )

    def apply(self, module: Module, mesh: DeviceMesh, src_data_rank: int | None) -> None:
        """Cut the projections between heads and replace the forward."""
        embed = cut_in_units(module.num_heads, module.head_dim, mesh)
        for name, tensor in module._parameters.items():
            if tensor is None:
                continue
            if name.startswith("in_proj"):
                rest = [*map(Cut.whole, tensor.shape[1:])]
                layout = Layout.from_cuts([Cut.whole(3), embed, *rest], mesh.shape)
                place(module, name, mesh, layout, src_data_rank, layout.shape)
            else:
                whole = Layout.replicated(tuple(tensor.shape), mesh.shape)
                layout = whole.replace(2 if name in ("bias_k", "bias_v") else 0, embed)
                place(module, name, mesh, layout, src_data_rank)
        out, extent = module.out_proj, module.embed_dim
        columns = Layout.from_cuts([Cut.whole(extent), embed], mesh.shape)
        place(out, "weight", mesh, columns, src_data_rank)
        if out.bias is not None:
            place(out, "bias", mesh, Layout.replicated((extent,), mesh.shape), src_data_rank)
        mark(module)
        module.forward = Forward(_attend, module, mesh, self)


@uncompiled
def _attend(
    module: Module,
    mesh: DeviceMesh,
    style: AttentionParallel,
    query: Tensor | Activation,
    key: Tensor | Activation,
    value: Tensor | Activation,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Any, Any]:
    if is_causal and attn_mask is None:
        raise RuntimeError("Need attn_mask if specifying the is_causal hint.")
    batched = query.ndim == 3
    inputs = _batch_first(module, mesh, style, query, key, value)
    with plainly():
        q, k, v = _projected(module, inputs)
        k, v, added = _lengthened(module, k, v)
    bias = _mask(module, mesh, q, key_padding_mask, attn_mask, k.shape[2] - added, added)
    mixed, weights = _mixed(module, mesh, q, k, v, bias, need_weights)
    mixed = mixed.transpose(1, 2).flatten(2)
    if not batched:
        mixed = mixed[0]
    elif not module.batch_first:
        mixed = mixed.transpose(0, 1)
    cuts = [
        *map(Cut.whole, mixed.shape[:-1]),
        cut_in_units(module.num_heads, module.head_dim, mesh),
    ]
    x = laid_out(mixed, mesh, Layout.from_cuts(cuts, mesh.shape))
    with plainly():
        output = linear(module.out_proj, x, (style.output_layouts,))
    output = handed_out(output, style.output_layouts, style.use_local_output)
    if weights is None:
        return output, None
    weights = _all_heads(module, mesh, weights, average_attn_weights)
    return output, weights if batched else weights[0]


def _batch_first(
    module: Module, mesh: DeviceMesh, style: AttentionParallel, *inputs: Tensor | Activation
) -> list[Tensor]:
    """Return queries, keys and values (batch, length, features), whole, for each rank's own heads.

    An object that is passed twice is converted once, so that its gradient is summed once.
    """
    found: dict[int, Tensor] = {}
    for x in inputs:
        if id(x) in found:
            continue
        if getattr(x, "is_nested", False):
            raise TypeError(
                "AttentionParallel takes no nested tensors; pass enable_nested_tensor=False to "
                "torch.nn.TransformerEncoder"
            )
        spread: Activation = annotated(x, mesh, style.input_layouts)
        whole = Layout.replicated(spread.layout.shape, mesh.shape)
        local = spread.placed(whole).pended((0,)).local
        if local.ndim == 2:
            local = local.unsqueeze(0)
        elif not module.batch_first:
            local = local.transpose(0, 1)
        found[id(x)] = local
    return [found[id(x)] for x in inputs]


def _projected(module: Module, inputs: list[Tensor]) -> list[Tensor]:
    """Compute this rank's heads of queries, keys and values: (batch, heads, length, head size)."""
    names = ["q_proj_weight", "k_proj_weight", "v_proj_weight"]
    packed = module.in_proj_weight
    weights = [getattr(module, n) for n in names] if packed is None else packed.chunk(3)
    biases = [None] * 3 if module.in_proj_bias is None else module.in_proj_bias.chunk(3)
    heads = weights[0].shape[0] // module.head_dim
    projected = []
    for x, weight, bias in zip(inputs, weights, biases, strict=True):
        y = functional.linear(x, weight, bias)
        projected.append(y.reshape(*y.shape[:2], heads, module.head_dim).transpose(1, 2))
    return projected


def _lengthened(module: Module, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, int]:
    """Append the module's learned and zero entries to keys and values; return their number, too."""
    added = 0
    batch, heads, _, size = k.shape
    if module.bias_k is not None:
        k, v = [
            torch.cat([x, b.reshape(1, heads, 1, size).expand(batch, -1, -1, -1)], 2)
            for x, b in ((k, module.bias_k), (v, module.bias_v))
        ]
        added += 1
    if module.add_zero_attn:
        zeros = k.new_zeros(batch, heads, 1, size)
        k, v = torch.cat([k, zeros], 2), torch.cat([v, zeros], 2)
        added += 1
    return k, v, added


def _mask(
    module: Module,
    mesh: DeviceMesh,
    q: Tensor,
    padding: Tensor | None,
    between: Tensor | None,
    length: int,
    added: int,
) -> Tensor | None:
    """Return the bias of this rank's scores, which broadcasts to (batch, heads, to, from)."""
    total = None
    batch, targets = q.shape[0], q.shape[2]
    if between is not None:
        between = _numbers(between, q)
        if between.ndim == 3:
            start, stop = Cut.chunked(module.num_heads, (0,), mesh.shape).interval(mesh.rank)
            shape = (batch, module.num_heads, targets, length)
            between = between.reshape(shape)[:, start:stop]
        total = between
    if padding is not None:
        padding = _numbers(padding, q).reshape(batch, 1, 1, length)
        total = padding if total is None else total + padding
    if total is None or not added:
        return total
    return functional.pad(total, (0, added))


def _numbers(mask: Tensor, like: Tensor) -> Tensor:
    if mask.dtype != torch.bool:
        return mask.to(like.dtype)
    return torch.zeros(mask.shape, dtype=like.dtype, device=like.device).masked_fill(
        mask, float("-inf")
    )


def _mixed(
    module: Module,
    mesh: DeviceMesh,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    need_weights: bool,
) -> tuple[Tensor, Tensor | None]:
    """Return the attention-weighted values, and the weights if the caller needs them."""
    dropping = module.training and module.dropout > 0
    if not q.shape[1]:  # a rank without heads still takes part in the gradients
        weights = q.new_zeros(*q.shape[:3], k.shape[2])
        if dropping:
            _kept(module, mesh, weights)
        return q + (k.sum() + v.sum()) * 0, weights if need_weights else None
    if not need_weights and not dropping:
        return functional.scaled_dot_product_attention(q, k, v, bias), None
    scores = (q * sqrt(1 / module.head_dim)) @ k.transpose(-2, -1)
    weights = torch.softmax(scores if bias is None else scores + bias, -1)
    if dropping:
        weights = weights * _kept(module, mesh, weights)
    return weights @ v, weights if need_weights else None


def _kept(module: Module, mesh: DeviceMesh, weights: Tensor) -> Tensor:
    layout = _cut_by_heads(module, mesh, weights)
    return dropout_mask(layout, mesh, module.dropout, weights)


def _all_heads(module: Module, mesh: DeviceMesh, weights: Tensor, average: bool) -> Tensor:
    """Gather the attention weights of all ranks' heads, or compute their mean."""
    if average:
        return reduce_from(weights.sum(1) / module.num_heads, mesh)
    return laid_out(weights, mesh, _cut_by_heads(module, mesh, weights)).full_tensor()


def _cut_by_heads(module: Module, mesh: DeviceMesh, weights: Tensor) -> Layout:
    """Return the layout of attention weights (batch, heads, to, from)."""
    batch, _, *lengths = weights.shape
    heads = Cut.chunked(module.num_heads, (0,), mesh.shape)
    return Layout.from_cuts([Cut.whole(batch), heads, *map(Cut.whole, lengths)], mesh.shape)
