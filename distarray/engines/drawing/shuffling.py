"""Distributed permutations, equal on any number of ranks.

Short sequences are permuted by NumPy, on every rank. Long sequences are scattered and shuffled (C.
R. Rao 1961, M. Sandelius 1962; for distributed memory P. Sanders, *Random permutations on
distributed, external and hierarchical memory*, Inf. Proc. Letters 67, 1998): each position draws a
bucket, from a number of buckets that depends on the length alone; the members of each bucket, in
order, are shuffled; and the buckets are concatenated. If the draws are independent and uniform, so
is the permutation: all assignments with given bucket sizes are equally likely, and so are all
orders within a bucket.

Every element moves once, to the rank of its bucket. Then buckets that a cut of the result divides
move by less than their length. A bucket fits into a cache, which makes this algorithm faster than
NumPy's shuffle even on one rank.
"""

from itertools import pairwise
from typing import Any

import numpy as np

from distarray.array import DistArray, call, to_layout, wrap
from distarray.array.portable import beside, take
from distarray.comm import DeviceMesh
from distarray.engines.drawing.drawn_tiles import tile_count
from distarray.engines.drawing.filling import fill
from distarray.engines.drawing.streams import Call
from distarray.engines.indexing.gather import swap
from distarray.layout import Cut, Fold, Layout
from distarray.typing import Array, Shape

__all__ = ["WHOLE", "Shuffle", "positions", "shuffled"]

#: Up to this length every rank draws the whole permutation.
WHOLE = 1 << 16
#: Approximate number of elements of a bucket.
_BUCKET = 1 << 15
#: Bucket numbers of 16 bits are radix sorted, and bucket numbers of 8 bits in one pass.
_MOST_BUCKETS = 1 << 16


class Shuffle:
    """Permutation of a given length that a call draws.

    Parameters
    ----------
    call : Call
        The random streams.
    length : int
        The length of the permutation.
    """

    def __init__(self, call: Call, length: int) -> None:
        self.length = length
        self.is_short = length <= WHOLE
        self.buckets = 1
        if not self.is_short:
            self.buckets = min(1 << ((length - 1) // _BUCKET).bit_length(), _MOST_BUCKETS)
        ids = 0 if self.is_short else tile_count((length,))
        self.dtype = np.dtype(np.uint8 if self.buckets <= 1 << 8 else np.uint16)
        self._ids, self._orders = call, call.after(ids)

    def bucket_of(self, start: int, stop: int) -> Array:
        """Draw the buckets of the positions of an interval."""
        found = np.empty(stop - start, self.dtype)

        def draw(generator: np.random.Generator, extents: Shape) -> Array:
            # The number of buckets is a power of two: raw bits are eight times as fast as integers.
            words = -(-extents[0] * found.itemsize // 8)
            raw: Any = generator.bit_generator
            bits: Array = raw.random_raw(words).astype("<u8", copy=False)
            drawn: Array = bits.view(self.dtype.newbyteorder("<"))[: extents[0]]
            return drawn & (self.buckets - 1)

        fill(found, (self.length,), ((start, stop),), self._ids, draw)
        return found

    def whole(self, line: Array | None = None) -> Array:
        """Return the old position of each position's element, or a line in the new order.

        The elements of a line are sorted by buckets and shuffled within them, in cache.
        """
        if not self.is_short:
            return self.ordered(self.bucket_of(0, self.length), line)
        order = self._orders.tile(0).permutation(self.length)
        return order if line is None else take(line, order, 0)

    def ordered(self, buckets: Array, line: Array | None = None) -> Array:
        """Return the positions of the members of buckets, in their new order.

        Parameters
        ----------
        buckets : array of int
            The bucket of each member.
        line : array, optional
            The members; returned instead of their positions.
        """
        order = np.argsort(buckets, kind="stable")
        names = np.arange(*buckets[order[[0, -1]]] + [0, 1]) if order.size else order
        stops = np.searchsorted(buckets, names.astype(buckets.dtype), "right", order).tolist()
        order = order if line is None else take(line, order, 0)
        start = 0
        for bucket, stop in zip(names.tolist(), stops, strict=True):
            if start < stop:
                self._orders.tile(bucket).shuffle(order[start:stop])
            start = stop
        return order


def shuffled(x: DistArray, axis: int, shuffle: Shuffle) -> DistArray:
    """Permute an array along an axis.

    Parameters
    ----------
    x : DistArray
        The array, without pending folds.
    axis : int
        The axis to permute, with the length of `shuffle`.
    shuffle : Shuffle
        The permutation.

    Returns
    -------
    DistArray
        A copy. The mesh dimensions that cut the axis in `x` cut it canonically in the result.

    Cost
    ----
    No communication if the axis is whole. Else an allreduce and an all-to-all of 8 bytes per
    bucket, one exchange of the elements, and one exchange of the elements of buckets that the
    result's cuts divide.
    """
    mesh, cut = x.mesh, x.layout.cuts[axis]
    result = _canonical(x.layout, axis)
    if mesh.coords is None:
        return wrap(mesh.xp.empty(result.local_shape(None), x.dtype), result, mesh)
    if cut.parts == 1:
        block = mesh.asarray(x.block)
        if x.ndim == 1 and isinstance(block, np.ndarray):
            return wrap(shuffle.whole(block), result, mesh)
        return wrap(take(block, beside(shuffle.whole(), block), axis), result, mesh)
    if shuffle.is_short:
        return to_layout(call(np.take, x, shuffle.whole(), axis), result)
    x = to_layout(x, result)
    found, counts = _scattered(x, axis, shuffle)
    near = result.replace(axis, Cut.ragged(counts, cut.mesh_dims, cut.radix))
    return to_layout(wrap(np.moveaxis(found, 0, axis), near, mesh), result)


def _canonical(layout: Layout, axis: int) -> Layout:
    """Return the layout with the axis cut canonically: its parts are in rank order."""
    cut = layout.cuts[axis]
    return layout.replace(axis, Cut.chunked(cut.extent, cut.mesh_dims, cut.radix))


def _scattered(x: DistArray, axis: int, shuffle: Shuffle) -> tuple[Array, list[int]]:
    """Return this rank's rows of the result, in whole buckets, and all ranks' numbers of rows.

    A bucket goes to the rank that owns its first position.
    """
    cut = x.layout.cuts[axis]
    group, rows = x.mesh.subgroup(cut.mesh_dims), np.moveaxis(x.block, axis, 0)
    buckets = shuffle.bucket_of(*cut.interval(group.rank))
    counts = np.bincount(buckets, minlength=shuffle.buckets)
    sums = np.cumsum(group.allreduce(counts, Fold.SUM, "bucket sizes"))
    starts = np.concatenate([[0], sums])
    firsts = [cut.interval(part)[0] for part in range(cut.parts)]
    bounds = [*np.searchsorted(starts[:-1], firsts).tolist(), shuffle.buckets]
    order = np.argsort(buckets, kind="stable")
    places = np.concatenate([[0], np.cumsum(counts)])
    parts, sizes = [], []
    for first, last in pairwise(bounds):
        chosen = order[places[first] : places[last]]
        parts.append(take(rows, beside(chosen, rows), 0))
        sizes.append(counts[first:last])
    first, last = bounds[group.rank], bounds[group.rank + 1]
    found = np.stack(group.alltoall_varied(sizes, "bucket sizes"))
    received = found.sum(axis=1).tolist()
    landing = np.empty_like(rows, order="C", shape=(sum(received), *rows.shape[1:]))
    own = sum(received[: group.rank])
    landing[own : own + received[group.rank]] = parts[group.rank]
    swap(group, parts, landing, received)
    del parts, order  # each as large as the rank's part
    names = np.tile(np.arange(first, last, dtype=shuffle.dtype), group.size)
    merged = shuffle.ordered(np.repeat(names, found.ravel()))
    return take(landing, beside(merged, landing), 0), np.diff(starts[bounds]).tolist()


def positions(shuffle: Shuffle, layout: Layout, mesh: DeviceMesh) -> DistArray:
    """Return the permutation of the positions, in a layout of its length."""
    if shuffle.is_short or layout.cuts[0].parts == 1:
        key = tuple([slice(start, stop) for start, stop in layout.section(mesh.coords)])
        order = shuffle.whole() if mesh.coords is not None else np.empty(0, np.int64)
        return wrap(mesh.asarray(np.ascontiguousarray(order[key])), layout, mesh)
    source = _canonical(layout, 0)
    ((start, stop),) = source.section(mesh.coords)
    numbers = wrap(mesh.xp.arange(start, stop), source, mesh)
    return to_layout(shuffled(numbers, 0, shuffle), layout)
