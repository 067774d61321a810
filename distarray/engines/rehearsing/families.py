"""Results of families of NumPy's functions for hollow blocks: shapes and data types."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from distarray.engines.rehearsing.hollow import RULES, hollow, is_hollow, probe, tried
from distarray.engines.rehearsing.results import left
from distarray.typing import Array, ArrayLike, Axes, Axis, DType

_TYPES: list[Any] = [
    type(function(np.eye(1)))
    for function in (
        np.linalg.qr, np.linalg.svd, np.linalg.eigh, np.linalg.eig, np.linalg.slogdet
    )
]  # fmt: skip
_QR, _SVD, _EIGH, _EIG, _SLOGDET = _TYPES
#: Function from the data type of an operand to that of the result.
_Dtype = Callable[[DType], DType]


# -- element by element ---------------------------------------------------------------------------


def _each(function: Callable[..., Any], places: slice, *args: Any, **kwargs: Any) -> Any:
    """Return a hollow result: shape of the arguments in `places`, type of a call without data."""
    if kwargs.get("out") is not None:
        return kwargs["out"]
    shape = np.broadcast_shapes(*[np.shape(x) for x in args[places]])
    made = function(*[probe(x) if is_hollow(x) else x for x in args], **kwargs)
    return hollow(shape, made.dtype)


def _selected(
    conditions: Sequence[ArrayLike], choices: Sequence[ArrayLike], default: ArrayLike = 0
) -> Any:
    shape = np.broadcast_shapes(*[np.shape(x) for x in (*conditions, *choices, default)])
    return hollow(shape, np.result_type(*choices, default))


# -- along an axis --------------------------------------------------------------------------------


def _counted(a: Array, axis: Axes = None, *, keepdims: bool = False) -> Any:
    return hollow(left(a.shape, axis, keepdims), np.intp)


def _middle(
    a: Array, axis: Axes = None, out: Array | None = None, _: object = None, keepdims: bool = False
) -> Any:
    return out if out is not None else hollow(left(a.shape, axis, keepdims is True), mean(a.dtype))


def _quantile(
    a: Array,
    q: ArrayLike,
    axis: Axes = None,
    out: Array | None = None,
    *_: object,
    **keywords: object,
) -> Any:
    if out is not None:
        return out
    rest = left(a.shape, axis, keywords.get("keepdims") is True)
    return hollow((*np.shape(q), *rest), mean(a.dtype))


def mean(dtype: DType) -> DType:
    """Return the data type of a mean."""
    return np.mean(np.zeros(1, dtype)).dtype


def _along(a: Array, indices: Array, *_: object, **__: object) -> Any:
    return hollow(indices.shape, a.dtype)


def _order(a: Array, *_: object, **__: object) -> Any:
    return hollow(a.shape, np.intp)


def _deleted(a: Array, chosen: Any, axis: Axis = None) -> Any:
    if is_hollow(chosen):
        return tried(np.delete, (a, chosen, axis), {})
    shape = [a.size] if axis is None else list(a.shape)
    place = axis or 0
    shape[place] = np.delete(np.zeros(shape[place], bool), chosen).size
    return hollow(shape, a.dtype)


def _packed(a: Array, axis: Axis = None, *_: object, **__: object) -> Any:
    shape = [a.size] if axis is None else list(a.shape)
    shape[axis or 0] = -(-shape[axis or 0] // 8)
    return hollow(shape, np.uint8)


# -- one-dimensional arrays -----------------------------------------------------------------------


def _convolved(a: Array, v: Array, mode: str = "full") -> Any:
    n, m = max(a.size, v.size), min(a.size, v.size)
    size = {"f": n + m - 1, "s": n, "v": n - m + 1}[mode[0]]
    return hollow(size, np.result_type(a.dtype, v.dtype))


def _powers(x: Array, N: int | None = None, increasing: bool = False) -> Any:
    kind = np.result_type(x.dtype, int)
    return hollow((x.size, x.size if N is None else N), kind)


def _histogram(
    a: Array, bins: ArrayLike = 10, range: tuple[float, float] | None = None, **kwargs: Any
) -> Any:
    if is_hollow(bins) or (range is None and np.ndim(bins) == 0):
        return tried(np.histogram, (a, bins, range), kwargs)
    weights = kwargs.get("weights")
    edges = np.histogram(np.zeros(0), bins, range)[1]
    kind = np.intp if weights is None else weights.dtype
    return hollow(len(edges) - 1, float if kwargs.get("density") else kind), edges


def _summed(*args: Any, **kwargs: Any) -> Any:
    """Return the hollow result of an einsum, from the extents of its subscripts."""
    operands, given = args[1:], []
    made: Any = None
    if isinstance(args[0], str) and "->" in args[0] and "." not in args[0]:
        before, made = args[0].replace(" ", "").split("->")
        given = before.split(",")
    elif not isinstance(args[0], str) and len(args) % 2:
        operands, given, made = args[:-1:2], list(args[1::2]), args[-1]
    if made is None or Ellipsis in list(made):
        return tried(np.einsum, args, kwargs)
    lengths: dict[Any, int] = {}
    for letters, x in zip(given, operands, strict=True):
        lengths |= dict(zip(letters, x.shape, strict=True))
    return hollow([lengths[letter] for letter in made], np.result_type(*operands))


# -- matrices -------------------------------------------------------------------------------------


def _inexact(dtype: DType) -> DType:
    """Return the data type in which linear algebra computes."""
    return dtype if dtype.kind in "fc" else np.dtype(float)


def _real(dtype: DType) -> DType:
    return np.zeros(0, _inexact(dtype)).real.dtype


def _complex(dtype: DType) -> DType:
    """Return the data type of eigenvalues; before NumPy 2.5 their values may make it real."""
    return np.result_type(_inexact(dtype), np.complex64)


def _qr(a: Array, mode: str = "reduced") -> Any:
    m, n = a.shape[-2:]
    stack, k, kind = a.shape[:-2], min(m, n), _inexact(a.dtype)
    if mode == "r":
        return hollow((*stack, k, n), kind)
    if mode == "raw":
        return hollow((*stack, n, m), kind), hollow((*stack, k), kind)
    q = m if mode == "complete" else k
    return _QR(hollow((*stack, m, q), kind), hollow((*stack, q, n), kind))


def _svd(a: Array, full_matrices: bool = True, compute_uv: bool = True, *_: object) -> Any:
    m, n = a.shape[-2:]
    stack, k, kind = a.shape[:-2], min(m, n), _inexact(a.dtype)
    s = hollow((*stack, k), _real(a.dtype))
    if not compute_uv:
        return s
    left_shape, right_shape = ((m, m), (n, n)) if full_matrices else ((m, k), (k, n))
    return _SVD(hollow((*stack, *left_shape), kind), s, hollow((*stack, *right_shape), kind))


def _square(a: Array, *_: object, **__: object) -> Any:
    return hollow(a.shape, _inexact(a.dtype))


def _solved(a: Array, b: Array) -> Any:
    return hollow(b.shape, _inexact(np.result_type(a.dtype, b.dtype)))


def _one_each(a: Array) -> Any:
    return hollow(a.shape[:-2], _inexact(a.dtype))


def _signs(a: Array) -> Any:
    return _SLOGDET(hollow(a.shape[:-2], _inexact(a.dtype)), hollow(a.shape[:-2], _real(a.dtype)))


def _eigenvalues(dtype: _Dtype, a: Array, *_: object, **__: object) -> Any:
    return hollow(a.shape[:-1], dtype(a.dtype))


def _eigen(
    kind: Callable[..., Any], dtypes: Sequence[_Dtype], a: Array, *_: object, **__: object
) -> Any:
    values, vectors = dtypes
    return kind(_eigenvalues(values, a), hollow(a.shape, vectors(a.dtype)))


#: Elementwise functions, with the positions of the arguments whose shapes broadcast to the result.
_ELEMENTS: list[tuple[slice, tuple[Any, ...]]] = [
    (slice(1), (np.angle, np.round, np.sinc, np.nan_to_num, np.interp, np.digitize)),
    (slice(1, 2), (np.polyval, np.searchsorted)),
    (slice(2), (np.isclose,)),
    (slice(3), (np.clip,)),
]
_ROWS: dict[Any, Callable[..., Any]] = {
    np.select: _selected,
    np.count_nonzero: _counted,
    np.median: _middle,
    np.nanmedian: _middle,
    np.percentile: _quantile,
    np.quantile: _quantile,
    np.nanpercentile: _quantile,
    np.nanquantile: _quantile,
    np.take_along_axis: _along,
    np.argsort: _order,
    np.argpartition: _order,
    np.delete: _deleted,
    np.packbits: _packed,
    np.convolve: _convolved,
    np.correlate: _convolved,
    np.vander: _powers,
    np.histogram: _histogram,
    np.einsum: _summed,
    np.linalg.qr: _qr,
    np.linalg.svd: _svd,
    np.linalg.solve: _solved,
    np.linalg.cholesky: _square,
    np.linalg.inv: _square,
    np.linalg.det: _one_each,
    np.linalg.slogdet: _signs,
    np.linalg.eigvalsh: partial(_eigenvalues, _real),
    np.linalg.eigvals: partial(_eigenvalues, _complex),
    np.linalg.eigh: partial(_eigen, _EIGH, (_real, _inexact)),
    np.linalg.eig: partial(_eigen, _EIG, (_complex, _complex)),
}
RULES.update(_ROWS)
for _places, _functions in _ELEMENTS:
    RULES.update({function: partial(_each, function, _places) for function in _functions})
