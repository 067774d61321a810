"""Choices from a population, with and without replacement, with and without probabilities."""

import operator
from math import prod
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from distarray.array import DistArray, as_distarray, to_layout, wrap
from distarray.array.placing import as_shape
from distarray.comm import DeviceMesh
from distarray.engines.drawing.by_probability import Weights, check_weights
from distarray.engines.drawing.drawn_tiles import Tile
from distarray.engines.drawing.parameters import Placed, as_parameters
from distarray.engines.drawing.permuted import positions
from distarray.engines.drawing.sampling import Source, fill, filled, layout_for, probe
from distarray.engines.drawing.shuffling import WHOLE, Shuffle
from distarray.engines.drawing.streams import Call
from distarray.engines.reshaping import refitted
from distarray.layout import Cut, Layout, Shard
from distarray.typing import Array, ArrayLike, Placements, Shape, ShapeLike

__all__ = ["Choosing"]

#: Up to so many of a large population are chosen by NumPy on every rank, in time that does not
#: depend on the population.
_FEW = 1 << 14
#: For a population so many times as large, numbers are drawn until enough are distinct.
_RARE = 50
_SPARE = 64


class Choosing(Source):
    """The choices of numpy.random.Generator."""

    def choice(
        self,
        a: ArrayLike,
        size: ShapeLike | None = None,
        replace: bool = True,
        p: ArrayLike | None = None,
        axis: int = 0,
        shuffle: bool = True,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Elements of a population, or integers below `a`.

        Parameters
        ----------
        a : int or array_like
            The population, or its size.
        size : int or tuple of int, optional
            The shape of the result; a scalar by default.
        replace : bool
            Whether an element can be chosen twice.
        p : array_like, optional
            The probabilities of the elements; equal by default.
        axis : int
            The axis of `a` along which to choose.
        shuffle : bool
            Without replacement, False allows any order; the order is random in either case.
        mesh, placements
            The mesh and placements of the chosen positions; elements of an array follow them.

        Cost
        ----
        None for integers with replacement. Without replacement that of :meth:`permutation`, of
        which only the beginning moves; for a population more than fifty times as large, that of
        sorting the chosen positions. Elements of a distributed array cost as much as ``a[index]``.
        Distributed probabilities stay where they are (see
        :mod:`distarray.engines.drawing.by_probability`); without replacement, one exponential
        number for each element of the population is sorted.
        """
        mesh = self._mesh_for(mesh, a, p)
        population, count = _population(a, axis)
        shape = None if size is None else as_shape(size)
        chosen = 1 if shape is None else prod(shape)
        if count <= 0 and chosen:
            raise ValueError(
                "a cannot be empty unless no samples are taken"
                if population is not None
                else "a must be a positive integer unless no samples are taken"
            )
        weights: Any = p
        if mesh.coords is not None:
            weights = _probabilities(p, count, chosen, replace)
        index = self._index(count, shape, replace, weights, mesh, placements)
        if population is None:
            return index
        if shape is None:
            element = population[(slice(None),) * (axis % population.ndim) + (index,)]
            return as_distarray(element, mesh) if isinstance(element, np.ndarray) else element
        return np.take(as_distarray(population, mesh), index, axis)

    def _index(
        self,
        count: int,
        shape: Shape | None,
        replace: bool,
        p: Array | DistArray | None,
        mesh: DeviceMesh,
        placements: Placements | None,
    ) -> Any:
        """The chosen positions; a scalar if `shape` is None."""
        if replace and p is None:
            bounds = 0, max(count, 1)  # nothing is taken of an empty population
            kind = {"dtype": np.int64, "endpoint": False}
            drawn = self._sample("integers", bounds, shape, mesh, placements, **kind)
            return int(drawn) if shape is None else drawn
        call = self._begin("choice", mesh)
        layout = layout_for(() if shape is None else shape, np.int64, mesh, placements)
        if replace and p is not None:
            index = _weighted(call, layout, p, mesh)
        else:
            index = _distinct(call, count, layout, p, mesh)
        return int(index.block) if shape is None else index


def _population(a: ArrayLike, axis: int) -> tuple[Any, int]:
    """The array to choose from (None for integers), and the size of the population."""
    array = a if isinstance(a, DistArray) else np.asarray(a)
    if array.ndim:
        return array, array.shape[normalize_axis_index(axis, array.ndim)]
    try:
        return None, operator.index(array.item())
    except TypeError:
        raise ValueError(f"a must be a sequence or an integer, not {type(a)}") from None


def _probabilities(p: ArrayLike | None, count: int, chosen: int, replace: bool) -> Any:
    """The probabilities, after NumPy's checks."""
    if p is not None:
        (p,) = as_parameters([p])
        if isinstance(p, DistArray):
            check_weights(p, count)
            p = p.full() if count <= WHOLE else p
        else:
            p = np.asarray(p)
            probe("choice", count, 0, True, p)
    if not replace:
        if chosen > count:
            raise ValueError("Cannot take a larger sample than population when replace is False")
        if p is not None and int(np.count_nonzero(p > 0)) < chosen:
            raise ValueError("Fewer non-zero entries in p than size")
    return p


def _weighted(call: Call, layout: Layout, p: Array | DistArray, mesh: DeviceMesh) -> DistArray:
    """With replacement: the positions of uniform numbers among the accumulated probabilities."""

    def draw(generator: np.random.Generator, tile: Tile) -> Array:
        return generator.random(tile.extents)

    uniform = np.zeros(layout.local_shape(mesh.coords))
    if mesh.coords is None:
        return wrap(mesh.asarray(uniform.astype(np.int64)), layout, mesh)
    fill(uniform, layout.shape, layout.section(mesh.coords), call, draw)
    found = Weights(p, mesh).positions(uniform.reshape(-1))
    return wrap(mesh.asarray(found.reshape(uniform.shape)), layout, mesh)


def _distinct(
    call: Call, count: int, layout: Layout, p: Array | DistArray | None, mesh: DeviceMesh
) -> DistArray:
    """Without replacement: the beginning of a permutation."""
    line = _line(layout, mesh)
    if count <= WHOLE or (p is None and layout.size <= min(_FEW, count // _RARE)):
        order = call.tile(0).choice(count, layout.size, replace=False, p=p)
        found = wrap(mesh.asarray(order[_key(line, mesh)].copy()), line, mesh)
    elif p is None and layout.size <= count // _RARE:
        found = to_layout(_first_distinct(call, count, line, mesh), line)
    elif p is None:
        found = positions(Shuffle(call, count), line, mesh, layout.size)
    else:
        found = to_layout(_race(call, count, p, mesh)[: layout.size], line)
    if layout.ndim == 1:
        return to_layout(found, layout)
    return to_layout(refitted(found, layout.shape).plain(), layout)


def _first_distinct(call: Call, count: int, line: Layout, mesh: DeviceMesh) -> DistArray:
    """The first distinct numbers of a sequence below `count`, as many as the line is long."""

    def draw(generator: np.random.Generator, tile: Tile) -> Array:
        return generator.integers(0, count, tile.extents)

    wanted = line.shape[0]
    drawn = wanted + wanted // _RARE + _SPARE  # of which a hundredth are repeated
    while True:
        cut = Cut.chunked(drawn, line.cuts[0].mesh_dims, line.cuts[0].radix)
        numbers: Any = filled(Layout.from_cuts([cut], mesh.shape), mesh, np.int64, call, draw)
        order = np.argsort(numbers, kind="stable")
        ascending = numbers[order]
        again = order[1:][ascending[1:] == ascending[:-1]]
        if drawn - again.size >= wanted:
            distinct: Any = np.delete(numbers, again)
            first: DistArray = distinct[:wanted]
            return first
        drawn *= 2


def _line(layout: Layout, mesh: DeviceMesh) -> Layout:
    """The layout of the elements in one dimension, cut if they are."""
    if layout.ndim == 1:
        return layout
    if layout.is_replicated:
        return Layout.replicated((layout.size,), mesh.shape)
    return Layout.chunked((layout.size,), mesh.shape, [Shard(0)] * len(mesh.shape))


def _key(layout: Layout, mesh: DeviceMesh) -> tuple[slice, ...]:
    """The key of this rank's section."""
    return tuple([slice(start, stop) for start, stop in layout.section(mesh.coords)])


def _race(call: Call, count: int, p: Array | DistArray, mesh: DeviceMesh) -> DistArray:
    """All positions in the order in which they are drawn without replacement.

    Each position waits for an exponential time of rate p[i]: the first of any set is i with the
    probability that p gives i within the set.
    """
    layout = Layout.chunked((count,), mesh.shape, [Shard(0)] * len(mesh.shape))
    rates = Placed(p, layout, mesh)

    def draw(generator: np.random.Generator, tile: Tile) -> Array:
        with np.errstate(divide="ignore"):
            times: Array = generator.standard_exponential(tile.extents) / rates.part(tile)
            return times

    clocks = filled(layout, mesh, np.float64, call, draw)
    return np.argsort(clocks, kind="stable")  # type: ignore[return-value]
