"""The places in a statement, filled: operands, keys, masks, shapes, as text.

A place is written ``{name}`` or ``{name:kinds}`` in a statement of the grammar. It is filled from
left to right: ``{x}`` chooses the array that the statement is about, and what follows fits that
array, nearly always. All is drawn from one `random.Random` and from what NumPy's arrays are now,
which are the same on all ranks.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from tests.explore.keys import Keys
from tests.explore.vocabulary import DTYPES, Misfit, dtype_text, family

__all__ = ["Drawing", "Misfit"]


class Drawing(Keys):
    """Fills the places of statements for the arrays that are alive."""

    # -- statements ------------------------------------------------------------------------------

    def fill(self, statement: str) -> str:
        """The statement with all places filled."""
        self.x = None
        # What is NumPy's in both worlds is not written to by itself, nor distributed.
        self.writes = re.match(r"v = (?!np\.(?:as|array|require|copy)\w*\()", statement) is None
        line = re.sub(r"\{(?!fit)(\w+)(?::([^}]*))?\}", self._place, statement)
        return line.replace("{fit}", self._fit(line)) if "{fit}" in line else line

    def _fit(self, line: str) -> str:
        """An array that the result of a line fits into."""
        without = line.replace(", out={fit}", "").removeprefix("v = ")
        value = np.asarray(self.value(without))
        found = [n for n in self._candidates("plain") if self.shape_of(n) == value.shape]
        if found and self.chance(0.5):
            return str(self.one(found))
        if value.dtype.hasobject:  # which cannot be cut
            raise Misfit
        dtype = dtype_text(value.dtype) if self.chance(0.7) else self.one(DTYPES)
        return f"lay({self.made(value.shape, dtype, 1.0)}{self._placing(value.shape, 'U')})"

    def _place(self, match: re.Match[str]) -> str:
        draw = getattr(self, f"_{match[1]}")
        text: str = draw(match[2]) if match[2] else draw()
        return text

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
