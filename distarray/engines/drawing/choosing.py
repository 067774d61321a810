"""Choices from a population, with and without replacement, with and without probabilities."""

import operator
from math import prod
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from distarray.array import DistArray, as_distarray, to_layout, wrap
from distarray.array.placing import Placements, as_shape
from distarray.comm import DeviceMesh
from distarray.engines.drawing.by_probability import Weights, check_weights
from distarray.engines.drawing.drawn_tiles import Tile
from distarray.engines.drawing.parameters import Placed, as_parameters
from distarray.engines.drawing.permuted import positions
from distarray.engines.drawing.sampling import Array, Source, fill, filled, layout_for, probe
from distarray.engines.drawing.shuffling import WHOLE, Shuffle
from distarray.engines.drawing.streams import Call
from distarray.engines.reshaping import refitted
from distarray.layout import Cut, Layout, Shard

__all__ = ["Choosing"]

#: So few of a large population are chosen by NumPy on every rank, in time that does not depend on
#: the population.
_FEW = 1 << 14
#: Of a population so many times as large, numbers are drawn until enough are distinct.
_RARE = 50
_SPARE = 64


class Choosing(Source):
    """Choices, as numpy.random.Generator has them."""

    def choice(
        self,
        a: Any,
        size: Any = None,
        replace: bool = True,
        p: Any = None,
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
            The population, or how many there are.
        size : int or tuple of int, optional
            How many to choose; one, if not given.
        replace : bool
            Whether one can be chosen twice.
        p : array_like, optional
            Their probabilities; equal ones, if not given.
        axis : int
            Of `a`, along which to choose.
        shuffle : bool
            Without replacement, False allows any order; the order here is always random.
        mesh, placements
            Where the chosen positions go; elements of an array follow them.

        Cost
        ----
        None for integers with replacement. Without replacement as :meth:`permutation`, of which
        only the beginning travels; of a population more than fifty times as large, the chosen
        positions are sorted. Elements of a distributed array are fetched as ``a[index]``
        fetches them. Distributed probabilities stay where they are (see
        :mod:`distarray.engines.drawing.by_probability`); without replacement, one exponential
        number for each of the population is sorted.
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
        if mesh.coords is not None:
            p = _probabilities(p, count, chosen, replace)
        index = self._index(count, shape, replace, p, mesh, placements)
        if population is None:
            return index
        if shape is None:
            element = population[(slice(None),) * (axis % population.ndim) + (index,)]
            return as_distarray(element, mesh) if isinstance(element, np.ndarray) else element
        return np.take(as_distarray(population, mesh), index, axis)

    def _index(
        self,
        count: int,
        shape: tuple[int, ...] | None,
        replace: bool,
        p: Any,
        mesh: DeviceMesh,
        placements: Placements | None,
    ) -> Any:
        """The chosen positions; a scalar for `shape` None."""
        if replace and p is None:
            bounds = 0, max(count, 1)  # of no population, nothing is taken
            kind = {"dtype": np.int64, "endpoint": False}
            drawn = self._sample("integers", bounds, shape, mesh, placements, **kind)
            return int(drawn) if shape is None else drawn
        call = self._begin("choice", mesh)
        layout = layout_for(() if shape is None else shape, np.int64, mesh, placements)
        if not replace:
            index = _distinct(call, count, layout, p, mesh)
        else:
            index = _weighted(call, layout, p, mesh)
        return int(index.block) if shape is None else index


def _population(a: Any, axis: int) -> tuple[Any, int]:
    """The array to choose from (None for integers), and how many there are."""
    array = a if isinstance(a, DistArray) else np.asarray(a)
    if array.ndim:
        return array, array.shape[normalize_axis_index(axis, array.ndim)]
    try:
        return None, operator.index(array.item())
    except TypeError:
        raise ValueError(f"a must be a sequence or an integer, not {type(a)}") from None


def _probabilities(p: Any, count: int, chosen: int, replace: bool) -> Any:
    """Probabilities, checked as NumPy checks them."""
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


def _weighted(call: Call, layout: Layout, p: Any, mesh: DeviceMesh) -> DistArray:
    """With replacement: where uniform numbers fall among the accumulated probabilities."""

    def draw(generator: np.random.Generator, tile: Tile) -> Array:
        return generator.random(tile.extents)

    uniform = np.zeros(layout.local_shape(mesh.coords))
    if mesh.coords is None:
        return wrap(mesh.asarray(uniform.astype(np.int64)), layout, mesh)
    fill(uniform, layout.shape, layout.section(mesh.coords), call, draw)
    found = Weights(p, mesh).positions(uniform.reshape(-1))
    return wrap(mesh.asarray(found.reshape(uniform.shape)), layout, mesh)


def _distinct(call: Call, count: int, layout: Layout, p: Any, mesh: DeviceMesh) -> DistArray:
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
    """As many as the line is long, the first in a sequence of numbers below `count` to be new."""

    def draw(generator: np.random.Generator, tile: Tile) -> Array:
        return generator.integers(0, count, tile.extents)

    wanted = line.shape[0]
    drawn = wanted + wanted // _RARE + _SPARE  # of which a hundredth comes again
    while True:
        cut = Cut.chunked(drawn, line.cuts[0].mesh_dims, line.cuts[0].radix)
        numbers: Any = filled(Layout.from_cuts([cut], mesh.shape), mesh, np.int64, call, draw)
        order = np.argsort(numbers, kind="stable")
        ascending = numbers[order]
        again = order[1:][ascending[1:] == ascending[:-1]]
        if drawn - again.size >= wanted:
            distinct: Any = np.delete(numbers, again)
            return distinct[:wanted]  # type: ignore[no-any-return]
        drawn *= 2


def _line(layout: Layout, mesh: DeviceMesh) -> Layout:
    """The layout of the elements in a row: cut if they are."""
    if layout.ndim == 1:
        return layout
    if layout.is_replicated:
        return Layout.replicated((layout.size,), mesh.shape)
    return Layout.chunked((layout.size,), mesh.shape, [Shard(0)] * len(mesh.shape))


def _key(layout: Layout, mesh: DeviceMesh) -> tuple[slice, ...]:
    return tuple([slice(start, stop) for start, stop in layout.section(mesh.coords)])


def _race(call: Call, count: int, p: Any, mesh: DeviceMesh) -> DistArray:
    """All positions in the order in which they are drawn without replacement.

    Exponential clocks of rates p: the first to ring is i with probability p[i], and of the others
    the next is again so.
    """
    layout = Layout.chunked((count,), mesh.shape, [Shard(0)] * len(mesh.shape))
    rates = Placed(p, layout, mesh)

    def draw(generator: np.random.Generator, tile: Tile) -> Array:
        with np.errstate(divide="ignore"):
            return generator.standard_exponential(tile.extents) / rates.part(tile)

    clocks = filled(layout, mesh, np.float64, call, draw)
    return np.argsort(clocks, kind="stable")  # type: ignore[return-value]
