"""``ufunc.at`` onto an array that every rank has whole: partial results, and one fold of them.

A histogram by ``np.add.at(h, index, weights)`` with a long index that is cut over the ranks: each
rank applies its part of the index to an array of identities, and the ranks fold these. What is sent
has the size of `h`, not that of the index. It serves associative ufuncs (a subtraction subtracts a
sum), where the data types allow any order: integers are exact, floats agree to rounding. Under
``config.reproducible`` floats that round are added in NumPy's order, as all other ufuncs always
are: then every rank receives the whole index and all values.
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

#: Integers wrap around: in whatever integer type one computes, the low bits are the same.
_MODULAR = frozenset([np.add, np.multiply, np.bitwise_and, np.bitwise_or, np.bitwise_xor])
_SUMS = frozenset([np.add, np.multiply])
_LOGICAL = frozenset([np.logical_or, np.logical_and, np.logical_xor])
#: Of which folding in the identity leaves every number as it is, the sign of zero too.
_HARMLESS = _MODULAR | {np.subtract, np.maximum, np.minimum, np.fmax, np.fmin}
_NUMBERS = "biufc"


class _Way(NamedTuple):
    """How partial results are made: by which ufunc, in which type, starting from which value."""

    ufunc: np.ufunc
    dtype: DType
    start: Any


def folded(
    ufunc: np.ufunc, view: DistArray, key: AdvancedKey, value: ArrayLike | None, text: str
) -> bool:
    """Carry out ``ufunc.at(view, ...)`` by partial results, if that is right and sends less.

    Parameters
    ----------
    ufunc : ufunc
        Of two operands.
    view : DistArray
        What is changed, in a layout without pending folds.
    key : AdvancedKey
        With index arrays.
    value : array_like or DistArray or None
        The second operand.
    text : str
        The error if it does not broadcast.

    Returns
    -------
    bool
        Whether it was done; the same on all ranks.

    Cost
    ----
    An agreement on the bounds, an exchange of values that lie otherwise than the index, and one
    fold of an array of the size of `view`.
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
    """How partial results are made; None if the operations have to stay in order."""
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
    """Whether an array of a type may be changed in any order by results computed in another."""
    if own.kind in "fc":
        return True
    if ufunc in _MODULAR:
        return (computed.kind in "iu" and own.kind != "b") or ufunc not in _SUMS
    return computed == own and not RULES[ufunc].rounds


def _pays(view: DistArray, key: AdvancedKey, value: Any) -> bool:
    """Whether more would have to be sent than the array itself has bytes."""
    sent = [x.nbytes for x in (*key.indices, value) if isinstance(x, DistArray) and _is_cut(x)]
    return sum(sent) > view.nbytes


def _is_cut(x: DistArray) -> bool:
    return any(cut.parts > 1 for cut in x.layout.cuts)


def _cut_as_values(index: Located, values: Values, rows: Rows) -> Located:
    """An index that every rank has, cut along its dimensions as the values are."""
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
    """A cut of the values' dimension, where it can also be one of the index's."""
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
    """Make this rank's partial results, fold those of all ranks, and fold them into the array."""
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
    """The ranks that have different parts of the index."""
    dims = sorted({m for cut in layout.cuts if cut.parts > 1 for m in cut.mesh_dims})
    return mesh.subgroup(tuple(dims))
