"""apply_along_axis and apply_over_axes: functions of whole lines and of whole arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from distarray.array import DistArray, as_distarray, implements
from distarray.array.one_rank import Alone
from distarray.engines.mapping.every_rank import divided_or_not, giving_arrays, spread, writing
from distarray.engines.mapping.loops import looped, make_loop, placed, unlooped
from distarray.typing import ArrayLike, Axes

__all__ = ["apply_along_axis", "apply_over_axes"]


@implements(np.apply_along_axis, at=True, alone=Alone())
def apply_along_axis(
    func1d: Callable[..., Any], axis: int, arr: ArrayLike, *args: Any, **kwargs: Any
) -> DistArray:
    """Apply a function to each 1-d slice along an axis; see :func:`numpy.apply_along_axis`.

    Parameters
    ----------
    func1d : callable
        Called for each line with a NumPy (or CuPy) array. A pure function (see
        :func:`distarray.pure`) is called on one rank for each line and must not communicate. Any
        other function is called by every rank for all lines, in NumPy's order.
    axis : int
        The axis along which the lines run.
    arr : DistArray
        Any placement.
    *args, **kwargs
        Passed on to `func1d`.

    Returns
    -------
    DistArray
        Type and shape follow the first line's result, as in NumPy. The lines are divided among the
        ranks; a small result of a replicated array is replicated.

    Raises
    ------
    ValueError
        If there are no lines.
    Exception
        The exception of `func1d`, on all ranks.

    Cost
    ----
    If the axis is cut, one all-to-all makes it whole. The only line of a 1-d array is sent to one
    rank. Then one broadcast and two allreduces of a few bytes, and an exchange that gives a small
    result the layout of `arr`. A function that is not pure costs a gather of `arr` instead.
    """
    x = as_distarray(arr)
    axis = normalize_axis_index(axis, x.ndim)
    if 0 in (*x.shape[:axis], *x.shape[axis + 1 :]):
        raise ValueError("Cannot apply_along_axis when any iteration dimensions are 0")

    def divided() -> DistArray:
        return _along(func1d, axis, x.plain(), args, kwargs)

    def by_all(operands: list[Any]) -> DistArray:
        (values,) = operands
        called: Any = giving_arrays(func1d)
        act = partial(np.apply_along_axis, called, axis, values, *args, **kwargs)
        result: DistArray = spread(writing(x, values, act), x)
        return result

    return divided_or_not(func1d, [*args, *kwargs.values()], [x], divided, by_all)


def _along(
    func1d: Callable[..., Any],
    axis: int,
    x: DistArray,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> DistArray:
    """Apply the function to each line; one rank calls it for each line."""
    move: Any = np.moveaxis
    lines = move(x, axis, -1)
    alone = lines.ndim == 1
    loop = make_loop([lines[None] if alone else lines], [1])

    def call(index: tuple[int, ...]) -> Sequence[Any]:
        return (func1d(loop.blocks[0][index], *args, **kwargs),)

    (block,) = looped(loop, call)
    result = placed(loop, block)
    if alone:
        return unlooped(result)
    inner = result.ndim - loop.layout.ndim
    moved: DistArray = move(result, range(-inner, 0), range(axis, axis + inner))
    return moved


@implements(np.apply_over_axes, at=True)
def apply_over_axes(func: Callable[..., Any], a: ArrayLike, axes: Axes) -> DistArray:
    """Apply a function to the whole array along several axes; see :func:`numpy.apply_over_axes`.

    Cost
    ----
    The cost of `func`, which every rank calls with the distributed array, once per axis.
    """
    value = as_distarray(a)
    ndim = value.ndim
    listed: Any = axes
    for axis in listed if np.ndim(listed) else (listed,):
        axis = axis + ndim if axis < 0 else axis
        result = func(value, axis)
        if result.ndim != value.ndim:
            result = np.expand_dims(result, axis)
            if result.ndim != value.ndim:
                raise ValueError("function is not returning an array of the correct shape")
        value = result
    return value
