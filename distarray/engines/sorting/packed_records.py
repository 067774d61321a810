"""Records packed for comparison and for messages: without gaps, in native byte order.

NumPy's concatenation (``np.concatenate``) drops the bytes between the fields of records and makes
their byte order native, so that an array of keys would change its item size on some ranks and not
on others. Packed records do not change. Bytes between fields are neither sent nor compared, and
comparisons need no byte swapping. Packed elements compare like the original ones: field by field.
"""

from functools import lru_cache

import numpy as np

from distarray.typing import Array, DType

__all__ = ["packed", "packed_type", "unpacked"]


@lru_cache(maxsize=1024)
def packed_type(dtype: DType, names: tuple[str, ...] | None = None) -> DType:
    """Return the packed type: native, with adjacent fields in the order of `names`.

    Types of other kinds become native; unstructured ``void`` is unchanged.
    """
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return np.dtype((packed_type(base), shape))
    if dtype.fields is None:
        return dtype if dtype.isnative else dtype.newbyteorder("=")
    fields = [(name, packed_type(dtype[name])) for name in names or dtype.names or ()]
    return np.dtype(fields)


def packed(block: Array, names: tuple[str, ...] | None = None) -> Array:
    """Convert a block to its :func:`packed_type`; return a packed block unchanged."""
    dtype = packed_type(block.dtype, names)
    if dtype == block.dtype:
        return block
    if dtype.names is None:
        return block.astype(dtype)
    return block[list(dtype.names)].astype(dtype)  # fields are assigned by position


def unpacked(block: Array, dtype: DType) -> Array:
    """Convert elements back to their type before :func:`packed`, with zeros between the fields."""
    if block.dtype == dtype:
        return block
    if dtype.names is None:
        return block.astype(dtype)
    found = np.zeros(block.shape, dtype)
    found[...] = block[list(dtype.names)]
    return found
