"""The places in a statement, filled: operands, keys, masks, shapes, as text.

A place is written ``{name}`` or ``{name:kinds}`` in a statement of the grammar. It is filled from
left to right: ``{x}`` chooses the array that the statement is about, and what follows fits that
array, nearly always. All is drawn from one `random.Random` and from what NumPy's arrays are now,
which are the same on all ranks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.explore.kinds import Misfit, dtype_text, family, fits
from tests.explore.operands import Operands

__all__ = ["Drawing"]


class Drawing(Operands):
    """Fills the places of statements for the arrays that are alive."""

    # -- keys ------------------------------------------------------------------------------------

    def _view(self) -> str:
        """A basic key of x."""
        return self._basic(self.x.shape)

    def _basic(self, shape: tuple[int, ...]) -> str:
        parts = []
        for extent in shape[: self.rng.randrange(len(shape) + 1) or 1]:
            if self.chance(0.25) and extent:
                parts.append(str(self.rng.randrange(-extent, extent)))
            else:
                parts.append(self._slice(extent))
        if self.chance(0.12):
            parts.insert(self.rng.randrange(len(parts) + 1), "None")
        if self.chance(0.12) and len(parts) <= len(shape):
            parts.insert(self.rng.randrange(len(parts) + 1), "...")
        return ", ".join(parts) or "..."

    def _slice(self, extent: int) -> str:
        step = self.one(["", "", "", "", ":2", ":-1", ":-1", ":-2", ":3", f":{extent or 1}"])
        low, high = "", ""
        if self.chance(0.6):
            low = str(self.one([0, 1, 1, 2, -1, -2, extent]))
        if self.chance(0.5):
            high = str(self.one([extent - 1, -1, extent, 2, 1, 0, 3]))
        return f"{low}:{high}{step}"

    def _key(self) -> str:
        """Any key of x."""
        if self.x.dtype.names and self.chance(0.4):
            return str(self.one(["'x'", "'y'", "['x', 'y']", "['y']"]))
        if self.chance(0.4):
            return self._basic(self.x.shape)
        if self.chance(0.3):
            return self._mask()
        return self._advanced(self.x.shape)

    def _advanced(self, shape: tuple[int, ...]) -> str:
        parts: list[str] = []
        common = self.one([(3,), (2,), (1,), (4,), (2, 2), (0,)])
        count = self.rng.randrange(len(shape) + 1) or 1
        for extent in shape[:count]:
            what = self.one(["array", "array", "array", "slice", "int", "mask"])
            if what == "slice":
                parts.append(self._slice(extent))
            elif what == "int" and extent:
                parts.append(str(self.rng.randrange(-extent, extent)))
            elif what == "mask":
                parts.append(self._flags(extent))
            else:
                parts.append(self._positions(extent, common))
        if self.chance(0.1):
            parts.insert(
                self.rng.randrange(len(parts) + 1), self.one(["None", "...", "None", "True"])
            )
        return ", ".join(parts) or "..."

    def _positions(self, extent: int, shape: tuple[int, ...]) -> str:
        """Positions along a dimension."""
        low, high = (-extent, extent) if self.chance(0.5) else (0, extent)
        if not extent and 0 not in shape:
            low, high = (0, 1)
        if self.chance(0.03):
            high += 2
        shape = tuple([1 if self.chance(0.1) else n for n in shape])
        rng = np.random.default_rng(self.rng.randrange(1 << 20))
        numbers = rng.integers(low, max(high, low + 1), shape)
        if 0 in shape:
            return "[]" if len(shape) == 1 else f"numpy.zeros({shape}, int)"
        return self._listed(numbers)

    def _flags(self, extent: int) -> str:
        rng = np.random.default_rng(self.rng.randrange(1 << 20))
        flags = rng.random(extent) < self.one([0.0, 0.3, 0.6, 1.0])
        return self._listed(flags) if extent else "numpy.zeros(0, bool)"

    def _listed(self, values: Any) -> str:
        text = str(values.tolist())
        if self.chance(0.4):
            return text
        array = f"numpy.array({text})"
        if self.chance(0.3):
            return array
        return f"lay({array}{self._placing(values.shape, 'U')})"

    def _mask(self) -> str:
        """A mask of x's shape, or of its leading dimensions."""
        x, text = self.x, self.kept
        names = [n for n in self._candidates("bool") if fits(self.shape_of(n) or (), x.shape)]
        exactly = [n for n in names if self.shape_of(n) == x.shape]
        if exactly and self.chance(0.5):
            return str(self.one(exactly))
        if x.dtype.names:
            return f"{text}['y'] > 0"
        kind = x.dtype.kind
        if kind == "b":
            return text
        if kind == "U":
            return f"{text} == 'a'"
        if kind in "mM":
            return f"numpy.isnat({text})" if False else f"np.isnat({text})"
        if kind == "c":
            return f"{text}.real > 0"
        return str(self.one([f"{text} > 0", f"{text} < 2", f"{text} == {text}", f"{text} > 99"]))

    def _where(self) -> str:
        """What can be given as ``where=`` for x."""
        if self.chance(0.3) and self.x.ndim:
            names = [
                n for n in self._candidates("bool") if fits(self.shape_of(n) or (), self.x.shape)
            ]
            if names:
                return str(self.one(names))
            return self.made(self.x.shape[self.rng.randrange(self.x.ndim) :], "?")
        if self.chance(0.1):
            return str(self.one(["True", "False", "[True]", "1", "[1.5]"]))
        return self._mask()

    def _chosen(self) -> str:
        """Positions in the flattened x."""
        return self._positions(self.x.size, self.one([(3,), (2,), (1,), (2, 2), (0,), (5,)]))

    def _line(self) -> str:
        """As `_chosen`, in one dimension."""
        return self._positions(self.x.size, self.one([(3,), (2,), (1,), (0,), (5,)]))

    def _along(self) -> str:
        """Positions along x's first dimension."""
        return self._positions(self.x.shape[0] if self.x.ndim else 0, self.one([(3,), (2,), (4,)]))

    # -- values ----------------------------------------------------------------------------------

    def _into(self, key: str = "") -> str:
        """``[key] = value`` for x."""
        key = self._key()
        try:
            with np.errstate(all="ignore"):
                target = eval(f"({self.kept})[{key}]", dict(self.env))
        except Exception:
            return f"[{key}] = {self._scalar()}"
        return f"[{key}] = {self.assigned(np.asarray(target))}"

    def assigned(self, target: Any) -> str:
        """A value for a part of an array."""
        x, self.x = self.x, target
        try:
            if self.chance(0.3):
                return self._scalar()
            if self.chance(0.06):
                return self.made(self.new_shape(2), self._dtype_like(target))
            found = self._fitting(target.shape, family(target))
            if found and self.chance(0.6):
                return found
            shape = list(target.shape)
            shape = shape[self.rng.randrange(len(shape) + 1) :] if self.chance(0.4) else shape
            shape = [1 if self.chance(0.1) else n for n in shape]
            if self.chance(0.1):
                shape = [1, *shape]
            dtype = self._dtype_like(target) if self.chance(0.4) else dtype_text(target.dtype)
            return self.made(tuple(shape), dtype)
        finally:
            self.x = x

    def _value(self) -> str:
        """A value for all of x."""
        return self.assigned(self.x)

    def _column(self) -> str:
        """A value for a field of x."""
        return self.assigned(np.zeros(self.x.shape))

    def _few(self) -> str:
        """Values that are taken in turn."""
        dtype = dtype_text(self.x.dtype) if self.chance(0.75) else self._dtype_like(self.x)
        if self.chance(0.25):
            return self._scalar()
        return self.made((self.one([1, 2, 3, 5, self.x.size, 0]),), dtype)

    def _out(self) -> str:
        """An array that a result of x's shape may be written to."""
        names = [n for n in self._candidates("plain") if self.shape_of(n) == self.x.shape]
        if not names or self.chance(0.05):
            names = self.arrays("plain")
        self.written = self.one(names)
        return str(self.written)

    def _apart(self) -> str:
        """Another one, which shares no memory with the first."""
        first, second = self.written, self._out()
        if np.shares_memory(self.value(first), self.value(second)):
            raise Misfit
        return second
