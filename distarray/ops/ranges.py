"""Evenly spaced samples, bit for bit NumPy's; each rank makes its own block."""

from __future__ import annotations

from math import ceil, copysign, inf, isnan
from operator import index
from typing import Any, Literal, overload

import numpy as np

from distarray.array import DistArray, as_distarray, common_mesh, distribute, from_section, wrap
from distarray.array.base import is_subclass
from distarray.array.placing import MadeAlone, creates, place, plain
from distarray.comm import DeviceMesh
from distarray.engines.blockwise import prepare
from distarray.layout import Cut
from distarray.typing import Array, ArrayLike, DType, DTypeLike, Placements

__all__ = ["arange", "geomspace", "linspace", "logspace", "positions"]

# Untyped here: NumPy's stubs have overloads that our arguments do not match.
_arange: Any = np.arange
_geomspace: Any = np.geomspace
_linspace: Any = np.linspace
_moveaxis: Any = np.moveaxis

_NUMBERS = frozenset({int, float})
#: Limit of a range's elements: more than any array has.
_COUNTABLE = 1 << 62

# -- arange --------------------------------------------------------------------------------------


def _of_range(*limits: Any, **named: object) -> int:
    """Bound the number of elements of a range of plain numbers; -1 for anything else."""
    if not _NUMBERS.issuperset(map(type, limits)) or len(limits) > 3 or named.keys() - {"dtype"}:
        return -1
    start, stop = limits[:2] if len(limits) > 1 else (0, limits[0])
    step = limits[2] if len(limits) > 2 else 1
    most = (stop - start) / step if step else -1
    return int(most) + 1 if -1 < most < _COUNTABLE else -1


@creates(np.arange, alone=MadeAlone(), elements=_of_range)
def arange(
    start: ArrayLike | None = None,
    stop: ArrayLike | None = None,
    step: ArrayLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    device: str | None = None,
    like: ArrayLike | None = None,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> DistArray:
    """Create evenly spaced values in an interval; see :func:`numpy.arange`.

    ``arange(stop)``, ``arange(start, stop)`` and ``arange(start, stop, step)``.

    Cost
    ----
    No message; memory of this rank's block, or for dates of the whole array.
    """
    is_length = stop is None
    if stop is None:
        if start is None:
            raise TypeError("arange() requires stop to be specified.")
        start, stop = 0, start
    start = 0 if start is None else start
    first, last, by = plain(start), plain(stop), 1 if step is None else plain(step)
    found = _arange_dtype(first, last, by) if dtype is None else np.dtype(dtype)
    if found.kind not in "iufcb":  # dates and objects have arithmetic of their own
        given = _as_given(first, last, step, is_length)
        values = _arange(*given, dtype=dtype)
        _, mesh = place(values.shape, values.dtype, mesh, placements, device, like)
        return distribute(values, mesh, placements, src=None)
    extent = _arange_length(first, last, by, found.kind == "c")
    if found.kind == "b" and extent > 2:
        np.arange(3, dtype=bool)  # raises NumPy's exception: there is no such range
    ends = np.full(2, first, found)
    if extent > 1:
        ends[1] = first + by
    layout, mesh = place((extent,), found, mesh, placements, device, like)
    made = mesh

    def block(section: tuple[slice, ...]) -> Any:
        low, high = section[0].start, section[0].stop
        if high - low == extent:
            return made.asarray(_arange(first, last, by, found))
        return made.asarray(_arange_block(ends, low, high))

    return from_section(block, layout, mesh)


def _as_given(first: Any, last: Any, step: Any, is_length: bool) -> tuple[Any, ...]:
    """Return the arguments of a range as the program passed them; dates need a start."""
    if step is not None:
        return first, last, plain(step)
    return (last,) if is_length else (first, last)


def _arange_dtype(*values: ArrayLike) -> DType:
    """Return the data type of a range with these limits: at least the default integer."""
    dtype: DType = np.dtype(np.intp)
    for value in values:
        found = np.asarray(value).dtype
        if found.kind not in "iufcb":
            return found
        dtype = np.promote_types(dtype, found)
    return dtype


def _arange_length(start: complex, stop: complex, step: complex, is_complex: bool) -> int:
    """Return the number of elements, rounded as by NumPy's arithmetic on Python objects."""
    span = stop - start
    ratio: Any = span / step
    if is_complex and isinstance(ratio, complex):
        return max(0, min(_ceiling(ratio.real), _ceiling(ratio.imag)))
    if ratio == 0 and span != 0:  # an underflow, or a step of infinity
        return int(copysign(1, float(ratio)) > 0)
    return max(0, _ceiling(float(ratio)))


def _ceiling(value: float) -> int:
    if isnan(value):
        raise ValueError("arange: cannot compute length")
    if abs(value) == inf or abs(value) >= 2**63:
        raise ValueError("Maximum allowed size exceeded")
    return ceil(value)


def _arange_block(ends: Array, low: int, high: int) -> Any:
    """Return elements `low` to `high` of the range whose first two elements are `ends`."""
    kind = ends.dtype.kind
    if kind == "b":
        return ends[low:high]
    if kind in "iu":
        start, delta = int(ends[0]), int(ends[1]) - int(ends[0])
        span = (start + low * delta, start + high * delta)
        info = np.iinfo(ends.dtype)
        if delta and all(info.min <= end <= info.max for end in span):
            return np.arange(*span, delta, dtype=ends.dtype)
        # Integers wrap around, as in NumPy: count in the widest integer and keep the low bits.
        wide = np.arange(low, high).astype(np.uint64)
        return (wide * np.uint64(delta % 2**64) + np.uint64(start % 2**64)).astype(ends.dtype)
    if kind == "c":
        block = np.empty(high - low, ends.dtype)
        block.real = _float_range(ends.real, low, high)
        block.imag = _float_range(ends.imag, low, high)
    else:
        block = _float_range(ends, low, high).astype(ends.dtype, copy=False)
    # The first two elements are NumPy's own: start + 1 * delta may differ in the last bit.
    block[: max(0, 2 - low)] = ends[low:high]
    return block


def _float_range(ends: Array, low: int, high: int) -> Any:
    """Compute ``start + i * delta``, in the precision that NumPy computes in."""
    working = np.float32 if ends.dtype == np.float16 else ends.dtype
    start, following = ends.astype(working)
    values = positions(low, high, working)
    values *= following - start
    values += start
    return values


def positions(low: int, high: int, dtype: DTypeLike) -> Any:
    """Return ``numpy.arange(n, dtype=dtype)[low:high]``, without making the rest."""
    dtype = np.dtype(dtype)
    exact = high <= 1 << 53 and dtype.kind != "O"  # in float64, so that casting rounds only once
    values = np.arange(float(low), float(high)) if exact else np.arange(low, high)
    return values.astype(dtype, copy=False)


# -- linspace, logspace, geomspace ---------------------------------------------------------------


def _of_samples(start: Any, stop: Any = None, num: Any = 50, *_: object, **__: object) -> int:
    """Return the number of samples between plain numbers; -1 for anything else."""
    plain_numbers = type(start) in _NUMBERS and type(stop) in _NUMBERS and type(num) is int
    return num if plain_numbers else -1


@overload
def linspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int | DistArray = 50,
    endpoint: bool = True,
    retstep: Literal[False] = False,
    dtype: DTypeLike | None = None,
    axis: int = 0,
    *,
    device: str | None = None,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> DistArray: ...
@overload
def linspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int | DistArray = 50,
    endpoint: bool = True,
    *,
    retstep: bool,
    dtype: DTypeLike | None = None,
    axis: int = 0,
    device: str | None = None,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> Any: ...
@creates(np.linspace, alone=MadeAlone(), elements=_of_samples)
def linspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int | DistArray = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: DTypeLike | None = None,
    axis: int = 0,
    *,
    device: str | None = None,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> Any:
    """Create evenly spaced numbers over an interval; see :func:`numpy.linspace`.

    Parameters
    ----------
    start, stop : array_like
        DistArrays of one dimension or more keep their layout; each rank then has all samples
        between its limits.

    Cost
    ----
    No message, unless `start` and `stop` are distributed differently.
    """
    num = index(plain(num))
    if num < 0:
        raise ValueError(f"Number of samples, {num}, must be non-negative.")
    limits = [_limit(plain(value)) for value in (start, stop)]
    if _has_own_kind(limits):
        return _linspace(*limits, num, endpoint, retstep, dtype, axis)
    inexact = _linspace(*[_probe(limit) for limit in limits], 0).dtype
    wanted = inexact if dtype is None else np.dtype(dtype)
    line = _Line(limits, num, endpoint, inexact, mesh)
    axis = np.lib.array_utils.normalize_axis_index(axis, len(line.shape) + 1)
    result = line.sampled(wanted, axis, device, placements)
    return (result, line.step) if retstep else result


def _limit(value: ArrayLike) -> Any:
    weak = isinstance(value, (int, float, complex, DistArray))
    return value if weak else np.asanyarray(value)


def _has_own_kind(limits: list[Any]) -> bool:
    """Return True if a limit is of a program's own array subclass, which every rank has whole."""
    kinds: list[Any] = list(map(type, limits))
    return any(map(is_subclass, kinds))


def _probe(limit: Array) -> Any:
    """Return an empty array of a limit's data type, to get the result's type from NumPy."""
    return limit if not np.ndim(limit) else np.empty((0,), limit.dtype)


class _Line:
    """Samples between limits, which may be arrays, computed as NumPy computes them."""

    def __init__(
        self, limits: list[Any], num: int, endpoint: bool, inexact: DType, mesh: DeviceMesh | None
    ) -> None:
        start, stop = limits
        self.distributed = any(isinstance(limit, DistArray) for limit in limits)
        self.mesh = common_mesh(*limits) if mesh is None or self.distributed else mesh
        self.asked = mesh
        self.inexact = inexact
        self.num = num
        self.has_stop = endpoint and num > 1
        self.start, self.stop = start, stop
        self.delta = np.subtract(stop, start, dtype=type(inexact))
        self.shape: tuple[int, ...] = np.shape(self.delta)
        divisor = num - 1 if endpoint else num
        self.divisor = divisor
        self.step: Any = self.delta / divisor if divisor > 0 else np.nan
        # If one step underflows, NumPy uses another order of operations for all elements.
        self.underflows = divisor > 0 and bool(np.any(self.step == 0))

    def sampled(
        self, dtype: DType, axis: int, device: str | None, placements: Placements | None
    ) -> DistArray:
        """Return all samples, with the samples along `axis`."""
        if not self.distributed:
            shape = (*self.shape[:axis], self.num, *self.shape[axis:])
            layout, mesh = place(shape, dtype, self.mesh, placements, device)
            section = layout.section(mesh.coords)
            low, high = section[axis]
            others = [*section[:axis], *section[axis + 1 :]]
            operands = (self.start, self.stop, self.delta, self.step)
            parts = [_part(x, self.shape, others) for x in operands]
            return wrap(mesh.asarray(self._block(parts, low, high, dtype, axis)), layout, mesh)
        parts, base, mesh = prepare(self.start, self.stop, self.delta, self.step)
        cuts = [*base.cuts[:axis], Cut.whole(self.num), *base.cuts[axis:]]
        block = self._block(parts, 0, self.num, dtype, axis)
        result = wrap(block, base.with_cuts(cuts), mesh)
        moves = placements is not None or self.asked not in (None, mesh)
        return distribute(result, self.asked, placements) if moves else result

    def _block(self, parts: list[Any], low: int, high: int, dtype: DType, axis: int) -> Any:
        start, stop, delta, step = parts
        block = positions(low, high, self.inexact).reshape((-1,) + (1,) * len(self.shape))
        if self.distributed:
            block = self.mesh.asarray(block)
        if self.underflows:
            block = block / self.divisor * delta
        elif self.shape:
            block = block * (step if self.divisor > 0 else delta)
        else:
            block *= step if self.divisor > 0 else delta
        block += start
        if self.has_stop and low < high == self.num:
            block[-1, ...] = stop
        if dtype.kind in "iu":
            np.floor(block, out=block)
        return np.moveaxis(block, 0, axis).astype(dtype, copy=False)


def _part(x: Any, shape: tuple[int, ...], section: list[tuple[int, int]]) -> Any:
    """Return the elements of an array that broadcasts to `shape`, for a section of this shape."""
    if not np.ndim(x):
        return x
    key = []
    lead = len(shape) - x.ndim
    for extent, whole, interval in zip(x.shape, shape[lead:], section[lead:], strict=True):
        key.append(slice(*interval) if extent == whole else slice(None))
    return x[tuple(key)]


@creates(np.logspace, alone=MadeAlone())
def logspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int | DistArray = 50,
    endpoint: bool = True,
    base: ArrayLike = 10.0,
    dtype: DTypeLike | None = None,
    axis: int = 0,
    *,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> DistArray:
    """Create numbers spaced evenly on a log scale; see :func:`numpy.logspace`.

    Cost
    ----
    No message, unless arguments are distributed differently.
    """
    if np.ndim(base):
        ndmax = max(np.ndim(value) for value in (start, stop, base))
        start, stop, deep = (_deepened(value, ndmax) for value in (start, stop, base))
        place_of_base = np.lib.array_utils.normalize_axis_index(axis, ndmax + 1)
        base = deep[(slice(None),) * place_of_base + (None,)]
    exponents = linspace(start, stop, num, endpoint, axis=axis, mesh=mesh, placements=placements)
    result: DistArray = np.power(plain(base), exponents)
    return result if dtype is None else result.astype(dtype, copy=False)


def _deepened(value: ArrayLike, ndim: int) -> Any:
    """Return the value as an array with `ndim` dimensions, new ones first."""
    x = value if isinstance(value, DistArray) else np.asanyarray(value)
    return x[(None,) * (ndim - x.ndim) + (...,)]


@creates(np.geomspace, alone=MadeAlone())
def geomspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int | DistArray = 50,
    endpoint: bool = True,
    dtype: DTypeLike | None = None,
    axis: int = 0,
    *,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> Any:
    """Create numbers in geometric progression; see :func:`numpy.geomspace`.

    Cost
    ----
    No message, unless `start` and `stop` are distributed differently.
    """
    limits = [
        x if isinstance(x, DistArray) else np.asanyarray(x) for x in (plain(start), plain(stop))
    ]
    if _has_own_kind(limits):
        return _geomspace(*limits, index(plain(num)), endpoint, dtype, axis)
    if any(bool(np.any(limit == 0)) for limit in limits):
        raise ValueError("Geometric sequence cannot include zero")
    num = index(plain(num))
    probes = [np.empty((0,) * min(limit.ndim, 1), limit.dtype) for limit in limits]
    working = np.result_type(*probes, float(num), np.zeros((), dtype))
    wanted = working if dtype is None else np.dtype(dtype)
    first, last = (limit.astype(working) for limit in limits)
    # Limits are rotated to the positive real axis, so that negative and complex ones have
    # logarithms.
    sign = np.sign(first)
    first, last = first / sign, last / sign
    result = logspace(np.log10(first), np.log10(last), num, endpoint, 10.0, working, mesh=mesh)
    if num > 0:  # the power of a logarithm need not equal the number
        result[0] = first
        if num > 1 and endpoint:
            result[-1] = last
    result *= sign
    if axis != 0:
        result = _moveaxis(result, 0, axis)
    result = as_distarray(result).astype(wanted, copy=False)
    return result if placements is None else distribute(result, mesh, placements)
