"""Reduction of Hermitian matrices to tridiagonal form by reflections; its inverse for vectors.

The columns of the matrix are distributed block-cyclically. Within a panel every rank stores the
reflections, and their effect on the matrix so far, as two narrow matrices. Each column takes one
product of the distributed matrix with a vector; each rank's part of the product is gathered. After
the panel, a matrix product updates the matrix. Both triangles are stored, so that the product with
a vector reads whole columns.
"""

from typing import Any, NamedTuple

import numpy as np

from distarray.comm.progress import advance, stage
from distarray.engines.factoring.cyclic import Dealing
from distarray.engines.factoring.lapack import subtract_product
from distarray.typing import Array

__all__ = ["Tridiagonal", "reduced"]


class Tridiagonal(NamedTuple):
    """Hermitian matrix as a product: reflections, a real tridiagonal matrix, reflections.

    Attributes
    ----------
    diagonal, below : ndarray
        The tridiagonal matrix, on every rank.
    phases : ndarray
        Complex numbers of absolute value 1 by which vectors are multiplied before the reflections.
    reflections : dict of int to array
        The directions of the reflections of this rank's panels, as columns of unit length or zero.
    dealing : Dealing
        The distribution of the panels.
    """

    diagonal: Array
    below: Array
    phases: Array
    reflections: dict[int, Array]
    dealing: Dealing

    def restore(self, vectors: Array) -> None:
        """Turn vectors of the tridiagonal matrix into those of the matrix, in place.

        Parameters
        ----------
        vectors : array, shape (n, any)
            Whole columns, different columns on each rank, already multiplied by the phases.

        Cost
        ----
        2 n**2 operations for each vector; each rank receives n**2 / 2 elements, in one broadcast
        for each panel.
        """
        with stage("eigenvectors", self.dealing.panels, "panels"):
            for panel in reversed(range(self.dealing.panels)):
                self._restore(panel, vectors)
                advance()

    def _restore(self, panel: int, vectors: Array) -> None:
        """Apply the reflections of one panel."""
        mesh = self.dealing.mesh
        start, stop = self.dealing.interval(panel)
        owner = self.dealing.owner(panel)
        shape = (len(self.diagonal) - start, stop - start)
        block = self.reflections.get(panel)
        block = np.empty(shape, self.phases.dtype) if block is None else block
        mesh.group.broadcast(block, owner, "reflections")
        # The product of reflections 1 - 2 v v* is 1 - V T V*. This matrix is the inverse of T.
        inner = np.triu(block.conj().T @ block, 1)
        np.fill_diagonal(inner, 0.5)
        block, inner = mesh.asarray(block), mesh.asarray(np.linalg.inv(inner))
        part = vectors[start:]
        subtract_product(part, block, inner @ (block.conj().T @ part))


def reduced(own: Array, dealing: Dealing) -> Tridiagonal:
    """Reduce a Hermitian matrix to tridiagonal form.

    Parameters
    ----------
    own : array, shape (n, own columns)
        This rank's columns of the whole matrix, float64 or complex128; overwritten.
    dealing : Dealing
        The distribution of the columns.

    Cost
    ----
    2 n**3 operations over all ranks, half of them in products with a vector, which are bound by
    memory bandwidth; n gathers of n elements, and a broadcast for each panel.
    """
    size = dealing.columns
    diagonal = np.zeros(size)
    below = np.zeros(max(size - 1, 0), own.dtype)
    reflections = {}
    with stage("tridiagonal form", dealing.panels, "panels"):
        for panel in range(dealing.panels):
            found = _Panel(own, dealing, panel)
            found.reduce(diagonal, below)
            if dealing.owner(panel) == dealing.mesh.rank:
                reflections[panel] = found.left
            found.update()
            advance()
    sizes = np.abs(below)
    turns = np.divide(below, sizes, out=np.ones_like(below), where=sizes != 0)
    phases = np.concatenate([np.ones(min(size, 1), own.dtype), np.cumprod(turns)])
    return Tridiagonal(diagonal, sizes, phases, reflections, dealing)


class _Panel:
    """Reduction of one panel.

    Attributes
    ----------
    left, right : ndarray, shape (n - start, width)
        After the columns reduced so far, the matrix from `start` on is the matrix in `own` minus
        ``left @ right* + right @ left*``. The columns of `left` are the reflections.
    """

    def __init__(self, own: Array, dealing: Dealing, panel: int) -> None:
        self.mesh = dealing.mesh
        self.start, stop = dealing.interval(panel)
        self.width = stop - self.start
        rows = dealing.columns - self.start
        self.left = np.zeros((rows, self.width), own.dtype)
        self.right = np.zeros((rows, self.width), own.dtype)
        self.columns = np.empty((rows, self.width), own.dtype)
        place = dealing.place(panel)
        owner = dealing.owner(panel)
        if self.mesh.rank == owner:
            block = own[self.start :, place : place + self.width]
            self.columns[...] = self.mesh.to_host(block)
        self.mesh.group.broadcast(self.columns, owner, "panel to reduce")
        #: This rank's columns from `start` on.
        self.rest = own[self.start :, place:]
        places = []
        for rank in range(self.mesh.size()):
            every = dealing.indices(rank)
            places.append(every[every >= self.start] - self.start)
        self.counts = [len(part) for part in places]
        self.order = np.concatenate(places)
        self.mine = places[self.mesh.rank]

    def reduce(self, diagonal: Array, below: Array) -> None:
        """Compute the reflections, and the panel's part of the tridiagonal matrix."""
        for j in range(self.width):
            column = self.columns[j:, j]
            if j:
                column = column - self.left[j:, :j] @ self.right[j, :j].conj()
                column -= self.right[j:, :j] @ self.left[j, :j].conj()
            diagonal[self.start + j] = column[0].real
            if len(column) == 1:
                return
            direction, below[self.start + j] = _reflection(column[1:])
            self.left[j + 1 :, j] = direction
            product = 2 * self._times(direction, j)
            product -= np.vdot(direction, product).real * direction
            self.right[j + 1 :, j] = product

    def _times(self, direction: Array, j: int) -> Array:
        """Multiply the remaining matrix, from column j + 1 of the panel on, by a vector."""
        vector = self.mesh.asarray(direction.conj())
        here = self.mesh.to_host(vector @ self.rest[j + 1 :]).conj()
        parts = self.mesh.group.allgather_varied(here, self.counts, "matrix times vector")
        result: Array = np.empty_like(here, shape=len(self.left))
        result[self.order] = np.concatenate(parts)
        result = result[j + 1 :]
        if j:
            left, right = self.left[j + 1 :, :j], self.right[j + 1 :, :j]
            result -= left @ (right.conj().T @ direction)
            result -= right @ (left.conj().T @ direction)
        return result

    def update(self) -> None:
        """Apply the panel's reflections to the remaining matrix."""
        later = self.mine >= self.width
        own = self.mine[later]
        if not len(own):
            return
        pair = np.concatenate([self.left, self.right], axis=1)[self.width :]
        other = np.concatenate([self.right, self.left], axis=1)[own]
        target = self.rest[self.width :, len(later) - len(own) :]
        subtract_product(target, self.mesh.asarray(pair), self.mesh.asarray(other.conj().T))


def _reflection(column: Array) -> tuple[Array, Any]:
    """Return the Householder direction v of a column, and the reflected first element.

    Only the first element of ``column - 2 v (v* column)`` is nonzero. If the column has no other
    nonzero element already, v is zero.
    """
    rest = np.linalg.norm(column[1:])
    if rest == 0:
        return np.zeros_like(column), column[0]
    first = column[0]
    size = np.hypot(abs(first), rest)
    element = -size * (first / abs(first) if first else 1)
    direction = column.copy()
    direction[0] -= element
    return direction / np.linalg.norm(direction), element
