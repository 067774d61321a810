"""Fused execution of elementwise operations on tiles that stay in cache, with NumPy's loops.

Run one by one, each operation would read its operands from main memory and write its result there.
Run tile by tile, only the inputs and outputs of the whole expression cross the memory bus. The
results are bitwise equal, since an elementwise loop does not depend on the number of elements.
"""

from collections import deque
from collections.abc import Callable, Container, Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from distarray.array.speedups.compiled import compiled
from distarray.typing import Array, DType, Shape

__all__ = ["Step", "Tiles", "run_behind"]

#: Bounds for the elements of a tile, and bytes for the intermediate results of one tile. The size
#: is the largest power of two that fits into `ROOM`, within the bounds. Each tile costs some calls,
#: whatever its size.
FEWEST, MOST, ROOM = 1 << 14, 1 << 16, 1 << 20
#: Pool of buffers for intermediate results, kept between runs since their pages are mapped.
_kept: list[Array] = []
_MOST_KEPT = 8
#: Maximum lag of the writes behind the reads, in tiles.
_MOST_BEHIND = 4


class Step(NamedTuple):
    """One operation on a tile.

    Attributes
    ----------
    function : callable
        Takes the operands and, by ``out=``, the array for the result, as a ufunc does.
    operands : tuple of int
        Numbers of the operands: first the blocks, then the results of the steps. A negative number
        is a constant.
    dtype : dtype
        The data type of the result.
    """

    function: Callable[..., Any]
    operands: tuple[int, ...]
    dtype: DType


class Tiles:
    """Steps that are run one after the other on each tile.

    Parameters
    ----------
    blocks : sequence of array
        The blocks that the steps read, all of one shape.
    constants : sequence
        Numbers; the first one has the operand number -1.
    steps : sequence of Step
        The operations, operands first.
    outs : dict
        The arrays for results that are stored, by the number of the step. No other step may read
        the memory of such an array.
    behind : tuple of int and array, optional
        A step, and the array for its result, whose memory the steps may read; see
        :func:`run_behind`.
    """

    def __init__(
        self,
        blocks: Sequence[Array],
        constants: Sequence[Any],
        steps: Sequence[Step],
        outs: dict[int, Array],
        behind: tuple[int, Array] | None = None,
    ) -> None:
        first = self._first = len(blocks)
        step, target = behind or (-1, None)
        self._places, buffers = _places(steps, first, {*outs, step})
        self._size = _size_of(buffers)
        arrays = dict(enumerate(blocks)) | {first + n: out for n, out in outs.items()}
        self.shape = blocks[0].shape
        every = [*arrays.values()] if target is None else [*arrays.values(), target]
        self.in_line = all(array.flags.c_contiguous for array in every)
        if self.in_line:
            arrays = {number: array.reshape(-1) for number, array in arrays.items()}
            self.shape = (prod(self.shape),)
            target = None if target is None else target.reshape(-1)
        self._arrays, self._target, self._last = arrays, target, first + step
        self._type = steps[step].dtype
        self._values: list[Any] = [None] * (first + len(steps)) + [*reversed(constants)]
        self._calls = [(step.function, step.operands, first + n) for n, step in enumerate(steps)]
        self._tile: Shape = ()
        self._notes = _Notes()
        # The caller may read the last result (`summed`, `folded`), so the compiled code must not
        # hide it.
        seen = {n: place for n, place in self._places.items() if n == self._calls[-1][2]}
        inner = {n: place for n, place in self._places.items() if n not in seen}
        types = [block.dtype for block in blocks]
        apart = all(_is_apart(block, out) for block in blocks for out in outs.values())
        self._compiled = compiled(types, constants, steps, inner, buffers) if apart else None
        if self._compiled is not None:
            self._places = seen
        used = set(self._places.values())
        self._memory = {place: _borrowed(buffers[place], self._size) for place in used}

    def run(self) -> None:
        """Run the steps on all tiles; a single step or compiled steps run on the whole block."""
        alone = self._compiled is not None or (len(self._calls) == 1 and not self._places)
        with self._notes.taken():
            for key, extents in [((...,), self.shape)] if alone else _tiles(self.shape, self._size):
                self._run(key, extents)

    def distance(self, written: Array) -> int:
        """Return by how many bytes the writes of `behind` must lag the reads; -1 if unknown.

        `written` is all memory that is written to, also for other sections of the block.
        """
        target: Any = self._target
        shared = [x for x in self._arrays.values() if np.may_share_memory(x, written)]
        dim, extent = _tiling(self.shape, self._size)
        steps = target.strides
        row = sum([(n - 1) * step for n, step in zip(self.shape[1:], steps[1:], strict=True)])
        if dim or row + target.itemsize > steps[0] or any(x.strides != steps for x in shared):
            return -1
        ahead = [x.ctypes.data - target.ctypes.data for x in shared]
        back = -min([0, *ahead])
        return back if back <= _MOST_BEHIND * extent * steps[0] else -1

    def results(self) -> Iterator[tuple[int, Array, Array]]:
        """Run the steps tile by tile, and yield the results of `behind`.

        Each item consists of the address where the tile ends in the target, the section of the
        target, and the result. The result is in memory of the pool, which the caller gives back
        after copying the result.
        """
        target: Any = self._target
        origin, step = target.ctypes.data, target.strides[0]
        for key, extents in _tiles(self.shape, self._size):
            memory = _borrowed(self._type, self._size)
            result = self._values[self._last] = memory[: prod(extents)].reshape(extents)
            with self._notes.taken():
                self._run(key, extents)
            yield origin + key[0].stop * step, target[key], result

    def summed(self) -> Any:
        """Sum the last result, bitwise equal to NumPy's sum; all arrays must be contiguous.

        NumPy's pairwise summation halves the array recursively, so that rounding errors grow
        slowly. Here the leaves of this tree are tiles.
        """
        with self._notes.taken():
            return self._summed(0, self.shape[0])

    def _summed(self, start: int, stop: int) -> Any:
        extent = stop - start
        if extent <= self._size:
            self._run((slice(start, stop),), (extent,))
            return np.add.reduce(self._values[self._calls[-1][2]])
        half = extent // 2
        half -= half % 8
        return self._summed(start, start + half) + self._summed(start + half, stop)

    def folded(self, ufunc: np.ufunc) -> Any:
        """Reduce the last result by a ufunc whose result does not depend on the order."""
        parts = []
        last = self._calls[-1][2]
        with self._notes.taken():
            for key, extents in _tiles(self.shape, self._size):
                self._run(key, extents)
                parts.append(ufunc.reduce(self._values[last], None))
            return ufunc.reduce(np.array(parts))

    def finished(self) -> list[tuple[int, str]]:
        """Free the buffers; return the sorted floating-point errors, as NumPy names them."""
        _kept.extend([*self._memory.values()][: max(0, _MOST_KEPT - len(_kept))])
        return sorted([(target - self._first, kind) for target, kind in self._notes.found])

    def _run(self, key: tuple[Any, ...], extents: Shape) -> None:
        """Run the steps on one tile."""
        values, notes = self._values, self._notes
        for number, array in self._arrays.items():
            values[number] = array[key]
        if extents != self._tile:
            self._tile, count = extents, prod(extents)
            for number, place in self._places.items():
                values[number] = self._memory[place][:count].reshape(extents)
        if self._compiled is not None:
            errors = self._compiled.run(values)
            notes.found.update([(self._first + step, kind) for step, kind in errors])
            return
        for function, operands, target in self._calls:
            notes.step = target
            function(*[values[x] for x in operands], out=values[target])


def run_behind(
    parts: Sequence[Tiles], back: int, between: Callable[[], None] = lambda: None
) -> None:
    """Run tiles, and write each result once the reads are `back` bytes ahead.

    The parts are consecutive in memory; `between` is called after each tile.
    """
    late: deque[tuple[int, Array, Array]] = deque()
    for tiles in parts:
        for stop, into, result in tiles.results():
            late.append((stop, into, result))
            while late and late[0][0] <= stop - back:
                _write(*late.popleft())
            between()
    while late:
        _write(*late.popleft())


def _write(_: int, into: Array, result: Array) -> None:
    into[...] = result
    memory: Any = result.base
    if len(_kept) < _MOST_KEPT:
        _kept.append(memory)


class _Notes:
    """Recorder of the floating-point errors that NumPy reports, with the current step."""

    def __init__(self) -> None:
        self.step = 0
        self.found: set[tuple[int, str]] = set()

    def taken(self) -> Any:
        """Return a context in which NumPy reports errors to this object."""
        return np.errstate(divide="call", over="call", under="ignore", invalid="call", call=self)

    def __call__(self, kind: str, _: int) -> None:
        """Record a floating-point error."""
        self.found.add((self.step, kind))


def _size_of(buffers: Sequence[DType]) -> int:
    """Return the number of elements of a tile, a power of two."""
    fit = ROOM // max(1, sum([dtype.itemsize for dtype in buffers]))
    return min(MOST, max(FEWEST, 1 << (fit.bit_length() - 1))) if fit else FEWEST


def _is_apart(block: Array, out: Array) -> bool:
    """Return True if writes to `out` cannot change elements of `block` that are read later."""
    if not np.may_share_memory(block, out):
        return True
    return block.ctypes.data == out.ctypes.data and block.strides == out.strides


def _tiles(shape: Shape, size: int) -> Iterator[tuple[Any, Shape]]:
    """Yield the keys of the tiles of a block, with their shapes."""
    dim, step = _tiling(shape, size)
    whole, extent = shape[dim + 1 :], shape[dim]
    for lead in np.ndindex(shape[:dim]):
        for start in range(0, extent, step):
            stop = min(start + step, extent)
            yield (*lead, slice(start, stop)), (stop - start, *whole)


def _tiling(shape: Shape, size: int) -> tuple[int, int]:
    """Return the dimension that tiles divide and their extent in it; later dimensions are whole."""
    dim, inner = len(shape) - 1, 1
    while dim and inner * shape[dim] <= size:
        inner *= shape[dim]
        dim -= 1
    return dim, max(1, size // max(inner, 1))


def _places(
    steps: Sequence[Step], first: int, outs: Container[int]
) -> tuple[dict[int, int], list[DType]]:
    """Assign a buffer to each result that is not stored; return this map and the buffers' types.

    A buffer is free for reuse after its last reader; the last reader itself may write to it.
    """
    last = {operand: number for number, step in enumerate(steps) for operand in step.operands}
    places: dict[int, int] = {}
    buffers: list[DType] = []
    free: list[int] = []
    for number, step in enumerate(steps):
        done = [x for x in set(step.operands) if x in places and last[x] == number]
        free += [places[x] for x in done]
        if number in outs:
            continue
        found = next((place for place in reversed(free) if buffers[place] == step.dtype), None)
        if found is None:
            found = len(buffers)
            buffers.append(step.dtype)
        else:
            free.remove(found)
        places[first + number] = found
    return places, buffers


def _borrowed(dtype: DType, size: int) -> Array:
    """Return memory for a tile of a data type, from the pool if possible."""
    need = size * dtype.itemsize
    for number, memory in enumerate(_kept):
        if memory.nbytes >= need:
            return _kept.pop(number).view(np.uint8)[:need].view(dtype)
    return np.empty(size, dtype)
