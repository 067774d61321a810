"""Methods of :class:`numpy.ndarray`, each of which calls the equivalent NumPy function.

They have ndarray's signatures and those functions' results. Docstrings state which communicate.
"""

import pickle
from collections.abc import Sequence
from os import PathLike
from typing import IO, Any, Self, overload

import numpy as np

from distarray.array.assigning import one_element
from distarray.array.base import keep_owned, raw_block
from distarray.array.casting import cast
from distarray.array.exporting import gathered
from distarray.array.flags import flags_of, set_flags
from distarray.array.geometry import base_of, strides_of
from distarray.array.ladder import (
    call,
    call_in_general,
    is_free,
    numpys_at_once,
    passed,
    unwatched,
    watched,
)
from distarray.array.portable import refuse_read_only
from distarray.array.reductions import Reductions
from distarray.array.retyping import viewed, whole_block
from distarray.array.sharing import derived, writing
from distarray.array.storage import cast_type, is_contiguous
from distarray.typing import ArrayLike, Axes, DTypeLike, Order, Out

__all__ = ["Methods"]


def _assign_part(part: Any, value: ArrayLike, dtype: np.dtype[Any]) -> None:
    """Assign to the real or the imaginary part; arrays are cast unsafely.

    The conversion of Python's numbers depends on the version of NumPy.
    """
    if not hasattr(value, "dtype"):
        taken: Any = np.empty(np.shape(value), dtype)
        taken.real = value
        value = taken.real
    np.copyto(part, value, casting="unsafe")


def _same_view(x: Any) -> Any:
    """Return an array over the same block."""
    block = x.block
    return x.like(block if isinstance(block, np.generic) else block[...])


class Methods(Reductions):
    """Methods and computed attributes of ndarray."""

    __slots__ = ()

    # -- shape ----------------------------------------------------------------------------------

    @numpys_at_once
    def reshape(
        self, *shape: int | Sequence[int], order: str = "C", copy: bool | None = None
    ) -> Self:
        """Reshape, as :func:`numpy.reshape`; a copy only if elements have to change rank."""
        return call_in_general(
            np.reshape, self, shape[0] if len(shape) == 1 else shape, order, copy=copy
        )

    @numpys_at_once
    def ravel(self, order: str = "C") -> Self:
        """Flatten into one dimension, as :func:`numpy.ravel`."""
        return call_in_general(np.ravel, self, order=order)

    @numpys_at_once
    def flatten(self, order: str = "C") -> Self:
        """Return a copy collapsed into one dimension."""
        if order in ("K", "k"):
            return call(np.copy, call(np.ravel, self, order))
        found: Self = call_in_general(np.reshape, self, (self.layout.size,), order, copy=True)
        keep_owned(raw_block(found))
        return found

    @numpys_at_once
    def transpose(self, *axes: int | Sequence[int] | None) -> Self:
        """Permute dimensions, as :func:`numpy.transpose`; a view."""
        return call_in_general(np.transpose, self, axes[0] if len(axes) == 1 else (axes or None))

    @numpys_at_once
    def swapaxes(self, axis1: int, axis2: int) -> Self:
        """Exchange two dimensions, as :func:`numpy.swapaxes`; a view."""
        return call_in_general(np.swapaxes, self, axis1, axis2)

    @numpys_at_once
    def squeeze(self, axis: Axes = None) -> Self:
        """Remove dimensions of length 1, as :func:`numpy.squeeze`; a view."""
        return call_in_general(np.squeeze, self, axis=axis)

    @numpys_at_once
    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Self:
        """Return a diagonal, as :func:`numpy.diagonal`."""
        return call_in_general(np.diagonal, self, offset=offset, axis1=axis1, axis2=axis2)

    def repeat(self, repeats: ArrayLike, axis: int | None = None) -> Self:
        """Repeat elements, as :func:`numpy.repeat`."""
        return call(np.repeat, self, repeats, axis=axis)

    def resize(self, *shape: int | Sequence[int] | None, refcheck: bool = True) -> None:
        """Change the size in place; see :meth:`numpy.ndarray.resize`. Collective."""
        call(Methods.resize, self, shape, refcheck)

    @property
    def T(self) -> Self:
        """Transposed array; a view."""
        known = self.layout.replicas
        if known is None or not unwatched[0] or self.mesh.coords is None:
            return self.transpose()
        block = self.block.T  # inlined, as products in loops use it
        turned = object.__new__(type(self))
        turned.block = block
        turned.mesh = self.mesh
        turned.layout = known[self.layout.shape[::-1]]
        return turned

    @property
    def mT(self) -> Self:
        """Array with its last two dimensions exchanged; a view."""
        if len(self.shape) < 2:
            raise ValueError("matrix transpose with ndim < 2 is undefined")
        return call(np.matrix_transpose, self)

    # -- elements -------------------------------------------------------------------------------

    @overload
    def take(
        self, indices: int | np.integer, axis: None = None, out: Out = None, mode: str = "raise"
    ) -> Any: ...
    @overload
    def take(
        self, indices: ArrayLike, axis: int | None = None, out: Out = None, mode: str = "raise"
    ) -> Self: ...
    @numpys_at_once
    def take(
        self,
        indices: ArrayLike,
        axis: int | None = None,
        out: Out = None,
        mode: str = "raise",
    ) -> Any:
        """Select elements along an axis, as :func:`numpy.take`."""
        return call(np.take, self, indices, axis=axis, out=out, mode=mode)

    def put(self, indices: ArrayLike, values: ArrayLike, mode: str = "raise") -> None:
        """Set elements at flat indices, as :func:`numpy.put`."""
        call(np.put, self, indices, values, mode=mode)

    @numpys_at_once
    def nonzero(self) -> tuple[Self, ...]:
        """Return the indices of nonzero elements, as :func:`numpy.nonzero`."""
        return call_in_general(np.nonzero, self)

    def compress(self, condition: ArrayLike, axis: int | None = None, out: Out = None) -> Self:
        """Select slices by a condition, as :func:`numpy.compress`."""
        return call(np.compress, condition, self, axis=axis, out=out)

    def choose(
        self, *choices: ArrayLike | Sequence[ArrayLike], out: Out = None, mode: str = "raise"
    ) -> Self:
        """Select from choices, as :func:`numpy.choose`; the choices may be separate arguments."""
        listed = choices[0] if len(choices) == 1 else choices
        return call(np.choose, self, listed, out=out, mode=mode)

    @numpys_at_once
    def searchsorted(
        self, v: ArrayLike, side: str = "left", sorter: ArrayLike | None = None
    ) -> Any:
        """Find insertion indices that keep the order, as :func:`numpy.searchsorted`."""
        return call(np.searchsorted, self, v, side=side, sorter=sorter)

    @numpys_at_once
    def argsort(
        self,
        axis: Axes = -1,
        kind: str | None = None,
        order: str | None = None,
        *,
        stable: bool | None = None,
    ) -> Self:
        """Return the indices that sort the array, as :func:`numpy.argsort`."""
        return call(np.argsort, self, axis=axis, kind=kind, order=order, stable=stable)

    def argpartition(
        self,
        kth: int | Sequence[int],
        axis: Axes = -1,
        kind: str = "introselect",
        order: str | None = None,
    ) -> Self:
        """Return the indices that partition the array, as :func:`numpy.argpartition`."""
        return call(np.argpartition, self, kth, axis=axis, kind=kind, order=order)

    def sort(
        self,
        axis: int = -1,
        kind: str | None = None,
        order: str | None = None,
        *,
        stable: bool | None = None,
    ) -> None:
        """Sort in place; see :func:`numpy.sort`."""
        call(Methods.sort, self, axis, kind, order, stable=stable)

    def partition(
        self,
        kth: int | Sequence[int],
        axis: int = -1,
        kind: str = "introselect",
        order: str | None = None,
    ) -> None:
        """Partition in place; see :func:`numpy.partition`."""
        call(Methods.partition, self, kth, axis, kind, order)

    def fill(self, value: ArrayLike) -> None:
        """Set every element to a scalar."""
        refuse_read_only(self)
        self[...] = one_element(value, self.block.dtype)  # type: ignore[index]

    # -- elementwise ----------------------------------------------------------------------------

    @numpys_at_once
    def clip(
        self,
        min: ArrayLike | None = None,
        max: ArrayLike | None = None,
        out: Out = None,
        **kwargs: Any,
    ) -> Self:
        """Limit values to an interval, as :func:`numpy.clip`."""
        return call(np.clip, self, min, max, out=out, **kwargs)

    @numpys_at_once
    def round(self, decimals: int = 0, out: Out = None) -> Self:
        """Round to a number of decimals, as :func:`numpy.round`."""
        return call(np.round, self, decimals=decimals, out=out)

    def conj(self, out: Out = None) -> Self:
        """Conjugate, as :func:`numpy.conjugate`; without `out` return a real array itself."""
        if out is None and self.block.dtype.kind in "biuf":
            return self
        if self.block.dtype.kind in "SUVMm":
            raise TypeError("cannot conjugate non-numeric dtype")
        return np.conjugate(self, out=out)  # type: ignore[call-overload]

    conjugate = conj

    @property
    def real(self) -> Self:
        """Real part; a view."""
        return call(np.real, self)

    @real.setter
    def real(self, value: ArrayLike) -> None:
        _assign_part(call(np.real, self), value, self.block.dtype)

    @property
    def imag(self) -> Self:
        """Imaginary part; a view of a complex array."""
        return call(np.imag, self)

    @imag.setter
    def imag(self, value: ArrayLike) -> None:
        if np.dtype(self.block.dtype).kind != "c":
            raise TypeError("array does not have imaginary part to set")
        _assign_part(call(np.imag, self), value, self.block.dtype)

    @numpys_at_once
    def astype(
        self,
        dtype: DTypeLike,
        order: str = "K",
        casting: str = "unsafe",
        subok: bool = True,
        copy: bool = True,
    ) -> Self:
        """Cast the array to a data type, with the same layout.

        Cost
        ----
        None, except for a pending fold that the cast does not commute with; one allreduce of an
        integer if text is converted, since a rank may find text without a number; and with
        ``copy=False`` and an order, if one block does not determine how the array is stored.
        """
        how = cast_type(dtype), order, casting, copy
        if is_free(np.astype, self.layout):
            return cast(self, *how)
        return watched(np.astype, (self, *how), {}, cast, (self, *how))

    @numpys_at_once
    def copy(self, order: str = "C") -> Self:
        """Return a copy with its own memory and the canonical cut; see :func:`numpy.copy`."""
        return call_in_general(np.copy, self, order)

    @overload
    def view(self) -> Self: ...
    @overload
    def view(self, *dtype: DTypeLike, **named: DTypeLike) -> Any: ...
    def view(self, *dtype: DTypeLike, **named: DTypeLike) -> Any:
        """Return an array over the same memory; optionally with another data type or array type.

        As in NumPy, items of another size change the extent of the last dimension. This raises a
        ValueError on all ranks if a cut of the dimension would split a new item. A subclass of
        NumPy's array is a view of the whole array; for a cut array it is a read-only gathered copy.

        Cost
        ----
        One allreduce of an integer if the item size changes and blocks do not show their order.
        """
        if self.layout.partials:
            self.settle()  # otherwise the fold would put the two arrays into separate memory
        if not dtype and not named:
            return derived(self, _same_view)
        return viewed(self, *dtype, **named)

    def getfield(self, dtype: DTypeLike, offset: int = 0) -> Self:
        """Return a view of some bytes of each element; see :meth:`numpy.ndarray.getfield`."""
        if self.layout.partials:
            self.settle()
        kind = np.dtype(dtype)
        return derived(self, lambda x: x.like(x.mesh.asarray(x.block).getfield(kind, offset)))

    def setfield(self, val: ArrayLike, dtype: DTypeLike, offset: int = 0) -> None:
        """Write to some bytes of each element; see :meth:`numpy.ndarray.setfield`."""
        refuse_read_only(self)
        part: Any = self.getfield(dtype, offset)
        part[...] = val

    @property
    def flags(self) -> Any:
        """Writability and memory order of the array.

        Cost
        ----
        See :class:`~distarray.array.flags.Flags`; none for an array that every rank has whole.
        """
        return flags_of(self)

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one index to the next in memory.

        For a cut array they are those of the whole array: in C order, unless it is a view. The
        strides of this rank's block are ``x.to_local().strides``.
        """
        return tuple(self.block.strides) if self.layout.is_whole else strides_of(self)

    @property
    def base(self) -> Any:
        """Array of which this one is a view, itself not a view; None if this one is no view."""
        return base_of(self)

    @property
    def data(self) -> memoryview:
        """Memory of an array that every rank has whole; a cut array has no such attribute."""
        return whole_block(self, "data").data

    @property
    def ctypes(self) -> Any:
        """Access to the memory from :mod:`ctypes`, under the conditions of :attr:`data`."""
        return whole_block(self, "ctypes").ctypes

    def setflags(
        self, write: bool | None = None, align: bool | None = None, uic: bool | None = None
    ) -> None:
        """Forbid writing to the array, or allow it; see :meth:`numpy.ndarray.setflags`.

        Every rank calls it. If a rank may not write to its block, the call raises on all ranks.

        Cost
        ----
        None to forbid writing; one allreduce of an integer to allow it.
        """
        given = {"write": write, "align": align, "uic": uic}
        set_flags(self, lambda block: block.setflags(**given), any(given.values()))

    def byteswap(self, inplace: bool = False) -> Self:
        """Reverse the bytes of each element."""
        if self.layout.partials:
            self.settle()
        passed.number += inplace
        if not inplace:
            return self.like(self.block.byteswap())
        with writing(self, whole=True):
            self.block.byteswap(inplace)
        return self

    def to_device(self, device: str, /, *, stream: int | None = None) -> Self:
        """Move the array to another kind of device; return the array itself if already there."""
        return call(Methods.to_device, self, device, stream=stream)

    # -- contractions ---------------------------------------------------------------------------

    def dot(self, b: ArrayLike, out: Out = None) -> Any:
        """Compute the dot product, as :func:`numpy.dot`."""
        return call(np.dot, self, b) if out is None else call(np.dot, self, b, out=out)

    # -- bytes ----------------------------------------------------------------------------------

    def tobytes(self, order: Order = "C") -> bytes:
        """Return the bytes of the whole array on every rank; collective unless replicated."""
        alone = self.mesh.size() == 1  # nothing to gather: copied only once
        if str(order) in "Aa" and not alone:
            order = "F" if is_contiguous(self, "F") and not is_contiguous(self, "C") else "C"
        if not alone:
            return gathered(self, "x.tobytes()", aloud=False).tobytes(order)
        return self.mesh.to_host(self.plain().to_local()).tobytes(order)

    def dumps(self) -> bytes:
        """Pickle the array, as :func:`pickle.dumps`; collective."""
        return pickle.dumps(self, protocol=2)  # NumPy's choice

    def dump(self, file: str | PathLike[str] | IO[bytes]) -> None:
        """Write the pickle to a file; see :meth:`numpy.ndarray.dump`. Collective."""
        call(Methods.dump, self, file)

    def tofile(
        self, fid: str | PathLike[str] | IO[bytes], sep: str = "", format: str = "%s"
    ) -> None:
        """Write the elements to a file; see :meth:`numpy.ndarray.tofile`. Collective."""
        call(Methods.tofile, self, fid, sep, format)

    @property
    def flat(self) -> Any:
        """Elements in C order, for reading, writing and iteration."""
        return call(np.flatiter, self)

    @flat.setter
    def flat(self, values: ArrayLike) -> None:
        call(np.flatiter, self)[...] = values

    @flat.deleter
    def flat(self) -> None:
        """Raise an error, as NumPy does."""
        raise AttributeError("Cannot delete array flat iterator")

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        """Return a result; NumPy calls this method in code that uses arrays by duck typing."""
        return array
