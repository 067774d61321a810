"""Keys as text: entries of every kind, masks and positions."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.explore.operands import Operands
from tests.explore.vocabulary import fits


class Keys(Operands):
    """The places of a statement that a key fills, or what is given as ``where=``."""

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
            return f"np.isnat({text})"
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
