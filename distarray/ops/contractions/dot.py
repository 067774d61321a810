"""dot, vdot, inner, outer, tensordot and kron: products over dimensions given by position."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from distarray.array import DistArray, Objects, as_distarray, implements, to_layout
from distarray.array.one_rank import Alone
from distarray.array.portable import conjugated
from distarray.array.small import bounded, of_product
from distarray.array.storage import is_contiguous
from distarray.config import config
from distarray.engines.blockwise import apply_blockwise
from distarray.engines.contracting.contract import contract, deliver
from distarray.engines.contracting.kernels import labelled_kernel
from distarray.engines.contracting.operands import (
    common_shape,
    probe,
    raise_as_numpy,
    read,
)
from distarray.engines.contracting.program import Program, program_for
from distarray.engines.reshaping import in_line, refitted
from distarray.layout import Layout
from distarray.plan import Contraction
from distarray.typing import Array, ArrayLike, DType, Out, Shape

__all__ = ["dot", "inner", "kron", "outer", "tensordot", "vdot"]

#: Pairs of summed dimensions: one of the first operand, one of the second.
Pairs = tuple[tuple[int, int], ...]
#: NumPy's function, without its dispatch.
_numpys_own: Any = getattr(np.dot, "_implementation", np.dot)
#: Type codes of elements that NumPy multiplies with BLAS.
_OF_BLAS = "fdFD"
_PLANE = (1, 2)
#: Maximum number of elements of a product that is small for every data type.
_MOST = 1 << 14


def _paired(
    a: DistArray, b: DistArray, pairs: Pairs, dtype: DType, scalar: bool = True
) -> DistArray:
    """Sum products over pairs of dimensions; the remaining dimensions follow in order."""
    small = config.settings.replicate_below
    types = a.block.dtype, b.block.dtype
    program = _program(a.layout, b.layout, *types, pairs, dtype, scalar, small)
    return contract(program, (a, b))


@lru_cache(maxsize=4096)
def _program(
    first: Layout,
    second: Layout,
    a: DType,
    b: DType,
    pairs: Pairs,
    dtype: DType,
    scalar: bool,
    small: int,
) -> Program:
    spec = _spec(first.shape, second.shape, pairs)
    return program_for(labelled_kernel(spec), spec, (first, second), (a, b), dtype, scalar, small)


def _spec(a: Shape, b: Shape, pairs: Pairs) -> Contraction:
    partner = {right: left for left, right in pairs}
    extents, labels = list(a), []
    for dim, extent in enumerate(b):
        if dim in partner:
            labels.append(partner[dim])
        else:
            labels.append(len(extents))
            extents.append(extent)
    summed = set(partner.values())
    out = [label for label in range(len(extents)) if label not in summed]
    return Contraction((tuple(range(len(a))), tuple(labels)), tuple(out), tuple(extents))


def _are_not_vectors(a: ArrayLike, b: ArrayLike, out: Out = None) -> bool:
    """Return False if NumPy should compute a product: our products of integers are faster."""
    operands: tuple[Any, Any] = (a, b)
    return any(getattr(x, "ndim", 0) != 1 or x.dtype.kind not in "fc" for x in operands)


def _small(a: Any, b: Any, out: Any = None) -> Any:
    """Compute NumPy's product of vectors and matrices; NotImplemented if it may be large."""
    if type(a) is not np.ndarray or type(b) is not np.ndarray:
        return NotImplemented
    if out is not None:
        return _small_into(a, b, out)
    if a.ndim == b.ndim == 1:
        return _numpys_own(a, b)
    if a.ndim not in _PLANE or b.ndim not in _PLANE or a.size * b.size > _MOST * a.shape[-1] ** 2:
        return NotImplemented
    return _numpys_own(a, b)


def _small_into(a: Array, b: Array, out: Any) -> Any:
    """Compute NumPy's product into `out`, which NumPy checks."""
    kind: Any = type(out)
    return _numpys_own(a, b, out) if kind is np.ndarray else NotImplemented


@implements(np.dot, alone=Alone(unless=_are_not_vectors), small=_small, objects=Objects.GATHER)
def dot(a: ArrayLike, b: ArrayLike, out: Out = None) -> Any:
    """Sum over the last dimension of `a` and the last but one of `b`, as :func:`numpy.dot`.

    Cost
    ----
    The cost of :func:`numpy.matmul`. NumPy requires `out` to be contiguous in C order: one
    allreduce of an integer if a block of `out` does not show this.
    """
    (x, y), _ = read(a, b, out=out)
    dtype = probe(np.dot, x.dtype, y.dtype)
    scaling = not x.ndim or not y.ndim
    if scaling and out is not None and not _is_of_blas(x, y, dtype):
        multiply: Any = np.multiply
        scaled = multiply(x, y, out=out)  # NumPy does so, too, with casting and broadcasting
        return scaled if out.ndim else scaled[()]
    result = _scaled(x, y) if scaling else _dot(x, y, dtype)
    if out is None:
        return result
    if not _is_acceptable(out, result.ndim, dtype):
        raise ValueError(
            "output array is not acceptable (must have the right datatype, number of dimensions, "
            "and be a C-Array)"
        )
    if out.shape != result.shape:
        raise ValueError("output array has wrong dimensions")
    delivered = deliver(result, out)
    return delivered if out.ndim else delivered[()]  # a scalar, as in NumPy


def _dot(x: DistArray, y: DistArray, dtype: DType) -> DistArray:
    axis = y.ndim - 1 if y.ndim == 1 else y.ndim - 2
    if x.shape[-1] != y.shape[axis]:
        raise _not_aligned(x.shape, y.shape, x.ndim - 1, axis)
    return _paired(x, y, ((x.ndim - 1, axis),), dtype)


def _is_acceptable(out: DistArray | Array, ndim: int, dtype: DType) -> bool:
    if out.ndim != ndim or out.dtype != dtype:
        return False
    if isinstance(out, DistArray):
        return is_contiguous(out, "C")
    return bool(out.flags.c_contiguous)


def _scaled(x: DistArray, y: DistArray) -> Any:
    """Multiply by a 0-d operand; BLAS adds the product to zeros, so that no zero is negative."""
    result: Any = apply_blockwise(np.multiply, [x, y])
    added = result.size > 1 and _is_of_blas(x, y, result.dtype)
    return result + result.dtype.type(0) if added else result


def _is_of_blas(x: DistArray, y: DistArray, dtype: DType) -> bool:
    """Return True if NumPy computes a product with a 0-d operand by BLAS, not by multiplication."""
    return dtype.char in _OF_BLAS and max(x.ndim, y.ndim) <= 2


def _not_aligned(a: Sequence[int], b: Sequence[int], left: int, right: int) -> ValueError:
    first, second = [str(tuple(shape)).replace(" ", "") for shape in (a, b)]
    return ValueError(
        f"shapes {first} and {second} not aligned: {a[left]} (dim {left}) != "
        f"{b[right]} (dim {right})"
    )


@implements(
    np.inner,
    alone=Alone(unless=_are_not_vectors),
    small=bounded(np.inner, of_product),
    objects=Objects.GATHER,
)
def inner(a: ArrayLike, b: ArrayLike, /) -> Any:
    """Sum over the last dimension of both operands, as :func:`numpy.inner`."""
    (x, y), _ = read(a, b)
    dtype = probe(np.inner, x.dtype, y.dtype)
    if not x.ndim or not y.ndim:
        return _scaled(x, y)
    if x.shape[-1] != y.shape[-1]:
        # NumPy's error text is about the transposed second operand.
        flipped = y.shape if y.ndim == 1 else (*y.shape[:-2], y.shape[-1], y.shape[-2])
        raise _not_aligned(x.shape, flipped, x.ndim - 1, max(0, y.ndim - 2))
    return _paired(x, y, ((x.ndim - 1, y.ndim - 1),), dtype)


@implements(np.vdot, alone=Alone(unless=_are_not_vectors), objects=Objects.GATHER)
def vdot(a: ArrayLike, b: ArrayLike, /) -> Any:
    """Sum ``conj(a) * b`` over all elements, as :func:`numpy.vdot`; one allreduce.

    Operands of equal shape are not flattened: nothing is sent if their layouts agree.
    """
    (x, y), _ = read(a, b)
    dtype = probe(np.vdot, x.dtype, y.dtype)
    if x.size != y.size:
        raise ValueError(f"cannot reshape array of size {y.size} into shape ({x.size},)")
    if x.shape != y.shape:
        x, y = in_line(x), in_line(y)
    x = as_distarray(conjugated(x), x.mesh)  # conjugating a 0-d array gives a number
    return _paired(x, y, tuple([(d, d) for d in range(x.ndim)]), dtype)


@implements(np.outer, small=bounded(np.outer, of_product), objects=Objects.GATHER)
def outer(a: ArrayLike, b: ArrayLike, out: Out = None) -> Any:
    """Multiply all pairs of elements, as :func:`numpy.outer`; cut as `a` is, or as `b` is."""
    (x, y), _ = read(a, b, out=out)
    dtype = probe(np.outer, x.dtype, y.dtype)
    result = _paired(in_line(x), in_line(y), (), dtype)
    if out is not None:
        fits = common_shape(out.shape, result.shape) == out.shape
        if not fits or not np.can_cast(dtype, out.dtype, "same_kind"):
            column, row = np.ones((x.size, 1), dtype), np.ones((1, y.size), dtype)
            np.multiply(column, row, out=np.empty(out.shape, out.dtype))
    return deliver(result, out)


@implements(np.linalg.outer, small=bounded(np.linalg.outer, of_product), objects=Objects.GATHER)
def _linalg_outer(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    (x, y), _ = read(x1, x2)
    if x.ndim != 1 or y.ndim != 1:
        raise ValueError(
            "Input arrays must be one-dimensional, but they are "
            f"x1.ndim={x.ndim!r} and x2.ndim={y.ndim!r}."
        )
    return outer(x, y)


@implements(np.tensordot, small=bounded(np.tensordot, of_product), objects=Objects.GATHER)
def tensordot(a: ArrayLike, b: ArrayLike, axes: int | Sequence[Any] = 2) -> Any:
    """Sum over pairs of dimensions, as :func:`numpy.tensordot`."""
    (x, y), _ = read(a, b)
    dtype = probe(np.dot, x.dtype, y.dtype)
    pairs = _pairs(x, y, axes)
    result = _paired(x, y, pairs, dtype, scalar=False)
    if not pairs and dtype.kind in "fc":
        result += 0.0  # NumPy sums the products from 0, so that none is -0.0
    return result


def _pairs(a: DistArray, b: DistArray, axes: int | Sequence[Any]) -> Pairs:
    named: Any = axes
    try:
        iter(named)
    except TypeError:
        left, right = list(range(-named, 0)), list(range(named))
    else:
        left, right = [list(e) if np.iterable(e) else [e] for e in named]
    fits = len(left) == len(right) and len(set(left)) == len(left) and len(set(right)) == len(right)
    if fits:
        for d, e in zip(left, right, strict=True):
            inside = -a.ndim <= d < a.ndim and -b.ndim <= e < b.ndim
            fits = fits and inside and a.shape[d] == b.shape[e]
    if not fits:
        raise_as_numpy(np.tensordot, a, b, axes=axes)
    return tuple([(d % a.ndim, e % b.ndim) for d, e in zip(left, right, strict=True)])


@implements(
    np.linalg.tensordot, small=bounded(np.linalg.tensordot, of_product), objects=Objects.GATHER
)
def _linalg_tensordot(x1: ArrayLike, x2: ArrayLike, /, *, axes: int | Sequence[Any] = 2) -> Any:
    return tensordot(x1, x2, axes=axes)


@implements(np.kron, small=bounded(np.kron, of_product), objects=Objects.GATHER)
def kron(a: ArrayLike, b: ArrayLike) -> Any:
    """Multiply each element of `a` by the whole of `b`, as :func:`numpy.kron`.

    Returns
    -------
    DistArray
        Cut along the dimensions where `a` is, or can be, cut.

    Cost
    ----
    `a` stays in place and `b` becomes whole on every rank, which is less than a rank's block of
    the result. If `a` has fewer elements than there are ranks, `b` stays in place and one
    exchange puts the result in order.
    """
    (x, y), mesh = read(a, b)
    dtype = probe(np.multiply, x.dtype, y.dtype)
    if not x.ndim or not y.ndim:
        return np.multiply(x, y)
    ndim = max(x.ndim, y.ndim)
    x, y = [v[(None,) * (ndim - v.ndim)] for v in (x, y)]
    if x.size >= mesh.size():
        y = to_layout(y, Layout.replicated(y.shape, mesh.shape))
    spec = _crossed(x.shape, y.shape)
    layouts, dtypes = (x.layout, y.layout), (x.dtype, y.dtype)
    program = program_for(labelled_kernel(spec), spec, layouts, dtypes, dtype)
    shape = tuple([m * n for m, n in zip(x.shape, y.shape, strict=True)])
    return refitted(contract(program, (x, y)), shape)


@lru_cache(maxsize=1024)
def _crossed(a: Shape, b: Shape) -> Contraction:
    """Label all products; the dimensions of the two operands alternate in the result."""
    first = tuple(range(0, 2 * len(a), 2))
    second = tuple(range(1, 2 * len(a), 2))
    extents = tuple([extent for pair in zip(a, b, strict=True) for extent in pair])
    return Contraction((first, second), tuple(range(2 * len(a))), extents)
