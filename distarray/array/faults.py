"""Bugs of NumPy's own loops, and a workaround for each.

Some of NumPy's vectorized loops compute wrong numbers, on some processors or on all. Each row of
:data:`FAULTS` describes a bug, with a probe: a NumPy call whose result is known. The probe runs at
the first use of the operation. Only if the probe fails is the workaround used, which is slower.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from distarray.array import device_sorts
from distarray.typing import Array, Axes, DTypeLike

__all__ = [
    "DETOURS",
    "FAULTS",
    "Detour",
    "Fault",
    "argpartition",
    "assumed",
    "partition",
    "present",
    "reduce",
    "reduceat",
    "sort_kind",
]

NoValue: Any = np._NoValue
#: Number of elements that are accumulated at a time.
_PIECE = 1 << 16


class Fault(Enum):
    """Bugs of NumPy's loops."""

    HALF_SORT = "sorts of float16 by AVX-512 leave elements out of order, and change the NaN"
    FOLD = "reductions of one line continue from stale values in AVX-512 loops"
    STRIDED_TEST = "isnan, isinf and signbit write past elements if the result is strided"
    STRIDED_NEGATIVE = "negative reads wrong elements if both arrays have certain strides"


# -- probes --------------------------------------------------------------------------------------


def _sorts_halves_wrongly() -> bool:
    """Check whether sorts differ from the stable sort; pivots are random, so many are tried."""
    values = np.array([-np.inf, np.inf, np.nan, 0, 1, -1, 2, -4, -3, 0.5, 7], np.float16)
    generator = np.random.Generator(np.random.PCG64(0))
    for few in range(3, 27):
        sample = values[generator.integers(0, min(few, len(values)), 9000)]
        found, right = np.sort(sample), np.sort(sample, kind="stable")
        if not np.array_equal(found.view(np.uint16), right.view(np.uint16)):
            return True
    return False


def _folds_wrongly(ufunc: np.ufunc) -> bool:
    line = np.array([1.5, 1.25, 1.125, 1.75, 1.5])
    right = line[0]
    for value in line[1:]:
        right = ufunc(right, value)
    return not np.isclose(ufunc.reduce(line), right)


def _tests_wrongly() -> bool:
    found = np.zeros((64, 3), bool)
    np.isnan(np.full(64, np.nan), out=found[:, 0])
    return not found[:, 0].all() or bool(found[:, 1:].any())


def _negates_wrongly() -> bool:
    numbers, found = np.arange(256, dtype=np.float32), np.zeros(128, np.float32)
    np.negative(numbers[::4], out=found[::2])
    return not np.array_equal(found[::2], -numbers[::4].copy())


class _Row(NamedTuple):
    probe: Callable[[], bool]
    ufuncs: tuple[np.ufunc, ...] = ()


FAULTS: dict[Fault, _Row] = {
    Fault.HALF_SORT: _Row(_sorts_halves_wrongly),
    Fault.FOLD: _Row(
        lambda: _folds_wrongly(np.power) or _folds_wrongly(np.arctan2),
        (np.power, np.arctan2, np.ldexp),
    ),
    Fault.STRIDED_TEST: _Row(_tests_wrongly, (np.isnan, np.isinf, np.signbit)),
    Fault.STRIDED_NEGATIVE: _Row(_negates_wrongly, (np.negative,)),
}
_FOLDING = frozenset(FAULTS[Fault.FOLD].ufuncs)
#: Results that a test has set in place of the probes' results.
_assumed: dict[Fault, bool] = {}


def present(fault: Fault) -> bool:
    """Return True if this version of NumPy has a bug on this processor."""
    return _assumed[fault] if fault in _assumed else _probed(fault)


@cache
def _probed(fault: Fault) -> bool:
    with np.errstate(all="ignore"):
        return FAULTS[fault].probe()


@contextmanager
def assumed(answer: bool, *faults: Fault) -> Iterator[None]:
    """Assume bugs to be present or absent, regardless of the probes: for tests of workarounds.

    Parameters
    ----------
    answer : bool
        Result of :func:`present` in this context.
    *faults : Fault
        The bugs concerned; all if none is given.
    """
    before = dict(_assumed)
    _assumed.update(dict.fromkeys(faults or Fault, answer))
    try:
        yield
    finally:
        _assumed.clear()
        _assumed.update(before)


# -- sorts ---------------------------------------------------------------------------------------


def sort_kind(dtype: np.dtype[Any]) -> Any:
    """Return the argument `kind` for NumPy's fastest correct sort of a data type."""
    return "stable" if dtype.char == "e" and present(Fault.HALF_SORT) else None


def partition(block: Array, places: int | Sequence[int], axis: int = -1) -> Array:
    """Partition a block, as :func:`numpy.partition`."""
    if not block.size or device_sorts.is_misplaced(block):  # CuPy checks places of empty blocks
        return device_sorts.in_order(block, axis)
    kind = sort_kind(block.dtype)
    return np.sort(block, axis, kind) if kind else np.partition(block, places, axis)


def argpartition(block: Array, places: int | Sequence[int], axis: int = -1) -> Array:
    """Return the indices that partition a block, as :func:`numpy.argpartition`."""
    if not block.size or device_sorts.is_misplaced(block):
        return device_sorts.order_of(block, axis)
    kind = sort_kind(block.dtype)
    return np.argsort(block, axis, kind) if kind else np.argpartition(block, places, axis)


# -- reductions ----------------------------------------------------------------------------------


def reduce(
    ufunc: np.ufunc,
    block: Array,
    axes: Axes = 0,
    dtype: DTypeLike = None,
    out: Array | None = None,
    keepdims: bool = False,
    initial: Any = NoValue,
    where: Array | bool = True,
) -> Any:
    """Reduce a block in host memory by ``ufunc.reduce``, with the arguments in its order."""
    numpys: Any = ufunc.reduce
    if ufunc not in _FOLDING or not present(Fault.FOLD):
        return numpys(block, axes, dtype, out, keepdims, initial, where)
    axes = tuple(range(block.ndim)) if axes is None else normalize_axis_tuple(axes, block.ndim)
    tiny = np.ones([min(extent, 1) for extent in block.shape], block.dtype)
    kind = numpys(tiny, axes, dtype, None, True, initial).dtype  # or NumPy's error
    if len(axes) != 1:
        return numpys(block, axes, dtype, out, keepdims, initial, where)
    lines = np.moveaxis(block, axes[0], 0)
    mask = where if where is True else np.moveaxis(np.broadcast_to(where, block.shape), axes[0], 0)
    found = _folded(ufunc, lines, kind, initial, mask)
    found = np.expand_dims(found, axes[0]) if keepdims else found
    if out is None:
        return found[()]
    np.copyto(out, found, casting="unsafe")
    return out


def _folded(ufunc: np.ufunc, lines: Array, kind: DTypeLike, initial: Any, mask: Any) -> Array:
    """Fold the first dimension by scans of pieces, or slab by slab; neither has the bug."""
    if initial is NoValue or initial is None:
        carry, lines = np.array(lines[0], kind), lines[1:]
    else:
        carry = np.full(lines.shape[1:], initial, kind)
    if mask is not True or ufunc is np.ldexp:  # ldexp has operands of two types
        operands = lines if ufunc is np.ldexp else lines.astype(kind, copy=False)
        for number, slab in enumerate(operands):
            ufunc(carry, slab, out=carry, where=True if mask is True else mask[number])
        return carry
    step = max(1, _PIECE // max(1, carry.size))
    for start in range(0, len(lines), step):
        parts = [carry[None], lines[start : start + step]]
        piece = np.concatenate(parts, dtype=kind, casting="unsafe")
        carry = ufunc.accumulate(piece, 0)[-1]
    return carry


def reduceat(
    ufunc: np.ufunc, block: Array, starts: Array, axis: int, dtype: DTypeLike = None
) -> Array:
    """Reduce slices of a block in host memory, as ``ufunc.reduceat``."""
    if ufunc not in _FOLDING or not len(starts) or not present(Fault.FOLD):
        return ufunc.reduceat(block, starts, axis, dtype)
    lines = np.moveaxis(block, axis, 0)
    stops = [*starts[1:], len(lines)]
    slices = [lines[a : max(a + 1, b)] for a, b in zip(starts, stops, strict=True)]
    found = np.stack([reduce(ufunc, part, 0, dtype) for part in slices])
    return np.moveaxis(found, 0, axis)


# -- strided results -----------------------------------------------------------------------------


class Detour:
    """Ufunc of one operand with a workaround for wrong results in strided output arrays."""

    def __init__(self, ufunc: np.ufunc, fault: Fault) -> None:
        self.ufunc, self._fault = ufunc, fault

    def __call__(
        self,
        x: Array,
        into: Array | None = None,
        /,
        *,
        out: Any = None,
        where: Array | bool = True,
        **keywords: Any,
    ) -> Any:
        """Call the ufunc into a contiguous array, and copy this array to the output array."""
        if into is None:
            into = out[0] if isinstance(out, tuple) else out
        if into is None or _in_step(x, into) or not present(self._fault):
            return self.ufunc(x, into, where=where, **keywords)
        casting = keywords.get("casting", "same_kind")
        np.copyto(into, self.ufunc(x, **keywords), casting, where)
        return into


def _in_step(x: Array, into: Array) -> bool:
    """Return True if an operand and a result are both contiguous, in the same order."""
    flags = getattr(x, "flags", into.flags)
    both_c = flags.c_contiguous and into.flags.c_contiguous
    return bool(both_c or (flags.f_contiguous and into.flags.f_contiguous))


#: ufunc -> function to call with ``out=`` in its place.
DETOURS: dict[Any, Any] = {
    ufunc: Detour(ufunc, fault)
    for fault in (Fault.STRIDED_TEST, Fault.STRIDED_NEGATIVE)
    for ufunc in FAULTS[fault].ufuncs
}
