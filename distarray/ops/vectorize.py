"""`vectorize`: NumPy's class, with distributed arguments."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from distarray.array import DistArray, as_distarray, common_mesh
from distarray.array.divergence import verify
from distarray.comm import DeviceMesh, alone
from distarray.comm.agree import agree
from distarray.engines.mapping.every_rank import (
    divided_or_not,
    giving_arrays,
    refuse_changeable,
    spread,
)
from distarray.engines.mapping.loops import Loop, attempted, looped, make_loop, placed, unlooped
from distarray.plan import broadcast_shapes
from distarray.typing import Array, DType

__all__ = ["vectorize"]

Function = Callable[..., Any]
#: Kinds of data types whose size or unit depends on an array's elements.
_FLEXIBLE = "SUMm"
_EMPTY = "cannot call `vectorize` on size 0 inputs unless `otypes` is set"


class vectorize(np.vectorize):
    """Python function that is applied element by element; see :class:`numpy.vectorize`.

    With a DistArray among the arguments, the calls of a pure function (see :func:`distarray.pure`)
    are divided among the ranks. Each call is made on one rank: the function must not communicate,
    and arrays that it makes are local to the rank. Otherwise every rank makes all calls.

    Parameters
    ----------
    pyfunc, otypes, doc, excluded, cache, signature
        As in NumPy.

    Cost
    ----
    Arguments whose layout differs from the others' are moved, and so are those that are cut along
    a dimension of `signature`. Then one broadcast and two allreduces of a few bytes. Small results
    of replicated arguments are gathered. For results that are text or dates, an allgather of their
    types. If the function is not pure, a gather of the arguments instead.
    """

    def _vectorize_call(self, func: Function, args: Sequence[Any]) -> Any:
        if not any(isinstance(arg, DistArray) for arg in args):
            return super()._vectorize_call(func, args)  # type: ignore[misc]
        verify(vectorize, args, {})
        mesh = common_mesh(*args)
        operands = [as_distarray(arg, mesh) for arg in args]
        if self.signature is not None and len(args) != len(self._in_and_out_core_dims[0]):  # type: ignore[attr-defined]
            return super()._vectorize_call(func, [0] * len(args))  # type: ignore[misc] # raises

        def by_all(arrays: list[Any]) -> Any:
            called = func if self.signature is None else giving_arrays(func)
            return spread(super(vectorize, self)._vectorize_call(called, arrays), operands[0])  # type: ignore[misc]

        return divided_or_not(
            self.pyfunc,
            self._excluded_values(func),
            operands,
            lambda: self._divided(func, [x.plain() for x in operands]),
            by_all,
        )

    def _excluded_values(self, func: Function) -> list[Any]:
        """Return the arguments that the function gets unchanged, from NumPy's closure."""
        if func is self.pyfunc:
            return []
        cells = zip(func.__code__.co_freevars, func.__closure__ or (), strict=True)
        held = {name: cell.cell_contents for name, cell in cells}
        chosen = self.excluded
        args, kwargs = held.get("the_args", ()), held.get("kwargs", {})
        listed = [value for place, value in enumerate(args) if place in chosen]
        return [*listed, *[value for name, value in kwargs.items() if name in chosen]]

    def _divided(self, func: Function, operands: list[DistArray]) -> Any:
        if self.signature is not None:
            return self._with_cores(func, operands)
        return _elementwise(func, operands, self.otypes, self.cache)

    def _with_cores(self, func: Function, operands: list[DistArray]) -> Any:
        inputs, outputs = self._in_and_out_core_dims  # type: ignore[attr-defined]
        sizes: dict[str, int] = {}
        for x, names in zip(operands, inputs, strict=True):
            _note_sizes(sizes, x.shape, x.ndim, names)
        lead = [x.shape[: x.ndim - len(names)] for x, names in zip(operands, inputs, strict=True)]
        shape = broadcast_shapes(*lead)
        if 0 in shape:
            # NumPy's own result, or exception, needs no element.
            empty = [np.broadcast_to(np.zeros((), x.dtype), x.shape) for x in operands]
            return _replicated(super()._vectorize_call_with_signature(func, empty), operands[0])  # type: ignore[misc]
        if not shape:
            operands = [x[None] for x in operands]
        loop = make_loop(operands, [len(names) for names in inputs])
        loop = loop._replace(blocks=[loop.mesh.to_host(block) for block in loop.blocks])
        call = _Checked(func, loop, outputs, sizes)
        found = [placed(loop, block) for block in looped(loop, call, self.otypes or ())]
        found = found if shape else [unlooped(result) for result in found]
        return found[0] if len(outputs) == 1 else tuple(found)


def _note_sizes(
    sizes: dict[str, int], shape: Sequence[int], ndim: int, names: Sequence[str]
) -> None:
    """Record the core dimensions of one array; raise NumPy's errors."""
    if not names:
        return
    if ndim < len(names):
        raise ValueError(
            f"{ndim}-dimensional argument does not have enough dimensions for all core "
            f"dimensions {tuple(names)!r}"
        )
    for name, extent in zip(names, shape[-len(names) :], strict=True):
        if sizes.setdefault(name, extent) != extent:
            raise ValueError(
                f"inconsistent size for core dimension {name!r}: {extent!r} vs {sizes[name]!r}"
            )


class _Checked:
    """Call of a function with a signature, whose results are checked against it."""

    def __init__(
        self, func: Function, loop: Loop, outputs: Sequence[Any], sizes: dict[str, int]
    ) -> None:
        self._func, self._loop, self._outputs = func, loop, outputs
        self._sizes: dict[str, int] | None = sizes

    def __call__(self, index: tuple[int, ...]) -> Sequence[Any]:
        results = self._func(*[block[index] for block in self._loop.blocks])
        count = len(results) if isinstance(results, tuple) else 1
        if count != len(self._outputs):
            raise ValueError(
                f"wrong number of outputs from pyfunc: expected {len(self._outputs)!r}, "
                f"got {count!r}"
            )
        results = results if len(self._outputs) > 1 or isinstance(results, tuple) else (results,)
        if self._sizes is not None:  # of the first call; later results are cast and broadcast
            for result, names in zip(results, self._outputs, strict=True):
                _note_sizes(self._sizes, np.shape(result), np.ndim(result), names)
            self._sizes = None
        return results


def _replicated(values: Any, like: DistArray) -> Any:
    if isinstance(values, tuple):
        return tuple([as_distarray(value, like.mesh) for value in values])
    return as_distarray(values, like.mesh)


def _elementwise(
    func: Function,
    operands: list[DistArray],
    otypes: Sequence[str | DType] | None,
    cache: bool,
) -> Any:
    shape = broadcast_shapes(*[x.shape for x in operands])
    if otypes is None and any(x.size == 0 for x in operands):
        raise ValueError(_EMPTY)
    if not shape:
        operands = [x[None] for x in operands]
    loop = make_loop(operands, [0] * len(operands))
    blocks = [loop.mesh.to_host(block) for block in loop.blocks]
    if otypes is None:
        otypes, func = _types(func, blocks, loop, cache)
    ufunc = np.frompyfunc(func, len(blocks), len(otypes))

    def call() -> list[Array]:
        with alone(loop.mesh):
            values: Any = ufunc(*blocks)
        listed = values if isinstance(values, tuple) else (values,)
        typed = [np.asanyarray(v, kind) for v, kind in zip(listed, otypes, strict=True)]
        for block in typed:
            refuse_changeable(block, loop.mesh)
        return typed

    found, error = attempted(call)
    agree(loop.mesh.group, error)
    results = []
    for block, kind in zip(found or [], otypes, strict=True):
        block = _agreed_type(block, loop.mesh) if _is_open(kind) else block
        result = placed(loop, block if block.dtype.hasobject else loop.mesh.asarray(block))
        results.append(result if shape else unlooped(result))
    return results[0] if len(results) == 1 else tuple(results)


def _types(func: Function, blocks: list[Array], loop: Loop, cache: bool) -> tuple[str, Function]:
    """Return the result types, from the first element's results, and the function for the rest."""
    mesh, kept = loop.mesh, []

    def call() -> str:
        with alone(mesh):
            outputs = func(*[block.flat[0] for block in blocks])
        kept.append(outputs)
        listed = outputs if isinstance(outputs, tuple) else (outputs,)
        return "".join([np.asarray(output).dtype.char for output in listed])

    mine, error = attempted(call) if mesh.rank == loop.root else ("", None)
    agree(mesh.group, error)
    types = mesh.group.broadcast_object(mine, loop.root) or "d"  # outside of the mesh
    if not cache:
        return types, func

    def cached(*values: Any) -> Any:
        return kept.pop() if kept else func(*values)

    return types, cached


def _is_open(kind: str | DType) -> bool:
    """Return True if a type is a bare letter, so that the elements determine its size or unit."""
    return isinstance(kind, str) and kind in _FLEXIBLE


def _agreed_type(block: Array, mesh: DeviceMesh) -> Array:
    """Return the block in a type that fits the elements of all ranks."""
    texts = mesh.group.allgather_object(block.dtype.str if block.size else None)
    needed = [np.dtype(text) for text in texts if text is not None]
    return block.astype(np.result_type(*needed)) if needed else block
