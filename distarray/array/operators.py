"""Python's operators on distributed arrays.

Each operator uses the blocks directly if both operands have the same layout, or one operand is a
scalar. Otherwise it calls the ufunc through the dispatcher. Large results reuse the block of a
temporary operand if there is one.
"""

import operator
from collections.abc import Callable
from functools import lru_cache
from sys import getrefcount
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np

from distarray.array import ladder, stale_copies, temporaries
from distarray.array.alike import SCALARS, call_at_once
from distarray.array.base import (
    Base,
    all_readable,
    is_subclass,
    own_block,
    own_layout,
    readable,
    storage_of,
)
from distarray.array.deferred import put_off, put_off_or_done, replaced
from distarray.array.floaterrors import error_state, of_elements
from distarray.array.ladder import call, is_free, passed, two_at_once, usual, watched
from distarray.array.registry import is_overridden
from distarray.array.sharing import writing
from distarray.array.sparse_operands import beside_sparse, is_sparse
from distarray.array.speedups import again_if_unhashable, quick
from distarray.array.temporaries import LARGE
from distarray.comm.observed import is_observed
from distarray.layout import Layout
from distarray.plan import whole_pair
from distarray.typing import Array, ArrayLike, Binary, Unary

__all__ = ["Operators", "called", "yields"]

_POWER: Any = np.power
_divmod: Any = np.divmod
_matmul: Any = np.matmul
_multiply: Any = np.multiply
_array = np.ndarray
#: Registry keys of `==` and `!=` of records, for which there is no ufunc.
_equal, _not_equal = operator.eq, operator.ne
#: Reflected operators, for NumPy scalars as left operands.
_answers: dict[np.ufunc, Binary] = {}
#: NumPy's errors for types without comparison, which `==` catches.
_INCOMPARABLE = ("_UFuncNoLoopError", "_UFuncBinaryResolutionError")
_NUMBERS = frozenset("biufc")
_SEQUENCES = (list, tuple, str, bytes, bytearray)


def _declines(other: ArrayLike) -> bool:
    return getattr(type(other), "__array_ufunc__", True) is None


def _keeps_out(other: Any) -> bool:
    """Return True if an operand cannot be used by an in-place operator, also in NumPy."""
    kind: Any = type(other)
    return _declines(other) or is_sparse(other) or (_goes_first(kind) and not is_subclass(kind))


@lru_cache(maxsize=256)
def _goes_first(kind: type) -> bool:
    """Return True if a right operand's own method takes precedence, as over NumPy's arrays."""
    if is_subclass(kind):
        return True
    priority = getattr(kind, "__array_priority__", None)
    ours = hasattr(kind, "__array_ufunc__") or getattr(kind, "__module__", "").startswith("torch")
    return isinstance(priority, (int, float)) and priority > 0 and not ours


def yields(other: ArrayLike) -> bool:
    """Return True if a right operand declines, or its own method takes precedence."""
    return _declines(other) or _goes_first(type(other))  # type: ignore[arg-type]


def _repeats(ufunc: np.ufunc, number: Base, other: ArrayLike) -> bool:
    """Return True if a number times a sequence repeats the sequence, as NumPy's integers do."""
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
                return np.dot(other, np.atleast_2d(cast("Any", self)))  # a row, like a matrix
            return ufunc(other, self)
        kind: Any = type(other)
        return NotImplemented if _goes_first(kind) else ufunc(self, other)

    return ask


def _of_two(ufunc: np.ufunc, first: Base, second: Base) -> Any:
    """Call a ufunc on two arrays, without NumPy's dispatch if they are small."""
    wide = whole_pair(first.layout, second.layout)
    if wide is not None and first.mesh is second.mesh and first.mesh.coords is not None:
        like = first if wide is first.layout else second
        return like.computed(ufunc(first.block, second.block))
    found = two_at_once(ufunc, first, second)
    return ufunc(first, second) if found is NotImplemented else found


def _forward(ufunc: np.ufunc) -> Binary:
    long = _asking(ufunc)

    def operate(self: Base, other: Any) -> Any:
        if own_layout(self) is None:
            elements = self._storage.readable(self)
            return act(elements, readable(other) if type(other) is type(self) else other)
        kind, layout = type(other), self.layout
        if is_free(ufunc, layout):
            is_array = kind is type(self)
            if is_array and (own_layout(other) is not layout or other.mesh is not self.mesh):
                return _of_two(ufunc, self, readable(other))
            if is_array or kind in SCALARS:
                if layout.size >= LARGE:
                    counts = getrefcount(self), getrefcount(other) if is_array else 0
                    return put_off_or_done(self, ufunc, (self, other), counts)
                return self.computed(ufunc(self.block, other.block if is_array else other))
        return long(self, other)

    act = quick("binary", ufunc)(operate)
    return act


def _reflected(ufunc: np.ufunc) -> Binary:
    long = _asking(ufunc, reflected=True)

    def operate(self: Base, other: ArrayLike) -> Any:
        if own_layout(self) is None:
            return act(self._storage.readable(self), other)
        layout = self.layout
        if type(other) in SCALARS and (
            (layout.is_whole and error_state() is usual[0]) or is_free(ufunc, layout)
        ):
            if layout.size >= LARGE:
                counts = 0, getrefcount(self)
                return put_off_or_done(self, ufunc, (other, self), counts)
            return self.computed(ufunc(other, self.block))
        return long(self, other)

    act = quick("reflected", ufunc)(operate)
    return act


def _binary(ufunc: np.ufunc) -> tuple[Binary, Binary]:
    answer = _answers[ufunc] = _reflected(ufunc)
    return _forward(ufunc), answer


def _answer_to(ufunc: np.ufunc, inputs: tuple[Any, ...]) -> Binary | None:
    """Return the array's reflected operator, for a ufunc called by a NumPy scalar's operator.

    Return None for other calls.
    """
    if len(inputs) != 2 or type(inputs[0]) not in SCALARS or not isinstance(inputs[1], Base):
        return None
    if ufunc is _POWER and inputs[1].dtype.kind == "i":  # as in `Operators.__rpow__`
        return None
    return _answers.get(ufunc) if is_free(ufunc, inputs[1].layout) else None


def called(ufunc: np.ufunc, x: Base, inputs: tuple[Any, ...]) -> Any:
    """Defer the call of a ufunc, or make it without the dispatcher; else NotImplemented."""
    if own_layout(x) is None and (whole := all_readable(inputs)) is not inputs:
        return ufunc(*whole)
    if x.layout.size >= temporaries.LARGE:
        later = put_off(ufunc, inputs)
        if later is not None:
            return later
    found = call_at_once(ufunc, x, inputs)
    if found is NotImplemented:
        answer = _answer_to(ufunc, inputs)
        if answer is not None:
            return answer(inputs[1], inputs[0])
    return found


def _comparison(ufunc: np.ufunc, otherwise: bool) -> Binary:
    """Return `==` or `!=`, with the same result for all elements if types cannot be compared."""
    compare = _forward(ufunc)

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


def _beside(x: Base, other: Any) -> Any:
    """Return the number or block that NumPy can combine with the block of `x`; else None."""
    kind = type(other)
    if kind in SCALARS:
        return other
    if kind is not type(x):
        return None
    y = readable(other)
    mesh, layout, beside = x.mesh, x.layout, y.layout
    both = layout is beside or (layout.is_whole and beside.is_whole and mesh.coords is not None)
    return y.block if both and mesh is y.mesh else None


def _writes_at_once(ufunc: np.ufunc, layout: Layout, block: Array) -> bool:
    """Return True if a ufunc can write to a block without steps before or after the write."""
    free = (layout.is_whole and error_state() is usual[0]) or is_free(ufunc, layout)
    return free and (type(block) is not _array or block.flags.writeable)


def _by_storage(ufunc: np.ufunc, x: Base, other: Any) -> bool:
    """Apply an operator by the storage of an array without block in its slot; True if done."""
    layout, storage = own_layout(x), storage_of(x)
    if layout is None:
        return bool(storage.in_place(x, ufunc, other))
    return layout.size >= LARGE and x.waits and replaced(ufunc, x, other)


def _in_place(ufunc: np.ufunc) -> Binary:
    def operate(self: Base, other: Any) -> Any:
        if own_block(self) is None and _by_storage(ufunc, self, other):
            return self
        layout, block = self.layout, self.block
        if type(block) is not _array:
            if isinstance(block, np.generic):  # a scalar is replaced, not changed, as in NumPy
                return ufunc(self, other)
            passed.number += 1
        elif not layout.is_whole:
            stale_copies.count_write(self)
        given = _beside(self, other) if _writes_at_once(ufunc, layout, block) else None
        if given is not None:
            ufunc(block, given, out=block)
            return self
        return NotImplemented if _keeps_out(other) else ufunc(self, other, out=(self,))

    return quick("in_place", ufunc)(operate)


def _unary(ufunc: np.ufunc) -> Unary:
    def operate(self: Base) -> Any:
        if own_layout(self) is None:
            return act(self._storage.readable(self))
        if self.layout.size >= LARGE:
            later = put_off(ufunc, (self,))
            if later is not None:
                return later
        return self.computed(ufunc(self.block)) if is_free(ufunc, self.layout) else ufunc(self)

    act = quick("unary", ufunc)(operate)
    return act


def _exponent(other: Any) -> Any:
    """Return a single number that every rank has; None for anything else."""
    kind = type(other)
    if kind in (int, float) or isinstance(other, np.generic):
        return other
    if isinstance(other, Base):
        layout = other.layout
        return other.block if not layout.cuts and layout.is_replicated else None
    return other[()] if kind is np.ndarray and not other.ndim else None


def _refuses(self: Base, exponent: Any) -> bool:
    """Return True if NumPy refuses the power; a rank without elements would not notice."""
    kind = "i" if type(exponent) is int else getattr(exponent, "dtype", None)
    signed = kind == "i" or getattr(kind, "kind", "") == "i"
    return signed and self.block.dtype.kind in "bui" and exponent < 0


def _raised(act: Callable[[Any, Any], Any], x: Base, other: ArrayLike) -> Any:
    """Compute a power by the operator; all ranks raise the errors that the program can observe."""
    if error_state() is usual[0] and (x.layout.is_whole or not is_observed()):
        return act(x, other)
    return watched(_POWER, (x, other), {}, act, (x, other))


def _short_exponent(x: Base, other: ArrayLike) -> Any:
    """Return the exponent if each rank can compute the power of its block alone; else None.

    For common exponents NumPy's operator uses faster functions than the ufunc, with other bits.
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
        later = put_off(np.square, (x,))  # as NumPy does
        if later is not None:
            return later
    if x.layout.partials or x.layout.is_lone_element:
        x = x.plain()  # operator and ufunc differ in the result type: bool ** 2 is int8
    exponent = _short_exponent(x, other)
    if exponent is not None:
        return x.computed(x.block**exponent)
    if x.block.dtype.kind in "biu":  # a single rank may not have the negative exponent
        return NotImplemented if yields(other) else _POWER(x, other)
    return _power_of_arrays(x, other)


def _power_in_place(x: Base, other: ArrayLike) -> Any:
    exponent = _short_exponent(x, other)
    if exponent is None:
        return NotImplemented if _declines(other) else _POWER(x, other, out=(x,))
    passed.number += 1
    with writing(x, whole=True), of_elements(x.layout, x.mesh):
        block: Any = x.block
        block **= exponent
    return x


_power_of_arrays, _reflected_power = _binary(_POWER)


class Operators(Base):  # noqa: PLW1641 (Scalars has __hash__)
    """Operators of :class:`numpy.ndarray`."""

    __slots__ = ()

    __lt__ = _binary(np.less)[0]
    __le__ = _binary(np.less_equal)[0]
    __gt__ = _binary(np.greater)[0]
    __ge__ = _binary(np.greater_equal)[0]
    if TYPE_CHECKING:  # type checkers would take assigned methods for those of `object`

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
        return NotImplemented if modulo is not None else _raised(_power, readable(self), other)

    @again_if_unhashable
    def __rpow__(self, other: ArrayLike, modulo: int | None = None) -> Self:
        if modulo is not None or _declines(other):
            return NotImplemented
        x, raised = readable(self), cast("Any", _reflected_power)
        return _POWER(other, x) if x.block.dtype.kind == "i" else raised(x, other)

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
            return ladder.product(readable(self), readable(other))
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
