"""Operands as text: arrays and views of them, numbers, data types, axes, shapes and ufuncs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.explore.vocabulary import (
    BINARY,
    CASTINGS,
    DTYPES,
    FOLDING,
    KINDS,
    NUMBERS,
    OTHERS,
    SCALARS,
    UNARY,
    Misfit,
    dtype_text,
    family,
    fits,
)

#: Sizes of which most numbers of ranks hold no whole rows.
_SIZES = (6, 12, 24, 30, 36, 60, 64, 90, 100, 120)
_STATE_TYPES = ("i8", "i8", "i8", "f8", "f8", "c16", "rec", "i4")


class Operands:
    """The places of a statement that an operand fills, for the arrays that are alive."""

    def __init__(self, rng: random.Random, env: dict[str, Any]) -> None:
        self.rng = rng
        self.env = env
        self.x: Any = None
        self.kept = ""
        self.written = ""
        self.writes = False
        #: The names of arrays that are NumPy's in both worlds; not written to by themselves.
        self.plain: set[str] = set()

    def value(self, text: str) -> Any:
        """What an expression without effects is now, with NumPy's arrays."""
        try:
            with np.errstate(all="ignore"):
                return eval(text, dict(self.env))
        except Exception:
            raise Misfit from None

    def one(self, choices: Sequence[Any]) -> Any:
        """One of several."""
        if not choices:
            raise Misfit
        return self.rng.choice(choices)

    def chance(self, share: float) -> bool:
        """True so often."""
        return self.rng.random() < share

    def arrays(self, kinds: str = "any") -> list[str]:
        """The names of the arrays of some kinds (all of ``"num+dd"``)."""
        tests = [KINDS[kind] for kind in kinds.split("+")]
        return [
            name
            for name, value in self.env.items()
            if isinstance(value, np.ndarray) and name[0] == "v" and all(t(value) for t in tests)
        ]

    # -- arrays ----------------------------------------------------------------------------------

    def _x(self, kinds: str = "any") -> str:
        """The array that the statement is about; now and then a view of it."""
        for _ in range(6):
            names = self.arrays(kinds)
            name = self.one([n for n in names if not (self.writes and n in self.plain)])
            text = name
            if self.chance(0.2):
                text = self._view_of(name)
            value = self.value(text)
            if isinstance(value, np.ndarray) and all(KINDS[k](value) for k in kinds.split("+")):
                self.x = value
                self.kept = text
                return text
        raise Misfit

    def _a(self, kinds: str = "any") -> str:
        """Another array, of any shape."""
        return str(self.one(self.arrays(kinds)))

    def _view_of(self, name: str) -> str:
        ndim = self.env[name].ndim
        if ndim and self.chance(0.8):
            return f"{name}[{self._basic(self.env[name].shape)}]"
        return f"{name}.T" if ndim > 1 else f"{name}[...]"

    def _y(self, kinds: str = "") -> str:
        """An operand beside x: an array that broadcasts, a number, a list."""
        x = self.x
        if self.chance(0.04):
            return str(self.one(self.arrays()))
        if self.chance(0.3) or not x.ndim:
            return self._scalar()
        if self.chance(0.15) and x.shape[-1] < 9:
            return str(np.asarray(make_like(x, x.shape[-1:], self.rng.randrange(99))).tolist())
        found = self._fitting(x.shape, kinds or family(x))
        return found if found else self._fresh(x)

    def _same(self, kinds: str = "") -> str:
        """An array of x's shape."""
        names = [
            n for n in self._candidates(kinds or family(self.x)) if self.shape_of(n) == self.x.shape
        ]
        return str(self.one(names)) if names else self._fresh(self.x, whole=True)

    def shape_of(self, text: str) -> Any:
        """The shape of an expression's value."""
        return getattr(self.value(text), "shape", None)

    def _candidates(self, kinds: str) -> list[str]:
        """Arrays and some views of them."""
        names = self.arrays(kinds)
        return names + [self._view_of(self.one(names)) for _ in range(4 if names else 0)]

    def _fitting(self, shape: tuple[int, ...], kinds: str) -> str | None:
        """An array, or a view of one, that broadcasts to a shape."""
        found = []
        for text in self._candidates(kinds):
            have = self.shape_of(text)
            if have is not None and fits(have, shape):
                found.append(text)
        return str(self.one(found)) if found and self.chance(0.8) else None

    def _fresh(self, x: Any, whole: bool = False) -> str:
        """An array that is made for this statement, of x's shape or one that broadcasts to it."""
        shape = list(x.shape)
        if not whole:
            shape = shape[self.rng.randrange(len(shape) + 1) :]
            shape = [1 if self.chance(0.15) else extent for extent in shape]
        dtype = dtype_text(x.dtype) if self.chance(0.7) else self._dtype_like(x)
        return self.made(tuple(shape), dtype)

    def made(self, shape: tuple[int, ...], dtype: str, whole: float = 0.3) -> str:
        """An expression that makes an array: NumPy's own, or one that is laid out."""
        text = f"make({shape}, {dtype!r}, {self.rng.randrange(99)})"
        return text if self.chance(whole) else f"lay({text}{self._placing(shape, dtype)})"

    def _placing(self, shape: tuple[int, ...], dtype: str) -> str:
        """Placements for a mesh of as many dimensions as the program's."""
        placed = []
        for _ in range(int(self.env["__mesh_ndim__"])):
            choices = ["R", *[f"S({dim})" for dim in range(len(shape))] * 3]
            if dtype[0] in "fiu" and "P" not in placed and self.chance(0.1):
                choices = ["P"]
            if dtype == "O":  # objects are not cut
                choices = ["R"]
            placed.append(self.one(choices))
        return "".join([f", {p}" for p in placed])

    def _new(self, kinds: str = "") -> str:
        """A new array of any shape and type."""
        dtype = kinds or (self.one(OTHERS) if self.chance(0.25) else self.one(DTYPES))
        # On a mesh of two dimensions NumPy's own arrays would become arrays of the default mesh.
        whole = 0.07 if self.env["__mesh_ndim__"] == 1 else 0.0
        return self.made(self.new_shape(), dtype, whole)

    def _state(self) -> str:
        """A new array of a size with many divisors, cut at least once."""
        rest, shape = self.one(_SIZES), list[int]()
        for _ in range(self.one([0, 0, 0, 1, 1, 2])):
            side = self.one([2, 3, 4, 5, 6, 10])
            if rest % side == 0 and rest > side:
                shape.append(side)
                rest //= side
        shape.insert(self.rng.randrange(len(shape) + 1), rest)
        placed = [f"S({self.rng.randrange(len(shape))})"]
        for _ in range(int(self.env["__mesh_ndim__"]) - 1):
            placed.insert(
                self.rng.randrange(2), self.one(["R", *[f"S({d})" for d in range(len(shape))] * 2])
            )
        text = f"make({tuple(shape)}, {self.one(_STATE_TYPES)!r}, {self.rng.randrange(99)})"
        return f"lay({', '.join([text, *placed])})"

    def _name(self) -> str:
        return str(self.one(self.arrays()))

    def new_shape(self, most: int = 3) -> tuple[int, ...]:
        """A shape of a new array."""
        ndim = self.one([0, 1, 1, 1, 2, 2, 2, 3])
        sides = [0, 1, 2, 3, 4, 5, 7] if self.chance(0.25) else [1, 2, 3, 4, 5]
        if ndim == 1:
            sides = [0, 1, 2, 3, 5, 7, 8, 11]
        return tuple([self.one(sides) for _ in range(min(ndim, most))])

    # -- numbers and types -----------------------------------------------------------------------

    def _scalar(self) -> str:
        kind = self.x.dtype.kind if self.x is not None else "f"
        if kind == "U":
            return str(self.one(["'ab'", "'a'", "''", "'longer'"]))
        if kind == "M":
            return str(
                self.one(["numpy.timedelta64(2, 'D')", "numpy.datetime64('1970-01-03')", "1"])
            )
        if kind == "m":
            return str(self.one(["numpy.timedelta64(2, 's')", "2", "numpy.timedelta64('NaT')"]))
        if self.x is not None and self.x.dtype.names:
            return str(self.one(["(1.0, 2)", "make((), 'rec', 5)", "0"]))
        if kind == "c":
            return str(self.one([*SCALARS, "1j"]))
        return str(self.one(SCALARS[:11] if self.chance(0.8) else SCALARS))

    def _int(self) -> str:
        return str(self.one([0, 1, 2, 3, -1, -2, 1, 2, 5]))

    def _count(self) -> str:
        return str(self.one([0, 1, 2, 3]))

    def _dtype(self) -> str:
        return repr(self.one([*DTYPES, "f8", "i8", "U3"]) if self.chance(0.95) else "M8[D]")

    def _number(self) -> str:
        return repr(self.one(DTYPES))

    def _dtype_like(self, x: Any) -> str:
        return str(self.one(DTYPES)) if x.dtype.kind in NUMBERS else dtype_text(x.dtype)

    def _casting(self) -> str:
        return repr(self.one(CASTINGS))

    def _order(self) -> str:
        # Where no rank has two indices, the order in memory may be another one; see `numpy.ravel`.
        extents = () if self.x is None else self.x.shape
        thin = any(1 < extent <= int(self.env["__ranks__"]) for extent in extents)
        return repr(self.one("CF" if thin else "CFAK"))

    def _axis(self) -> str:
        ndim = self.x.ndim
        if not ndim or self.chance(0.03):
            return str(self.one([0, -1, ndim, -ndim - 1]))
        return str(self.rng.randrange(-ndim, ndim))

    def _axes(self) -> str:
        """An axis, several, or None for all."""
        if self.chance(0.3):
            return "None"
        if self.x.ndim > 1 and self.chance(0.3):
            return str(
                tuple(self.rng.sample(range(self.x.ndim), self.rng.randrange(self.x.ndim + 1)))
            )
        return self._axis()

    def _perm(self) -> str:
        return str(tuple(self.rng.sample(range(self.x.ndim), self.x.ndim)))

    def _shape(self) -> str:
        """A shape that x can be given."""
        size = self.x.size
        sides: list[int] = []
        rest = size
        for divisor in (2, 3, 5, 2, 7, 2, 3):
            if rest and rest % divisor == 0 and self.chance(0.6):
                rest //= divisor
                sides.insert(self.rng.randrange(len(sides) + 1), divisor)
        sides.insert(self.rng.randrange(len(sides) + 1), rest)
        while len(sides) > 3:
            sides[:2] = [sides[0] * sides[1]]
        if self.chance(0.2):
            sides.insert(self.rng.randrange(len(sides) + 1), 1)
        if self.chance(0.2) and size:
            sides[self.rng.randrange(len(sides))] = -1
        return str(tuple(sides)) if self.chance(0.96) else "(5, 2)"

    def _anyshape(self) -> str:
        return str(self.new_shape())

    def _wider(self) -> str:
        """A shape that x broadcasts to."""
        shape = [self.one([1, 2, 3]) for _ in range(self.rng.randrange(2))]
        shape += [self.one([2, 3]) if n == 1 and self.chance(0.6) else n for n in self.x.shape]
        return str(tuple(shape))

    # -- ufuncs ----------------------------------------------------------------------------------

    def _told(self) -> str:
        return str(self.one(["called", "raised", "recorded"]))

    def _binary(self) -> str:
        return str(self.one(BINARY))

    def _unary(self) -> str:
        return str(self.one(UNARY))

    def _folding(self) -> str:
        return str(self.one(FOLDING))

    # -- views -----------------------------------------------------------------------------------

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


def make_like(x: Any, shape: tuple[int, ...], seed: int) -> Any:
    """Small values of x's type, for lists."""
    from tests.explore.worlds import make

    return make(shape, dtype_text(x.dtype), seed)
