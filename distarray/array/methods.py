"""The methods of :class:`numpy.ndarray`, each handed to the NumPy function of the same meaning.

They have ndarray's signatures and do what those functions do; what may communicate is said there.
"""

from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np

from distarray.array.assigning import one_element
from distarray.array.base import Base, is_subclass
from distarray.array.casting import cast
from distarray.array.exporting import gathered
from distarray.array.ladder import call, is_free, watched
from distarray.array.portable import refuse_read_only
from distarray.array.storage import is_contiguous
from distarray.typing import ArrayLike, Axes, DTypeLike, Order, Out, Reducing

__all__ = ["Methods"]

_NO_BUFFER = (
    "'DistArray' object has no attribute '{0}': its memory is spread over the ranks; "
    "x.to_local().{0} is that of this rank's block, x.full().{0} that of a copy of the whole"
)


def _assign_part(part: Any, value: ArrayLike) -> None:
    """Assign to the real part or the imaginary one, which takes of any number what fits."""
    np.copyto(part, value if hasattr(value, "dtype") else np.asarray(value), casting="unsafe")


class Methods(Base):
    """ndarray's methods and computed attributes."""

    __slots__ = ()

    # -- reductions and scans -------------------------------------------------------------------

    def sum(
        self,
        axis: Axes = None,
        dtype: DTypeLike = None,
        out: Out = None,
        **kwargs: Unpack[Reducing],
    ) -> Any:
        """As :func:`numpy.sum`."""
        return call(np.sum, self, axis, dtype, out, **kwargs)

    def prod(
        self,
        axis: Axes = None,
        dtype: DTypeLike = None,
        out: Out = None,
        **kwargs: Unpack[Reducing],
    ) -> Any:
        """As :func:`numpy.prod`."""
        return call(np.prod, self, axis, dtype, out, **kwargs)

    def max(self, axis: Axes = None, out: Out = None, **kwargs: Unpack[Reducing]) -> Any:
        """As :func:`numpy.max`."""
        return call(np.max, self, axis, out, **kwargs)

    def min(self, axis: Axes = None, out: Out = None, **kwargs: Unpack[Reducing]) -> Any:
        """As :func:`numpy.min`."""
        return call(np.min, self, axis, out, **kwargs)

    def any(self, axis: Axes = None, out: Out = None, **kwargs: Unpack[Reducing]) -> Any:
        """As :func:`numpy.any`."""
        return call(np.any, self, axis, out, **kwargs)

    def all(self, axis: Axes = None, out: Out = None, **kwargs: Unpack[Reducing]) -> Any:
        """As :func:`numpy.all`."""
        return call(np.all, self, axis, out, **kwargs)

    def mean(
        self,
        axis: Axes = None,
        dtype: DTypeLike = None,
        out: Out = None,
        **kwargs: Unpack[Reducing],
    ) -> Any:
        """As :func:`numpy.mean`."""
        return call(np.mean, self, axis, dtype, out, **kwargs)

    def std(
        self,
        axis: Axes = None,
        dtype: DTypeLike = None,
        out: Out = None,
        ddof: float = 0,
        **kwargs: Unpack[Reducing],
    ) -> Any:
        """As :func:`numpy.std`."""
        return call(np.std, self, axis, dtype, out, ddof, **kwargs)

    def var(
        self,
        axis: Axes = None,
        dtype: DTypeLike = None,
        out: Out = None,
        ddof: float = 0,
        **kwargs: Unpack[Reducing],
    ) -> Any:
        """As :func:`numpy.var`."""
        return call(np.var, self, axis, dtype, out, ddof, **kwargs)

    def argmax(self, axis: Axes = None, out: Out = None, **kwargs: Unpack[Reducing]) -> Any:
        """As :func:`numpy.argmax`."""
        return call(np.argmax, self, axis, out, **kwargs)

    def argmin(self, axis: Axes = None, out: Out = None, **kwargs: Unpack[Reducing]) -> Any:
        """As :func:`numpy.argmin`."""
        return call(np.argmin, self, axis, out, **kwargs)

    def cumsum(self, axis: Axes = None, dtype: DTypeLike = None, out: Out = None) -> Any:
        """As :func:`numpy.cumsum`."""
        return call(np.cumsum, self, axis, dtype, out)

    def cumprod(self, axis: Axes = None, dtype: DTypeLike = None, out: Out = None) -> Any:
        """As :func:`numpy.cumprod`."""
        return call(np.cumprod, self, axis, dtype, out)

    def trace(
        self,
        offset: int = 0,
        axis1: int = 0,
        axis2: int = 1,
        dtype: DTypeLike = None,
        out: Out = None,
    ) -> Any:
        """As :func:`numpy.trace`."""
        return call(np.trace, self, offset=offset, axis1=axis1, axis2=axis2, dtype=dtype, out=out)

    # -- shape ----------------------------------------------------------------------------------

    def reshape(
        self, *shape: int | Sequence[int], order: str = "C", copy: bool | None = None
    ) -> Any:
        """As :func:`numpy.reshape`; a view where no element has to change rank, else a copy."""
        target = shape[0] if len(shape) == 1 else shape
        return call(np.reshape, self, target, order=order, copy=copy)

    def ravel(self, order: str = "C") -> Any:
        """As :func:`numpy.ravel`."""
        return call(np.ravel, self, order=order)

    def flatten(self, order: str = "C") -> Any:
        """A copy collapsed into one dimension."""
        if order in ("K", "k"):
            return call(np.copy, call(np.ravel, self, order))
        return call(np.reshape, self, (self.layout.size,), order, copy=True)

    def transpose(self, *axes: int | Sequence[int] | None) -> Any:
        """As :func:`numpy.transpose`; a view."""
        order = axes[0] if len(axes) == 1 else (axes or None)
        return call(np.transpose, self, order)

    def swapaxes(self, axis1: int, axis2: int) -> Any:
        """As :func:`numpy.swapaxes`; a view."""
        return call(np.swapaxes, self, axis1, axis2)

    def squeeze(self, axis: Axes = None) -> Any:
        """As :func:`numpy.squeeze`; a view."""
        return call(np.squeeze, self, axis=axis)

    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
        """As :func:`numpy.diagonal`."""
        return call(np.diagonal, self, offset=offset, axis1=axis1, axis2=axis2)

    def repeat(self, repeats: ArrayLike, axis: int | None = None) -> Any:
        """As :func:`numpy.repeat`."""
        return call(np.repeat, self, repeats, axis=axis)

    def resize(self, *shape: int, refcheck: bool = True) -> None:
        """Refused: the memory of a distributed array cannot change size in place."""
        raise ValueError(
            "cannot resize a distributed array in place: its memory is spread over the ranks; "
            "use numpy.resize(x, new_shape), which returns a new array"
        )

    @property
    def T(self) -> Any:
        """The transposed array; a view."""
        return call(np.transpose, self)

    @property
    def mT(self) -> Any:
        """The array with its last two dimensions exchanged; a view."""
        return call(np.matrix_transpose, self)

    # -- elements -------------------------------------------------------------------------------

    def take(
        self,
        indices: ArrayLike,
        axis: int | None = None,
        out: Out = None,
        mode: str = "raise",
    ) -> Any:
        """As :func:`numpy.take`."""
        return call(np.take, self, indices, axis=axis, out=out, mode=mode)

    def put(self, indices: ArrayLike, values: ArrayLike, mode: str = "raise") -> None:
        """As :func:`numpy.put`."""
        call(np.put, self, indices, values, mode=mode)

    def nonzero(self) -> Any:
        """As :func:`numpy.nonzero`."""
        return call(np.nonzero, self)

    def compress(self, condition: ArrayLike, axis: int | None = None, out: Out = None) -> Any:
        """As :func:`numpy.compress`."""
        return call(np.compress, condition, self, axis=axis, out=out)

    def choose(self, choices: Sequence[ArrayLike], out: Out = None, mode: str = "raise") -> Any:
        """As :func:`numpy.choose`."""
        return call(np.choose, self, choices, out=out, mode=mode)

    def searchsorted(
        self, v: ArrayLike, side: str = "left", sorter: ArrayLike | None = None
    ) -> Any:
        """As :func:`numpy.searchsorted`."""
        return call(np.searchsorted, self, v, side=side, sorter=sorter)

    def argsort(
        self,
        axis: Axes = -1,
        kind: str | None = None,
        order: str | None = None,
        *,
        stable: bool | None = None,
    ) -> Any:
        """As :func:`numpy.argsort`."""
        return call(np.argsort, self, axis=axis, kind=kind, order=order, stable=stable)

    def argpartition(
        self,
        kth: int | Sequence[int],
        axis: Axes = -1,
        kind: str = "introselect",
        order: str | None = None,
    ) -> Any:
        """As :func:`numpy.argpartition`."""
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
        refuse_read_only(self.block)
        self[...] = one_element(value, self.block.dtype)  # type: ignore[index]

    # -- elementwise ----------------------------------------------------------------------------

    def clip(
        self,
        min: ArrayLike | None = None,
        max: ArrayLike | None = None,
        out: Out = None,
        **kwargs: Any,
    ) -> Any:
        """As :func:`numpy.clip`."""
        return call(np.clip, self, min, max, out=out, **kwargs)

    def round(self, decimals: int = 0, out: Out = None) -> Any:
        """As :func:`numpy.round`."""
        return call(np.round, self, decimals=decimals, out=out)

    def conj(self) -> Any:
        """As :func:`numpy.conjugate`; the array itself if it is real."""
        if self.block.dtype.kind != "c":
            return self
        return np.conjugate(self)  # type: ignore[call-overload]

    conjugate = conj

    @property
    def real(self) -> Any:
        """The real part; a view."""
        return call(np.real, self)

    @real.setter
    def real(self, value: ArrayLike) -> None:
        _assign_part(call(np.real, self), value)

    @property
    def imag(self) -> Any:
        """The imaginary part; a view of a complex array."""
        return call(np.imag, self)

    @imag.setter
    def imag(self, value: ArrayLike) -> None:
        if np.dtype(self.block.dtype).kind != "c":
            raise TypeError("array does not have imaginary part to set")
        _assign_part(call(np.imag, self), value)

    def astype(
        self,
        dtype: DTypeLike,
        order: str = "K",
        casting: str = "unsafe",
        subok: bool = True,
        copy: bool = True,
    ) -> Any:
        """The array cast to a data type, laid out alike.

        Cost
        ----
        No message, except for a pending fold that the cast does not commute with; one allreduce of
        an integer where text is read, as a rank may find some that is no number; and with
        ``copy=False`` and an order, where a rank alone cannot say how the array is stored.
        """
        how = np.dtype(dtype), order, casting, copy
        if is_free(np.astype, self.layout):
            return cast(self, *how)
        return watched(np.astype, (self, *how), {}, cast, (self, *how))

    def copy(self, order: str = "C") -> Any:
        """A copy with memory of its own and the canonical cut; see :func:`numpy.copy`."""
        return call(np.copy, self, order)

    def view(self, dtype: DTypeLike = None) -> Any:
        """A view, read as another data type of its size; NumPy's subclasses are of the whole."""
        if isinstance(dtype, type) and is_subclass(dtype):  # type: ignore[arg-type]
            return np.asarray(self).view(dtype)
        if self.layout.partials:
            self.settle()  # two arrays with contributions would be folded into memory of their own
        if dtype is None:
            block = self.block
            return self.like(block if isinstance(block, np.generic) else block[...])
        if not isinstance(dtype, type) or not issubclass(dtype, Base):
            dtype = np.dtype(dtype)
            if dtype.itemsize != self.block.dtype.itemsize:
                raise ValueError(
                    f"view({dtype}) of {self.block.dtype} would change the shape of every block; "
                    "view the local blocks, x.to_local().view(...), instead"
                )
            return self.like(self.block.view(dtype))
        return self

    @property
    def flags(self) -> Any:
        """Whether the array can be written to, and how this rank's block of it is stored."""
        return self.block.flags

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one index to the next of the whole array in C order, as `full` gives it.

        No memory lies so; ``x.to_local().strides`` are those of this rank's part.
        """
        steps, step = [], self.block.dtype.itemsize if self.layout.size else 0
        for extent in reversed(self.layout.shape):
            steps.append(step)
            step *= extent
        return tuple(reversed(steps))

    @property
    def base(self) -> Any:
        """Not known: use :func:`numpy.shares_memory`."""
        raise AttributeError(
            "'DistArray' object has no attribute 'base': views do not know what they are views "
            "of; numpy.shares_memory(x, y) says whether two arrays share memory"
        )

    @property
    def data(self) -> Any:
        """Not there: no buffer holds the whole array."""
        raise AttributeError(_NO_BUFFER.format("data"))

    @property
    def ctypes(self) -> Any:
        """As NumPy's where this rank has the whole array; else not there."""
        if self.layout.is_whole and isinstance(self.block, np.ndarray):
            return self.block.ctypes
        raise AttributeError(_NO_BUFFER.format("ctypes"))

    def setflags(
        self, write: bool | None = None, align: bool | None = None, uic: bool | None = None
    ) -> None:
        """Forbid writing to the array, or allow it; see :meth:`numpy.ndarray.setflags`.

        Every rank calls it, and none sends anything.
        """
        self.block.setflags(write=write, align=align, uic=uic)

    def byteswap(self, inplace: bool = False) -> Any:
        """The bytes of each element in the opposite order."""
        if self.layout.partials:
            self.settle()
        swapped = self.block.byteswap(inplace)
        return self if inplace else self.like(swapped)

    def to_device(self, device: str, /, *, stream: int | None = None) -> Any:
        """The array on another kind of device; this array itself where it is there already."""
        return call(Methods.to_device, self, device, stream=stream)

    # -- contractions ---------------------------------------------------------------------------

    def dot(self, b: ArrayLike, out: Out = None) -> Any:
        """As :func:`numpy.dot`."""
        return call(np.dot, self, b, out=out)

    # -- bytes ----------------------------------------------------------------------------------

    def tobytes(self, order: Order = "C") -> bytes:
        """The bytes of the whole array on every rank; collective unless replicated."""
        alone = self.mesh.size() == 1  # nothing to gather: not copied twice
        if str(order) in "Aa" and not alone:
            order = "F" if is_contiguous(self, "F") and not is_contiguous(self, "C") else "C"
        if not alone:
            return gathered(self, "x.tobytes()", aloud=False).tobytes(order)
        return self.mesh.to_host(self.plain().to_local()).tobytes(order)

    def tofile(self, fid: Any, sep: str = "", format: str = "%s") -> None:
        """Write the elements to a file; see :meth:`numpy.ndarray.tofile`. Collective."""
        call(Methods.tofile, self, fid, sep, format)

    @property
    def flat(self) -> Any:
        """The elements in C order, to be read, written and iterated over."""
        return call(np.flatiter, self)

    @flat.setter
    def flat(self, values: ArrayLike) -> None:
        call(np.flatiter, self)[...] = values

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        """What NumPy calls on results of code that knows arrays only by duck typing."""
        return array
