"""qr: of small, tall, short and all other matrices, and of stacks."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import numpy as np
from numpy.linalg import _linalg

from distarray.array import DistArray, call, implements, movement, to_layout, wrap
from distarray.engines.factoring import small
from distarray.engines.factoring.householder import Factored, by_rows, factored
from distarray.engines.factoring.repeatable import repeatable
from distarray.engines.factoring.tsqr import MOST_COLUMNS, TallQR
from distarray.layout import Layout, Replicate
from distarray.typing import Array, ArrayLike

__all__ = ["is_tall", "orthogonal", "qr", "rows_of", "tall_qr", "triangle_of"]

QRResult: Any = _linalg.QRResult

_MODES = ("reduced", "complete", "r", "raw")
#: Tall matrices with fewer bytes are gathered: otherwise the few messages take as long.
TALL_BYTES = 1 << 16
#: Maximum number of bytes of the leading square part of a matrix that counts as short.
SHORT_BYTES = 1 << 21


@implements(np.linalg.qr)
@repeatable(np.linalg.qr)
def qr(a: ArrayLike, mode: str = "reduced") -> Any:
    """Factor into Q and R, with LAPACK's signs on any number of ranks, as :func:`numpy.linalg.qr`.

    Parameters
    ----------
    a : array_like, shape (..., M, N)
        Any placement.
    mode : {"reduced", "complete", "r", "raw"}
        As in NumPy.

    Returns
    -------
    QRResult, or an array ("r"), or two arrays ("raw")
        Q is cut along its rows as `a` is, or evenly; R is replicated for a tall matrix, cut along
        its columns for a short one and evenly along its rows otherwise. Stacks keep their cut.

    Raises
    ------
    LinAlgError
        If `a` has fewer than two dimensions.

    Cost
    ----
    Tall (at most 128 columns, and twice as many rows on each rank): about log2(p) rounds of one
    message of N**2 elements. Short: a gather of the first M columns. Others: for each panel of 64
    columns, the rounds of a tall matrix and an allreduce for the columns to the right of the panel
    (:func:`~distarray.engines.factoring.householder.factored`). Stacks of at least as many matrices
    as ranks: nothing if the stack is cut. Matrices whose columns are cut are redistributed to rows.
    """
    mode = _checked(mode)
    (x,) = small.read(a)
    small.check_stacked(x)
    small.common_type(x.dtype)
    if x.ndim > 2:
        function = partial(np.linalg.qr, mode=mode)
        if not x.size or x.layout.is_replicated or small.is_stack(x):
            return small.stackwise(function, x)
        return small.one_by_one(partial(_matrix, mode=mode), x)
    return _matrix(x, mode)


def _checked(mode: str) -> str:
    """Return the mode under its current name; warn for former names."""
    if mode in _MODES:
        return mode
    if mode in ("f", "full"):
        text = (
            "The 'full' option is deprecated in favor of 'reduced'.\n"
            "For backward compatibility let mode default."
        )
        warnings.warn(text, DeprecationWarning, stacklevel=1)
        return "reduced"
    if mode in ("e", "economic"):
        warnings.warn("The 'economic' option is deprecated.", DeprecationWarning, stacklevel=1)
        return "economic"
    raise ValueError(f"Unrecognized mode '{mode}'")


def _matrix(x: DistArray, mode: str) -> Any:
    if mode == "economic":
        h, _ = _matrix(x, "raw")
        return wrap(h.block.T, h.layout.transpose((1, 0)), h.mesh)
    if mode in ("reduced", "r") and is_tall(x):
        return _tall(x, mode)
    if small.is_small(x):
        return small.at_once(partial(np.linalg.qr, mode=mode), x)
    m, n = x.shape
    if n > m and m * m * x.itemsize <= SHORT_BYTES:
        return _short(x, mode)
    return _general(x, mode)


# -- tall ------------------------------------------------------------------------------------------


def is_tall(x: DistArray, extra: int = 0) -> bool:
    """Return True if a matrix with `extra` more columns is factored by :class:`TallQR`.

    This needs at least twice as many rows on every rank as there are columns, and few columns:
    matrices with many columns are factored faster in panels.
    """
    m, n = x.shape
    parts = by_rows(x.layout).cuts[0].parts
    limit = TALL_BYTES if parts > 1 else TALL_BYTES * 16
    return x.nbytes > limit and 0 < n + extra <= MOST_COLUMNS and m // parts >= 2 * (n + extra)


def rows_of(x: DistArray, fresh: bool = False) -> tuple[Array, Layout]:
    """Return this rank's rows in the computation's dtype, and their layout; a copy if `fresh`."""
    layout = by_rows(x.layout)
    block = movement.moved(x.block, x.layout, layout, x.mesh)
    work, _ = small.common_type(x.dtype)
    if block.dtype != work:
        return block.astype(work), layout
    if fresh and (block is x.block or block.base is not None):
        block = block.copy()
    return block, layout


def tall_qr(x: DistArray, with_q: bool = True) -> tuple[TallQR, Layout]:
    """Factor a tall matrix; this rank must be part of the mesh."""
    block, layout = rows_of(x)
    start = layout.section(x.mesh.coords)[0][0]
    group = x.mesh.subgroup(layout.cuts[0].mesh_dims)
    return TallQR(block, start, x.shape[0], group, with_q), layout


def _tall(x: DistArray, mode: str) -> Any:
    n, mesh = x.shape[1], x.mesh
    _, dtype = small.common_type(x.dtype)
    layout = by_rows(x.layout)
    square = Layout.replicated((n, n), mesh.shape)
    if mesh.coords is None:
        q, r = [mesh.xp.empty(lay.local_shape(None), dtype) for lay in (layout, square)]
    else:
        tall, layout = tall_qr(x, with_q=mode == "reduced")
        r = tall.r.astype(dtype, copy=False)
        q = tall.times().astype(dtype, copy=False) if mode == "reduced" else None
    if mode == "r":
        return wrap(r, square, mesh)
    return QRResult(wrap(q, layout, mesh), wrap(r, square, mesh))


# -- short -----------------------------------------------------------------------------------------


def _short(x: DistArray, mode: str) -> Any:
    """Factor a matrix with few rows: Q and R of its first columns, Q^H times the other columns."""
    m = x.shape[0]
    mesh = x.mesh
    work, dtype = small.common_type(x.dtype)
    layout = by_rows(x.layout.transpose((1, 0))).transpose((1, 0))
    first = to_layout(x[:, :m], Layout.replicated((m, m), mesh.shape)).astype(work, copy=False)
    q, r = small.at_once(np.linalg.qr, first)
    raw, tau = small.at_once(partial(np.linalg.qr, mode="raw"), first)
    block = movement.moved(x.block, x.layout, layout, mesh)
    if mesh.coords is None:
        made = mesh.xp.empty(layout.local_shape(None), dtype)
    else:
        made = np.matmul(q.block.conj().T, block).astype(dtype, copy=False)
        start, stop = layout.section(mesh.coords)[1]
        stop = max(start, min(stop, m))
        left = raw.block.T if mode == "raw" else r.block
        made[:, : stop - start] = left[:, start:stop]
    if mode == "raw":
        return wrap(made.T, layout.transpose((1, 0)), mesh), tau.astype(dtype, copy=False)
    result = wrap(made, layout, mesh)
    return result if mode == "r" else QRResult(q.astype(dtype, copy=False), result)


# -- all others ------------------------------------------------------------------------------------


def orthogonal(x: DistArray) -> Factored:
    """Return the factored form of a large matrix of any shape; collective over its mesh."""
    block, layout = rows_of(x, fresh=True)
    return factored(block, layout, x.mesh)


def triangle_of(form: Factored, dtype: np.dtype[Any]) -> DistArray:
    """Return R of a factored matrix, cut evenly along its rows by the matrix's mesh dimensions."""
    k = min(form.layout.shape)
    rows, columns = form.layout.cuts
    layout = form.layout.with_cuts([rows.view(0, 1, k), columns])
    count = layout.local_shape(form.mesh.coords)[0]
    r = wrap(np.triu(form.block[:count], form.start).astype(dtype, copy=False), layout, form.mesh)
    return to_layout(r, Layout.chunked(layout.shape, layout.mesh_shape, layout.placements))


def _general(x: DistArray, mode: str) -> Any:
    m, n = x.shape
    mesh = x.mesh
    _, dtype = small.common_type(x.dtype)
    if mesh.coords is None:
        return _outside(x, mode, dtype)
    form = orthogonal(x)
    if mode == "raw":
        h = form.block.astype(dtype, copy=False)
        tau = form.tau.astype(dtype, copy=False)
        whole = Layout.replicated(tau.shape, mesh.shape)
        return wrap(h.T, form.layout.transpose((1, 0)), mesh), wrap(tau, whole, mesh)
    r = triangle_of(form, dtype)
    if mode == "r":
        return r
    if mode == "complete" and m > n:
        below = call(np.zeros, (m - n, n), dtype, like=r)
        r = call(np.concatenate, [r, below])
    q = form.q(m if mode == "complete" else min(m, n))
    return QRResult(q.astype(dtype, copy=False), r)


def _outside(x: DistArray, mode: str, dtype: np.dtype[Any]) -> Any:
    """Return arrays of the right layouts, without elements, on a rank outside of the mesh."""
    layout = by_rows(x.layout)
    m, n = layout.shape
    k, mc = min(m, n), m if mode == "complete" else min(m, n)
    shapes = {"raw": ((n, m), (k,)), "r": ((k, n),)}.get(mode, ((m, mc), (mc, n)))
    made = []
    for shape in shapes:
        placed = layout.placements if len(shape) == 2 else [Replicate()] * len(layout.mesh_shape)
        found = Layout.chunked(shape, layout.mesh_shape, placed)
        made.append(wrap(x.mesh.xp.empty(found.local_shape(None), dtype), found, x.mesh))
    return made[0] if mode == "r" else tuple(made) if mode == "raw" else QRResult(*made)
