"""Outputs of random methods: blocks of arrays that every rank has drawn, or a given array."""

from collections.abc import Callable
from typing import Any

import numpy as np

from distarray.array import DistArray, wrap
from distarray.array.storage import is_contiguous
from distarray.comm import DeviceMesh
from distarray.layout import Layout
from distarray.typing import Array, DTypeLike, Shape

__all__ = ["drawn_into", "is_at_hand", "of_whole"]


def of_whole(drawn: Array, mesh: DeviceMesh, layout: Layout | None = None) -> DistArray:
    """Wrap an array that every rank has drawn; replicated without a layout.

    A rank outside the mesh may pass an array of any values.
    """
    if layout is None:
        layout = Layout.replicated(drawn.shape, mesh.shape)
    if mesh.coords is None or not layout.is_whole:
        drawn = drawn[tuple([slice(*part) for part in layout.section(mesh.coords)])].copy()
    return wrap(drawn if mesh.device_type == "cpu" else mesh.asarray(drawn), layout, mesh)


def is_at_hand(x: DistArray) -> bool:
    """Return True if this rank's host memory has the whole array, so that NumPy can fill it."""
    return x.layout.is_whole and x.mesh.device_type == "cpu" and x.mesh.coords is not None


def drawn_into(
    out: DistArray | Array,
    dtype: DTypeLike,
    size: Shape | None,
    draw: Callable[[Array], object],
    make: Callable[[Shape], Any],
    near: bool,
    by_memory: bool,
) -> Any:
    """Draw into an array, and return the array.

    Parameters
    ----------
    out : DistArray or ndarray
        The array to fill; a NumPy array receives all numbers on every rank.
    dtype : dtype
        The data type of the numbers; must equal that of `out`.
    size : tuple of int, optional
        The shape of the numbers; must equal that of `out`.
    draw : callable
        Function that calls NumPy's method with an array that this rank holds whole.
    make : callable
        Function that returns a distributed array of numbers of a shape.
    near : bool
        True if a parameter is distributed.
    by_memory : bool
        True if NumPy's method also accepts arrays in Fortran order, and fills them in memory order.
    """
    if not isinstance(out, DistArray):
        if not near:
            return draw(out)
        _check(out, out, dtype, size)
        if not out.flags.c_contiguous:
            raise _unsuitable("C-contiguous")
        out[...] = make(out.shape).full()
        return out
    if out.layout.partials:
        out.settle()
    _check(out, out.block, dtype, size)
    if is_at_hand(out) and not near:
        draw(out.block)
    else:
        out[...] = _arranged(out, make, by_memory)
    return out


def _arranged(out: DistArray, make: Callable[[Shape], Any], by_memory: bool) -> Any:
    """Draw numbers in the memory order of an array.

    A rank outside the array's mesh cannot check the order, and assumes C order.
    """
    if out.mesh.coords is None or is_contiguous(out, "C"):
        return make(out.shape)
    if by_memory and is_contiguous(out, "F"):
        return make(out.shape[::-1]).T
    raise _unsuitable("contiguous" if by_memory else "C-contiguous")


def _unsuitable(order: str) -> ValueError:
    """Return NumPy's exception for an unsuitable output array."""
    return ValueError(
        f"Supplied output array must be {order}, writable, aligned, and in machine byte-order."
    )


def _check(out: DistArray | Array, block: Array, dtype: DTypeLike, size: Shape | None) -> None:
    """Raise NumPy's exception for an unsuitable output array, alike on all ranks."""
    flags: Any = getattr(block, "flags", None)
    kept = flags is not None and hasattr(block, "__setitem__")
    taken = kept and getattr(flags, "writeable", True) and block.dtype.isnative
    if not taken:
        raise _unsuitable("contiguous")
    if out.dtype != np.dtype(dtype):
        raise TypeError(
            f"Supplied output array has the wrong type. Expected {np.dtype(dtype)}, got {out.dtype}"
        )
    if size is not None and size != out.shape:
        raise ValueError("size must match out.shape when used together")
