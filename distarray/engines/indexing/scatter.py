"""Scattering rows by global position into cut dimensions, in C order of the index.

Every rank writes the rows that it owns. If every rank has index arrays and values, no message is
sent; otherwise each rank sends the values for its part of the index to the owners. The owners write
in the order of the index, so that the last of several values for one element is kept.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from distarray.array.portable import contiguous, in_c_order
from distarray.array.speedups.rows import are_rows, scattered
from distarray.comm import devices, records
from distarray.engines.indexing.gather import (
    kind_of_positions,
    part_of_index,
    result_layout,
    segments,
    swap,
)
from distarray.engines.indexing.located import Located, flattened
from distarray.engines.indexing.owners import Rows, sorted_by_owner
from distarray.engines.indexing.repeats import last_of_each
from distarray.engines.indexing.values import Values
from distarray.layout import Cut, Layout
from distarray.typing import Array

__all__ = ["Apply", "assign", "store"]

#: Number of parts above which the longest is not searched: more than the ranks of a node.
_MANY = 1024
#: Function (array, key, values) that writes to an array; values are None for unary operations.
Apply = Callable[[Array, tuple[Any, ...], Array | None], None]


def assign(block: Array, key: tuple[Any, ...], values: Array | None) -> None:
    """Assign values to a block; the last value in C order is kept for a repeated index.

    Of records only the fields are written: NumPy would write the gaps between them, too, which in
    a view of several fields are the other fields.
    """
    if devices.on_device(block) and key and values is not None:
        key, values = last_of_each(block, key, values)
    if values is not None and records.has_gaps(block.dtype):
        values = values.astype(block.dtype, copy=False)  # fields are cast by position, not by name
        for name in block.dtype.names or ():
            assign(block[name], key, values[name])
    else:
        block[key] = values


def store(rows: Rows, index: Located, values: Values, apply: Apply = assign) -> None:
    """Write values into the indexed rows.

    Parameters
    ----------
    rows : Rows
        The indexed array.
    index : Located
        The index arrays, located for writing.
    values : Values
        The values.
    apply : callable
        Function that writes to a block; a ufunc's ``at`` for instance.

    Cost
    ----
    No communication if index and values are replicated. Otherwise the values are redistributed to
    the layout of the index, and then sent to the owners: in one exchange if every rank has the
    index, else in one all-to-all of the values, with 4 or 8 bytes per row for its position.
    """
    mesh, cuts, constant = rows.y.mesh, index.layout.cuts, values.is_constant
    here = not rows.mesh_dims or (index.known and (values.known or constant))
    if not here and index.known:
        cuts = (Cut.chunked(cuts[0].extent, rows.mesh_dims, rows.radix), *cuts[1:])
    # Every rank needs a value that is the same for all positions, even for an index of length 1.
    index_cuts = Layout.replicated(index.layout.shape, mesh.shape).cuts if constant else cuts
    found = values.rows(result_layout(rows, index_cuts, values.index_dims.start), mesh)
    if not rows.holds:
        return
    if not rows.mesh_dims:
        keys = [in_c_order(block) for block in index.blocks]
        apply(rows.block, rows.in_block(keys), None if found is None else in_c_order(found))
    elif here:
        _write_here(rows, index, found, constant, apply)
    elif index.known:
        assert found is not None  # constant values would have been written locally
        _send_values(rows, index, cuts, found, apply)
    else:
        _send(rows, index, cuts, found, constant, apply)


def _write_here(
    rows: Rows, index: Located, values: Array | None, constant: bool, apply: Apply
) -> None:
    """Write the rows that this rank owns, without communication."""
    shape = index.layout.shape
    flat = [flattened(block, shape) for block in index.blocks]
    own = np.flatnonzero(rows.mine(flat))
    if values is not None:
        if constant:
            values = _constant(values, shape)
        else:
            values = np.take(_in_one_dimension(values, shape), own, axis=0)
    apply(rows.block, rows.in_block([np.take(array, own) for array in flat]), values)


def _constant(values: Array, shape: Sequence[int]) -> Array:
    return values.reshape((1, *values.shape[len(shape) :]))


def _in_one_dimension(values: Array, shape: Sequence[int]) -> Array:
    """Flatten the index dimensions of the values."""
    rest = values.shape[len(shape) :]
    return np.broadcast_to(values, (*shape, *rest)).reshape(prod(shape), *rest)


def _send(
    rows: Rows,
    index: Located,
    cuts: tuple[Cut, ...],
    values: Array | None,
    constant: bool,
    apply: Apply,
) -> None:
    """Send the positions and values of this rank's part of the index to the owners."""
    shape = _part_shape(rows, cuts)
    flat = index.flat(shape)
    going, rooms = [rows.linear(flat)], [np.empty_like(flat[0], kind_of_positions(rows), shape=0)]
    same = None
    if constant and values is not None:
        same = _constant(values, shape)
    elif values is not None:
        going.append(_in_one_dimension(values, shape))
        rooms.append(going[1])
    going = [contiguous(array) for array in going]
    with rows.group.outbox(_most_rows(cuts), rooms) as outbox:
        rooms = [outbox.empty(like, len(flat[0])) for like in rooms]
        counts = sorted_by_owner(rows, flat, going, rooms)
        found = outbox.send(rooms, counts, "rows by index")
        places = [arrays[0] for arrays in found]
        each = [arrays[1] if len(arrays) > 1 else same for arrays in found]
        _write_parts(rows, cuts, places, each, apply)


def _send_values(
    rows: Rows, index: Located, cuts: tuple[Cut, ...], values: Array, apply: Apply
) -> None:
    """Send values to the owners of their rows; every rank has the whole index."""
    shape = _part_shape(rows, cuts)
    whole = [np.broadcast_to(block, index.layout.shape) for block in index.blocks]
    key = part_of_index(cuts, rows.rank)
    flat = [array[key].reshape(-1) for array in whole]
    going = contiguous(_in_one_dimension(values, shape))
    ordered = np.empty_like(going)
    counts = sorted_by_owner(rows, flat, [going], [ordered])
    places = _named_by_all(rows, whole, cuts)
    each = _sent(rows, ordered, counts, [len(part) for part in places])
    _write_parts(rows, cuts, places, each, apply)


def _part_shape(rows: Rows, cuts: Sequence[Cut]) -> list[int]:
    """Return the shape of this rank's part of the index."""
    mesh = rows.y.mesh
    section = Layout.from_cuts(cuts, mesh.shape).section(mesh.coords)
    return [stop - start for start, stop in section]


@lru_cache(maxsize=256)
def _most_rows(cuts: tuple[Cut, ...]) -> int:
    """Return an upper bound of the rows in any part of an index cut along its first dimension."""
    first, *others = cuts
    longest = first.extent
    if first.parts <= _MANY:
        longest = max([stop - start for start, stop in map(first.interval, range(first.parts))])
    return longest * prod([cut.extent for cut in others])


def _write_parts(
    rows: Rows, cuts: Sequence[Cut], places: list[Array], values: list[Any], apply: Apply
) -> None:
    """Write the values from each rank, in the order of the index."""
    if cuts[0].step < 0:  # higher ranks have earlier parts of the index
        places.reverse()
        values.reverse()
    if apply is assign:
        for positions, part in zip(places, values, strict=True):
            _assign_rows(rows, positions, part)
        return
    is_constant = values[0] is values[-1]
    given = values[0] if is_constant else np.concatenate(values)
    apply(rows.block, _key(rows, np.concatenate(places)), given)


def _assign_rows(rows: Rows, places: Array, values: Array) -> None:
    """Assign values to rows of this rank by their positions."""
    found = None if records.has_gaps(values.dtype) else rows.lines
    if found is not None and are_rows(found[0]) and are_rows(values) and _fit(values, found[0]):
        scattered(found[0], places, found[1], values)
    else:
        assign(rows.block, _key(rows, places), values)


def _fit(values: Array, lines: Array) -> bool:
    """Return True if values match rows in type and shape, and share no memory with them."""
    alike = values.dtype == lines.dtype and values.shape[1:] == lines.shape[1:]
    return alike and lines.flags.writeable and not np.may_share_memory(values, lines)


def _key(rows: Rows, places: Array) -> tuple[Array, ...]:
    return rows.in_block(rows.from_linear(places.astype(np.intp, copy=False)))


def _sent(rows: Rows, going: Array, counts: Sequence[int], lengths: Sequence[int]) -> list[Array]:
    """Send values, ordered by owner; return each rank's values for rows of this rank."""
    me, parts = rows.rank, segments(going, counts)
    others = [*lengths[:me], 0, *lengths[me + 1 :]]
    landing = np.empty_like(going, order="C", shape=(sum(others), *going.shape[1:]))
    swap(rows.group, parts, landing, others)
    found = segments(landing, others)
    found[me] = parts[me]
    return found


def _named_by_all(rows: Rows, whole: Sequence[Array], cuts: Sequence[Cut]) -> list[Array]:
    """Return, per rank, the positions of this rank's rows in that rank's part of the index."""
    own = rows.mine(whole)
    named = []
    for rank in range(rows.size):
        key = part_of_index(cuts, rank)
        positions = np.flatnonzero(own[key])
        found = [np.take(array[key].reshape(-1), positions) for array in whole]
        named.append(rows.linear(found))
    return named
