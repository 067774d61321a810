"""Operators that torch itself decomposes into others, which have rules.

torch keeps these decompositions for its compilers, and does not use them in eager mode. Plain
tensors that they make are computed from sizes and numbers, and count as replicated.
"""

from functools import partial
from typing import Any

import torch
from torch._decomp import decomposition_table

from distarray.torch.tensor.operands import replicating
from distarray.torch.tensor.table import composed

_NAMES = (
    # copies of views
    *("alias_copy", "expand_copy", "narrow_copy", "permute_copy", "split_with_sizes_copy"),
    *("squeeze_copy", "t_copy", "transpose_copy", "unbind_copy", "unsqueeze_copy"),
    *("unsafe_split", "_chunk_cat", "block_diag"),
    # elements in other positions
    *("reflection_pad1d", "reflection_pad2d", "reflection_pad3d", "replication_pad1d"),
    *("replication_pad2d", "replication_pad3d", "im2col", "pixel_shuffle", "pixel_unshuffle"),
    *(
        "channel_shuffle",
        "take",
        "max_unpool2d",
        "max_unpool3d",
        "_unsafe_masked_index",
        "_unsafe_masked_index_put_accumulate",
    ),
    *("select_scatter", "slice_scatter"),
    *("_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d"),
    # arithmetic
    *("addr", "aminmax", "bucketize", "dist", "linalg_cross", "log_sigmoid_forward"),
    *("multi_margin_loss", "multilabel_margin_loss_forward", "norm", "renorm"),
)


def _apart(op: Any, *args: Any, **kwargs: Any) -> Any:
    with replicating():
        return decomposition_table[op](*args, **kwargs)


def _is_out(op: Any, kind: Any) -> bool:
    """Return True if an operator has ``out=`` arguments of this type."""
    return any(x.is_out and isinstance(x.type, kind) for x in op._schema.arguments)


for _name in _NAMES:
    _packet = getattr(torch.ops.aten, _name)
    _all = [getattr(_packet, _overload) for _overload in _packet.overloads()]
    _known = [op for op in _all if op in decomposition_table and not _is_out(op, object)]
    # A packet's name covers its ``out=`` overloads; lists of results cannot be filled one by one.
    _one = len(_known) == 1 and not any(_is_out(op, torch.ListType) for op in _all)
    for _op in _known:
        composed(str(_op.overloadpacket if _one else _op))(partial(_apart, _op))
