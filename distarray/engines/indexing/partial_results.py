"""``ufunc.at`` onto an array that is whole on every rank: partial results, and one fold of them.

Example: a histogram by ``np.add.at(h, index, weights)`` with a long index that is cut over the
ranks. Each rank applies its part of the index to an array of identities, and the ranks fold these
arrays. The messages have the size of `h`, not of the index. The method is used for associative
ufuncs (a subtraction subtracts a sum) if the data types allow any order: integers are exact, floats
agree up to rounding. All other ufuncs are applied in NumPy's order, and under
``config.reproducible`` also ufuncs that round floats: then every rank receives the whole index and
all values.
"""

from typing import Any, NamedTuple

import numpy as np

from distarray.array import DistArray
from distarray.array.portable import in_c_order
from distarray.comm import DeviceMesh
from distarray.config import config
from distarray.engines.folds import RULES, combine, neutral
from distarray.engines.indexing.advanced_keys import AdvancedKey, index_shape
from distarray.engines.indexing.gather import result_layout
from distarray.engines.indexing.located import Located, block_in, locate
from distarray.engines.indexing.owners import Rows
from distarray.engines.indexing.repeats import ufunc_at
from distarray.engines.indexing.values import Values
from distarray.layout import Cut, Layout
from distarray.plan import restrict
from distarray.typing import Array, ArrayLike, DType

__all__ = ["folded"]

#: Ufuncs that are exact modulo 2**n: whatever the integer type, the low bits are the same.
_MODULAR = frozenset([np.add, np.multiply, np.bitwise_and, np.bitwise_or, np.bitwise_xor])
_SUMS = frozenset([np.add, np.multiply])
_LOGICAL = frozenset([np.logical_or, np.logical_and, np.logical_xor])
#: Ufuncs for which folding in the identity preserves every number, including the sign of zero.
_HARMLESS = _MODULAR | {np.subtract, np.maximum, np.minimum, np.fmax, np.fmin}
_NUMBERS = "biufc"


class _Way(NamedTuple):
    """Method of computing partial results: the ufunc, the data type and the start value."""

    ufunc: np.ufunc
    dtype: DType
    start: Any


def folded(
    ufunc: np.ufunc, view: DistArray, key: AdvancedKey, value: ArrayLike | None, text: str
) -> bool:
    """Compute ``ufunc.at(view, ...)`` by partial results, if that is correct and sends less.

    Parameters
    ----------
    ufunc : ufunc
        A ufunc of two operands.
    view : DistArray
        The array to change, in a layout without pending folds.
    key : AdvancedKey
        A key with index arrays.
    value : array_like or DistArray or None
        The second operand.
    text : str
        The error text if `value` does not broadcast.

    Returns
    -------
    bool
        True if `view` has been changed, False if this method does not apply; the same on all ranks.

    Cost
    ----
    An allreduce for the bounds check, an exchange of values whose layout differs from the index's,
    and one fold of an array of the size of `view`.
    """
    if key.is_mask or value is None or view.layout.ats or not key.indices:
        return False
    given: Any = value if hasattr(value, "dtype") else np.asarray(value)
    rows, way = Rows(view, key.dims), _way(ufunc, view.dtype, given.dtype)
    if way is None or rows.mesh_dims or not _pays(view, key, given):
        return False
    named = index_shape(key.indices)
    rest = [view.shape[d] for d in rows.rest]
    index = locate(rows, key.indices, key.axes)
    values = Values(given, (*rest[: key.at], *named, *rest[key.at :]), key.at, len(named), text)
    if index.known:
        index = _cut_as_values(index, values, rows)
    found = values.rows(result_layout(rows, index.layout.cuts, key.at), view.mesh)
    if view.mesh.coords is None:
        return True
    keys = rows.in_block([in_c_order(block) for block in index.blocks])
    _fold(ufunc, way, rows, keys, found, index.layout)
    return True


def _way(ufunc: np.ufunc, own: DType, given: DType) -> _Way | None:
    """Return the method of computing partial results; None if the operations must stay in order."""
    partial = np.add if ufunc is np.subtract else ufunc
    rule = RULES.get(partial)
    if rule is None or own.kind not in _NUMBERS or given.kind not in _NUMBERS:
        return None
    if rule.rounds and own.kind in "fc" and config.settings.reproducible:
        return None
    if partial in _LOGICAL:
        return _Way(partial, np.dtype(bool), neutral(partial, np.dtype(bool)))
    if not _in_any_order(partial, own, np.result_type(own, given)):
        return None
    native = own.newbyteorder("=")
    zero = native.type(0) if ufunc is np.subtract else neutral(partial, native)
    return _Way(partial, native, zero)


def _in_any_order(ufunc: np.ufunc, own: DType, computed: DType) -> bool:
    """Return True if an array of type `own` may be updated in any order by `computed` results."""
    if own.kind in "fc":
        return True
    if ufunc in _MODULAR:
        return (computed.kind in "iu" and own.kind != "b") or ufunc not in _SUMS
    return computed == own and not RULES[ufunc].rounds


def _pays(view: DistArray, key: AdvancedKey, value: Any) -> bool:
    """Return True if the cut index arrays and values have more bytes than the array itself."""
    sent = [x.nbytes for x in (*key.indices, value) if isinstance(x, DistArray) and _is_cut(x)]
    return sum(sent) > view.nbytes


def _is_cut(x: DistArray) -> bool:
    return any(cut.parts > 1 for cut in x.layout.cuts)


def _cut_as_values(index: Located, values: Values, rows: Rows) -> Located:
    """Cut a replicated index along its dimensions like the values."""
    given, mesh = values.value, rows.y.mesh
    if not isinstance(given, DistArray):
        return index
    lead = len(values.shape) - given.ndim
    taken = {m for d in rows.rest for m in rows.y.layout.cuts[d].mesh_dims}
    cuts = [
        _kept(given.layout.cuts[d - lead] if d >= lead else None, extent, taken)
        for d, extent in zip(values.index_dims, index.layout.shape, strict=True)
    ]
    layout = Layout.from_cuts(cuts, mesh.shape)
    blocks = [block_in(block, restrict(layout, block.shape), mesh) for block in index.blocks]
    return Located(blocks, layout)


def _kept(cut: Cut | None, extent: int, taken: set[int]) -> Cut:
    """Return the cut of the values' dimension if it is valid for the index, else an uncut one."""
    fits = cut is not None and cut.extent == extent and taken.isdisjoint(cut.mesh_dims)
    return cut if cut is not None and fits else Cut.whole(extent)


def _fold(
    ufunc: np.ufunc,
    way: _Way,
    rows: Rows,
    keys: tuple[Any, ...],
    values: Array | None,
    layout: Layout,
) -> None:
    """Compute this rank's partial results, fold all ranks' results, fold these into the array."""
    block, mesh = rows.block, rows.y.mesh
    part: Array = mesh.xp.full(block.shape, way.start, way.dtype)
    ufunc_at(way.ufunc, part, keys, values)
    where: Any = True
    group = _those_with_parts(mesh, layout)
    if ufunc not in _HARMLESS or block.dtype.kind == "c":
        where = mesh.xp.zeros(block.shape, bool)
        where[keys] = True
        where = combine(group, where, np.logical_or)
    np.copyto(block, ufunc(block, combine(group, part, way.ufunc)), "unsafe", where=where)


def _those_with_parts(mesh: DeviceMesh, layout: Layout) -> Any:
    """Return the group of ranks that have different parts of the index."""
    dims = sorted({m for cut in layout.cuts if cut.parts > 1 for m in cut.mesh_dims})
    return mesh.subgroup(tuple(dims))
