"""Calls that every rank makes, for all elements, since the function may leave something behind.

So lists that it fills, files that it writes and numbers that it draws are NumPy's on every rank:
NumPy's own function makes the calls, as often and in the order in which it makes them.
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
    """Calls that have been divided must be made by every rank; `reason` says why."""

    @property
    def reason(self) -> str:
        """The effect."""
        return str(self.args[0])


def divided_or_not(
    function: Callable[..., Any],
    given: Iterable[Any],
    operands: Sequence[Any],
    divided: Callable[[], T],
    by_all: Callable[[list[Any]], T],
) -> T:
    """The result of calls that are divided among the ranks if `function` is pure.

    Parameters
    ----------
    function : callable
        The user's.
    given : iterable
        Arguments that it gets besides elements.
    operands : sequence
        The arrays whose elements it gets; other things are handed on as they are.
    divided : callable
        Divides the calls. It has not changed anything when it raises.
    by_all : callable
        Makes all calls, from copies of the operands in NumPy's arrays. Every rank calls it.

    Cost
    ----
    One allreduce of an integer, unless the function is such that all ranks judge it alike. If
    every rank makes all calls, a gather of the operands that are cut.
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
    """Whether all ranks that there are make the calls."""
    root = mesh._root
    return root is not None and mesh.coords is not None and mesh.size() == root.size


def _has_others(mesh: DeviceMesh) -> bool:
    """Whether there are other ranks, all of which make the calls."""
    return mesh.size() > 1 and _has_all_ranks(mesh)


def have_effects(functions: Sequence[Callable[..., Any]], mesh: DeviceMesh) -> bool:
    """Whether functions may leave something behind; collective if not all ranks judge alike."""
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
    """The effect that some rank sees; None if there is none."""
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
    """All elements as an array on this rank's host: the block itself, if it has all.

    NumPy's ufuncs go through the elements as they lie in memory, so the copy of a cut array has the
    order that NumPy's array has, which the blocks show.
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
    """How a whole array lies in memory.

    Attributes
    ----------
    axes : tuple of int
        The dimensions by falling strides.
    turned : frozenset of int
        Those that run backwards.
    repeated : frozenset of int
        Those along which all elements may be one.
    """

    axes: tuple[int, ...]
    turned: frozenset[int]
    repeated: frozenset[int]


def _stored(values: Array, order: _Order) -> Array:
    """The same elements, stored so."""
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
    """Where the elements lie; None in C order.

    The same on all ranks. A view lies as NumPy's does. Others lie as the block of the first rank
    that has two elements along most dimensions; where none has two, the stride tells the place.
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
    """The function with NumPy's arrays in place of distributed ones that it returns."""

    def numpys(value: Any) -> Any:
        return whole(value) if isinstance(value, DistArray) else value

    def call(*args: Any, **kwargs: Any) -> Any:
        found = function(*args, **kwargs)
        return tuple(map(numpys, found)) if type(found) is tuple else numpys(found)

    return call


def writing(x: DistArray, values: Array, act: Callable[[], T]) -> T:
    """Act on the elements of an array as `whole` gave them; the array gets what has changed."""
    values.flags.writeable = values.flags.writeable and x.flags.writeable
    result = act()
    if values.flags.writeable and not (x.layout.is_replicated and x.mesh.device_type == "cpu"):
        x[...] = values
    return result


def spread(values: Any, like: DistArray) -> Any:
    """The result of calls that every rank has made, laid out as a new array; nothing is sent."""
    if isinstance(values, tuple):
        return tuple([spread(value, like) for value in values])
    if not isinstance(values, (np.ndarray, np.generic)):
        return values
    found, mesh = as_distarray(values, like.mesh), like.mesh
    if values.dtype.hasobject:
        return found
    return to_layout(found, default_layout(found.shape, found.itemsize, mesh))


def refuse_changeable(values: Array, mesh: DeviceMesh) -> None:
    """Raise if results are objects that may change: every rank must have them all."""
    if values.dtype.hasobject and _has_others(mesh) and holds_changeable(values):
        raise EffectError("it returns objects that may change")


def in_numpys_order(method: str) -> Callable[[Function], Function]:
    """Make the implementation of a method of ufuncs call functions of the user's as NumPy does."""

    def decorate(implementation: Function) -> Function:
        @wraps(implementation)
        def called(ufunc: np.ufunc, a: Any, *args: Any, **kwargs: Any) -> Any:
            if not calls_python(ufunc):
                return implementation(ufunc, a, *args, **kwargs)
            operands = [a, *args, *kwargs.values()]
            if not any(isinstance(x, DistArray) for x in operands):
                operands.append(as_distarray(np.zeros(0)))  # an `out` alone is distributed

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
    """A method of a ufunc, called with NumPy's arrays; its result, or its effect on `a`."""
    out = named.pop("out", None)
    out = out[0] if isinstance(out, tuple) else out
    act = partial(getattr(ufunc, method), *given, **named)
    if method == "at":
        return writing(a, given[0], act) if isinstance(a, DistArray) else act()
    if out is None:
        return spread(act(), as_distarray(a))
    out[...] = act()
    return out
