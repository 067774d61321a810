"""NumPy's ufuncs: the call itself, and through which calls a pending fold is kept."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from distarray.array import UFUNC_METHODS, DistArray, wrap
from distarray.layout import Fold, Layout, Partial, Replicate
from distarray.ops.blockwise import apply_blockwise

__all__ = ["call_ufunc"]

_SCALARS = frozenset({int, float, complex, bool})
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
    if out is None and where is True and not kwargs:
        found = _aligned(ufunc, inputs)
        if found is None:
            found = _through(ufunc, inputs)
        if found is not None:
            return found
    if len(inputs) > ufunc.nin:
        out, inputs = inputs[ufunc.nin :], inputs[: ufunc.nin]
    for x in (*inputs, where):
        if isinstance(x, DistArray) and x._layout.partials:
            x._settle()
    outs = out if isinstance(out, tuple) else () if out is None else (out,)
    if any(o is not None for o in outs) and not any(isinstance(o, DistArray) for o in outs):
        return _into_numpy(ufunc, inputs, outs, where, kwargs)
    return apply_blockwise(ufunc, inputs, outs, where, **kwargs)


def _aligned(ufunc: np.ufunc, inputs: Sequence[Any]) -> Any:
    """The result when all arrays lie alike, with no more overhead than it takes; else None."""
    blocks = []
    layout: Layout | None = None
    mesh: Any = None
    for x in inputs:
        kind = type(x)
        if kind is DistArray:
            if layout is None:
                layout, mesh = x._layout, x._mesh
            elif x._layout is not layout or x._mesh is not mesh:
                return None
            x = x._block
        elif kind not in _SCALARS:
            return None
        blocks.append(x)
    if layout is None or layout.partials or len(blocks) != ufunc.nin:
        return None
    value = ufunc(*blocks)
    if ufunc.nout == 1:
        return wrap(value, layout, mesh)
    return tuple([wrap(block, layout, mesh) for block in value])


def _into_numpy(ufunc: np.ufunc, inputs: Any, outs: Any, where: Any, kwargs: Any) -> Any:
    """Results for NumPy arrays, which are replicated: every rank receives everything."""
    value = apply_blockwise(ufunc, inputs, (), True, **kwargs)
    values = value if isinstance(value, tuple) else (value,)
    mask = np.asarray(where)
    for out, result in zip(outs, values, strict=True):
        if out is not None:
            np.copyto(out, result.full(), where=mask, casting=kwargs.get("casting", "same_kind"))
    found = tuple([v if o is None else o for o, v in zip(outs, values, strict=True)])
    return found if len(found) > 1 else found[0]


def _through(ufunc: np.ufunc, inputs: Sequence[Any]) -> DistArray | None:
    """The result with its fold still pending, where the call is linear; else None."""
    pending = [x for x in inputs if isinstance(x, DistArray) and x._layout.partials]
    if not pending or len(inputs) != ufunc.nin:
        return None
    layout = pending[0]._layout
    sums = all(layout.placements[m] == Partial(Fold.SUM) for m in layout.partials)
    if (
        not sums
        or layout.ats
        or pending[0].dtype.kind == "b"
        or not _linear(ufunc, inputs, pending)
    ):
        return None
    # Contributions are computed with as if they were values: the map is linear.
    result = apply_blockwise(ufunc, [_bare(x) if isinstance(x, DistArray) else x for x in inputs])
    if not all(isinstance(result._layout.placements[m], Replicate) for m in layout.partials):
        return None
    placed = {m: layout.placements[m] for m in layout.partials}
    kept = Layout.from_cuts(result._layout.cuts, layout.mesh_shape, placed)
    return wrap(result._block, kept, result._mesh)


def _linear(ufunc: np.ufunc, inputs: Sequence[Any], pending: Sequence[DistArray]) -> bool:
    if ufunc not in _LINEAR:
        return False
    positions = _LINEAR[ufunc]
    if positions is None:
        return len(pending) == len(inputs) and len({(x._layout, x._mesh) for x in pending}) == 1
    return len(pending) == 1 and any(inputs[i] is pending[0] for i in positions)


def _bare(x: DistArray) -> DistArray:
    return wrap(x._block, x._layout.settled(), x._mesh)


UFUNC_METHODS["__call__"] = call_ufunc
