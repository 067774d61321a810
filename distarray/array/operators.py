"""Python's operators on distributed arrays.

Each goes straight to the blocks if both operands have the same layout, or one is a scalar, and
through the ufunc's general engine otherwise. Large results reuse the block of a temporary operand
if there is one.
"""

import operator
from collections.abc import Callable
from functools import lru_cache
from sys import getrefcount
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np

from distarray.array import ladder, stale_copies, temporaries
from distarray.array.alike import SCALARS
from distarray.array.base import Base, is_subclass
from distarray.array.floaterrors import error_state, of_elements
from distarray.array.ladder import call, is_free, passed, two_at_once, usual, watched
from distarray.array.registry import is_overridden
from distarray.array.sharing import writing
from distarray.array.sparse_operands import beside_sparse, is_sparse
from distarray.array.speedups import again_if_unhashable, quick
from distarray.array.temporaries import LARGE, put_off_or_done
from distarray.comm.observed import is_observed
from distarray.layout import Layout
from distarray.plan import whole_pair
from distarray.typing import Array, ArrayLike, Binary, Unary

__all__ = ["Operators", "answer_to", "yields"]

_POWER: Any = np.power
_divmod: Any = np.divmod
_matmul: Any = np.matmul
_multiply: Any = np.multiply
_array = np.ndarray
#: The keys of `==` and `!=` of records, for which there is no ufunc.
_equal, _not_equal = operator.eq, operator.ne
#: The reflected operators, for NumPy scalars as left operands.
_answers: dict[np.ufunc, Binary] = {}
#: NumPy's errors for types that have no comparison, which `==` does not pass on.
_INCOMPARABLE = ("_UFuncNoLoopError", "_UFuncBinaryResolutionError")
_NUMBERS = frozenset("biufc")
_SEQUENCES = (list, tuple, str, bytes, bytearray)


def _declines(other: ArrayLike) -> bool:
    return getattr(type(other), "__array_ufunc__", True) is None


def _keeps_out(other: Any) -> bool:
    """Whether an operand cannot be worked into an array in place, also for NumPy."""
    kind: Any = type(other)
    return _declines(other) or is_sparse(other) or (_goes_first(kind) and not is_subclass(kind))


@lru_cache(maxsize=256)
def _goes_first(kind: type) -> bool:
    """Whether a right operand's own method takes precedence, as it does over NumPy's arrays."""
    if is_subclass(kind):
        return True
    priority = getattr(kind, "__array_priority__", None)
    ours = hasattr(kind, "__array_ufunc__") or getattr(kind, "__module__", "").startswith("torch")
    return isinstance(priority, (int, float)) and priority > 0 and not ours


def yields(other: ArrayLike) -> bool:
    """Whether a right operand declines, or its own method takes precedence."""
    return _declines(other) or _goes_first(type(other))  # type: ignore[arg-type]


def _repeats(ufunc: np.ufunc, number: Base, other: ArrayLike) -> bool:
    """Whether the product of a number and a sequence repeats it, as for NumPy's own integers."""
    return (
        ufunc is _multiply
        and isinstance(other, _SEQUENCES)
        and isinstance(number.block, np.integer)
    )


def _asking(ufunc: np.ufunc, reflected: bool = False) -> Binary:
    def ask(self: Base, other: Any) -> Any:
        if is_sparse(other):
            return beside_sparse(ufunc, self, other, reflected)
        if _declines(other) or _repeats(ufunc, self, other):
            return NotImplemented
        if reflected:
            if ufunc is _multiply and isinstance(other, np.matrix):
                return np.dot(other, np.atleast_2d(cast("Any", self)))  # a row, as a matrix is
            return ufunc(other, self)
        kind: Any = type(other)
        return NotImplemented if _goes_first(kind) else ufunc(self, other)

    return ask


def _of_two(ufunc: np.ufunc, first: Base, second: Base) -> Any:
    """The result of a ufunc for two arrays, without NumPy's dispatch if they are small."""
    wide = whole_pair(first.layout, second.layout)
    if wide is not None and first.mesh is second.mesh and first.mesh.coords is not None:
        like = first if wide is first.layout else second
        return like.computed(ufunc(first.block, second.block))
    found = two_at_once(ufunc, first, second)
    return ufunc(first, second) if found is NotImplemented else found


def _forward(ufunc: np.ufunc) -> Binary:
    long = _asking(ufunc)

    def operate(self: Base, other: Any) -> Any:
        kind = type(other)
        layout = self.layout
        # Part of `is_free`, inlined: this costs less than the call.
        if (
            error_state() is usual[0] and layout.is_plain and (layout.is_whole or not is_observed())
        ) or is_free(ufunc, layout):
            if kind is type(self):
                if other.layout is layout and other.mesh is self.mesh:
                    if layout.size >= LARGE:
                        counts = getrefcount(self), getrefcount(other)
                        return put_off_or_done(self, ufunc, (self, other), counts)
                    return self.computed(ufunc(self.block, other.block))
                return _of_two(ufunc, self, other)
            elif kind in SCALARS:
                if layout.size >= LARGE:
                    counts = getrefcount(self), 0
                    return put_off_or_done(self, ufunc, (self, other), counts)
                return self.computed(ufunc(self.block, other))
        return long(self, other)

    return operate


def _reflected(ufunc: np.ufunc) -> Binary:
    long = _asking(ufunc, reflected=True)

    def operate(self: Base, other: ArrayLike) -> Any:
        layout = self.layout
        if type(other) in SCALARS and (
            (layout.is_whole and error_state() is usual[0]) or is_free(ufunc, layout)
        ):
            if layout.size >= LARGE:
                counts = 0, getrefcount(self)
                return put_off_or_done(self, ufunc, (other, self), counts)
            return self.computed(ufunc(other, self.block))
        return long(self, other)

    return operate


def _binary(ufunc: np.ufunc) -> tuple[Binary, Binary]:
    answer = _answers[ufunc] = _reflected(ufunc)
    return quick("binary", ufunc)(_forward(ufunc)), quick("reflected", ufunc)(answer)


def answer_to(ufunc: np.ufunc, inputs: tuple[Any, ...]) -> Binary | None:
    """The array's reflected operator, for a call of a ufunc by a NumPy scalar's own operator.

    None for other calls.
    """
    if len(inputs) != 2 or type(inputs[0]) not in SCALARS or not isinstance(inputs[1], Base):
        return None
    if ufunc is _POWER and inputs[1].dtype.kind == "i":  # as in `Operators.__rpow__`
        return None
    return _answers.get(ufunc) if is_free(ufunc, inputs[1].layout) else None


#: Comparisons with the operands exchanged.
_MIRRORED: dict[Any, Any] = {
    np.less: np.greater,
    np.less_equal: np.greater_equal,
    np.greater: np.less,
    np.greater_equal: np.less_equal,
    np.equal: np.equal,
    np.not_equal: np.not_equal,
}


def _ordering(ufunc: np.ufunc, compare: Binary) -> Binary:
    """A comparison, whose operands are in the same order on all ranks.

    Python asks the right operand first where that alone waits for operations, as it may do on some
    ranks only; and which is the first decides about the layout of the result.
    """
    mirrored = _MIRRORED[ufunc]

    def operate(self: Base, other: Any) -> Any:
        is_array = type(other) not in SCALARS and isinstance(other, Base)
        if is_array and self.layout is not other.layout and _is_exchanged(ufunc, self, other):
            return mirrored(other, self)
        return compare(self, other)

    return quick("binary", ufunc)(operate)


def _is_exchanged(ufunc: np.ufunc, x: Base, y: Base) -> bool:
    """Whether the operands of a comparison are to be exchanged: the smaller is to be the first."""
    if (x.layout.is_whole and y.layout.is_whole) or not _NUMBERS.issuperset(
        (x.dtype.kind, y.dtype.kind)
    ):
        return False
    if _MIRRORED[ufunc] is ufunc:
        return repr(x.layout) > repr(y.layout)
    return ufunc in (np.greater, np.greater_equal)


def _comparison(ufunc: np.ufunc, otherwise: bool) -> Binary:
    """`==` and `!=`, which answer alike for every element where types cannot be compared."""
    compare = _ordering(ufunc, _forward(ufunc))

    def operate(self: Base, other: Any) -> Any:
        try:
            return compare(self, other)
        except TypeError as error:
            if type(error).__qualname__ not in _INCOMPARABLE:
                raise
        other = other if isinstance(other, Base) else np.asarray(other)
        if "V" in (self.dtype.kind, other.dtype.kind):
            return call(_not_equal if otherwise else _equal, self, other)
        shape = np.broadcast_shapes(self.shape, other.shape)
        return np.full_like(self, otherwise, dtype=bool, shape=shape)[()]

    return quick("equality", ufunc)(operate)


def _side_by_side(x: Base, y: Base) -> bool:
    """Whether arrays are on one mesh, and their blocks can be taken together as they are."""
    mesh, layout, other = x.mesh, x.layout, y.layout
    return mesh is y.mesh and (
        layout is other or (layout.is_whole and other.is_whole and mesh.coords is not None)
    )


def _writes_at_once(ufunc: np.ufunc, layout: Layout, block: Array) -> bool:
    """Whether nothing has to be done before a ufunc writes to a block, nor after."""
    free = (layout.is_whole and error_state() is usual[0]) or is_free(ufunc, layout)
    return free and (type(block) is not _array or block.flags.writeable)


def _in_place(ufunc: np.ufunc) -> Binary:
    def operate(self: Base, other: Any) -> Any:
        layout, block = self.layout, self.block
        if type(block) is not _array:
            if isinstance(block, np.generic):  # a scalar, as in NumPy: replaced, not changed
                return ufunc(self, other)
            passed.number += 1
        elif not layout.is_whole:
            stale_copies.count_write(self)
        if _writes_at_once(ufunc, layout, block):
            kind = type(other)
            if kind in SCALARS:
                ufunc(block, other, out=block)
                return self
            if kind is type(self) and _side_by_side(self, other):
                ufunc(block, other.block, out=block)
                return self
        return NotImplemented if _keeps_out(other) else ufunc(self, other, out=(self,))

    return quick("in_place", ufunc)(operate)


def _unary(ufunc: np.ufunc) -> Unary:
    def operate(self: Base) -> Any:
        if self.layout.size >= LARGE:
            later = temporaries.put_off(ufunc, (self,))
            if later is not None:
                return later
        return self.computed(ufunc(self.block)) if is_free(ufunc, self.layout) else ufunc(self)

    return quick("unary", ufunc)(operate)


def _exponent(other: Any) -> Any:
    """A single number that every rank has; None for anything else."""
    kind = type(other)
    if kind in (int, float) or isinstance(other, np.generic):
        return other
    if isinstance(other, Base):
        layout = other.layout
        return other.block if not layout.cuts and layout.is_replicated else None
    return other[()] if kind is np.ndarray and not other.ndim else None


def _refuses(self: Base, exponent: Any) -> bool:
    """Whether NumPy refuses the power, though a rank without elements would not notice."""
    kind = "i" if type(exponent) is int else getattr(exponent, "dtype", None)
    signed = kind == "i" or getattr(kind, "kind", "") == "i"
    return signed and self.block.dtype.kind in "bui" and exponent < 0


def _raised(act: Callable[[Any, Any], Any], x: Base, other: ArrayLike) -> Any:
    """A power by the operator; of errors that the program can tell all ranks learn."""
    if error_state() is usual[0] and (x.layout.is_whole or not is_observed()):
        return act(x, other)
    return watched(_POWER, (x, other), {}, act, (x, other))


def _short_exponent(x: Base, other: ArrayLike) -> Any:
    """The exponent if each block can be raised to it by itself; else None.

    For common exponents NumPy's operator uses cheaper functions than the ufunc, with other bits.
    """
    if x.layout.partials or is_overridden(_POWER):
        return None
    exponent = _exponent(other)
    return None if exponent is None or _refuses(x, exponent) else exponent


def _power(x: Base, other: ArrayLike) -> Any:
    if (
        x.layout.size >= LARGE
        and type(other) in (int, float)
        and other == 2
        and x.dtype.kind == "f"
    ):
        later = temporaries.put_off(np.square, (x,))  # as NumPy does
        if later is not None:
            return later
    if x.layout.partials or x.layout.is_lone_element:
        x = x.plain()  # the operator's type is not the ufunc's: truth values ** 2 are int8
    exponent = _short_exponent(x, other)
    if exponent is not None:
        return x.computed(x.block**exponent)
    if x.block.dtype.kind in "biu":  # a single rank may not see a negative exponent
        return NotImplemented if yields(other) else _POWER(x, other)
    return _power_of_arrays(x, other)


def _power_in_place(x: Base, other: ArrayLike) -> Any:
    exponent = _short_exponent(x, other)
    if exponent is None:
        return NotImplemented if _declines(other) else _POWER(x, other, out=(x,))
    passed.number += 1
    with writing(x), of_elements(x.layout, x.mesh):
        block: Any = x.block
        block **= exponent
    return x


_power_of_arrays, _reflected_power = _binary(_POWER)


class Operators(Base):  # noqa: PLW1641 (Scalars has __hash__)
    """The operators of :class:`numpy.ndarray`."""

    __slots__ = ()

    __lt__ = _ordering(np.less, _binary(np.less)[0])
    __le__ = _ordering(np.less_equal, _binary(np.less_equal)[0])
    __gt__ = _ordering(np.greater, _binary(np.greater)[0])
    __ge__ = _ordering(np.greater_equal, _binary(np.greater_equal)[0])
    if TYPE_CHECKING:  # assigned, they would be taken for those of `object`

        def __eq__(self, other: Any) -> Self: ...  # type: ignore[override]
        def __ne__(self, other: Any) -> Self: ...  # type: ignore[override]
    else:
        __eq__ = _comparison(np.equal, False)
        __ne__ = _comparison(np.not_equal, True)
    __add__, __radd__ = _binary(np.add)
    __sub__, __rsub__ = _binary(np.subtract)
    __mul__, __rmul__ = _binary(np.multiply)
    __truediv__, __rtruediv__ = _binary(np.true_divide)
    __floordiv__, __rfloordiv__ = _binary(np.floor_divide)
    __mod__, __rmod__ = _binary(np.remainder)
    __lshift__, __rlshift__ = _binary(np.left_shift)
    __rshift__, __rrshift__ = _binary(np.right_shift)
    __and__, __rand__ = _binary(np.bitwise_and)
    __or__, __ror__ = _binary(np.bitwise_or)
    __xor__, __rxor__ = _binary(np.bitwise_xor)

    __iadd__ = _in_place(np.add)
    __isub__ = _in_place(np.subtract)
    __imul__ = _in_place(np.multiply)
    __itruediv__ = _in_place(np.true_divide)
    __ifloordiv__ = _in_place(np.floor_divide)
    __imod__ = _in_place(np.remainder)
    __ilshift__ = _in_place(np.left_shift)
    __irshift__ = _in_place(np.right_shift)
    __iand__ = _in_place(np.bitwise_and)
    __ior__ = _in_place(np.bitwise_or)
    __ixor__ = _in_place(np.bitwise_xor)

    __neg__ = _unary(np.negative)
    __pos__ = _unary(np.positive)
    __abs__ = _unary(np.absolute)
    __invert__ = _unary(np.invert)

    @quick("power")
    def __pow__(self, other: ArrayLike, modulo: int | None = None) -> Self:
        return NotImplemented if modulo is not None else _raised(_power, self, other)

    @again_if_unhashable
    def __rpow__(self, other: ArrayLike, modulo: int | None = None) -> Self:
        if modulo is not None or _declines(other):
            return NotImplemented
        if self.block.dtype.kind == "i":
            return _POWER(other, self)
        raised: Any = _reflected_power
        return raised(self, other)

    @again_if_unhashable
    def __ipow__(self, other: ArrayLike) -> Self:
        if isinstance(self.block, np.generic):
            return self**other
        return _raised(_power_in_place, self, other)

    @again_if_unhashable
    def __divmod__(self, other: ArrayLike) -> tuple[Self, Self]:
        return NotImplemented if yields(other) else _divmod(self, other)

    @again_if_unhashable
    def __rdivmod__(self, other: ArrayLike) -> tuple[Self, Self]:
        return NotImplemented if _declines(other) else _divmod(other, self)

    @quick("product", _matmul)
    def __matmul__(self, other: ArrayLike) -> Self:
        if isinstance(other, Base):
            return ladder.product(self, other)
        return NotImplemented if yields(other) else _matmul(self, other)

    def __rmatmul__(self, other: ArrayLike) -> Self:
        return NotImplemented if _declines(other) else _matmul(other, self)

    def __imatmul__(self, other: ArrayLike) -> Self:
        ndim = len(self.layout.shape)
        if not ndim or np.ndim(other) < 2:
            np.empty((1,) * ndim).__imatmul__(np.empty((1,) * np.ndim(other)))  # raises
        product = _matmul(self, other)
        if product.shape != self.layout.shape:  # NumPy does not broadcast a product into `self`
            np.empty((0, 0)).__imatmul__(np.empty((0, 1)))  # raises
        self[...] = product  # type: ignore[index]
        return self
