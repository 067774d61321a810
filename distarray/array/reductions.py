"""Reductions and scans of :class:`numpy.ndarray` as methods.

Along given dimensions they return an array. Over all dimensions they return a number, whose type
depends on the array's type.
"""

from collections.abc import Sequence
from typing import Any, Self, Unpack, overload

import numpy as np

from distarray.array.base import Base
from distarray.array.ladder import call, number_at_once, numpys_at_once
from distarray.typing import ArrayLike, Axes, DTypeLike, Out, Reducing

__all__ = ["Reductions"]


class Reductions(Base):
    """Reductions and scans of ndarray."""

    __slots__ = ()

    @overload
    def sum(
        self,
        axis: int | Sequence[int],
        dtype: DTypeLike = None,
        out: Out = None,
        **kwargs: Unpack[Reducing],
    ) -> Self: ...
    @overload
    def sum(
        self,
        axis: Axes = None,
        dtype: DTypeLike = None,
        out: Out = None,
        **kwargs: Unpack[Reducing],
    ) -> Any: ...
    @number_at_once
    def sum(
        self,
        axis: Axes = None,
        dtype: DTypeLike = None,
        out: Out = None,
        *more: ArrayLike,
        **kwargs: Unpack[Reducing],
    ) -> Any:
        """Sum elements, as :func:`numpy.sum`."""
        return call(np.sum, self, axis, dtype, out, *more, **kwargs)

    @overload
    def prod(
        self,
        axis: int | Sequence[int],
        dtype: DTypeLike = None,
        out: Out = None,
        **kwargs: Unpack[Reducing],
    ) -> Self: ...
    @overload
    def prod(
        self,
        axis: Axes = None,
        dtype: DTypeLike = None,
        out: Out = None,
        **kwargs: Unpack[Reducing],
    ) -> Any: ...
    @number_at_once
    def prod(
        self,
        axis: Axes = None,
        dtype: DTypeLike = None,
        out: Out = None,
        *more: ArrayLike,
        **kwargs: Unpack[Reducing],
    ) -> Any:
        """Multiply elements, as :func:`numpy.prod`."""
        return call(np.prod, self, axis, dtype, out, *more, **kwargs)

    @overload
    def mean(
        self,
        axis: int | Sequence[int],
        dtype: DTypeLike = None,
        out: Out = None,
        **kwargs: Unpack[Reducing],
    ) -> Self: ...
    @overload
    def mean(
        self,
        axis: Axes = None,
        dtype: DTypeLike = None,
        out: Out = None,
        **kwargs: Unpack[Reducing],
    ) -> Any: ...
    @number_at_once
    def mean(
        self,
        axis: Axes = None,
        dtype: DTypeLike = None,
        out: Out = None,
        *more: ArrayLike,
        **kwargs: Unpack[Reducing],
    ) -> Any:
        """Compute the mean, as :func:`numpy.mean`."""
        return call(np.mean, self, axis, dtype, out, *more, **kwargs)

    @overload
    def max(
        self, axis: int | Sequence[int], out: Out = None, **kwargs: Unpack[Reducing]
    ) -> Self: ...
    @overload
    def max(self, axis: Axes = None, out: Out = None, **kwargs: Unpack[Reducing]) -> Any: ...
    @number_at_once
    def max(
        self, axis: Axes = None, out: Out = None, *more: ArrayLike, **kwargs: Unpack[Reducing]
    ) -> Any:
        """Return the maximum, as :func:`numpy.max`."""
        return call(np.max, self, axis, out, *more, **kwargs)

    @overload
    def min(
        self, axis: int | Sequence[int], out: Out = None, **kwargs: Unpack[Reducing]
    ) -> Self: ...
    @overload
    def min(self, axis: Axes = None, out: Out = None, **kwargs: Unpack[Reducing]) -> Any: ...
    @number_at_once
    def min(
        self, axis: Axes = None, out: Out = None, *more: ArrayLike, **kwargs: Unpack[Reducing]
    ) -> Any:
        """Return the minimum, as :func:`numpy.min`."""
        return call(np.min, self, axis, out, *more, **kwargs)

    @overload
    def any(
        self, axis: int | Sequence[int], out: Out = None, **kwargs: Unpack[Reducing]
    ) -> Self: ...
    @overload
    def any(self, axis: Axes = None, out: Out = None, **kwargs: Unpack[Reducing]) -> Any: ...
    @number_at_once
    def any(
        self,
        axis: Axes = None,
        out: Out = None,
        *,
        dtype: DTypeLike = None,
        **kwargs: Unpack[Reducing],
    ) -> Any:
        """Return True where some element is true, as :func:`numpy.any`."""
        if dtype is not None:
            reduce: Any = np.logical_or.reduce
            return reduce(self, axis, dtype, out, **kwargs)
        return call(np.any, self, axis, out, **kwargs)

    @overload
    def all(
        self, axis: int | Sequence[int], out: Out = None, **kwargs: Unpack[Reducing]
    ) -> Self: ...
    @overload
    def all(self, axis: Axes = None, out: Out = None, **kwargs: Unpack[Reducing]) -> Any: ...
    @number_at_once
    def all(
        self,
        axis: Axes = None,
        out: Out = None,
        *,
        dtype: DTypeLike = None,
        **kwargs: Unpack[Reducing],
    ) -> Any:
        """Return True where all elements are true, as :func:`numpy.all`."""
        if dtype is not None:
            reduce: Any = np.logical_and.reduce
            return reduce(self, axis, dtype, out, **kwargs)
        return call(np.all, self, axis, out, **kwargs)

    @overload
    def std(
        self,
        axis: int | Sequence[int],
        dtype: DTypeLike = None,
        out: Out = None,
        ddof: float = 0,
        **kwargs: Unpack[Reducing],
    ) -> Self: ...
    @overload
    def std(
        self,
        axis: Axes = None,
        dtype: DTypeLike = None,
        out: Out = None,
        ddof: float = 0,
        **kwargs: Unpack[Reducing],
    ) -> Any: ...
    @number_at_once
    def std(
        self,
        axis: Axes = None,
        dtype: DTypeLike = None,
        out: Out = None,
        ddof: float = 0,
        *more: ArrayLike,
        **kwargs: Unpack[Reducing],
    ) -> Any:
        """Compute the standard deviation, as :func:`numpy.std`."""
        return call(np.std, self, axis, dtype, out, ddof, *more, **kwargs)

    @overload
    def var(
        self,
        axis: int | Sequence[int],
        dtype: DTypeLike = None,
        out: Out = None,
        ddof: float = 0,
        **kwargs: Unpack[Reducing],
    ) -> Self: ...
    @overload
    def var(
        self,
        axis: Axes = None,
        dtype: DTypeLike = None,
        out: Out = None,
        ddof: float = 0,
        **kwargs: Unpack[Reducing],
    ) -> Any: ...
    @number_at_once
    def var(
        self,
        axis: Axes = None,
        dtype: DTypeLike = None,
        out: Out = None,
        ddof: float = 0,
        *more: ArrayLike,
        **kwargs: Unpack[Reducing],
    ) -> Any:
        """Compute the variance, as :func:`numpy.var`."""
        return call(np.var, self, axis, dtype, out, ddof, *more, **kwargs)

    @overload
    def argmax(self, axis: int, out: Out = None, **kwargs: Unpack[Reducing]) -> Self: ...
    @overload
    def argmax(self, axis: Axes = None, out: Out = None, **kwargs: Unpack[Reducing]) -> Any: ...
    @number_at_once
    def argmax(self, axis: Axes = None, out: Out = None, **kwargs: Unpack[Reducing]) -> Any:
        """Return the index of the maximum, as :func:`numpy.argmax`."""
        return call(np.argmax, self, axis, out, **kwargs)

    @overload
    def argmin(self, axis: int, out: Out = None, **kwargs: Unpack[Reducing]) -> Self: ...
    @overload
    def argmin(self, axis: Axes = None, out: Out = None, **kwargs: Unpack[Reducing]) -> Any: ...
    @number_at_once
    def argmin(self, axis: Axes = None, out: Out = None, **kwargs: Unpack[Reducing]) -> Any:
        """Return the index of the minimum, as :func:`numpy.argmin`."""
        return call(np.argmin, self, axis, out, **kwargs)

    @numpys_at_once
    def cumsum(self, axis: Axes = None, dtype: DTypeLike = None, out: Out = None) -> Self:
        """Compute cumulative sums, as :func:`numpy.cumsum`."""
        return call(np.cumsum, self, axis, dtype, out)

    @numpys_at_once
    def cumprod(self, axis: Axes = None, dtype: DTypeLike = None, out: Out = None) -> Self:
        """Compute cumulative products, as :func:`numpy.cumprod`."""
        return call(np.cumprod, self, axis, dtype, out)

    @numpys_at_once
    def trace(
        self,
        offset: int = 0,
        axis1: int = 0,
        axis2: int = 1,
        dtype: DTypeLike = None,
        out: Out = None,
    ) -> Any:
        """Sum a diagonal, as :func:`numpy.trace`."""
        return call(np.trace, self, offset=offset, axis1=axis1, axis2=axis2, dtype=dtype, out=out)
