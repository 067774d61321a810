"""Calls of ufuncs that are not NumPy's: made from Python functions, or generalized ufuncs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import zip_longest
from typing import Any

import numpy as np

from distarray.array import DistArray, as_distarray, common_mesh, fall_back, wrap
from distarray.array.portable import call_ufunc
from distarray.comm import alone
from distarray.comm.agree import agreed
from distarray.engines.blockwise import prepare
from distarray.engines.folds import calls_python
from distarray.engines.mapping.every_rank import divided_or_not, refuse_changeable, spread
from distarray.engines.mapping.loops import make_loop, placed, unlooped
from distarray.plan import broadcast_shapes
from distarray.typing import Array, ArrayLike, Casting

__all__ = ["call_foreign"]

_NUMPYS = frozenset([value for value in vars(np).values() if isinstance(value, np.ufunc)])


def call_foreign(
    ufunc: np.ufunc,
    inputs: Sequence[ArrayLike],
    outs: Sequence[DistArray | Array | None],
    where: ArrayLike | bool,
    keywords: dict[str, Any],
) -> Any:
    """Call a ufunc that is not NumPy's; return NotImplemented if the usual engine can call it.

    Cost
    ----
    For a Python function: an exchange for each operand whose layout differs, and one allreduce of
    an integer to agree on errors. For a generalized ufunc: a redistribution that makes cut core
    dimensions whole.
    """
    if ufunc in _NUMPYS:
        return NotImplemented
    if ufunc.signature is not None:
        return _generalized(ufunc, inputs, outs, keywords)
    if not calls_python(ufunc):
        return NotImplemented
    masked = where is not True

    def by_all(arrays: list[Any]) -> Any:
        mask = {"where": arrays[len(inputs)]} if masked else {}
        out = {"out": None} if masked and outs else {}
        value = ufunc(*arrays[: len(inputs)], **keywords, **mask, **out)
        like = next(x for x in (*inputs, where, *outs) if isinstance(x, DistArray))
        made = spread(value if isinstance(value, tuple) else (value,), like)
        return _given(ufunc, _written(made, outs, keywords.get("casting", "same_kind"), where))

    operands = [*inputs, *([where] if masked else [])]
    if not any(isinstance(x, DistArray) for x in operands):
        return _of_python(ufunc, inputs, outs, where, dict(keywords))
    return divided_or_not(
        ufunc, (), operands, lambda: _of_python(ufunc, inputs, outs, where, dict(keywords)), by_all
    )


def _of_python(
    ufunc: np.ufunc,
    inputs: Sequence[ArrayLike],
    outs: Sequence[DistArray | Array | None],
    where: ArrayLike | bool,
    keywords: dict[str, Any],
) -> Any:
    """Call a Python function for each element, on the ranks that hold the elements."""
    masked = where is not True
    # A 0-d array with a pending fold, or on a single rank, has different values on the ranks.
    inputs = [x if np.ndim(x) or not isinstance(x, DistArray) else x.plain() for x in inputs]
    blocks, layout, mesh = prepare(*inputs, *([where] if masked else []))
    blocks = [mesh.to_host(block) for block in blocks]
    if masked:
        keywords = {**keywords, "where": blocks.pop()}
        if outs:
            keywords["out"] = None  # without this NumPy warns of elements that stay unset

    def call() -> Any:
        with alone(mesh):
            value = ufunc(*blocks, **keywords)
        if not layout.is_replicated:
            for found in value if isinstance(value, tuple) else (value,):
                refuse_changeable(np.asanyarray(found), mesh)
        return value

    value = agreed(mesh.group, call)
    values = value if ufunc.nout > 1 else (value,)
    if layout.shape:
        values = [wrap(block, layout, mesh) for block in values]
    return _given(ufunc, _written(values, outs, keywords.get("casting", "same_kind"), where))


def _given(ufunc: np.ufunc, found: list[Any]) -> Any:
    """Return a tuple for several outputs, else the single result, as NumPy does."""
    return tuple(found) if ufunc.nout > 1 else found[0]


def _written(
    values: Sequence[Any],
    outs: Sequence[Any],
    casting: Casting,
    where: ArrayLike | bool,
) -> list[Any]:
    """Copy each result with an `out` into it; return the results."""
    found = []
    for value, out in zip_longest(values, outs):
        if out is not None:
            np.copyto(out, value, casting, where)
        found.append(value if out is None else out)
    return found


# -- generalized ufuncs ----------------------------------------------------------------------------


def _generalized(
    ufunc: np.ufunc,
    inputs: Sequence[ArrayLike],
    outs: Sequence[DistArray | Array | None],
    keywords: dict[str, Any],
) -> Any:
    """Call a generalized ufunc once on each rank, with its stack of whole vectors or matrices."""
    if outs or not keywords.keys() <= {"dtype", "casting", "order", "subok", "signature"}:
        named = {"out": tuple(outs)} if outs else {}
        return fall_back(ufunc, tuple(inputs), {**keywords, **named})
    mesh = common_mesh(*inputs)
    operands = [as_distarray(x, mesh) for x in inputs]
    cores = _core_ndims(ufunc.signature)
    if any(x.ndim < ndim for x, ndim in zip(operands, cores, strict=True)):
        if "?" in str(ufunc.signature):  # dimensions that may be missing
            return fall_back(ufunc, tuple(operands), keywords)
        return ufunc(*[np.zeros(x.shape, x.dtype) for x in operands], **keywords)  # NumPy's error
    shape = broadcast_shapes(
        *[x.shape[: x.ndim - ndim] for x, ndim in zip(operands, cores, strict=True)]
    )
    if not shape:
        operands = [x[None] for x in operands]
    loop = make_loop(operands, cores, divide=False)
    value: Any = agreed(mesh.group, lambda: call_ufunc(ufunc, *loop.blocks, **keywords))
    found = [placed(loop, block) for block in (value if ufunc.nout > 1 else (value,))]
    found = [_scalar(unlooped(result)) for result in found] if not shape else found
    return tuple(found) if ufunc.nout > 1 else found[0]


def _scalar(x: DistArray) -> DistArray:
    return x if x.ndim else x.computed(x.block)


@lru_cache(maxsize=256)
def _core_ndims(signature: str) -> tuple[int, ...]:
    """Return the number of core dimensions of each operand: (2, 1) for "(m,n),(n)->(m)"."""
    given = signature.partition("->")[0].replace(" ", "")
    return tuple(
        [len([n for n in part.strip("()").split(",") if n]) for part in given.split("),(")]
    )
