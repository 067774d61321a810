"""Comparison of distarray.numpy with the array API standard, as implemented by `array-api-strict`.

The module compares names, signatures and, with arrays cut over all ranks, the results of every
function for every data type that the standard allows. ``python -m distarray --array-api`` prints
the counts.
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, Protocol

import numpy as np

import distarray
import distarray.numpy as dnp
from distarray.comm import DeviceMesh

__all__ = ["DTYPES", "Report", "check_dtypes", "check_names", "check_signatures", "report"]

DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float32", "float64", "complex64", "complex128"),
)
#: Names of array-api-strict that are not in the standard.
_NOT_STANDARD = frozenset(
    {
        *("ArrayAPIStrictFlags", "Device", "get_array_api_strict_flags"),
        *("reset_array_api_strict_flags", "set_array_api_strict_flags"),
    }
)
_SPACES = ("", "linalg", "fft")

_UNARY = """
    abs acos acosh asin asinh atan atanh bitwise_invert ceil conj cos cosh exp expm1 floor imag
    isfinite isinf isnan log log1p log2 log10 logical_not negative positive real reciprocal round
    sign signbit sin sinh square sqrt tan tanh trunc argmax argmin all any max mean min prod std
    sum var cumulative_prod cumulative_sum count_nonzero diff nonzero sort argsort unique_all
    unique_counts unique_inverse unique_values matrix_transpose flip
    zeros_like ones_like tril triu unstack asarray broadcast_arrays
"""
_BINARY = """
    add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign
    divide equal floor_divide greater greater_equal hypot less less_equal logaddexp logical_and
    logical_or logical_xor maximum minimum multiply nextafter not_equal pow remainder subtract
"""


class _Standard(Protocol):
    """Protocol with the attributes of every array of the standard."""

    @property
    def dtype(self) -> Any:
        """Data type, an object of the library."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Extent of each dimension."""


Call = Callable[[ModuleType, Any], Any]
#: Calls of functions that take arguments besides arrays; a name may occur several times.
_CALLS: tuple[tuple[str, Call], ...] = (
    ("arange", lambda xp, x: xp.arange(7, dtype=x.dtype)),
    ("astype", lambda xp, x: xp.astype(x, x.dtype, copy=False, device=x.device)),
    ("astype", lambda xp, x: xp.astype(x, xp.float32)),
    ("broadcast_shapes", lambda xp, x: xp.broadcast_shapes(x.shape, (3,))),
    ("broadcast_to", lambda xp, x: xp.broadcast_to(x[:1, ...], (4, 3))),
    ("can_cast", lambda xp, x: xp.can_cast(x.dtype, x.dtype)),
    ("clip", lambda xp, x: xp.clip(x, min=x[0, 0], max=None)),
    ("concat", lambda xp, x: xp.concat((x, x), axis=1)),
    ("concat", lambda xp, x: xp.concat((x, x), axis=None)),
    ("cumulative_sum", lambda xp, x: xp.cumulative_sum(x, axis=0, include_initial=True)),
    ("diff", lambda xp, x: xp.diff(x, axis=0, n=2, prepend=x)),
    ("empty", lambda xp, x: xp.zeros_like(xp.empty((2, 3), dtype=x.dtype, device=x.device))),
    ("empty_like", lambda xp, x: xp.zeros_like(xp.empty_like(x))),
    ("expand_dims", lambda xp, x: xp.expand_dims(x, axis=1)),
    ("eye", lambda xp, x: xp.eye(4, 3, k=1, dtype=x.dtype)),
    ("finfo", lambda xp, x: xp.finfo(x.dtype).bits),
    ("flip", lambda xp, x: xp.flip(x, axis=(0, 1))),
    ("from_dlpack", lambda xp, x: xp.from_dlpack(xp.ones((2, 2), dtype=x.dtype))),
    ("full", lambda xp, x: xp.full((2, 3), 1, dtype=x.dtype)),
    ("full_like", lambda xp, x: xp.full_like(x, 1)),
    ("iinfo", lambda xp, x: xp.iinfo(x.dtype).max),
    ("isdtype", lambda xp, x: xp.isdtype(x.dtype, ("real floating", "signed integer"))),
    # array-api-strict 2.6 ignores `invert`.
    ("isin", lambda xp, x: xp.isin(x, x[:2, ...], invert=False)),
    ("linspace", lambda xp, x: xp.linspace(0, 5, 7, dtype=x.dtype, endpoint=False)),
    ("matmul", lambda xp, x: xp.matmul(x, x.mT)),
    ("mean", lambda xp, x: xp.mean(x, axis=0, keepdims=True)),
    ("meshgrid", lambda xp, x: xp.meshgrid(x[:, 0], x[0, :], indexing="ij")),
    ("moveaxis", lambda xp, x: xp.moveaxis(x, 0, 1)),
    ("ones", lambda xp, x: xp.ones((2, 3), dtype=x.dtype)),
    ("permute_dims", lambda xp, x: xp.permute_dims(x, (1, 0))),
    ("repeat", lambda xp, x: xp.repeat(x, 2, axis=0)),
    ("reshape", lambda xp, x: xp.reshape(x, (3, -1), copy=True)),
    ("result_type", lambda xp, x: xp.zeros(2, dtype=xp.result_type(x, xp.ones(1, dtype=xp.uint8)))),
    ("roll", lambda xp, x: xp.roll(x, 2, axis=0)),
    ("searchsorted", lambda xp, x: xp.searchsorted(xp.sort(x[:, 0]), x[:, 1], side="right")),
    ("sort", lambda xp, x: xp.sort(x, axis=0, descending=True)),
    ("argsort", lambda xp, x: xp.argsort(x, axis=0, descending=True, stable=True)),
    ("squeeze", lambda xp, x: xp.squeeze(x[:1, ...], axis=0)),
    ("stack", lambda xp, x: xp.stack((x, x), axis=1)),
    ("std", lambda xp, x: xp.std(x, axis=1, correction=1.0)),
    ("sum", lambda xp, x: xp.sum(x, axis=(0,), keepdims=True)),
    ("take", lambda xp, x: xp.take(x, xp.asarray([0, 2]), axis=0)),
    ("take_along_axis", lambda xp, x: xp.take_along_axis(x, xp.argsort(x, axis=0), axis=0)),
    ("tensordot", lambda xp, x: xp.tensordot(x, x, axes=((0,), (0,)))),
    ("tile", lambda xp, x: xp.tile(x, (2, 1))),
    ("tril", lambda xp, x: xp.tril(x, k=-1)),
    ("vecdot", lambda xp, x: xp.vecdot(x, x, axis=0)),
    ("where", lambda xp, x: xp.where(x == x[0, 0], x, xp.zeros_like(x))),
    ("where", lambda xp, x: xp.where(x == x[0, 0], x, 1)),
    ("zeros", lambda xp, x: xp.zeros((2, 3), dtype=x.dtype)),
    ("linalg.cholesky", lambda xp, x: xp.linalg.cholesky(_spread(xp, x), upper=True)),
    ("linalg.cross", lambda xp, x: xp.linalg.cross(x, x[:1, ...])),
    ("linalg.det", lambda xp, x: xp.linalg.det(_spread(xp, x))),
    ("linalg.diagonal", lambda xp, x: xp.linalg.diagonal(x, offset=1)),
    ("linalg.eig", lambda xp, x: xp.sort(xp.real(xp.linalg.eig(_spread(xp, x)).eigenvalues))),
    ("linalg.eigh", lambda xp, x: xp.linalg.eigh(_spread(xp, x)).eigenvalues),
    ("linalg.eigvals", lambda xp, x: xp.sort(xp.real(xp.linalg.eigvals(_spread(xp, x))))),
    ("linalg.eigvalsh", lambda xp, x: xp.linalg.eigvalsh(_spread(xp, x))),
    ("linalg.inv", lambda xp, x: xp.linalg.inv(_spread(xp, x))),
    ("linalg.matmul", lambda xp, x: xp.linalg.matmul(x.mT, x)),
    ("linalg.matrix_norm", lambda xp, x: xp.linalg.matrix_norm(x, ord="fro", keepdims=True)),
    ("linalg.matrix_power", lambda xp, x: xp.linalg.matrix_power(_spread(xp, x), 2)),
    ("linalg.matrix_rank", lambda xp, x: xp.linalg.matrix_rank(x, rtol=1e-3)),
    ("linalg.matrix_transpose", lambda xp, x: xp.linalg.matrix_transpose(x)),
    ("linalg.outer", lambda xp, x: xp.linalg.outer(x[:, 0], x[0, :])),
    ("linalg.pinv", lambda xp, x: xp.linalg.pinv(_spread(xp, x), rtol=1e-3)),
    ("linalg.qr", lambda xp, x: xp.abs(xp.linalg.qr(x, mode="reduced").R)),
    ("linalg.slogdet", lambda xp, x: xp.linalg.slogdet(_spread(xp, x))),
    ("linalg.solve", lambda xp, x: xp.linalg.solve(_spread(xp, x), x)),
    ("linalg.svd", lambda xp, x: xp.linalg.svd(x, full_matrices=False).S),
    ("linalg.svdvals", lambda xp, x: xp.linalg.svdvals(x)),
    ("linalg.tensordot", lambda xp, x: xp.linalg.tensordot(x, x.mT, axes=1)),
    ("linalg.trace", lambda xp, x: xp.linalg.trace(x, offset=-1)),
    ("linalg.vecdot", lambda xp, x: xp.linalg.vecdot(x, x)),
    ("linalg.vector_norm", lambda xp, x: xp.linalg.vector_norm(x, axis=0, ord=1)),
    ("fft.fftfreq", lambda xp, x: xp.fft.fftfreq(7, d=0.5, dtype=x.dtype)),
    ("fft.rfftfreq", lambda xp, x: xp.fft.rfftfreq(7, dtype=x.dtype, device=x.device)),
)
_TRANSFORMS = """
    fft ifft fftn ifftn rfft irfft rfftn irfftn hfft ihfft fftshift ifftshift
"""


def _spread(xp: ModuleType, x: _Standard) -> Any:
    """Compute a well-conditioned Hermitian matrix from the elements of `x`."""
    return xp.matmul(x, xp.matrix_transpose(xp.conj(x) if _is_complex(x) else x)) + 5 * xp.eye(
        x.shape[0], dtype=x.dtype
    )


def _is_complex(x: _Standard) -> bool:
    return "complex" in str(x.dtype)


def _calls() -> Iterator[tuple[str, Call]]:
    for name in _UNARY.split():
        yield name, _called(name)
        if name in ("sum", "prod", "max", "min", "any", "all", "argmax", "argmin"):
            yield name, _called(name, axis=0)
    for name in _BINARY.split():
        yield name, _called(name, lambda x: x[:1, ...])
        yield name, _called(name, lambda x: 1)
    for name in _TRANSFORMS.split():
        yield f"fft.{name}", _called(f"fft.{name}")
    yield from _CALLS


@cache
def _all_calls() -> tuple[tuple[str, Call], ...]:
    return tuple(_calls())


def _called(name: str, *others: Callable[[Any], Any], **keywords: int) -> Call:
    """Build a call of a function with an array, operands derived from it, and keywords."""

    def call(xp: ModuleType, x: Any) -> Any:
        return _function(xp, name)(x, *[other(x) for other in others], **keywords)

    return call


def _function(xp: ModuleType, name: str) -> Any:
    found: Any = xp
    for part in name.split("."):
        found = getattr(found, part)
    return found


# -- the three comparisons -------------------------------------------------------------------------


@dataclass
class Report:
    """Counts of one comparison, and the differences.

    Attributes
    ----------
    title : str
        The name of the comparison.
    agree, total : int
        Number of items that agree, and of all items.
    differ : list of str
        The items that differ, each with the difference.
    """

    title: str
    agree: int = 0
    total: int = 0
    differ: list[str] = field(default_factory=list)

    def note(self, name: str, fault: str | None) -> None:
        """Count one item; `fault` is its difference or None."""
        self.total += 1
        self.agree += fault is None
        if fault is not None:
            self.differ.append(f"{name}: {fault}")

    def __str__(self) -> str:
        head = f"{self.title:<34} {self.agree:>5} of {self.total}"
        return "\n".join([head, *[f"    {line}" for line in self.differ]])


def _standard() -> Any:
    return import_module("array_api_strict")


def _members(space: str) -> Iterator[tuple[str, Any]]:
    """Yield the standard's names in a namespace ("": main) with array-api-strict's objects."""
    home = getattr(_standard(), space) if space else _standard()
    for name in sorted(home.__all__):
        if name not in _NOT_STANDARD:
            yield (f"{space}.{name}" if space else name), getattr(home, name)


def check_names() -> list[Report]:
    """Check that every name exists: of each namespace, of arrays, of the namespace's info."""
    reports = []
    for space in _SPACES:
        found = Report(f"names {space or 'main'}")
        for name, _ in _members(space):
            found.note(name, None if _has(dnp, name) else "missing")
        reports.append(found)
    array = Report("attributes and methods of arrays")
    wanted = type(_standard().zeros(1))
    common = set(dir(object)) | {"__annotations__", "__weakref__", "__buffer__", "__module__"}
    for name in sorted(set(dir(wanted)) - common):
        if not name.startswith("_") or name.startswith("__"):
            array.note(name, None if hasattr(distarray.DistArray, name) else "missing")
    info = Report("methods of __array_namespace_info__")
    for name in ("capabilities", "default_device", "default_dtypes", "devices", "dtypes"):
        mine, theirs = (getattr(xp.__array_namespace_info__(), name)() for xp in (dnp, _standard()))
        same = name in ("default_device", "devices") or set(mine) == set(theirs)
        info.note(name, None if same else f"{mine} is not {theirs}")
    return [*reports, array, info]


def _has(module: ModuleType, name: str) -> bool:
    try:
        _function(module, name)
    except AttributeError:
        return False
    return True


def check_signatures() -> Report:
    """Check that every function accepts the standard's signature, keyword by keyword."""
    found = Report("signatures")
    for space in _SPACES:
        for name, function in _members(space):
            if callable(function) and not inspect.isclass(function) and _has(dnp, name):
                found.note(name, _signature_fault(_function(dnp, name), function))
    return found


def _signature_fault(mine: Callable[..., Any], standard: Callable[..., Any]) -> str | None:
    given: list[None] = []
    named: dict[str, None] = {}
    signature = inspect.signature(mine)
    open_ended = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
    for name, parameter in inspect.signature(standard).parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY:
            named[name] = None
        else:
            given += [None, None] if parameter.kind is parameter.VAR_POSITIONAL else [None]
        by_name = parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        if by_name and name not in signature.parameters and not open_ended:
            return f"has no keyword {name}"
    try:
        signature.bind(*given, **named)
    except TypeError as error:
        return str(error)
    return None


def check_dtypes(mesh: DeviceMesh | None = None) -> Report:
    """Check the results of every function for every data type that the standard allows.

    Every rank of the mesh must call this function.

    Parameters
    ----------
    mesh : DeviceMesh, optional
        The mesh over which the operands are cut; the default mesh if omitted.
    """
    found = Report("results, function by data type")
    with np.errstate(all="ignore"):
        for dtype in DTYPES:
            values = _values(dtype)
            x = distarray.distribute(values, mesh, [distarray.Shard(0)], src=None)
            for number, (name, call) in enumerate(_all_calls()):
                wanted = _allowed(number, dtype)
                if wanted is not None:
                    fault = _result_fault(call, x, wanted[0])
                    found.note(f"{name} ({dtype}, call {number})", fault)
    return found


def _values(dtype: str) -> Any:
    rng = np.random.default_rng(5)
    values: Any = rng.integers(0, 5, (5, 3))
    if "float" in dtype or "complex" in dtype:
        values = values / 4 + rng.random((5, 3)) / 8
    values = values.astype(dtype)
    return values + 1j * values[::-1].astype(dtype) if "complex" in dtype else values


@cache
def _allowed(number: int, dtype: str) -> tuple[Any] | None:
    """Return array-api-strict's result of a call in a tuple; None if the standard defines none."""
    standard, (_, call) = _standard(), _all_calls()[number]
    try:
        return (call(standard, standard.asarray(_values(dtype))),)
    except (TypeError, ValueError, OverflowError):
        return None


def _result_fault(call: Call, x: distarray.DistArray, wanted: Any) -> str | None:
    try:
        found = call(dnp, x)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return _difference(found, wanted)


def _difference(found: Any, wanted: Any) -> str | None:
    """Describe the difference between a result and the standard's; None if they agree."""
    if isinstance(wanted, (tuple, list)) and not isinstance(found, distarray.DistArray):
        return _difference_of_several(found, wanted)
    if not hasattr(wanted, "shape"):
        return None if found == wanted else f"{found!r}, not {wanted!r}"
    if not isinstance(found, (distarray.DistArray, np.generic)):
        return f"a {type(found).__name__}, not a DistArray"
    expected = np.asarray(wanted)
    if (found.shape, found.dtype) != (expected.shape, expected.dtype):
        return f"{found.dtype} {found.shape}, not {expected.dtype} {expected.shape}"
    values = np.asarray(found)
    close = np.allclose(values, expected, rtol=1e-4, atol=1e-5, equal_nan=True)
    return None if close else f"{values!r}, not {expected!r}"


def _difference_of_several(found: Sequence[Any], wanted: Sequence[Any]) -> str | None:
    if len(found) != len(wanted):
        return f"{len(found)} results, not {len(wanted)}"
    if getattr(wanted, "_fields", None) != getattr(found, "_fields", None):
        return f"fields {getattr(found, '_fields', None)}"
    faults = [_difference(one, other) for one, other in zip(found, wanted, strict=True)]
    return next((fault for fault in faults if fault is not None), None)


def report(mesh: DeviceMesh | None = None) -> list[Report]:
    """Run all comparisons; collective over the ranks of the mesh."""
    return [*check_names(), check_signatures(), check_dtypes(mesh)]
