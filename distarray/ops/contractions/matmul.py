"""The generalized ufuncs that multiply matrices and vectors: matmul, vecdot, matvec, vecmat."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from distarray.array import DistArray, Objects, implements
from distarray.array.base import check_out
from distarray.array.portable import refuse_read_only
from distarray.config import config
from distarray.engines.contracting.contract import contract, deliver
from distarray.engines.contracting.kernels import ufunc_kernel
from distarray.engines.contracting.operands import (
    common_shape,
    moved_axes,
    numbers,
    raise_as_numpy,
    read,
    shadow,
)
from distarray.engines.contracting.program import Program, program_for
from distarray.layout import Layout
from distarray.plan import Contraction
from distarray.typing import Array, ArrayLike, DType, Out, UfuncOut

__all__ = ["PRODUCTS", "matmul", "program_of"]

#: Keywords that name the core dimensions.
_AXES = ("axes", "axis", "keepdims")
#: Keywords that change only the data type of the result, or nothing.
_OTHERS = ("casting", "order", "dtype", "subok", "signature")

#: Names of the ufuncs that multiply the complex conjugates of the first operand's elements.
_CONJUGATING = ("vecdot", "vecmat")

#: Core dimensions of the operands and of the result, as letters.
_CORES: dict[np.ufunc, tuple[str, str, str]] = {np.matmul: ("nk", "km", "nm")}
for _name, _letters in (
    ("vecdot", ("k", "k", "")),
    ("matvec", ("nk", "k", "n")),
    ("vecmat", ("k", "km", "m")),
):
    if hasattr(np, _name):  # matvec and vecmat are NumPy 2.2's
        _CORES[getattr(np, _name)] = _letters


def _gufunc(ufunc: np.ufunc, *inputs: Any, out: UfuncOut = None, **keywords: Any) -> Any:
    if len(inputs) == 2 and out is None and not keywords:
        a, b = inputs
        if type(a) is DistArray and type(b) is DistArray and a.mesh is b.mesh:
            return _product(ufunc, a, b)
    return _with_keywords(ufunc, inputs, out, keywords)


def _with_keywords(
    ufunc: np.ufunc, inputs: Sequence[Any], out: UfuncOut, keywords: dict[str, Any]
) -> Any:
    """Multiply operands of any kind, with the keywords of ufuncs."""
    inputs, into = _targeted(inputs, out)
    if into is not None:
        check_out(into)
        refuse_read_only(into, "output array is read-only")
    if any(type(x) in (bool, int, float, complex) for x in inputs):
        ufunc(*[x if not isinstance(x, DistArray) else shadow(x) for x in inputs])  # raises
    (a, b), _ = read(*inputs, out=into)
    if into is None and not keywords:
        return _product(ufunc, a, b)
    dtype = _dtype(ufunc, a.dtype, b.dtype, into, keywords)
    how: dict[str, Any] = {name: keywords[name] for name in _AXES if name in keywords}
    result = _along_axes(ufunc, a, b, dtype, how) if how else _product(ufunc, a, b, dtype, into)
    return _delivered(ufunc, (a, b), result, into, how)


def _targeted(inputs: Sequence[Any], out: UfuncOut) -> tuple[Sequence[Any], Any]:
    """Return the two operands, and the array to write to, or None."""
    if len(inputs) > 2:
        inputs, out = inputs[:2], inputs[2]
    if isinstance(out, tuple):
        out = out[0]
    return inputs, out


def _dtype(
    ufunc: np.ufunc, a: DType, b: DType, out: DistArray | Array | None, keywords: dict[str, Any]
) -> DType:
    """Return the data type of the result before the cast to `out`; raise NumPy's exceptions."""
    for name in keywords:
        if name not in (*_AXES, *_OTHERS):
            raise TypeError(f"{ufunc.__name__}() got an unexpected keyword argument '{name}'")
    how: dict[str, Any] = {"casting": keywords.get("casting", "same_kind")}
    if keywords.get("signature") is not None:
        how["signature"] = keywords["signature"]
    if keywords.get("dtype") is not None:
        how["signature"] = (None, None, np.dtype(keywords["dtype"]))
    found = ufunc.resolve_dtypes((a, b, None if out is None else out.dtype), **how)
    numbers(found[-1])
    return found[-1]


def _product(
    ufunc: np.ufunc,
    a: DistArray,
    b: DistArray,
    dtype: DType | None = None,
    out: Out = None,
) -> DistArray:
    """Multiply over the last dimensions; stacks are broadcast."""
    small = config.settings.replicate_below
    types = a.block.dtype, b.block.dtype
    program = _program(ufunc, a.layout, b.layout, *types, dtype, small)
    if out is not None and (type(out) is not DistArray or out.shape != program.spec.shape):
        out = None
    return contract(program, (a, b), out)


def program_of(ufunc: np.ufunc, a: DistArray, b: DistArray) -> Program:
    """Return the program that multiplies two arrays; does not communicate."""
    small, types = config.settings.replicate_below, (a.dtype, b.dtype)
    return _program(ufunc, a.layout.settled(), b.layout.settled(), *types, None, small)


@lru_cache(maxsize=4096)
def _program(
    ufunc: np.ufunc,
    first: Layout,
    second: Layout,
    a: DType,
    b: DType,
    dtype: DType | None,
    small: int,
) -> Program:
    if dtype is None:
        dtype = _dtype(ufunc, a, b, None, {})
    spec = _spec(ufunc, first.shape, second.shape)
    left, right, made = _core(ufunc, first.ndim, second.ndim)
    kernel = ufunc_kernel(ufunc, f"...{left},...{right}->...{made}")
    return program_for(kernel, spec, (first, second), (a, b), dtype, small=small)


def _core(ufunc: np.ufunc, *ndims: int) -> tuple[str, str, str]:
    """Return the core dimensions; matmul has no rows or columns where an operand is a vector."""
    left, right, made = _CORES[ufunc]
    if ufunc is np.matmul and ndims[0] == 1:
        left, made = "k", made.replace("n", "")
    if ufunc is np.matmul and ndims[1] == 1:
        right, made = "k", made.replace("m", "")
    return left, right, made


@lru_cache(maxsize=4096)
def _spec(ufunc: np.ufunc, a: tuple[int, ...], b: tuple[int, ...]) -> Contraction:
    """Return the labels of a call; raise NumPy's exception if the shapes do not fit."""
    left, right, made = _core(ufunc, len(a), len(b))
    core: dict[str, int] = {}
    fits = len(a) >= len(left) and len(b) >= len(right)
    for letters, shape in ((left, a), (right, b)) if fits else ():
        for letter, extent in zip(letters, shape[len(shape) - len(letters) :], strict=True):
            fits = fits and core.setdefault(letter, extent) == extent
    stacks = a[: len(a) - len(left)], b[: len(b) - len(right)]
    stack = common_shape(*stacks)
    if not fits or stack is None:
        raise_as_numpy(ufunc, np.broadcast_to(0.0, a), np.broadcast_to(0.0, b))
    number = {letter: len(stack) + n for n, letter in enumerate(core)}
    terms = []
    for letters, shape in ((left, stacks[0]), (right, stacks[1])):
        lead = len(stack) - len(shape)
        labels = [lead + d if n == stack[lead + d] else -1 for d, n in enumerate(shape)]
        terms.append((*labels, *[number[letter] for letter in letters]))
    result = (*range(len(stack)), *[number[letter] for letter in made])
    extents = (*stack, *core.values())
    return Contraction(tuple(terms), result, extents, ufunc.__name__ in _CONJUGATING)


def _delivered(
    ufunc: np.ufunc,
    operands: Sequence[DistArray],
    result: DistArray,
    out: DistArray | Array | None,
    how: dict[str, Any],
) -> Any:
    if out is None or out is result:
        return result
    if out.shape != result.shape:
        fits = common_shape(out.shape, result.shape) == out.shape
        core = len(_core(ufunc, operands[0].ndim, operands[1].ndim)[2])
        if not fits or out.shape[out.ndim - core :] != result.shape[result.ndim - core :]:
            raise_as_numpy(ufunc, *operands, out=np.empty(out.shape, out.dtype), **how)
    return deliver(result, out)


def _along_axes(
    ufunc: np.ufunc, a: DistArray, b: DistArray, dtype: DType, how: dict[str, Any]
) -> DistArray:
    """Multiply over the dimensions in `axes` or `axis`, which also place the result's."""
    # NumPy raises for wrong dimensions, whatever the extents.
    made = ufunc(np.ones((1,) * a.ndim), np.ones((1,) * b.ndim), **how)
    core = _core(ufunc, a.ndim, b.ndim)
    named = how.get("axes")
    if named is None:
        axis = how.get("axis", -1)
        named = [(axis,)] * 2 if ufunc is not np.matmul else [(-2, -1)[-len(c) :] for c in core]
    named = [tuple(entry) if isinstance(entry, (tuple, list)) else (entry,) for entry in named]
    keepdims = bool(how.get("keepdims"))
    kept = (-1,) if how.get("axes") is not None else named[0]  # `axis` places the result's, too
    target = named[2] if len(named) > 2 else kept if keepdims else ()
    result = _product(ufunc, _core_last(a, named[0]), _core_last(b, named[1]), dtype, None)
    if keepdims:
        result = result[..., None]
    axes = [normalize_axis_index(axis, np.ndim(made)) for axis in target]
    order = [d for d in range(result.ndim) if d < result.ndim - len(axes)]
    for position, axis in sorted(zip(axes, range(result.ndim - len(axes), result.ndim))):
        order.insert(position, axis)
    return moved_axes(result, order)


def _core_last(x: DistArray, axes: Sequence[int]) -> DistArray:
    core = [normalize_axis_index(axis, x.ndim) for axis in axes]
    return moved_axes(x, [*[d for d in range(x.ndim) if d not in core], *core])


#: Ufuncs whose products this module plans.
PRODUCTS = frozenset(_CORES)


@implements(np.matmul, objects=Objects.GATHER)
def matmul(*args: ArrayLike, **kwargs: Any) -> Any:
    """Multiply matrices, as :func:`numpy.matmul`, with its keywords.

    Cost
    ----
    Nothing where the operands' cuts already fit (rows of `x1` cut, `x2` whole; equal stacks cut
    alike). Where the cuts make partial products (columns of `x1` and rows of `x2` cut alike), these
    are folded: one allreduce of a small result, or one reduce-scatter of a large one, which is then
    cut. Otherwise the operand that is cheaper to move is sent, in panels if it is large.
    """
    return _gufunc(np.matmul, *args, **kwargs)


def _implement(ufunc: np.ufunc) -> None:
    @implements(ufunc, objects=Objects.GATHER)
    def multiply(*args: ArrayLike, **kwargs: Any) -> Any:
        return _gufunc(ufunc, *args, **kwargs)


for _ufunc in _CORES:
    if _ufunc is not np.matmul:
        _implement(_ufunc)


@implements(np.linalg.matmul, objects=Objects.GATHER)
def _linalg_matmul(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    return matmul(x1, x2)


@implements(np.linalg.vecdot, objects=Objects.GATHER)
def _linalg_vecdot(x1: ArrayLike, x2: ArrayLike, /, *, axis: int = -1) -> Any:
    return _gufunc(np.vecdot, x1, x2, axis=axis)
