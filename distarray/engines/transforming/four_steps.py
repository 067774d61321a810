"""Four-step FFT of a long dimension, arranged as rows and columns and cut along either.

A length n = n1 * n2 is divided into n1 rows of n2 elements. With j = j1 * n2 + j2 and k = k1 + n1 *
k2, the steps are a transform along the columns (j1 to k1), a factor exp(-2j * pi * j2 * k1 / n) for
each element, and a transform along the rows (j2 to k2). Columns are whole if the array is cut along
j2, rows are whole if it is cut along k1, and the result is in order if it is cut along k2: three
redistributions (D. H. Bailey, FFTs in external or hierarchical memory, J. Supercomputing 4, 1990).
Real numbers have half a spectrum along the columns, k1 up to n1 / 2, and the other half of the
result follows by symmetry, so that all steps but the last are half the work.

In all arrays of this module the dimension to transform is the last one.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from distarray.array import DistArray, empty, to_layout, wrap
from distarray.array.views import everything
from distarray.engines.assembling import fill_parts
from distarray.engines.reshaping import refitted
from distarray.engines.transforming import whole_line
from distarray.engines.transforming.twiddles import Twiddles
from distarray.layout import Cut, Layout, rescaled_cut
from distarray.plan.fourier import Kind, Pass
from distarray.typing import Array

__all__ = ["Grid", "conjugate", "fitted", "fitted_view"]

#: Elements of a tile, which fits in cache on the host, and occupies a device fully.
TILE, TILE_ON_DEVICE = 1 << 16, 1 << 22


def fitted(x: DistArray, extent: int, cut: Cut) -> DistArray:
    """Crop or zero-pad the last dimension of `x` to `extent`, and cut it by `cut`."""
    x = fitted_view(x, extent)
    layout = x.layout.replace(-1, cut)
    if x.shape[-1] == extent:
        return to_layout(x, layout)
    result = empty(layout, x.dtype, x.mesh)
    result.block[...] = 0
    fill_parts(result, [((0,) * x.ndim, x)])
    return result


def _with_last(layout: Layout, count: int, *cuts: Cut) -> Layout:
    """Return the layout with other dimensions instead of the last `count` ones."""
    return layout.with_cuts([*layout.cuts[:-count], *cuts])


def _reshaped_block(x: DistArray, layout: Layout) -> DistArray:
    """Reshape the array's blocks to a layout of another shape for which no element moves."""
    return wrap(x.block.reshape(layout.local_shape(x.mesh.coords)), layout, x.mesh)


class Grid:
    """Length as rows and columns, cut along either of them by the same mesh dimensions.

    Attributes
    ----------
    length : int
        The number of elements: rows times columns.
    flat : Cut
        The cut of the length, between rows.
    """

    def __init__(
        self, rows: int, columns: int, mesh_dims: tuple[int, ...], radix: tuple[int, ...]
    ) -> None:
        self._rows, self._columns = rows, columns
        self._mesh_dims, self._radix = mesh_dims, radix
        self.length = rows * columns
        self.flat = self._flat(rows, columns)

    def _cut(self, extent: int) -> Cut:
        """Return the cut of rows or of columns."""
        return Cut.chunked(extent, self._mesh_dims, self._radix)

    def _flat(self, rows: int, columns: int) -> Cut:
        """Return the cut of rows times columns, between rows."""
        cut = rescaled_cut(self._cut(rows), columns)
        if cut is None:  # never: every bound is a multiple of the columns
            raise ValueError(f"{rows} rows of {columns} elements")
        return cut

    def by_rows(self, x: DistArray) -> DistArray:
        """View (..., length) cut by `flat` as (..., rows, columns); no elements move."""
        cuts = self._cut(self._rows), Cut.whole(self._columns)
        return _reshaped_block(x, _with_last(x.layout, 1, *cuts))

    def forward(self, x: DistArray, kind: Kind, norm: str | None) -> DistArray:
        """Transform (..., j1, j2) to (..., k2, k1) cut along k1; the result is out of order.

        For real numbers (RFFT), k1 goes up to half of the rows.
        """
        n1, n2 = self._rows, self._columns
        x = self._along_columns(self._cut_anew(x, Cut.whole(n1), self._cut(n2)), kind, norm)
        x = self._cut_anew(x, Cut.whole(n2), self._cut(x.shape[-1]))
        return self._along_rows(x, Kind.IFFT if kind is Kind.IFFT else Kind.FFT, norm)

    def backward(self, x: DistArray, kind: Kind, norm: str | None) -> DistArray:
        """Invert :meth:`forward`: transform (..., k2, k1) cut along k1 to (..., j1, j2)."""
        n1, n2 = self._rows, self._columns
        x = self._along_rows(x, Kind.IFFT, norm)
        x = self._cut_anew(x, self._cut(n2), Cut.whole(x.shape[-1]))
        x = self._back_along_columns(x, kind, norm)
        return self._cut_anew(x, self._cut(n1), Cut.whole(n2))

    def flattened(self, x: DistArray) -> DistArray:
        """View (..., rows, columns) cut along the rows as (..., length); no elements move."""
        return _reshaped_block(x, _with_last(x.layout, 2, self.flat))

    def in_order(self, x: DistArray) -> DistArray:
        """Reorder (..., k2, k1) cut along k1 to (..., k), cut by the same mesh dimensions."""
        return refitted(x, (*x.shape[:-2], self.length))

    def half_in_order(self, x: DistArray, extent: int) -> DistArray:
        """Return the first `extent` frequencies of (..., k2, k1) with half of the k1, in order."""
        n1, n2, width = self._rows, self._columns, x.shape[-1]
        height = (extent - 1) // n1 + 1
        result = empty(self._layout(x, self._cut(height), Cut.whole(n1)), x.dtype, x.mesh)
        lead = everything(x)[:-2]
        origin = (0,) * len(lead)
        direct = x.sliced((*lead, (0, 1, height), (0, 1, width)))
        parts = [((*origin, 0, 0), direct)]
        if n1 > width:
            mirrored = ((n2 - 1, -1, height), (n1 - width, -1, n1 - width))
            parts.append(((*origin, 0, width), x.sliced((*lead, *mirrored))))
        fill_parts(result, parts)
        conjugate(result.block[..., width:])  # X[n - k] is the conjugate of X[k]
        whole = _reshaped_block(result, _with_last(result.layout, 2, self._flat(height, n1)))
        return whole.sliced((*lead, (0, 1, extent)))

    def half_spectrum(self, x: DistArray, extent: int) -> DistArray:
        """Expand `extent` frequencies to (..., k2, k1) with half of the k1, cut along k1."""
        n1, n2 = self._rows, self._columns
        width, height = n1 // 2 + 1, (extent - 1) // n1 + 1
        flat = fitted(fitted_view(x, extent), height * n1, self._flat(height, n1))
        layout = _with_last(flat.layout, 1, self._cut(height), Cut.whole(n1))
        rows = _reshaped_block(flat, layout)
        result = empty(self._layout(rows, Cut.whole(n2), self._cut(width)), x.dtype, x.mesh)
        lead = everything(rows)[:-2]
        origin = (0,) * len(lead)
        direct = (n2 + 1) // 2
        parts = [((*origin, 0, 0), rows.sliced((*lead, (0, 1, direct), (0, 1, width))))]
        rest = n2 - direct
        if rest:
            first = ((rest, -1, rest), (0, 1, 1))
            parts.append(((*origin, direct, 0), rows.sliced((*lead, *first))))
        if rest and width > 1:
            mirrored = ((rest - 1, -1, rest), (n1 - 1, -1, width - 1))
            parts.append(((*origin, direct, 1), rows.sliced((*lead, *mirrored))))
        fill_parts(result, parts)
        conjugate(result.block[..., direct:, :])
        return result

    # -- the work of one rank --------------------------------------------------------------------

    def _layout(self, x: DistArray, second_last: Cut, last: Cut) -> Layout:
        """Return the layout of `x` with other cuts of its last two dimensions."""
        return _with_last(x.layout, 2, second_last, last)

    def _cut_anew(self, x: DistArray, second_last: Cut, last: Cut) -> DistArray:
        """Redistribute `x` to other cuts of its last two dimensions, in one redistribution."""
        return to_layout(x, self._layout(x, second_last, last))

    def _along_columns(self, x: DistArray, kind: Kind, norm: str | None) -> DistArray:
        """Transform (..., j1, j2) cut along j2 to (..., j2, k1), and multiply by the factors."""
        width = self._rows // 2 + 1 if kind.gives_half else self._rows
        layout = self._layout(x, self._cut(self._columns), Cut.whole(width))
        result = empty(layout, np.result_type(x.dtype, np.complex64), x.mesh)
        source, target = x.block.swapaxes(-1, -2), result.block
        sign = 1 if kind is Kind.IFFT else -1
        for key, row, twiddles in self._tiles(result, sign):
            tile = target[key]
            whole_line.across(kind, source[key], self._rows, norm, tile)
            twiddles.multiply(tile, row)
        return result

    def _back_along_columns(self, x: DistArray, kind: Kind, norm: str | None) -> DistArray:
        """Multiply (..., j2, k1) cut along j2 by the factors; transform to (..., j1, j2)."""
        layout = self._layout(x, Cut.whole(self._rows), self._cut(self._columns))
        dtype = x.dtype if kind is Kind.IFFT else x.block.real.dtype
        result = empty(layout, dtype, x.mesh)
        source, target = x.block, result.block.swapaxes(-1, -2)
        for key, row, twiddles in self._tiles(x, 1):
            tile = source[key]
            twiddles.multiply(tile, row)
            whole_line.across(kind, tile, self._rows, norm, target[key])
        return result

    def _tiles(self, x: DistArray, sign: int) -> Iterator[tuple[Any, int, Twiddles]]:
        """Yield tiles of the block of (..., j2, k1): the key, the first j2, and the factors."""
        block, xp = x.block, x.mesh.xp
        if not block.size:
            return
        rows, width = block.shape[-2:]
        height = min(rows, max(1, (TILE if xp is np else TILE_ON_DEVICE) // width))
        twiddles = Twiddles(self.length, width, height, sign, x.dtype, xp)
        start = x.layout.section(x.mesh.coords)[-2][0]
        for lead in np.ndindex(block.shape[:-2]):
            for first in range(0, rows, height):
                yield (*lead, slice(first, first + height)), start + first, twiddles

    def _along_rows(self, x: DistArray, kind: Kind, norm: str | None) -> DistArray:
        """Transform along the second-to-last dimension, which is whole."""
        step = Pass(kind, x.ndim - 2, self._columns)
        shape = x.layout.local_shape(x.mesh.coords)
        return x.like(whole_line.transformed(x.block, step, norm, shape, x.dtype, x.mesh.xp))


def conjugate(block: Array) -> None:
    """Conjugate a block in place."""
    if block.size:
        np.conjugate(block, out=block)


def fitted_view(x: DistArray, extent: int) -> DistArray:
    """Crop the last dimension of `x`, as a view, if it is longer than `extent`."""
    if x.shape[-1] <= extent:
        return x
    return x.sliced((*everything(x)[:-1], (0, 1, extent)))
