"""Saving of one array as NumPy does: ``numpy.save``, and the parts of an ``.npy`` file."""

from __future__ import annotations

from io import BytesIO
from itertools import accumulate
from operator import mul

import numpy as np
from numpy.lib import format as npy_format

from distarray.array import DistArray, as_distarray, common_mesh
from distarray.array.creation import reversed_dims
from distarray.io.file_paths import FileLike
from distarray.io.npy_header import header_bytes
from distarray.io.output_files import Part, store, target_for
from distarray.layout import Fold
from distarray.typing import Array, ArrayLike

__all__ = ["parts_of", "save"]


def _is_fortran(x: DistArray) -> bool:
    """Return True if the whole array is in Fortran order and not in C order; collective.

    This is the case if all blocks are in Fortran order and the array is not a slice of another
    array. Blocks of one row or one column have both orders; then the strides of the blocks
    determine the order of the whole array.

    Cost
    ----
    An allreduce of four booleans, for arrays of two or more dimensions.
    """
    if sum(n > 1 for n in x.shape) < 2 or x.size == 0:
        return False  # both orders are the same
    spread = [cut.base == cut.extent and cut.step == 1 for cut in x.layout.cuts[:-1]]
    flags = x.block.flags
    own = [flags.f_contiguous, flags.c_contiguous, *_strided_as_made(x.block)]
    columns, rows, by_columns, by_rows = x.mesh.group.allreduce(
        np.array(own), Fold.ALL, "order in memory"
    ).tolist()
    if rows:  # `columns` may be True as well
        columns = columns and by_columns and not by_rows
    return columns and all(spread) and x.layout.cuts[-1].step == 1


def _strided_as_made(block: Array) -> tuple[bool, bool]:
    """Compare a block's strides with those of new arrays in Fortran order and in C order."""
    if block.size == 0:
        return True, True  # an empty block has any order
    columns = accumulate(block.shape[:-1], mul, initial=block.itemsize)
    rows = accumulate(block.shape[:0:-1], mul, initial=block.itemsize)
    return block.strides == tuple(columns), block.strides[::-1] == tuple(rows)


def parts_of(x: DistArray, allow_pickle: bool = True) -> list[Part]:
    """Return the parts of an ``.npy`` file: the header and the elements; collective.

    Raises
    ------
    ValueError
        If the elements would have to be pickled, and `allow_pickle` is false.
    """
    dtype = x.dtype
    if dtype.hasobject or not getattr(type(dtype), "_legacy", True):
        if not allow_pickle:
            kind = "Object arrays" if dtype.hasobject else "User-defined dtypes"
            raise ValueError(f"{kind} cannot be saved when allow_pickle=False")
        values = reversed_dims(x).full().T if _is_fortran(x) else x.full()
        made = BytesIO()
        npy_format.write_array(made, values, allow_pickle=True)
        return [made.getvalue()]
    fortran = _is_fortran(x)
    body = reversed_dims(x) if fortran else x
    return [header_bytes(x.shape, fortran, dtype), body]


def save(file: FileLike, arr: ArrayLike, allow_pickle: bool = True) -> None:
    """Save an array in an ``.npy`` file, with the same bytes as :func:`numpy.save`.

    Parameters
    ----------
    file : path-like or file object
        A path, equal on all ranks, is one file that all ranks write together. The file gets its
        name when its content is on disk; until then an old file remains. If the ranks pass file
        objects, rank 0 writes the whole array into its object, and so does each rank whose object
        is a different file (an :class:`io.BytesIO`).
    arr : DistArray
        An array of any layout. Fortran order is kept if the blocks have it.
    allow_pickle : bool
        True if an array of Python objects may be saved; the objects are pickled, as in NumPy.

    Raises
    ------
    OSError
        On all ranks, if one rank cannot write.

    Cost
    ----
    Up to 1 MiB, rank 0 gathers and writes. All ranks write a larger file at the same time. No
    message is sent if the blocks consist of long stretches of the file (all layouts that cut the
    first dimension). Otherwise each element is sent once, in rounds of 16 MiB per rank. For file
    objects rank 0 gathers and writes 16 MiB at a time.
    """
    x = as_distarray(arr, common_mesh(arr))
    said = {"allow_pickle": allow_pickle}
    target = target_for("numpy.save", file, {"arr": arr}, x.mesh, said, ending=".npy")
    store(target, parts_of(x, allow_pickle), x.mesh)
