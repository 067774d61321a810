"""nditer and ndenumerate: NumPy's iterators over elements, for cut arrays as well.

Every rank of nditer takes the same steps over a copy of the whole array. The copy is linked to the
array's memory: values that the program writes to the copy are seen by the next read of the array
or its views.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from distarray.array import DistArray, movement, wrap
from distarray.array.base import raw_block, storage_of
from distarray.array.portable import refuse_read_only
from distarray.array.sharing import link
from distarray.layout import Layout
from distarray.typing import Array

__all__ = ["ndenumerate", "nditer"]

_WRITES = frozenset({"readwrite", "writeonly"})


class _Gathered:
    """Link that copies between a cut array and the copy of it on every rank."""

    overlaps = False

    def down(self, source: Any, target: Any) -> None:
        """Gather the elements."""
        movement.assign(target.block, target.layout, source.block, source.layout, source.mesh)

    def up(self, source: Any, target: Any) -> None:
        """Copy each rank's own elements."""
        movement.assign(target.block, target.layout, source.block, source.layout, source.mesh)


def _like(x: Any) -> Any:
    return x.like(x.block)


class _Written:
    """Cut array that an iterator writes to, and the copy that the iterator runs over."""

    def __init__(self, x: DistArray) -> None:
        if x.layout.partials:
            x.settle()
        refuse_read_only(raw_block(x), "operand array with iterator write flag set is read-only")
        self.array = x
        self.copy: Array = np.array(x, copy=True)
        top = wrap(self.copy, Layout.replicated(x.shape, x.mesh.shape), x.mesh)
        link(x, top, _Gathered(), _like)
        self._top, self._source = top, storage_of(top).source
        self._source.memory.give_out(self._source)

    def close(self) -> None:
        """Copy the written elements to the array."""
        memory = self._source.memory
        if memory.uses.pinned is self._source:
            memory.take_back(self._source)
            self.array.block  # noqa: B018 (reading copies the elements back)


class _Nditer:
    """NumPy's iterator over copies of cut arrays; the program writes to the arrays through it."""

    def __init__(self, inner: Any, written: dict[int, _Written], given: Sequence[Any]) -> None:
        self._inner, self._written, self._given = inner, written, given

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            object.__setattr__(self, name, value)
        else:
            setattr(self._inner, name, value)

    @property
    def operands(self) -> tuple[Any, ...]:
        """Arrays that are iterated over."""
        arrays = {id(w.copy): w.array for w in self._written.values()}
        return tuple([arrays.get(id(x), x) for x in self._inner.operands])

    def __iter__(self) -> Iterator[Any]:
        yield from self._inner
        self._bring()

    def __next__(self) -> Any:
        try:
            return next(self._inner)
        except StopIteration:
            self._bring()
            raise

    def iternext(self) -> bool:
        """Take a step; return False at the end."""
        more: bool = self._inner.iternext()
        if not more:
            self._bring()
        return more

    def __len__(self) -> int:
        return len(self._inner)

    def __getitem__(self, key: Any) -> Any:
        return self._inner[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._inner[key] = value

    def __enter__(self) -> _Nditer:
        self._inner.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._inner.__exit__(*exception)
        self._bring()

    def close(self) -> None:
        """Write the elements back, and end the iteration."""
        self._inner.close()
        self._bring()

    def copy(self) -> _Nditer:
        """Return another iterator at the same place."""
        return _Nditer(self._inner.copy(), self._written, self._given)

    def _bring(self) -> None:
        for written in self._written.values():
            written.close()


class nditer:
    """Iterator over elements, as :class:`numpy.nditer`; all ranks take the same steps.

    Cost
    ----
    A gather of each cut array. Writing sends nothing more: each rank keeps its own elements.
    """

    def __new__(cls, op: Any, flags: Any = None, op_flags: Any = None, **named: Any) -> Any:
        """Return NumPy's iterator, or one that also writes to cut arrays."""
        several = isinstance(op, (tuple, list))
        given = list(op) if several else [op]
        written: dict[int, _Written] = {}
        for x, asked in zip(given, _flags_of(op_flags, given), strict=False):
            is_cut = isinstance(x, DistArray) and not x.layout.is_whole
            if is_cut and _WRITES & set(asked) and id(x) not in written:
                _refuse_aliases(x, given)
                written[id(x)] = _Written(x)
        if not written:
            return np.nditer(op, flags, op_flags, **named)
        copies = [written[id(x)].copy if id(x) in written else x for x in given]
        inner: Any = np.nditer(copies if several else copies[0], flags, op_flags, **named)
        return _Nditer(inner, written, given)


def _flags_of(op_flags: Any, given: Sequence[Any]) -> Sequence[Any]:
    """Return the flags of each operand; a single list applies to all operands."""
    if not op_flags:
        return []
    if all(isinstance(flag, str) for flag in op_flags):
        return [op_flags] * len(given)
    return list(op_flags)


def _refuse_aliases(x: DistArray, given: Sequence[Any]) -> None:
    for other in given:
        if isinstance(other, DistArray) and other is not x and np.shares_memory(other, x):
            raise ValueError(
                "nditer writes to a cut array of which another operand is a view; iterate over a "
                "copy of one of them"
            )


class ndenumerate:
    """Iterator over indices and elements, as :class:`numpy.ndenumerate`, which reads on demand.

    Cost
    ----
    For a cut array, a gather of some elements at a time.
    """

    def __new__(cls, arr: Any) -> Any:
        """Return NumPy's iterator, or one that reads a distributed array."""
        return _Enumerated(arr) if isinstance(arr, DistArray) else np.ndenumerate(arr)


class _Enumerated:
    """Indices and elements of a distributed array."""

    def __init__(self, x: DistArray) -> None:
        self.iter: Any = x.flat
        self._places = np.ndindex(x.shape)

    def __iter__(self) -> _Enumerated:
        return self

    def __next__(self) -> Any:
        value = next(self.iter)
        return next(self._places), value
