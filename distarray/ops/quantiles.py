"""median, percentile, quantile, and their versions that leave NaN out."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from distarray.array import DistArray, Objects, as_distarray, common_mesh, implements
from distarray.engines.reducing import NoValue, place, write
from distarray.engines.selecting.interpolation import Places, interpolated, places
from distarray.engines.selecting.order_statistics import Statistic, along
from distarray.engines.selecting.weighted_lines import WeightedCall, checked
from distarray.typing import Array

__all__ = ["median", "nanmedian", "nanpercentile", "nanquantile", "percentile", "quantile"]


class _Median(NamedTuple):
    """The middle element of a line, or the mean of the two in the middle, as NumPy makes it."""

    function: Callable[..., Any]
    dtype: np.dtype[Any]

    def wanted(self, n: int) -> list[int]:
        """The positions needed of a line of n elements."""
        return sorted({(n - 1) // 2, n // 2})

    def value(self, n: int, found: dict[int, Any]) -> Any:
        """The statistic of the elements at these positions."""
        return self._of([found[position] for position in self.wanted(n)])

    def unknown(self, nan: Any) -> Any:
        """The statistic of a line without one."""
        return self._of([nan])

    def _of(self, middle: list[Any]) -> Any:
        return self.function(np.array(middle), out=np.empty((), self.dtype))


class _Quantiles(NamedTuple):
    """The quantiles of a line at the shares `q` of it."""

    function: Callable[..., Any]
    method: str
    q: Array
    weak: bool

    def wanted(self, n: int) -> list[int]:
        """The positions needed of a line of n elements."""
        return self._places(n).wanted

    def value(self, n: int, found: dict[int, Any]) -> Any:
        """The statistic of the elements at these positions."""
        at = self._places(n)
        previous, following = (_taken(found, index) for index in (at.previous, at.following))
        if at.gamma is None:
            return previous
        return interpolated(previous, following, at.gamma)

    def unknown(self, nan: Any) -> Any:
        """The statistic of a line without one."""
        if self.function in (np.nanquantile, np.nanpercentile):
            self.function(np.array([nan]), 0)  # warns
        return np.full(self.q.shape, nan)

    def _places(self, n: int) -> Places:
        return places(self.method, n, self.q, self.weak)


def _taken(found: dict[int, Any], index: Array) -> Any:
    """The elements at positions, in their shape; a scalar for a single one."""
    values = np.array([found[position] for position in index.ravel().tolist()])
    return values.reshape(index.shape)[()]


@implements(np.median, objects=Objects.GATHER)
def median(
    a: Any, axis: Any = None, out: Any = None, overwrite_input: Any = False, keepdims: Any = False
) -> Any:
    """Median over axes; see :func:`numpy.median`.

    Parameters
    ----------
    a : DistArray
        In any layout; it is never overwritten.
    axis, out, overwrite_input, keepdims
        As in :func:`numpy.median`.

    Returns
    -------
    DistArray
        The other dimensions are cut as in `a`, or by its ranks along another one where lines were
        brought together; a scalar on every rank for ``axis=None``.

    Cost
    ----
    Nothing if `axis` is not cut. Long lines, and the whole array: rounds of small allgathers, two
    as a rule, then one of some thousand candidates, and about two passes over the block. Many
    short lines: one exchange of `a` that puts each on one rank. Arrays of a few thousand elements
    are gathered.
    """
    return _middle(np.median, a, axis, out, keepdims)


@implements(np.nanmedian, objects=Objects.GATHER)
def nanmedian(
    a: Any, axis: Any = None, out: Any = None, overwrite_input: Any = False, keepdims: Any = NoValue
) -> Any:
    """Median over axes of what is not NaN; see :func:`numpy.nanmedian` and :func:`median`.

    Cost
    ----
    As :func:`median`.
    """
    return _middle(np.nanmedian, a, axis, out, keepdims)


def _middle(function: Any, a: Any, axis: Any, out: Any, keepdims: Any) -> Any:
    x = as_distarray(a, common_mesh(a, out))
    keepdims = keepdims is not NoValue and bool(keepdims)
    kind = _probed(function, x, (), axis, out, keepdims)
    rule = _Median(function, kind if out is None else out.dtype)

    def whole(block: Array, axis: Any, keepdims: bool) -> Any:
        return function(block, axis, keepdims=keepdims)

    if out is not None:
        whole = _into(function, out.dtype, kind)
    statistic = Statistic(whole, rule, (), rule.dtype, function is np.nanmedian)
    return _finished(statistic, x, axis, out, keepdims)


@implements(np.quantile, objects=Objects.GATHER)
def quantile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: Any = None,
    overwrite_input: Any = False,
    method: Any = "linear",
    keepdims: Any = False,
    *,
    weights: Any = None,
) -> Any:
    """Quantiles over axes; see :func:`numpy.quantile`.

    Parameters
    ----------
    a : DistArray
        In any layout; it is never overwritten.
    q : array_like of float
        Every rank gets all of them.
    axis, out, overwrite_input, method, keepdims
        As in :func:`numpy.quantile`.
    weights : array_like, optional
        Lie best as `a` does. They are summed exactly: where NumPy's sums, which it rounds, and a
        quantile meet, it may take the next element.

    Returns
    -------
    DistArray
        The dimensions of `q` come first, and are whole; the others as for :func:`median`.

    Cost
    ----
    As :func:`median`; all quantiles are found together.
    """
    arguments = {"method": method, "weights": weights}
    return _shares(np.quantile, a, q, axis, out, keepdims, arguments)


@implements(np.percentile, objects=Objects.GATHER)
def percentile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: Any = None,
    overwrite_input: Any = False,
    method: Any = "linear",
    keepdims: Any = False,
    *,
    weights: Any = None,
) -> Any:
    """Percentiles over axes; see :func:`numpy.percentile` and :func:`quantile`.

    Cost
    ----
    As :func:`quantile`.
    """
    arguments = {"method": method, "weights": weights}
    return _shares(np.percentile, a, q, axis, out, keepdims, arguments)


@implements(np.nanquantile, objects=Objects.GATHER)
def nanquantile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: Any = None,
    overwrite_input: Any = False,
    method: Any = "linear",
    keepdims: Any = NoValue,
    *,
    weights: Any = None,
) -> Any:
    """Quantiles over axes of what is not NaN; see :func:`numpy.nanquantile`, :func:`quantile`.

    Cost
    ----
    As :func:`quantile`.
    """
    arguments = {"method": method, "weights": weights}
    return _shares(np.nanquantile, a, q, axis, out, keepdims, arguments)


@implements(np.nanpercentile, objects=Objects.GATHER)
def nanpercentile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: Any = None,
    overwrite_input: Any = False,
    method: Any = "linear",
    keepdims: Any = NoValue,
    *,
    weights: Any = None,
) -> Any:
    """Percentiles over axes of what is not NaN; see :func:`numpy.nanpercentile`.

    Cost
    ----
    As :func:`quantile`.
    """
    arguments = {"method": method, "weights": weights}
    return _shares(np.nanpercentile, a, q, axis, out, keepdims, arguments)


def _shares(
    function: Any,
    a: Any,
    q: Any,
    axis: Any,
    out: Any,
    keepdims: Any,
    arguments: dict[str, Any],
) -> Any:
    """Any of the four functions of shares; `arguments` are the method and the weights."""
    x = as_distarray(a, common_mesh(a, q, out, arguments["weights"]))
    keepdims = keepdims is not NoValue and bool(keepdims)
    q = np.asarray(q) if isinstance(q, DistArray) else q
    weights = arguments["weights"]
    if x.dtype.kind == "c":
        raise TypeError("a must be an array of real numbers")
    if weights is not None:
        weights = checked(weights, x, axis, arguments["method"])
        arguments["weights"] = np.ones([min(extent, 1) for extent in x.shape])
    kind = _probed(function, x, (q,), axis, out, keepdims, **arguments)
    shares, weak = _as_shares(function, q)
    skips = function in (np.nanquantile, np.nanpercentile)
    if weights is not None and x.size:
        axes = tuple(range(x.ndim)) if axis is None else normalize_axis_tuple(axis, x.ndim)
        parts = WeightedCall(function, shares).along(x, weights, axes, keepdims)
        return write(*parts, x.mesh, out)
    rule = _Quantiles(function, arguments["method"], shares, weak)

    def whole(block: Array, axis: Any, keepdims: bool) -> Any:
        return function(block, q, axis, method=arguments["method"], keepdims=keepdims)

    return _finished(Statistic(whole, rule, shares.shape, kind, skips), x, axis, out, keepdims)


def _as_shares(function: Any, q: Any) -> tuple[Array, bool]:
    """The quantiles from 0 to 1, and whether they are a number of Python's."""
    weak = type(q) in (int, float)
    if function in (np.percentile, np.nanpercentile):
        return np.true_divide(q, 100, out=...), weak
    return np.asanyarray(q), weak


def _probed(
    function: Any,
    x: DistArray,
    given: tuple[Any, ...],
    axis: Any,
    out: Any,
    keepdims: bool,
    **arguments: Any,
) -> np.dtype[Any]:
    """The data type of the result; raises what NumPy raises about any of the arguments."""
    tiny = np.ones([min(extent, 1) for extent in x.shape], x.dtype)
    value = np.asarray(function(tiny, *given, axis=axis, keepdims=keepdims, **arguments))
    if out is not None:
        lead = value.shape[: np.ndim(given[0])] if given else ()
        wanted = (*lead, *place(x.layout, axis, keepdims, x.dtype).layout.shape)
        if tuple(out.shape) != wanted:
            raise ValueError(f"the result has shape {wanted}, and `out` has {tuple(out.shape)}")
        small = np.zeros(value.shape, out.dtype)
        function(tiny, *given, axis=axis, out=small, keepdims=keepdims, **arguments)
    return value.dtype


def _into(function: Any, dtype: Any, kind: Any) -> Any:
    """The function with a result in a data type, which NumPy then also computes in."""

    def whole(block: Array, axis: Any, keepdims: bool) -> Any:
        kept = [1 if dim in axis else extent for dim, extent in enumerate(block.shape)]
        shape = kept if keepdims else [e for dim, e in enumerate(block.shape) if dim not in axis]
        return function(block, axis, np.empty(shape, dtype), keepdims=keepdims)

    return whole


def _finished(statistic: Statistic, x: DistArray, axis: Any, out: Any, keepdims: bool) -> Any:
    """The statistic as an array, or written to `out`."""
    axes = tuple(range(x.ndim)) if axis is None else normalize_axis_tuple(axis, x.ndim)
    if not x.size:
        whole = statistic.function(np.empty(x.shape, x.dtype), axis=axes, keepdims=keepdims)
        empty = as_distarray(whole, x.mesh)
        return write(empty.block, empty.layout, x.mesh, out)
    part, layout = along(statistic, x, axes, keepdims)
    return write(part, layout, x.mesh, out)
