"""Records in the form in which ranks compare and send them: without gaps, in native byte order.

NumPy's own joining (``np.concatenate``) drops what lies between the fields of records and makes
their byte order native, so that an array of keys would change its item size on some ranks and not
on others. In this form it changes nothing, bytes between fields are neither sent nor compared, and
comparing needs no swapping of bytes. The elements compare as before: field by field.
"""

from functools import lru_cache

import numpy as np

from distarray.typing import Array, DType

__all__ = ["packed", "packed_type", "unpacked"]


@lru_cache(maxsize=1024)
def packed_type(dtype: DType, names: tuple[str, ...] | None = None) -> DType:
    """The type of such elements: native, the fields one after the other, in the order of `names`.

    Types of other kinds become native; unstructured ``void`` stays as it is.
    """
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return np.dtype((packed_type(base), shape))
    if dtype.fields is None:
        return dtype if dtype.isnative else dtype.newbyteorder("=")
    fields = [(name, packed_type(dtype[name])) for name in names or dtype.names or ()]
    return np.dtype(fields)


def packed(block: Array, names: tuple[str, ...] | None = None) -> Array:
    """A block's elements in their :func:`packed_type`; the block itself if that is its own."""
    dtype = packed_type(block.dtype, names)
    if dtype == block.dtype:
        return block
    if dtype.names is None:
        return block.astype(dtype)
    return block[list(dtype.names)].astype(dtype)  # fields are assigned by position


def unpacked(block: Array, dtype: DType) -> Array:
    """The elements in the type that they had before :func:`packed`; zeros between the fields."""
    if block.dtype == dtype:
        return block
    if dtype.names is None:
        return block.astype(dtype)
    found = np.zeros(block.shape, dtype)
    found[...] = block[list(dtype.names)]
    return found
