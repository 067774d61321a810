"""The places in a statement, filled: operands, keys, masks, shapes, as text.

A place is written ``{name}`` or ``{name:kinds}`` in a statement of the grammar. It is filled from
left to right: ``{x}`` chooses the array that the statement is about, and what follows fits that
array, nearly always. All is drawn from one `random.Random` and from what NumPy's arrays are now,
which are the same on all ranks.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

__all__ = ["Drawing", "Misfit", "exact"]

NUMBERS = "biufc"
KINDS: dict[str, Callable[[np.ndarray], Any]] = {
    "any": lambda v: True,
    "num": lambda v: v.dtype.kind in NUMBERS,
    "real": lambda v: v.dtype.kind in "biuf",
    "signed": lambda v: v.dtype.kind in "ifc",
    "int": lambda v: v.dtype.kind in "iu",
    "square": lambda v: v.ndim == 2 and v.shape[0] == v.shape[1],
    "eight": lambda v: v.dtype.kind in NUMBERS and v.dtype.itemsize == 8,
    "u1": lambda v: v.dtype == np.uint8,
    "float": lambda v: v.dtype.kind == "f",
    "complex": lambda v: v.dtype.kind == "c",
    "bool": lambda v: v.dtype.kind == "b",
    "text": lambda v: v.dtype.kind == "U",
    "date": lambda v: v.dtype.kind in "mM",
    "rec": lambda v: v.dtype.names is not None,
    "plain": lambda v: v.dtype.names is None,
    "ordered": lambda v: v.dtype.kind in "biufcmMU" and v.dtype != np.float16,
    "d1": lambda v: v.ndim == 1,
    "d2": lambda v: v.ndim == 2,
    "nd": lambda v: v.ndim >= 1,
    "dd": lambda v: v.ndim >= 2,
    "some": lambda v: v.size > 0,
    "small": lambda v: v.size <= 24,
    "exact": lambda v: exact(v, 1 << 10),
    "tiny": lambda v: exact(v, 9) and v.size <= 12,
}
DTYPES = ("f8", "f8", "i8", "i4", "i1", "u1", "f4", "c16", "?", "f2", "u2", "c8")
OTHERS = ("U3", "M8[D]", "m8[s]", "rec")
SCALARS = (
    "2", "-1", "0", "1", "3", "1.5", "True", "(1+2j)", "300", "-7", "numpy.int8(3)", "2.0",
    "numpy.float32(0.5)", "numpy.uint8(200)", "numpy.array(2)", "numpy.float64(-2.0)",
)  # fmt: skip
BINARY = (
    "add", "subtract", "multiply", "maximum", "minimum", "true_divide", "floor_divide", "remainder",
    "power", "bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift", "logical_and",
    "logical_or", "equal", "less", "greater_equal", "not_equal", "fmax", "fmin", "copysign", "gcd",
    "fmod", "arctan2", "heaviside", "lcm",
)  # fmt: skip
UNARY = (
    "negative", "positive", "absolute", "sqrt", "square", "sign", "floor", "rint", "conjugate",
    "invert", "logical_not", "isfinite", "isnan", "reciprocal", "signbit", "trunc", "cbrt",
)  # fmt: skip
FOLDING = (
    "add", "multiply", "maximum", "minimum", "logical_and", "logical_or", "bitwise_and",
    "bitwise_or", "bitwise_xor", "subtract", "true_divide", "floor_divide", "remainder", "fmax",
    "fmin", "gcd", "logical_xor", "fmod", "equal", "less", "power",
)  # fmt: skip
CASTINGS = ("no", "equiv", "safe", "same_kind", "unsafe")


class Misfit(Exception):
    """There is nothing that fits a place of a statement."""


def exact(values: Any, most: float) -> bool:
    """Whether sums of the values are the same in any order: whole numbers, and not too large."""
    if values.dtype.kind not in NUMBERS:
        return False
    if values.dtype.kind in "biu" or not values.size:
        return True
    parts = (values.real, values.imag) if values.dtype.kind == "c" else (values,)
    with np.errstate(all="ignore"):
        for part in parts:
            total = np.abs(part.astype("f8")).sum()
            if not np.isfinite(total) or total > most or (part != np.floor(part)).any():
                return False
    return True


class Drawing:
    """Fills the places of statements for the arrays that are alive."""

    def __init__(self, rng: random.Random, env: dict[str, Any]) -> None:
        self.rng = rng
        self.env = env
        self.x: Any = None
        self.kept = ""
        self.written = ""
        self.writes = False
        #: The names of arrays that are NumPy's in both worlds; not written to by themselves.
        self.plain: set[str] = set()

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
            placed.append(self.one(choices))
        return "".join([f", {p}" for p in placed])

    def _new(self, kinds: str = "") -> str:
        """A new array of any shape and type."""
        dtype = kinds or (self.one(OTHERS) if self.chance(0.25) else self.one(DTYPES))
        # On a mesh of two dimensions NumPy's own arrays would become arrays of the default mesh.
        whole = 0.07 if self.env["__mesh_ndim__"] == 1 else 0.0
        return self.made(self.new_shape(), dtype, whole)

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

    def _binary(self) -> str:
        return str(self.one(BINARY))

    def _unary(self) -> str:
        return str(self.one(UNARY))

    def _folding(self) -> str:
        return str(self.one(FOLDING))

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


def make_like(x: Any, shape: tuple[int, ...], seed: int) -> Any:
    """Small values of x's type, for lists."""
    from tests.explore.worlds import make

    return make(shape, dtype_text(x.dtype), seed)


def family(x: Any) -> str:
    """The kinds of arrays that belong beside x."""
    if x.dtype.kind in NUMBERS:
        return "num"
    return {"U": "text", "m": "date", "M": "date"}.get(x.dtype.kind, "rec")


def dtype_text(dtype: Any) -> str:
    """A data type as the lines write it."""
    if dtype.names:
        return "rec"
    if dtype.kind == "V":
        raise Misfit
    return str(dtype.str[1:] if dtype.str[0] in "<|=" else dtype.str)


def fits(shape: Sequence[int], target: Sequence[int]) -> bool:
    """Whether an array of a shape broadcasts to another."""
    pairs = zip(reversed(shape), reversed(target), strict=False)
    return len(shape) <= len(target) and all(a in (b, 1) for a, b in pairs)
