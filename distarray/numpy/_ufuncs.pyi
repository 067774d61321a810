"""Types of the ufuncs of ``distarray.numpy``.

These are NumPy's own, whose types know only NumPy's arrays.
"""

# fmt: off
from typing import Any, TypedDict, Unpack, overload

import numpy

from distarray import DistArray
from distarray.typing import ArrayLike, Casting, DTypeLike, Order, UfuncOut

class _Keywords(TypedDict, total=False):
    where: ArrayLike
    dtype: DTypeLike
    casting: Casting
    order: Order
    subok: bool
    signature: Any
    axis: int
    axes: Any
    keepdims: bool

class _Unary(numpy.ufunc):  # type: ignore[misc]  # pyright: ignore[reportGeneralTypeIssues]
    @overload
    def __call__(self, x: DistArray, /, out: UfuncOut = ..., **kwargs: Unpack[_Keywords]) -> DistArray: ...
    @overload
    def __call__(self, x: ArrayLike, /, out: UfuncOut = ..., **kwargs: Unpack[_Keywords]) -> Any: ...

class _Binary(numpy.ufunc):  # type: ignore[misc]  # pyright: ignore[reportGeneralTypeIssues]
    @overload
    def __call__(self, x1: DistArray, x2: ArrayLike, /, out: UfuncOut = ..., **kwargs: Unpack[_Keywords]) -> DistArray: ...
    @overload
    def __call__(self, x1: ArrayLike, x2: DistArray, /, out: UfuncOut = ..., **kwargs: Unpack[_Keywords]) -> DistArray: ...
    @overload
    def __call__(self, x1: ArrayLike, x2: ArrayLike, /, out: UfuncOut = ..., **kwargs: Unpack[_Keywords]) -> Any: ...

class _UnaryPair(numpy.ufunc):  # type: ignore[misc]  # pyright: ignore[reportGeneralTypeIssues]
    @overload
    def __call__(self, x: DistArray, /, *out: UfuncOut, **kwargs: Unpack[_Keywords]) -> tuple[DistArray, DistArray]: ...
    @overload
    def __call__(self, x: ArrayLike, /, *out: UfuncOut, **kwargs: Unpack[_Keywords]) -> Any: ...

class _BinaryPair(numpy.ufunc):  # type: ignore[misc]  # pyright: ignore[reportGeneralTypeIssues]
    @overload
    def __call__(self, x1: DistArray, x2: ArrayLike, /, *out: UfuncOut, **kwargs: Unpack[_Keywords]) -> tuple[DistArray, DistArray]: ...
    @overload
    def __call__(self, x1: ArrayLike, x2: DistArray, /, *out: UfuncOut, **kwargs: Unpack[_Keywords]) -> tuple[DistArray, DistArray]: ...
    @overload
    def __call__(self, x1: ArrayLike, x2: ArrayLike, /, *out: UfuncOut, **kwargs: Unpack[_Keywords]) -> Any: ...

abs: _Unary
absolute: _Unary
acos: _Unary
acosh: _Unary
add: _Binary
arccos: _Unary
arccosh: _Unary
arcsin: _Unary
arcsinh: _Unary
arctan: _Unary
arctan2: _Binary
arctanh: _Unary
asin: _Unary
asinh: _Unary
atan: _Unary
atan2: _Binary
atanh: _Unary
bitwise_and: _Binary
bitwise_count: _Unary
bitwise_invert: _Unary
bitwise_left_shift: _Binary
bitwise_not: _Unary
bitwise_or: _Binary
bitwise_right_shift: _Binary
bitwise_xor: _Binary
cbrt: _Unary
ceil: _Unary
conj: _Unary
conjugate: _Unary
copysign: _Binary
cos: _Unary
cosh: _Unary
deg2rad: _Unary
degrees: _Unary
divide: _Binary
divmod: _BinaryPair
equal: _Binary
exp: _Unary
exp2: _Unary
expm1: _Unary
fabs: _Unary
float_power: _Binary
floor: _Unary
floor_divide: _Binary
fmax: _Binary
fmin: _Binary
fmod: _Binary
frexp: _UnaryPair
gcd: _Binary
greater: _Binary
greater_equal: _Binary
heaviside: _Binary
hypot: _Binary
invert: _Unary
isfinite: _Unary
isinf: _Unary
isnan: _Unary
isnat: _Unary
lcm: _Binary
ldexp: _Binary
left_shift: _Binary
less: _Binary
less_equal: _Binary
log: _Unary
log10: _Unary
log1p: _Unary
log2: _Unary
logaddexp: _Binary
logaddexp2: _Binary
logical_and: _Binary
logical_not: _Unary
logical_or: _Binary
logical_xor: _Binary
matmul: _Binary
matvec: _Binary
maximum: _Binary
minimum: _Binary
mod: _Binary
modf: _UnaryPair
multiply: _Binary
negative: _Unary
nextafter: _Binary
not_equal: _Binary
positive: _Unary
pow: _Binary
power: _Binary
rad2deg: _Unary
radians: _Unary
reciprocal: _Unary
remainder: _Binary
right_shift: _Binary
rint: _Unary
sign: _Unary
signbit: _Unary
sin: _Unary
sinh: _Unary
spacing: _Unary
sqrt: _Unary
square: _Unary
subtract: _Binary
tan: _Unary
tanh: _Unary
true_divide: _Binary
trunc: _Unary
vecdot: _Binary
vecmat: _Binary
