"""Eigenvalues and vectors of a diagonal matrix plus one of rank one, ``D + rho z z*``.

Merging two halves of a tridiagonal matrix gives such a matrix. The eigenvalues are the roots of a
rational function (the secular equation), between the elements of D and above the last. An iteration
that models the function by its two nearest poles finds all roots simultaneously. The vectors are
computed from a modified z, for which the computed roots are exact; with the original z they would
not be orthogonal.

References
----------
M. Gu and S. C. Eisenstat, A stable and efficient algorithm for the rank-one modification of the
symmetric eigenproblem, SIAM J. Matrix Anal. Appl. 15 (1994). R.-C. Li, Solving secular equations
stably and efficiently, LAPACK Working Note 89 (1993).
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from distarray.typing import Array

__all__ = ["Deflation", "Roots", "deflated", "roots", "vectors"]

#: ``share(n, compute)`` returns ``compute(0, n)``: each rank computes a range, and the ranges are
#: concatenated along the last dimension.
Share = Callable[[int, Callable[[int, int], Array]], Array]

_EPS = float(np.finfo(float).eps)
#: Elements of the table of differences that are computed at a time.
_TABLE = 1 << 17
#: Number of steps after which bisection has converged for every eigenvalue.
_STEPS = 100


class Deflation(NamedTuple):
    """Eigenvalues that do not change (deflated), and eigenvalues that do (kept).

    Attributes
    ----------
    kept, deflated : ndarray of int
        The positions in D of the eigenvalues that change, in ascending order of D's elements, and
        the positions of the eigenvalues that do not change.
    diagonal, z : ndarray
        D and z after the rotations, in their original order.
    rotations : list of (int, int, float, float)
        Pairs of positions whose vectors are rotated first, with cosine and sine.
    """

    kept: Array
    deflated: Array
    diagonal: Array
    z: Array
    rotations: list[tuple[int, int, float, float]]


def deflated(diagonal: Array, z: Array, rho: float) -> Deflation:
    """Find the elements of D whose eigenpair does not change to working precision.

    Parameters
    ----------
    diagonal, z : ndarray
        D, and z of unit length.
    rho : float
        The factor of the rank-one matrix, positive.
    """
    tolerance = 8 * _EPS * max(np.abs(diagonal).max(), np.abs(z).max())
    order = np.argsort(diagonal, kind="stable").tolist()
    d, w = diagonal.tolist(), z.tolist()
    kept: list[int] = []
    left_out: list[int] = []
    rotations = []
    last = -1
    for now in order:
        if rho * abs(w[now]) <= tolerance:
            left_out.append(now)
            continue
        if last >= 0:
            length = float(np.hypot(w[now], w[last]))
            c, s = w[now] / length, -w[last] / length
            if abs((d[now] - d[last]) * c * s) <= tolerance:
                w[now], w[last] = length, 0.0
                rotations.append((last, now, c, s))
                d[last], d[now] = (
                    d[last] * c * c + d[now] * s * s,
                    d[last] * s * s + d[now] * c * c,
                )
                left_out.append(last)
            else:
                kept.append(last)
        last = now
    if last >= 0:
        kept.append(last)
    return Deflation(
        np.array(kept, int), np.array(left_out, int), np.array(d), np.array(w), rotations
    )


class Roots(NamedTuple):
    """Eigenvalues as differences from elements of D, which are accurate to the last bit.

    Attributes
    ----------
    origin : ndarray of int
        The index of the element of D from which each eigenvalue is measured.
    offset : ndarray
        The eigenvalue minus that element.
    """

    origin: Array
    offset: Array

    def values(self, d: Array) -> Array:
        """Return the eigenvalues."""
        return d[self.origin] + self.offset

    def beyond(self, d: Array, rows: slice, columns: slice) -> Array:
        """Compute the table of ``d[i] - root[j]``."""
        table = d[rows, None] - d[self.origin[columns]]
        table -= self.offset[columns]
        return table


def roots(d: Array, z: Array, rho: float, share: Share) -> Roots:
    """Compute all eigenvalues of ``diag(d) + rho z z*``.

    Parameters
    ----------
    d, z : ndarray
        D and z after deflation: d ascending with gaps, z without small elements.
    rho : float
        The factor of the rank-one matrix, positive.
    share : callable
        Function that divides the computation among the ranks; see `Share`.
    """
    weights = rho * z * z
    ends = np.append(d, d[-1] + weights.sum())

    def compute(first: int, last: int) -> Array:
        parts = [np.empty((2, 0))]
        for start, stop in _strips(first, last, len(d)):
            parts.append(_solve(d, weights, ends, start, stop))
        return np.concatenate(parts, axis=1)

    found = share(len(d), compute)
    return Roots(found[0].astype(int), found[1])


def _strips(first: int, last: int, length: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows, so that a table of `length` columns for a range fits in cache."""
    step = max(1, _TABLE // max(1, length))
    for start in range(first, last, step):
        yield start, min(start + step, last)


def _solve(d: Array, weights: Array, ends: Array, start: int, stop: int) -> Array:
    """Compute the origins and offsets of the roots `start` to `stop`."""
    which = np.arange(start, stop)
    half = (ends[which + 1] - ends[which]) / 2
    final = which == len(d) - 1
    middle = 1 + np.reciprocal(d - d[which, None] - half[:, None]) @ weights
    right = (middle < 0) & ~final
    origin = which + right
    low = np.where(right, -half, np.where((middle < 0) & final, half, 0))
    high = np.where(right, 0, np.where(final & (middle < 0), 2 * half, half))
    tau = np.where(right, -half, half)
    sums = _Sums(d - d[origin, None], weights, start, stop)
    near = ends[which] - d[origin], ends[which + 1] - d[origin]
    active = np.arange(len(which))
    for _ in range(_STEPS):
        t = tau[active]
        state = sums.at(t, active)
        f = 1 + state[0] + state[1]
        low[active] = np.where(f < 0, t, low[active])
        high[active] = np.where(f < 0, high[active], t)
        bound = 1 + 8 * (state[1] - state[0]) + np.abs(t) * (state[2] + state[3])
        width = high[active] - low[active]
        done = (np.abs(f) <= _EPS * bound) | (width <= 2 * _EPS * np.abs(t))
        step = _step(f, state, near[0][active] - t, near[1][active] - t, final[active])
        new = t + step
        inside = (new > low[active]) & (new < high[active])  # False for NaN, too
        new = np.where(inside, new, (low[active] + high[active]) / 2)
        tau[active] = np.where(done, t, new)
        active = active[~done]
        if not len(active):
            break
    return np.stack([origin.astype(float), tau])


class _Sums:
    """Sums over the poles below and above each of some roots, and their derivatives.

    The two sums are kept separate because the terms below are negative and the terms above
    positive: at a root they cancel, so that the total carries no information about either.
    """

    def __init__(self, table: Array, weights: Array, start: int, stop: int) -> None:
        self.table = table  # poles minus the origin, one line per root
        self.weights = weights
        self.start, self.stop = start, stop
        self.below = np.tri(stop - start)  # mask: poles below, among start to stop

    def at(self, offsets: Array, active: Array) -> tuple[Array, Array, Array, Array]:
        """Compute the sums below and above, and their derivatives, at offsets from the origins."""
        terms = self.table[active]
        terms -= offsets[:, None]
        np.reciprocal(terms, out=terms)
        psi, phi = self._apart(terms, active)
        terms *= terms
        return psi, phi, *self._apart(terms, active)

    def _apart(self, terms: Array, active: Array) -> tuple[Array, Array]:
        """Compute the weighted sums of the terms of the poles below, and of the poles above."""
        first, last, weights = self.start, self.stop, self.weights
        between = terms[:, first:last] * weights[first:last]
        lower = between * self.below[active]
        upper = between - lower  # exact: one of them is zero
        return (
            terms[:, :first] @ weights[:first] + lower.sum(axis=1),
            terms[:, last:] @ weights[last:] + upper.sum(axis=1),
        )


def _step(
    f: Array, state: tuple[Array, Array, Array, Array], lower: Array, upper: Array, final: Array
) -> Array:
    """Compute the step to the root of the tangent function with only the two nearest poles."""
    _, _, dpsi, dphi = state
    with np.errstate(all="ignore"):
        c = f - lower * dpsi - upper * dphi
        a = (lower + upper) * f - lower * upper * (dpsi + dphi)
        b = lower * upper * f
        root = np.sqrt(np.maximum(a * a - 4 * b * c, 0))
        step = np.where(a <= 0, (a - root) / (2 * c), 2 * b / (a + root))
        alone = lower + dpsi * lower * lower / (f - dpsi * lower)
    chosen: Array = np.where(final, alone, step)
    return chosen


def vectors(
    d: Array, z: Array, found: Roots, share: Share
) -> Callable[[], Iterator[tuple[slice, Array]]]:
    """Compute the eigenvectors, some columns at a time.

    Parameters
    ----------
    d, z, share
        See :func:`roots`.
    found : Roots
        The eigenvalues.

    Returns
    -------
    callable
        Function that returns an iterator over pairs (columns, the vectors as columns of unit
        length).
    """

    def compute(first: int, last: int) -> Array:
        parts = [np.empty(0)]
        for start, stop in _strips(first, last, len(d)):
            table = found.beyond(d, slice(start, stop), slice(None))
            gaps = d[start:stop, None] - d
            spot = np.arange(start, stop)
            gaps[spot - start, spot] = 1
            parts.append(np.abs(np.multiply.reduce(table / gaps, axis=1)))
        return np.concatenate(parts)

    exact = np.copysign(np.sqrt(share(len(d), compute)), z)

    def pieces() -> Iterator[tuple[slice, Array]]:
        for start, stop in _strips(0, len(d), len(d)):
            columns = slice(start, stop)
            block = exact[:, None] / found.beyond(d, slice(None), columns)
            block /= np.sqrt((block * block).sum(axis=0))
            yield columns, block

    return pieces
