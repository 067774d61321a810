"""Permutations and choices, which NumPy makes by swapping."""

import operator
from math import prod
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from distarray.array import DistArray, as_distarray, wrap
from distarray.array.placing import as_shape, plain
from distarray.array.portable import refuse_read_only
from distarray.comm import DeviceMesh
from distarray.config import config
from distarray.engines.drawing.methods import GENERATOR, LEGACY, Row, Way
from distarray.engines.drawing.outputs import is_at_hand, of_whole
from distarray.engines.drawing.parameters import on_host
from distarray.engines.drawing.sampling import Place, layout_for, mesh_for, sample, verify_place
from distarray.engines.drawing.swaps import check_limit, permuted_lanes, reordered
from distarray.ops.random.sampling import Drawing, is_small, replicated
from distarray.typing import ArrayLike, Placements, ShapeLike

__all__ = ["Ordering", "chosen", "permutation_of", "shuffle_in_place"]

#: Row of weighted choices: each element takes one uniform number.
_WEIGHTED = Row(Way.FIXED, (0,), 2)
#: Ratio of population to choice from which on NumPy chooses without an array of all elements.
_RARE = 50
_ANYWHERE = Place(None, None)


class Ordering(Drawing):
    """Permutations and choices, as in :class:`numpy.random.Generator`.

    Cost
    ----
    Each rank makes NumPy's swaps on an array of indices of up to `config.fallback_limit` bytes, and
    takes its own section. Distributed elements are sent once, to their new rank.
    """

    def permutation(
        self,
        x: ArrayLike,
        axis: int = 0,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Return a random permutation of the integers below `x`, or of an array along an axis."""
        return permutation_of(self, x, Place(mesh, placements), axis)

    def shuffle(self, x: Any, axis: int = 0) -> None:
        """Permute an array or another sequence in place along an axis."""
        shuffle_in_place(self, x, axis)

    def permuted(
        self,
        x: ArrayLike,
        *,
        axis: int | None = None,
        out: Any = None,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Permute each slice along an axis independently; without an axis, all elements."""
        mesh = mesh_for(mesh, self._mesh, [x, out])
        verify_place(self._plain, "permuted", mesh)
        if isinstance(x, DistArray) or isinstance(out, DistArray):
            array = as_distarray(x, mesh).plain()
            return _permuted(self._plain, array, axis, out, placements)
        whole = self._plain.permuted(x, axis=axis, out=out)
        if out is not None:
            return out
        return of_whole(whole, mesh, layout_for(whole.shape, whole.dtype, mesh, placements))

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
        """Choose elements of a population, or integers below `a`.

        Cost
        ----
        With replacement the cost of :meth:`integers`, or of :meth:`random` with probabilities,
        which are gathered if they are distributed. Without replacement the cost of
        :meth:`permutation`. Elements of a distributed population are fetched as by ``np.take``.
        """
        place = Place(mesh, placements)
        return chosen(self, a, size, replace, p, place, {"axis": axis, "shuffle": shuffle})


def _permuted(
    source: Any, x: DistArray, axis: int | None, out: Any, placements: Placements | None
) -> Any:
    """Permute slices of a distributed array; into `out` if it is given."""
    _check_out(x, out)
    if axis is not None:
        axis = normalize_axis_index(axis, x.ndim)
    elif not x.ndim:
        raise TypeError("len() of unsized object")
    if placements is not None:
        x = x.redistribute(x.mesh, placements)
    if is_at_hand(x):
        result = wrap(source.permuted(x.block, axis=axis), x.layout, x.mesh)
    else:
        result = permuted_lanes(source, x, axis)
    if out is None:
        return result
    out[...] = result if isinstance(out, DistArray) else result.full()
    return out


def permutation_of(self: Drawing, x: Any, place: Place, *axis: int) -> Any:
    """Return a permutation by NumPy's swaps; see :meth:`Ordering.permutation`."""
    if type(x) is int and place == _ANYWHERE and is_small(x):
        check_limit("permutation", x)
        return replicated(self, self._plain.permutation(x, *axis))
    mesh, source = mesh_for(place.mesh, self._mesh, [x]), self._plain
    verify_place(source, "permutation", mesh)
    x = plain(x)
    if not isinstance(x, DistArray):
        if isinstance(x, (int, np.integer)):
            check_limit("permutation", int(x))
        whole = source.permutation(x, *axis)
        return of_whole(whole, mesh, layout_for(whole.shape, whole.dtype, mesh, place.placements))
    at = normalize_axis_index(axis[0] if axis else 0, x.ndim)
    array = x.plain()
    if place.placements is not None:
        array = array.redistribute(mesh, place.placements)
    if is_at_hand(array):
        return wrap(source.permutation(array.block, *axis), array.layout, mesh)
    check_limit("permutation", array.shape[at])
    return reordered(array, source.permutation(array.shape[at]), at)


def shuffle_in_place(self: Drawing, x: Any, *axis: int) -> None:
    """Permute in place by NumPy's swaps; see :meth:`Ordering.shuffle`."""
    source = self._plain
    verify_place(source, "shuffle", mesh_for(None, self._mesh, [x]))
    if not isinstance(x, DistArray):
        source.shuffle(x, *axis)
        return
    if not x.ndim:
        raise TypeError("len() of unsized object")
    at = normalize_axis_index(axis[0] if axis else 0, x.ndim)
    if x.layout.partials:
        x.settle()
    refuse_read_only(x, "array is read-only")
    if is_at_hand(x):
        source.shuffle(x.block, *axis)
        return
    check_limit("shuffle", x.shape[at])
    x.assign(reordered(x.plain(), source.permutation(x.shape[at]), at))


def chosen(
    self: Drawing,
    a: Any,
    size: ShapeLike | None,
    replace: bool,
    p: Any,
    place: Place,
    more: dict[str, Any],
) -> Any:
    """Choose elements of a population; see :meth:`Ordering.choice`."""
    if replace and p is None and _are_few_integers(a, size, place):
        return replicated(self, self._plain.choice(a, size, **more))
    mesh = mesh_for(place.mesh, self._mesh, [a, p])
    near = isinstance(a, DistArray) or isinstance(p, DistArray)
    if not near and (not replace or _is_few(size, a)):
        return _chosen_at_once(self, a, size, replace, p, place._replace(mesh=mesh), more)
    axis = more.get("axis", 0)
    population, count = _population(a, axis)
    shape = None if size is None else as_shape(size)
    _check_population(population, count, shape)
    place = place._replace(mesh=mesh)
    index = _index(self, (count, shape, replace, on_host(p)), place, more)
    if population is None:
        return index
    if shape is None:
        element = population[(slice(None),) * (axis % population.ndim) + (int(index),)]
        return as_distarray(element, mesh) if isinstance(element, np.ndarray) else element
    return np.take(as_distarray(population, mesh), index, axis)


def _are_few_integers(a: Any, size: Any, place: Place) -> bool:
    """Return True if `a` is an integer, and `size` integers are certainly replicated."""
    return type(a) is int and place == _ANYWHERE and is_small(size)


def _check_population(population: Any, count: int, shape: tuple[int, ...] | None) -> None:
    """Raise NumPy's error if there is no element to choose from."""
    if count <= 0 and (shape is None or 0 not in shape):
        raise ValueError(
            "a cannot be empty unless no samples are taken"
            if population is not None
            else "a must be a positive integer unless no samples are taken"
        )


def _index(
    self: Drawing,
    asked: tuple[int, tuple[int, ...] | None, bool, Any],
    place: Place,
    more: dict[str, Any],
) -> Any:
    """Choose positions below a number; the method depends on replacement and probabilities."""
    count, shape, replace, p = asked
    if not replace:
        rest = {"shuffle": more["shuffle"]} if more else {}
        return _chosen_at_once(self, count, shape, False, p, place, rest)
    if p is not None:
        return sample(self._plain, "choice", _WEIGHTED, ((count, shape, True, p), {}), place)
    name, rows = ("integers", GENERATOR) if more else ("randint", LEGACY)
    return sample(self._plain, name, rows[name], ((0, max(count, 1), shape), {}), place)


def _count(size: ShapeLike | None) -> int:
    if size is None:
        return 1
    return prod(as_shape(size))


def _is_few(size: ShapeLike | None, a: Any) -> bool:
    """Return True if the chosen elements are certainly replicated."""
    width = 1 if not np.ndim(a) else np.asarray(a)[:1].nbytes
    return bool(_count(size) * max(8, width) < config.replicate_below)


def _chosen_at_once(
    self: Drawing,
    a: Any,
    size: ShapeLike | None,
    replace: bool,
    p: Any,
    place: Place,
    more: dict[str, Any],
) -> Any:
    """Make NumPy's own call on every rank; each rank takes its section of the result."""
    mesh = place.mesh
    assert mesh is not None
    verify_place(self._plain, "choice", mesh)
    if not replace:
        count = np.shape(a)[more.get("axis", 0)] if np.ndim(a) else int(np.asarray(a).item())
        few = more and _count(size) <= count // _RARE
        check_limit("choice", 0 if few else count)
    drawn: Any = self._plain.choice(a, size, replace, p, **more)
    if not isinstance(drawn, np.ndarray):
        return drawn
    return of_whole(drawn, mesh, layout_for(drawn.shape, drawn.dtype, mesh, place.placements))


def _population(a: Any, axis: int) -> tuple[Any, int]:
    """Return the array to choose from (None for integers), and the size of the population."""
    array = a if isinstance(a, DistArray) else np.asarray(a)
    if array.ndim:
        return array, array.shape[normalize_axis_index(axis, array.ndim)]
    try:
        return None, operator.index(array.item())
    except TypeError:
        raise ValueError(f"a must be a sequence or an integer, not {type(a)}") from None


def _check_out(x: DistArray, out: Any) -> None:
    if out is None:
        return
    if not isinstance(out, (DistArray, np.ndarray)):
        raise TypeError("out must be a numpy array")
    refuse_read_only(out, "out is read-only")
    if out.shape != x.shape:
        raise ValueError("out must have the same shape as x")
    np.copyto(np.empty(0, out.dtype), np.empty(0, x.dtype), casting="safe")  # raises NumPy's error
