"""Writing with repeated indices into blocks on a device.

CuPy writes to repeated indices in no certain order, and NumPy's ``ufunc.at`` accepts no device
arrays.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from distarray.array.portable import call_ufunc
from distarray.comm import devices
from distarray.typing import Array

__all__ = ["last_of_each", "ufunc_at"]


def last_of_each(
    block: Array, key: Sequence[Array], values: Array
) -> tuple[tuple[Array, ...], Array]:
    """Remove repeated indices; keep for each row the last of its values in C order.

    Parameters
    ----------
    block : array
        A block on a device.
    key : sequence of array
        Index arrays of the block's leading dimensions.
    values : array
        The values for ``block[key]``.

    Returns
    -------
    key : tuple of array
        1-d index arrays without repetitions.
    values : array
        One row for each index.
    """
    shape = np.broadcast_shapes(*[part.shape for part in key])
    rest = block.shape[len(key) :]
    if prod(shape) < 2 or prod(values.shape[: max(values.ndim - len(rest), 0)]) < 2:
        return tuple(key), values  # all indexed rows get the same value
    places = _places(block, key, shape)
    order = np.argsort(places, kind="stable")
    ascending = places[order]
    is_last = np.ones_like(ascending, dtype=bool)
    is_last[:-1] = ascending[1:] != ascending[:-1]
    chosen = order[is_last]
    rows = np.broadcast_to(values, (*shape, *rest)).reshape(prod(shape), *rest)
    return _flat(key, shape, chosen), np.take(rows, chosen, axis=0)


def ufunc_at(ufunc: np.ufunc, block: Array, key: tuple[Any, ...], values: Array | None) -> None:
    """Apply ``ufunc.at`` to a block on any device.

    For a device block, the indexed rows and the values are copied to the host, and the rows back.
    """
    operands = () if values is None else (values,)
    if not devices.on_device(block):
        ufunc.at(block, key, *operands)
        return
    if not key or any(part.dtype == bool for part in key if not isinstance(part, slice)):
        block[key] = call_ufunc(ufunc, block[key], *operands)  # no index is repeated
        return
    shape = np.broadcast_shapes(*[part.shape for part in key])
    if not prod(shape):
        return
    rest = block.shape[len(key) :]
    found = np.unique(_places(block, key, shape), return_index=True, return_inverse=True)
    once = _flat(key, shape, found[1])
    rows, numbers = devices.to_host(block[once]), devices.to_host(found[2]).reshape(-1)
    if values is not None:
        each = np.broadcast_to(devices.to_host(values), (*shape, *rest))
        operands = (each.reshape(prod(shape), *rest),)
    ufunc.at(rows, numbers, *operands)
    block[once] = devices.back(rows, block)


def _places(block: Array, key: Sequence[Array], shape: Sequence[int]) -> Array:
    """Return the linear numbers of the indexed rows, in C order of the index, in one dimension."""
    number: Any = 0
    for part, extent in zip(key, block.shape):
        number = number * extent + np.where(part < 0, part + extent, part)
    places: Array = np.broadcast_to(number, tuple(shape)).reshape(-1)
    return places


def _flat(key: Sequence[Array], shape: Sequence[int], chosen: Array) -> tuple[Array, ...]:
    """Return 1-d index arrays restricted to the chosen positions."""
    return tuple([np.broadcast_to(part, tuple(shape)).reshape(-1)[chosen] for part in key])
