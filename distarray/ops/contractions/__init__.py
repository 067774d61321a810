"""Sums of products: matrix products, dot and its relatives, einsum, the trace."""

from distarray.ops.contractions.einsum import einsum, einsum_path
from distarray.ops.contractions.matmul import matmul
from distarray.ops.contractions.products import dot, inner, kron, outer, tensordot, vdot
from distarray.ops.contractions.traces import trace

__all__ = [
    "dot",
    "einsum",
    "einsum_path",
    "inner",
    "kron",
    "matmul",
    "outer",
    "tensordot",
    "trace",
    "vdot",
]
