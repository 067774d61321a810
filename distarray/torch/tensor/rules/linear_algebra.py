"""Linear algebra of batches: each rank computes with its matrices, which are whole."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from distarray.comm import DeviceMesh
from distarray.layout import Layout
from distarray.torch.tensor.aligning import batched
from distarray.torch.tensor.calls import Call
from distarray.torch.tensor.fallback import refuse_or_warn
from distarray.torch.tensor.table import Decision, composed, rule

#: For each operator, the number of trailing matrix dimensions of each operand.
_MATRICES = {
    "aten.linalg_inv_ex": (2,),
    "aten._linalg_svd": (2,),
    "aten.linalg_qr": (2,),
    "aten.geqrf": (2,),
    "aten.linalg_cholesky_ex": (2,),
    "aten.cholesky": (2,),
    "aten.cholesky_inverse": (2,),
    "aten.cholesky_solve": (2, 2),
    "aten._linalg_eigh": (2,),
    "aten.linalg_eig": (2,),
    "aten.linalg_eigvals": (2,),
    "aten._linalg_eigvals": (2,),
    "aten.linalg_lu": (2,),
    "aten.linalg_lu_factor_ex": (2,),
    "aten.linalg_lu_solve": (2, 1, 2),
    "aten.lu_unpack": (2, 1),
    "aten.linalg_ldl_factor_ex": (2,),
    "aten.linalg_ldl_solve": (2, 1, 2),
    "aten.linalg_solve_triangular": (2, 2),
    "aten.triangular_solve": (2, 2),
    "aten.linalg_householder_product": (2, 1),
}


@rule(*_MATRICES)
def _matrices(call: Call) -> Decision | None:
    return batched(call, _MATRICES[call.name])


@rule("aten._linalg_det", "aten._linalg_slogdet")
def _determinants(call: Call) -> Decision | None:
    return _in_order(call, batched(call, (2,)))


@rule("aten._linalg_solve_ex")
def _solved(call: Call) -> Decision | None:
    """Take right sides as matrices, or as vectors if their shape lacks the last dimension."""
    matrix, right = call.operands
    vectors = right.shape == matrix.shape[:-1]
    return _in_order(call, batched(call, (2, 1 if vectors else 2)))


@rule("aten.linalg_matrix_exp", always=True)
def _exponentials(call: Call) -> Decision | None:
    """Compute with copies in C order: torch rejects transposed batches."""
    decision = batched(call, (2,))
    if decision is None:
        whole = Layout.replicated(call.shape, call.mesh_shape)
        return Decision([whole], [whole], run=_exponential) if call.first.layout is whole else None
    assert decision.run is not None
    return decision._replace(run=partial(_ordered, decision.run, True))


def _exponential(x: Tensor) -> Tensor:
    return torch.linalg.matrix_exp(x.contiguous())


def _in_order(call: Call, decision: Decision | None) -> Decision | None:
    """Return the decision for parts with the same order in memory as the global tensor.

    torch factors the transpose of a contiguous matrix, and its formula for the gradient tests
    whether the global tensor is contiguous.
    """
    if decision is None:
        return None
    x, run = call.first, decision.run
    assert run is not None
    whole = torch.empty_strided(x.shape, x.strides, dtype=x.dtype, device="meta")
    return decision._replace(run=partial(_ordered, run, whole.is_contiguous()))


def _ordered(
    run: Callable[..., Any], by_rows: bool, mesh: DeviceMesh, x: Tensor, *args: Any, **kwargs: Any
) -> Any:
    x = x.contiguous() if by_rows else x.mT.contiguous().mT
    return run(mesh, x, *args, **kwargs)


@rule("aten._linalg_check_errors")
def _checked(call: Call) -> Decision:
    """Send the error number of each matrix to every rank, so that all raise the same error."""
    layout = call.first.layout
    return Decision([Layout.replicated(layout.shape, call.mesh_shape)], [])


def _gathering(op: Any) -> Callable[..., Any]:
    """Return a function for matrices that are not whole: it gathers them in the same order."""

    def gather(x: Tensor, *args: Any, **kwargs: Any) -> Any:
        cut = [t._spec for t in (x, *args) if hasattr(t, "_spec")]
        refuse_or_warn(str(op.overloadpacket), cut)
        there = [t.redistribute() if hasattr(t, "_spec") else t for t in (x, *args)]
        if not x.is_contiguous():
            there[0] = there[0].mT.contiguous().mT
        return op(*there, **kwargs)

    return gather


for _name in ("_linalg_det", "_linalg_slogdet", "_linalg_solve_ex"):
    composed(f"aten.{_name}")(_gathering(getattr(torch.ops.aten, _name).default))
