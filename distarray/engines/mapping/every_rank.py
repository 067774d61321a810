"""Calls that every rank makes for all elements, because the function may have a side effect.

NumPy's own function makes the calls, in its own number and order. Lists that the user function
fills, files that it writes and random numbers that it draws are therefore NumPy's on every rank.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial, wraps
from math import prod
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

from distarray.array import DistArray, as_distarray, default_layout, floaterrors, to_layout
from distarray.array.geometry import in_whole
from distarray.array.immutable import holds_changeable
from distarray.array.storage import placing_strides, walked
from distarray.comm import DeviceMesh
from distarray.comm.user_lines import warn_program
from distarray.config import config
from distarray.engines.folds import calls_python
from distarray.engines.mapping.effects import Verdict, is_marked, judge
from distarray.errors import ChanceError, NotDistributedError, PerformanceWarning
from distarray.layout import Fold
from distarray.typing import Array, Function

__all__ = [
    "EffectError",
    "divided_or_not",
    "giving_arrays",
    "have_effects",
    "in_numpys_order",
    "refuse_changeable",
    "spread",
    "whole",
    "writing",
]

T = TypeVar("T")
_CHANCE = "it draws from a random generator that all ranks share"
_WRITES = "it writes to its arguments"


class EffectError(Exception):
    """Exception: divided calls must be made by every rank, because of the side effect `reason`."""

    @property
    def reason(self) -> str:
        """Text of the side effect."""
        return str(self.args[0])


def divided_or_not(
    function: Callable[..., Any],
    given: Iterable[Any],
    operands: Sequence[Any],
    divided: Callable[[], T],
    by_all: Callable[[list[Any]], T],
) -> T:
    """Divide calls of `function` among the ranks if it is pure; else every rank makes all calls.

    Parameters
    ----------
    function : callable
        The user function.
    given : iterable
        Arguments of the function besides elements.
    operands : sequence
        The arrays whose elements the function gets; other values are passed on unchanged.
    divided : callable
        Divides the calls. If it raises, it has changed no data.
    by_all : callable
        Makes all calls, given copies of the operands as NumPy arrays. Every rank calls it.

    Cost
    ----
    One allreduce of an integer, unless the verdict about the function is the same on all ranks. If
    every rank makes all calls, an allgather of the cut operands.
    """
    arrays = [x for x in operands if isinstance(x, DistArray)]
    mesh = arrays[0].mesh
    if not _has_all_ranks(mesh):
        return divided()
    effect = _common_effect(function, given, arrays, mesh)
    if effect is None:
        try:
            return divided()
        except (ChanceError, EffectError) as error:
            if isinstance(error, ChanceError) and not error.shared:
                raise
            effect = _CHANCE if isinstance(error, ChanceError) else error.reason
        except ValueError as error:
            if "read-only" not in str(error):
                raise
            effect = _WRITES
    if mesh.size() > 1:
        _refuse_or_warn(arrays, effect)
    given_whole = [whole(x) if isinstance(x, DistArray) else x for x in operands]
    with floaterrors.as_the_program_has_it():
        return by_all(given_whole)


def _has_all_ranks(mesh: DeviceMesh) -> bool:
    """Return True if all existing ranks make the calls."""
    root = mesh._root
    return root is not None and mesh.coords is not None and mesh.size() == root.size


def _has_others(mesh: DeviceMesh) -> bool:
    """Return True if there are other ranks, and all ranks make the calls."""
    return mesh.size() > 1 and _has_all_ranks(mesh)


def have_effects(functions: Sequence[Callable[..., Any]], mesh: DeviceMesh) -> bool:
    """Return True if functions may have side effects; collective if verdicts may differ by rank."""
    verdicts = [judge(function) for function in functions]
    effect = next((verdict.effect for verdict in verdicts if verdict.effect is not None), None)
    same = all(verdict.same for verdict in verdicts)
    return _agreed_effect(Verdict(effect, same), mesh) is not None


def _common_effect(
    function: Callable[..., Any],
    given: Iterable[Any],
    arrays: Sequence[DistArray],
    mesh: DeviceMesh,
) -> str | None:
    """Return the side effect that some rank has found; None if no rank has found any."""
    verdict = judge(function, given)
    objects = [] if verdict.effect or is_marked(function) else arrays
    if any(holds_changeable(x.block) for x in objects if x.dtype.hasobject):
        verdict = Verdict("it gets objects that may change", False)
    return _agreed_effect(verdict, mesh)


def _agreed_effect(verdict: Verdict, mesh: DeviceMesh) -> str | None:
    if verdict.same or mesh.group.size == 1:
        return verdict.effect
    seen = np.array(verdict.effect is not None, np.int64)
    if not mesh.group.allreduce(seen, Fold.MAX, "agreement on effects"):
        return None
    return verdict.effect or "another rank sees an effect"


def _refuse_or_warn(arrays: Sequence[DistArray], effect: str) -> None:
    cut = [x for x in arrays if not x.layout.is_replicated]
    nbytes = sum([x.nbytes for x in cut])
    cure = (
        "draw the numbers before, and hand them in as an array"
        if effect is _CHANCE or "Random" in effect or "Generator" in effect
        else "if it only computes its result, say so by the decorator distarray.pure"
    )
    if cut and (config.fallback == "error" or nbytes > config.fallback_limit):
        raise NotDistributedError(
            f"the function may leave something behind ({effect}). Each rank would have to make all "
            f"calls with a copy of {', '.join([x.summary() for x in cut])}, which config.fallback "
            f"(or fallback_limit) does not allow: {cure}"
        )
    if cut and config.fallback == "warn":
        warn_program(
            f"the function may leave something behind ({effect}): every rank makes all calls, "
            f"which are not divided, and {nbytes} bytes are gathered. To divide them, {cure}",
            PerformanceWarning,
        )


def whole(x: DistArray) -> Array:
    """Return all elements as an array on this rank's host: the block itself, if it has them all.

    NumPy's ufuncs process elements in memory order. The copy of a cut array therefore gets the
    memory order that NumPy's array would have; it is derived from the blocks.
    """
    order = None if x.layout.is_replicated else _order_in_memory(x)
    x = x.plain()
    if x.layout.is_replicated and order is None:
        block: Array = x.mesh.to_host(x.block)
        return block if x.ndim else np.asarray(block)
    values = x.full()
    if order is None:
        return values
    result: Array = _stored(values, order)
    return result


class _Order(NamedTuple):
    """Memory order of a whole array.

    Attributes
    ----------
    axes : tuple of int
        The dimensions in the order of decreasing strides.
    turned : frozenset of int
        The dimensions with a negative stride.
    repeated : frozenset of int
        The dimensions with stride 0, along which all elements may be equal.
    """

    axes: tuple[int, ...]
    turned: frozenset[int]
    repeated: frozenset[int]


def _stored(values: Array, order: _Order) -> Array:
    """Copy the elements into the given memory order."""
    repeated = [d for d in order.repeated if _is_repeated(values, d)]
    first = tuple([slice(0, 1 if d in repeated else None) for d in range(values.ndim)])
    ways = tuple([slice(None, None, -1 if d in order.turned else None) for d in order.axes])
    laid = values[first].transpose(order.axes)[ways].copy()
    found = laid[ways].transpose(np.argsort(order.axes))
    return np.broadcast_to(found, values.shape) if repeated else found


def _is_repeated(values: Array, dim: int) -> bool:
    first = values.take([0], dim)
    same = (values == first) | ((values != values) & (first != first))
    return bool(np.all(same))


def _order_in_memory(x: DistArray) -> _Order | None:
    """Return the memory order of an array, the same on all ranks; None in C order.

    A view has the order of NumPy's view. Any other array has the order of the block with two or
    more elements along the most dimensions, of the lowest rank among equals. Along dimensions where
    that block has fewer than two, its stride decides.
    """
    view = in_whole(x)
    if view is not None:
        strides, extents = view.strides, list(view.shape)
    else:
        block = x.block
        extents = [min(extent, 2) for extent in block.shape]
        strides = placing_strides(block, x.layout)
        shown = (-prod(extents), x.mesh.rank, strides, extents)
        _, _, strides, extents = min(x.mesh.group.allgather_object(shown, "order in memory"))
    axes = walked(strides, tuple(extents))
    turned = frozenset([d for d in axes if strides[d] < 0])
    repeated = frozenset([d for d in axes if x.shape[d] > 1 and not strides[d]])
    plain = axes == tuple(range(x.ndim)) and not turned and not repeated
    return None if plain else _Order(axes, turned, repeated)


def giving_arrays(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function so that it returns NumPy arrays instead of distributed arrays."""

    def numpys(value: Any) -> Any:
        return whole(value) if isinstance(value, DistArray) else value

    def call(*args: Any, **kwargs: Any) -> Any:
        found = function(*args, **kwargs)
        return tuple(map(numpys, found)) if type(found) is tuple else numpys(found)

    return call


def writing(x: DistArray, values: Array, act: Callable[[], T]) -> T:
    """Call `act`, which writes to `values`, the result of `whole(x)`; copy changes back to `x`."""
    values.flags.writeable = values.flags.writeable and x.flags.writeable
    result = act()
    if values.flags.writeable and not (x.layout.is_replicated and x.mesh.device_type == "cpu"):
        x[...] = values
    return result


def spread(values: Any, like: DistArray) -> Any:
    """Distribute the result of calls that every rank has made like a new array; no messages."""
    if isinstance(values, tuple):
        return tuple([spread(value, like) for value in values])
    if not isinstance(values, (np.ndarray, np.generic)):
        return values
    found, mesh = as_distarray(values, like.mesh), like.mesh
    if values.dtype.hasobject:
        return found
    return to_layout(found, default_layout(found.shape, found.itemsize, mesh))


def refuse_changeable(values: Array, mesh: DeviceMesh) -> None:
    """Raise EffectError if results are mutable objects: every rank must then make all calls."""
    if values.dtype.hasobject and _has_others(mesh) and holds_changeable(values):
        raise EffectError("it returns objects that may change")


def in_numpys_order(method: str) -> Callable[[Function], Function]:
    """Decorator: make the implementation of a ufunc method call user functions in NumPy's order."""

    def decorate(implementation: Function) -> Function:
        @wraps(implementation)
        def called(ufunc: np.ufunc, a: Any, *args: Any, **kwargs: Any) -> Any:
            if not calls_python(ufunc):
                return implementation(ufunc, a, *args, **kwargs)
            operands = [a, *args, *kwargs.values()]
            if not any(isinstance(x, DistArray) for x in operands):
                operands.append(as_distarray(np.zeros(0)))  # only `out` is distributed

            def by_all(arrays: list[Any]) -> Any:
                named = dict(zip(kwargs, arrays[1 + len(args) :], strict=False))
                return _method_by_all(ufunc, method, a, arrays[: 1 + len(args)], named)

            divided = partial(implementation, ufunc, a, *args, **kwargs)
            return divided_or_not(ufunc, (), operands, divided, by_all)

        return cast("Function", called)

    return decorate


def _method_by_all(
    ufunc: np.ufunc, method: str, a: Any, given: list[Any], named: dict[str, Any]
) -> Any:
    """Call a method of a ufunc with NumPy arrays; return the result or write it to `a` or `out`."""
    out = named.pop("out", None)
    out = out[0] if isinstance(out, tuple) else out
    act = partial(getattr(ufunc, method), *given, **named)
    if method == "at":
        return writing(a, given[0], act) if isinstance(a, DistArray) else act()
    if out is None:
        return spread(act(), as_distarray(a))
    out[...] = act()
    return out
