"""QR factorization, panel by panel, of any large matrix that is cut along its rows.

Each panel of columns is factored as a tall matrix (:mod:`distarray.engines.factoring.tsqr`) and
converted to Householder reflections in LAPACK's form, which are applied to the columns to the right
of the panel with matrix products. The result has LAPACK's form: the triangle in the upper part of
the matrix, the vectors of the reflections below it.
"""

from dataclasses import dataclass, field

import numpy as np

from distarray.array import DistArray, wrap
from distarray.comm import DeviceMesh
from distarray.comm.group import Group
from distarray.comm.progress import advance, stage
from distarray.engines.factoring.tsqr import TallQR
from distarray.engines.rehearsing.hollow import Hollow, Unknown
from distarray.layout import Cut, Fold, Layout, Shard
from distarray.typing import Array

__all__ = ["Factored", "by_rows", "factored", "set_ones"]


#: Columns in a panel.
PANEL = 64


@dataclass(slots=True)
class Factored:
    """This rank's rows of a matrix in LAPACK's factored form.

    Attributes
    ----------
    block : array of shape (m_i, n)
        The triangle and, below it, the vectors of the reflections.
    layout : Layout
        The layout of the whole matrix; its rows are cut, its columns are not.
    panels : list of (int, array)
        The first column and the matrix T of each panel, on every rank.
    """

    block: Array
    layout: Layout
    mesh: DeviceMesh
    group: Group
    panels: list[tuple[int, Array]] = field(default_factory=list)

    @property
    def start(self) -> int:
        """The global index of this rank's first row."""
        return self.layout.section(self.mesh.coords)[0][0]

    @property
    def tau(self) -> Array:
        """LAPACK's scalar factors of the reflections, on every rank."""
        return np.concatenate([np.diagonal(t) for _, t in self.panels])

    def vectors(self, j: int, width: int) -> tuple[int, Array]:
        """Return this rank's first row in a panel's reflection vectors, and its rows of them."""
        low = min(max(j - self.start, 0), len(self.block))
        y = self.block[low:, j : j + width].copy()
        first = self.start + low - j  # the row of the panel's triangle at which y begins
        rows = min(max(width - first, 0), len(y))
        if rows:
            y[:rows] = np.tril(y[:rows], first - 1)
            set_ones(y, first, rows)
        return low, y

    def apply(self, c: Array, adjoint: bool, corner: bool = False) -> None:
        """Multiply by the orthogonal matrix or its adjoint, in place; collective.

        Parameters
        ----------
        c : array of shape (m_i, k)
            This rank's rows of the matrix to multiply; overwritten.
        adjoint : bool
            True to multiply by the adjoint.
        corner : bool
            True if `c` is zero, except for its diagonal, in the columns before each panel.
        """
        for j, t in self.panels if adjoint else reversed(self.panels):
            low, y = self.vectors(j, len(t))
            part = c[low:, j:] if corner else c[low:]
            _reflect(part, y, t.conj().T if adjoint else t, self.group)

    def q(self, columns: int) -> DistArray:
        """Return the first columns of the orthogonal matrix."""
        result = self._unit(columns)
        self.apply(result.block, adjoint=False, corner=True)
        return result

    def spread(self, u: DistArray, columns: int) -> DistArray:
        """Return the first columns of the orthogonal matrix times ``[[u, 0], [0, 1]]``."""
        result = self._unit(columns)
        result[: u.shape[0], : u.shape[1]] = u
        self.apply(result.block, adjoint=False)
        return result

    def _unit(self, columns: int) -> DistArray:
        """Return the first columns of the identity matrix, cut like the factored matrix's rows."""
        layout = self.layout.replace(1, Cut.whole(columns))
        block = np.zeros_like(self.block, order="C", shape=layout.local_shape(self.mesh.coords))
        start, stop = layout.section(self.mesh.coords)[0]
        set_ones(block, start, max(0, min(stop, columns) - start))
        return wrap(block, layout, self.mesh)


def set_ones(block: Array, first: int, count: int) -> None:
    """Set `count` elements to one along the diagonal that begins in column `first` of row 0."""
    step = block.shape[1] + 1
    block.reshape(-1)[first : first + count * step : step] = 1


def _reflect(c: Array, y: Array, t: Array, group: Group) -> None:
    """Compute ``c -= y @ t @ (y^H c)``, with ``y^H c`` summed over the ranks."""
    inner = np.matmul(y.conj().T, c)
    if group.size > 1:
        inner = group.allreduce(inner, Fold.SUM)
    c -= np.matmul(y, np.matmul(t, inner))


def by_rows(layout: Layout) -> Layout:
    """Return the layout if its columns are whole; else cut rows by its cuts' mesh dimensions."""
    if layout.cuts[1].parts == 1:
        return layout
    used = {m for cut in layout.cuts for m in cut.mesh_dims}
    placed = [Shard(0) if m in used else p for m, p in enumerate(layout.placements)]
    return Layout.chunked(layout.shape, layout.mesh_shape, placed)


def _is_even(cut: Cut, columns: int) -> bool:
    """Check that ranks outside TSQR's pairwise rounds have at least a panel's width of rows."""
    last = range(1 << (cut.parts.bit_length() - 1), cut.parts)
    return all(
        stop - max(start, j) >= min(PANEL, columns - j)
        for j in range(0, columns, PANEL)
        for start, stop in map(cut.interval, last)
    )


def factored(block: Array, layout: Layout, mesh: DeviceMesh) -> Factored:
    """Factor a matrix; collective.

    Parameters
    ----------
    block : array of shape (m_i, n)
        This rank's rows, in the data type to compute in; overwritten.
    layout : Layout
        The layout of the matrix; its rows are cut, its columns are not.

    Cost
    ----
    For each of min(m, n) / 64 panels of 64 columns: about log2(p) messages of 64^2 elements, and an
    allreduce of 64 (n - j) elements after j columns. The rank with the last rows is busy
    throughout, the other ranks less: a square matrix reaches about two thirds of the speed of an
    even division.
    """
    m, n = layout.shape
    if isinstance(block, Hollow) and not _is_even(layout.cuts[0], min(m, n)):
        raise Unknown("how few rows are left on the last ranks, panel by panel")
    result = Factored(block, layout, mesh, mesh.subgroup(layout.cuts[0].mesh_dims))
    start = result.start
    with stage("QR", -(-min(m, n) // PANEL), "panels"):
        for j in range(0, min(m, n), PANEL):
            width = min(PANEL, min(m, n) - j)
            low = min(max(j - start, 0), len(block))
            panel = block[low:, j : j + width]
            tall = TallQR(panel, max(start - j, 0), m - j, result.group)
            found = tall.reflections
            packed = np.tril(found.first, -1) + tall.r
            y = np.matmul(tall.unsigned(), found.right)
            first = start + low - j
            rows = min(max(width - first, 0), len(y))
            panel[rows:] = y[rows:]
            panel[:rows] = packed[first : first + rows]
            result.panels.append((j, found.t))
            _, y = result.vectors(j, width)
            _reflect(block[low:, j + width :], y, found.t.conj().T, result.group)
            advance()
    return result
