"""NumPy's ufuncs: the call itself, and through which calls a pending fold is kept."""

from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from distarray.array import UFUNC_METHODS, DistArray, faults, single, wrap
from distarray.array.blocks import refuse_read_only
from distarray.layout import Fold, Layout, Partial, Replicate
from distarray.ops.asking import check_shapes, check_writeable, condition, result_types
from distarray.ops.blockwise import alike, apply_blockwise
from distarray.ops.mapping.pyfuncs import call_foreign
from distarray.plan import broadcast_shapes

__all__ = ["call_ufunc"]

_SCALARS = frozenset({int, float, complex, bool})
#: Ufuncs that work element by element in C.
_PLAIN = frozenset([f for f in vars(np).values() if isinstance(f, np.ufunc) and not f.signature])
#: Through which operands (their positions) a call is linear, one at a time: the other operands
#: are plain factors. `None`: all operands together, which must then be pending alike.
_LINEAR: dict[np.ufunc, tuple[int, ...] | None] = {
    np.negative: (0,),
    np.positive: (0,),
    np.conjugate: (0,),
    np.multiply: (0, 1),
    np.true_divide: (0,),
    np.add: None,
    np.subtract: None,
}


def call_ufunc(
    ufunc: np.ufunc, *inputs: Any, out: Any = None, where: Any = True, **kwargs: Any
) -> Any:
    """What ``ufunc(*inputs, out=..., where=..., dtype=..., casting=...)`` does to DistArrays."""
    if ufunc is np.power:
        _refuse_negative_powers(inputs, out, where, kwargs)
    if where is True and not kwargs and ufunc in _PLAIN:
        if out is not None:
            found = _aligned_into(ufunc, inputs, out)
        else:
            found = _aligned(ufunc, inputs)
            if found is None:
                found = _through(ufunc, inputs)
        if found is not None:
            return found
    return _call_general(ufunc, inputs, out, where, kwargs)


def _call_general(
    ufunc: np.ufunc, inputs: Sequence[Any], out: Any, where: Any, kwargs: dict[str, Any]
) -> Any:
    if any(_is_foreign(kind) for kind in map(type, inputs)):
        return NotImplemented
    if len(inputs) > ufunc.nin:
        out, inputs = inputs[ufunc.nin :], inputs[: ufunc.nin]
    outs = out if isinstance(out, tuple) else () if out is None else (out,)
    inputs = tuple([_settled(x) for x in inputs])
    if ufunc not in _PLAIN:
        found = call_foreign(ufunc, inputs, outs, _settled(where), kwargs)
        if found is not NotImplemented:
            return found
    if any(isinstance(o, np.ndarray) for o in outs):
        return _into_numpy(ufunc, inputs, outs, _settled(where), kwargs)
    return apply_blockwise(ufunc, inputs, outs, _settled(where), **kwargs)


def _settled(x: Any) -> Any:
    if isinstance(x, DistArray) and x._layout.partials:
        x._settle()
    return x


@lru_cache(maxsize=256)
def _is_foreign(kind: Hashable) -> bool:
    """Whether a type has ufuncs of its own, other than the arrays that we compute with."""
    override = getattr(kind, "__array_ufunc__", None)
    known = (np.ndarray.__array_ufunc__, DistArray.__array_ufunc__)
    return override not in (None, *known) and not hasattr(kind, "__cuda_array_interface__")


def _refuse_negative_powers(
    inputs: Sequence[Any], out: Any, where: Any, keywords: dict[str, Any]
) -> None:
    """Raise what NumPy raises for an integer to a negative integer power, on all ranks.

    Only a rank that holds such an element would notice.

    Cost
    ----
    One allreduce of a truth value for distributed arrays of signed exponents; else nothing.
    """
    asked = keywords.get("dtype")
    exponent = _integers(inputs, asked) if len(inputs) > 1 else None
    if exponent is None:
        return
    negative = exponent < 0 if type(exponent) is int else np.less(exponent, 0)
    if negative is False:
        return
    (given,) = out if isinstance(out, tuple) else (out,)
    if hasattr(given, "dtype"):
        keywords = {**keywords, "out": np.empty((0,), given.dtype)}
    # What NumPy says about the types comes first; and the loop may be one for other types.
    found = np.power(*[_probe(x) for x in inputs[:2]], **keywords)
    if found.dtype.kind != "i" and asked is not None:
        return
    if 0 in broadcast_shapes(np.shape(inputs[0]), np.shape(exponent)):
        return
    if bool(np.any(negative if where is True else np.logical_and(negative, where))):
        raise ValueError("Integers to negative integer powers are not allowed.")


def _integers(inputs: Sequence[Any], asked: Any) -> Any:
    """The exponents as they are for integers, in the type that is asked for; else None."""
    exponent = inputs[1]
    if asked is not None and np.dtype(asked).kind == "i" and _kind(exponent) in "buifc":
        return getattr(exponent, "astype", np.asarray(exponent).astype)(asked)
    return exponent if _kind(inputs[0]) in "bui" and _kind(exponent) == "i" else None


def _probe(x: Any) -> Any:
    if isinstance(x, (list, tuple)):
        x = np.asarray(x)
    return np.empty((0,), x.dtype) if hasattr(x, "dtype") else x


def _kind(x: Any) -> str:
    if type(x) in (int, float, complex, bool):
        return {int: "i", float: "f", complex: "c", bool: "b"}[type(x)]
    return x.dtype.kind if hasattr(x, "dtype") else np.asarray(x).dtype.kind


def _aligned(ufunc: np.ufunc, inputs: Sequence[Any]) -> Any:
    """The result when all arrays lie alike, with no more overhead than it takes; else None."""
    found = alike(inputs)
    if found is None:
        return None
    blocks, layout, mesh = found
    if layout.partials or len(blocks) != ufunc.nin or _lacks(mesh, ufunc):
        return None
    value = ufunc(*blocks)
    if ufunc.nout == 1:
        return wrap(value if layout.shape else single(value, layout, mesh), layout, mesh)
    return tuple([wrap(v if layout.shape else mesh.scalar(v), layout, mesh) for v in value])


def _aligned_into(ufunc: np.ufunc, inputs: Sequence[Any], outs: Any) -> Any:
    """`outs` with the result written to them, where they lie as all arrays do; else None."""
    if type(outs) is not tuple or not all(type(out) is DistArray for out in outs):
        return None
    found = alike((*inputs, *outs))
    if found is None or len(inputs) != ufunc.nin or len(outs) != ufunc.nout:
        return None
    blocks, layout, mesh = found
    if not layout.shape or layout.partials or mesh.device_type != "cpu":
        return None
    faults.DETOURS.get(ufunc, ufunc)(*blocks)
    return outs[0] if len(outs) == 1 else outs


def _lacks(mesh: Any, ufunc: np.ufunc) -> bool:
    return mesh.device_type != "cpu" and not hasattr(mesh.xp, ufunc.__name__)


def _into_numpy(ufunc: np.ufunc, inputs: Any, outs: Any, where: Any, kwargs: Any) -> Any:
    """Results for NumPy arrays, which are replicated: every rank receives everything."""
    ours = tuple([o if isinstance(o, DistArray) else None for o in outs])
    for out in outs:
        if isinstance(out, np.ndarray):
            refuse_read_only(out, "output array is read-only")
        elif out is not None:
            check_writeable([out])
    types = [x if type(x) in _SCALARS or hasattr(x, "dtype") else np.asarray(x) for x in inputs]
    result_types(ufunc, types, outs, kwargs)
    where = condition(where)
    check_shapes(
        [x for x in (*inputs, where) if np.ndim(x)], [out for out in outs if out is not None]
    )
    if any(out is None for out in outs):
        inputs = _as_wide(inputs, next(out.shape for out in outs if out is not None))
    masked = where if any(o is not None for o in ours) else True
    value = apply_blockwise(ufunc, inputs, ours, masked, **kwargs)
    values = value if isinstance(value, tuple) else (value,)
    mask = np.asarray(where)
    found = []
    for out, result in zip(outs, values, strict=True):
        if isinstance(out, np.ndarray):
            np.copyto(out, result.full(), kwargs.get("casting", "same_kind"), mask)
        found.append(result if out is None else out)
    return tuple(found) if len(found) > 1 else found[0]


def _as_wide(inputs: Sequence[Any], shape: tuple[int, ...]) -> tuple[Any, ...]:
    """The inputs, of which one has the shape of the results: what is given to write to has it."""
    wide = next(number for number, x in enumerate(inputs) if isinstance(x, DistArray))
    return (*inputs[:wide], np.broadcast_to(inputs[wide], shape), *inputs[wide + 1 :])


def _through(ufunc: np.ufunc, inputs: Sequence[Any]) -> DistArray | None:
    """The result with its fold still pending, where the call is linear; else None."""
    pending = [x for x in inputs if isinstance(x, DistArray) and x._layout.partials]
    if not pending or len(inputs) != ufunc.nin or not _linear(ufunc, inputs, pending):
        return None
    layout = pending[0]._layout
    # Contributions are computed with as if they were values: the map is linear.
    result = apply_blockwise(ufunc, [_bare(x) if isinstance(x, DistArray) else x for x in inputs])
    if not all(isinstance(result._layout.placements[m], Replicate) for m in layout.partials):
        return None
    placed = {m: layout.placements[m] for m in layout.partials}
    kept = Layout.from_cuts(result._layout.cuts, layout.mesh_shape, placed)
    return wrap(result._block, kept, result._mesh)


def _linear(ufunc: np.ufunc, inputs: Sequence[Any], pending: Sequence[DistArray]) -> bool:
    """Whether the call commutes with the sum that is pending; every rank answers alike."""
    layout, dtype = pending[0]._layout, pending[0].dtype
    sums = all(layout.placements[m] == Partial(Fold.SUM) for m in layout.partials)
    if ufunc not in _LINEAR or not sums or layout.ats or dtype.kind not in "iufc":
        return False
    # Sums of integers wrap around: in a wider type, or divided, the contributions would not.
    if dtype.kind in "iu" and (ufunc is np.true_divide or not _keeps(dtype, inputs)):
        return False
    positions = _LINEAR[ufunc]
    if positions is None:
        return len(pending) == len(inputs) and len({(x._layout, x._mesh) for x in pending}) == 1
    if len(pending) != 1 or not any(inputs[i] is pending[0] for i in positions):
        return False
    others = [x for x in inputs if x is not pending[0]]
    return all(_is_regular(x, ufunc is np.true_divide) for x in others)


def _keeps(dtype: np.dtype[Any], inputs: Sequence[Any]) -> bool:
    return all(type(x) is int or getattr(x, "dtype", None) == dtype for x in inputs)


def _is_regular(factor: Any, divides: bool) -> bool:
    """Whether a factor is finite, and no divisor zero: infinite contributions add up to NaN.

    It has to be at hand on every rank, so that all decide alike.
    """
    if isinstance(factor, DistArray):
        if not factor._layout.is_replicated:
            return False
        factor = factor._block
    values = np.asarray(factor)
    if values.dtype.kind not in "biufc":
        return False
    return bool(np.isfinite(values).all() and not (divides and (values == 0).any()))


def _bare(x: DistArray) -> DistArray:
    return wrap(x._block, x._layout.settled(), x._mesh)


UFUNC_METHODS["__call__"] = call_ufunc
