"""Permutations and choices, as numpy.random.Generator has them."""

from __future__ import annotations

from collections.abc import MutableSequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from distarray.array import DistArray, as_distarray, to_layout
from distarray.array.placing import plain
from distarray.array.portable import refuse_read_only
from distarray.comm import DeviceMesh
from distarray.engines.drawing.permuted import positions, slices_permuted
from distarray.engines.drawing.sampling import Source, layout_for
from distarray.engines.drawing.shuffling import Shuffle, shuffled
from distarray.engines.reshaping import in_line, refitted
from distarray.typing import Array, ArrayLike, Placements

__all__ = ["Ordering"]


class Ordering(Source):
    """Permutations of positions, rows and single slices."""

    def permutation(
        self,
        x: ArrayLike,
        axis: int = 0,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> DistArray:
        """A random permutation of the integers below `x`, or of an array along an axis.

        Parameters
        ----------
        x : int or array_like
            The length, or the array, which stays as it is.
        axis : int
            The axis whose slices are permuted.
        mesh, placements
            Where the result goes; by default where `x` is.

        Returns
        -------
        DistArray

        Cost
        ----
        None along an axis that every rank has whole. Else each element is sent once, to its new
        rank; see :mod:`distarray.engines.drawing.shuffling`.
        """
        mesh = self._mesh_for(mesh, x)
        x = plain(x)
        if isinstance(x, (int, np.integer)):
            shape = (max(int(x), 0),)
            layout = layout_for(shape, np.int64, mesh, placements)
            call = self._begin("permutation", mesh)
            return positions(Shuffle(call, shape[0]), layout, mesh)
        x = x if isinstance(x, DistArray) else np.asarray(x)
        axis = normalize_axis_index(axis, x.ndim)
        array = as_distarray(x, mesh).plain()
        if not isinstance(x, DistArray) or placements is not None:
            layout = layout_for(array.shape, array.dtype, mesh, placements)
            array = to_layout(array, layout)
        return shuffled(array, axis, Shuffle(self._begin("permutation", mesh), array.shape[axis]))

    def shuffle(self, x: DistArray | Array | MutableSequence[Any], axis: int = 0) -> None:
        """Permute an array in place along an axis.

        Parameters
        ----------
        x : DistArray, ndarray or mutable sequence
            Anything but a DistArray is permuted alike on all ranks.
        axis : int
            The axis whose slices are permuted.

        Cost
        ----
        As :meth:`permutation`; a copy of the array.
        """
        if not isinstance(x, (DistArray, np.ndarray)):
            generator: Any = self._begin("shuffle", self._mesh_for(None)).tile(0)
            generator.shuffle(x, axis)
            return
        if not x.ndim:
            raise TypeError("len() of unsized object")
        axis = normalize_axis_index(axis, x.ndim)
        if isinstance(x, DistArray) and x.layout.partials:
            x.settle()
        block = x.block if isinstance(x, DistArray) else x
        refuse_read_only(block, "array is read-only")
        shuffle = Shuffle(self._begin("shuffle", self._mesh_for(None, x)), x.shape[axis])
        if isinstance(x, DistArray):
            x.assign(shuffled(x.plain(), axis, shuffle))
        else:
            x[...] = np.take(x, shuffle.whole(), axis)

    def permuted(
        self,
        x: ArrayLike,
        *,
        axis: int | None = None,
        out: DistArray | Array | None = None,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Each slice along an axis permuted by itself.

        Parameters
        ----------
        x : array_like
            The array, which stays as it is, unless it is `out`.
        axis : int, optional
            Along which the elements of each slice are permuted; None: all elements.
        out : DistArray or ndarray, optional
            Receives the result.
        mesh, placements
            Where the result goes; by default where `x` is.

        Returns
        -------
        DistArray

        Cost
        ----
        None if the axis is whole on every rank. A cut one is made whole by cutting another
        dimension, and the result is brought back: two exchanges. Long slices that are fewer than
        the ranks are permuted one by one, as by :meth:`permutation`.
        """
        mesh = self._mesh_for(mesh, x, out)
        array = as_distarray(x, mesh).plain()
        _check_out(array, out)
        if axis is not None:
            axis = normalize_axis_index(axis, array.ndim)
        elif not array.ndim:
            raise TypeError("len() of unsized object")
        if not isinstance(x, DistArray) or placements is not None:
            array = to_layout(array, layout_for(array.shape, array.dtype, mesh, placements))
        call = self._begin("permuted", mesh)
        if axis is None:
            flat: DistArray = array if array.ndim == 1 else in_line(array)
            flat = shuffled(flat.plain(), 0, Shuffle(call, array.size))
            result = to_layout(refitted(flat, array.shape).plain(), array.layout)
        else:
            result = slices_permuted(array, axis, call)
        if out is None:
            return result
        out[...] = result if isinstance(out, DistArray) else result.full()
        return out


def _check_out(x: DistArray, out: DistArray | Array | None) -> None:
    if out is None:
        return
    if not isinstance(out, (DistArray, np.ndarray)):
        raise TypeError("out must be a numpy array")
    refuse_read_only(out.block if isinstance(out, DistArray) else out, "out is read-only")
    if out.shape != x.shape:
        raise ValueError("out must have the same shape as x")
    np.copyto(np.empty(0, out.dtype), np.empty(0, x.dtype), casting="safe")  # raises NumPy's error
