"""Hyperslab: the section of a stored array that slices and integers select, as a stored array."""

from itertools import product
from typing import Any, NamedTuple

import numpy as np

from distarray.io.sections import Source
from distarray.layout import Box, Entries
from distarray.typing import Array, DType, Shape

__all__ = ["Hyperslab"]

_FULL = slice(None)


class Hyperslab(NamedTuple):
    """Section of a stored array that basic indexing selects; only this section is read.

    Exception: with a step along the last dimension the elements in between are read and dropped,
    since storage has no cheaper access to every other element of a row.

    Attributes
    ----------
    base : Source
        The stored array.
    entries : tuple
        An int or (start, step, length) for each dimension of the base, and None for each new
        dimension.
    """

    base: Source
    entries: Entries

    @classmethod
    def of(cls, base: Source, entries: Entries) -> "Hyperslab | None":
        """Return the hyperslab; None if it is the whole array."""
        whole = tuple([(0, 1, extent) for extent in base.shape])
        return None if entries == whole else cls(base, entries)

    @property
    def shape(self) -> Shape:
        """Shape of the hyperslab."""
        lengths = [1 if e is None else e[2] for e in self.entries if not isinstance(e, int)]
        return tuple(lengths)

    @property
    def dtype(self) -> DType:
        """Data type of the base."""
        return self.base.dtype

    @property
    def chunks(self) -> Shape | None:
        """Chunk shape; 1 along dimensions where chunks do not start at multiples of the length."""
        if self.base.chunks is None:
            return None
        lengths, left = [], iter(self.base.chunks)
        for entry in self.entries:
            chunk = 1 if entry is None else next(left)
            if not isinstance(entry, int):
                aligned = entry is not None and entry[1] == 1 and entry[0] % chunk == 0
                lengths.append(chunk if aligned else 1)
        return tuple(lengths)

    def read(self, section: Box, out: Array) -> None:
        """Read a box of the hyperslab into `out`."""
        spans, view = self._in_base(section, out)
        # Rows that a step skips are not read; each remaining row is read by a call of its own.
        apart = [d for d, span in enumerate(spans[:-1]) if span.step > 1]
        for at in product(*[enumerate(spans[d]) for d in apart]):
            box = [(s[0], s[-1] + 1) for s in spans]
            key: list[Any] = [_FULL] * len(spans)
            for dim, (place, index) in zip(apart, at, strict=True):
                box[dim], key[dim] = (index, index + 1), slice(place, place + 1)
            self._read_row(tuple(box), view[(*key, ...)], spans[-1].step if spans else 1)

    def _read_row(self, box: Box, view: Array, step: int) -> None:
        """Read a box of the base; along the last dimension keep every `step`-th element."""
        if step == 1:
            self.base.read(box, view)
            return
        found: Array = np.empty([stop - start for start, stop in box], self.dtype)
        self.base.read(box, found)
        view[...] = found[..., ::step]

    def _in_base(self, section: Box, out: Array) -> tuple[list[range], Array]:
        """Return a box's indices in the base, ascending, and `out` with the base's dimensions."""
        spans: list[range] = []
        key: list[slice | int | None] = []
        left = iter(section)
        for entry in self.entries:
            if isinstance(entry, int):
                spans.append(range(entry, entry + 1))
                key.append(None)
                continue
            low, high = next(left)
            if entry is None:
                key.append(0)
                continue
            start, step, _ = entry
            span = range(start + low * step, start + high * step, step)
            spans.append(span if step > 0 else span[::-1])
            key.append(_FULL if step > 0 else slice(None, None, -1))
        return spans, out[(*key, ...)]
