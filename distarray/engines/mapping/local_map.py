"""local_map: a function of each rank's blocks, with placements of its arguments and results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import Any, TypeAlias

from distarray.array import DistArray, from_local
from distarray.array.base import Base, sequence_like
from distarray.array.divergence import verify
from distarray.comm import DeviceMesh
from distarray.comm.agree import agreed
from distarray.errors import LayoutError
from distarray.layout import Layout, Placement
from distarray.typing import Placements

__all__ = ["local_map"]

#: Placements of one argument or result; None for a value that is no distributed array.
Placed: TypeAlias = Sequence[Placement] | None


def local_map(
    func: Callable[..., Any] | None = None,
    out_placements: Sequence[Placed] | Placements | None = None,
    in_placements: Sequence[Placed] | None = None,
    in_grad_placements: Any = None,
    device_mesh: DeviceMesh | None = None,
    *,
    redistribute_inputs: bool = False,
) -> Callable[..., Any]:
    """Convert a function of local blocks to one of distributed arrays, as DTensor's `local_map`.

    Unlike in :func:`distarray.map_blocks` the function may communicate: every rank of the mesh
    calls it once.

    Parameters
    ----------
    func : callable, optional
        Function that takes blocks where the returned function takes distributed arrays. If omitted,
        a decorator is returned.
    out_placements : sequence
        Placements of all results, one per mesh dimension; or a tuple of such sequences, one per
        result, with None for a result that is no array.
    in_placements : sequence, optional
        Placements of each positional argument, None for an argument that is no distributed array.
        Each item of a list, tuple or dictionary counts as an argument.
    in_grad_placements
        Ignored; programs written for DTensor pass it.
    device_mesh : DeviceMesh, optional
        The mesh. By default the mesh of the arguments.
    redistribute_inputs : bool
        True to redistribute arguments with other placements to `in_placements`; if False, such
        arguments are an error.

    Returns
    -------
    callable

    Raises
    ------
    LayoutError
        If placements of arguments differ from `in_placements`, or results do not fit
        `out_placements`; on all ranks.
    Exception
        Any exception of `func`, on all ranks; unless `func` communicates and its failure leaves
        other ranks waiting for a message.

    Cost
    ----
    The exchanges of `redistribute_inputs`; then one allreduce to agree on errors, and for each
    result one small allreduce and one small allgather of lengths, since blocks may be uneven.

    Examples
    --------
    >>> import numpy, distarray
    >>> from distarray import Partial, Shard
    >>> x = distarray.distribute(numpy.arange(6.0), placements=[Shard(0)])
    >>> total = distarray.local_map(lambda block: block.sum(keepdims=True), [Partial()])
    >>> total(x).full()
    array([15.])
    """
    if func is None:
        return lambda function: local_map(
            function,
            out_placements,
            in_placements,
            in_grad_placements,
            device_mesh,
            redistribute_inputs=redistribute_inputs,
        )
    function = func

    @wraps(function)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        flat = list(_leaves(args))
        mesh = _mesh(flat, device_mesh)
        if mesh is None:
            return function(*args, **kwargs)
        verify(function, args, kwargs)
        wanted = _checked(flat, in_placements)
        blocks = iter(
            [_block(x, p, redistribute_inputs) for x, p in zip(flat, wanted, strict=True)]
        )
        arguments = _rebuilt(args, blocks)
        value = agreed(mesh.group, lambda: function(*arguments, **kwargs))
        results = list(_leaves(value))
        placed = _out_placements(out_placements, len(results))
        made = [
            r if p is None else from_local(r, mesh, p) for r, p in zip(results, placed, strict=True)
        ]
        return _rebuilt(value, iter(made))

    return mapped


def _leaves(value: Any) -> Iterator[Any]:
    """Yield the items of nested lists, tuples and dictionaries, in their order."""
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, dict):
        yield from _leaves(list(value.values()))
    else:
        yield value


def _rebuilt(value: Any, leaves: Iterator[Any]) -> Any:
    """Rebuild the same nesting with other items."""
    if isinstance(value, (list, tuple)):
        items = [_rebuilt(item, leaves) for item in value]
        return sequence_like(value, items)
    if isinstance(value, dict):
        return {key: _rebuilt(item, leaves) for key, item in value.items()}
    return next(leaves)


def _mesh(values: Sequence[Any], mesh: DeviceMesh | None) -> DeviceMesh | None:
    """Return the mesh to work on; None if no argument is distributed."""
    arrays = [value for value in values if isinstance(value, Base)]
    return (arrays[0].mesh if mesh is None else mesh) if arrays else None


def _checked(values: Sequence[Any], wanted: Sequence[Placed] | None) -> list[Placed]:
    if wanted is None:
        return [None] * len(values)
    if len(wanted) != len(values):
        raise LayoutError(
            f"local_map: in_placements has {len(wanted)} entries, and there are {len(values)} "
            "arguments; give one an argument, None where it is no distributed array"
        )
    for number, (value, placed) in enumerate(zip(values, wanted, strict=True)):
        if isinstance(value, Base) != (placed is not None):
            kind = "is" if isinstance(value, Base) else "is not"
            raise LayoutError(
                f"local_map: argument {number} {kind} a distributed array, and its in_placements "
                f"are {placed}"
            )
    return list(wanted)


def _block(value: Any, placed: Placed, redistribute: bool) -> Any:
    """Convert an argument for the function: a distributed array to this rank's block."""
    if not isinstance(value, DistArray):
        return value
    if placed is not None:
        wanted = Layout.chunked(value.shape, value.mesh.shape, placed)
        if wanted.placements != value.placements:
            if not redistribute:
                raise LayoutError(
                    f"local_map: {value.summary()} is not placed as in_placements say, "
                    f"{list(wanted.placements)}; redistribute it, or pass redistribute_inputs=True"
                )
            value = value.redistribute(value.mesh, wanted.placements)
    elif value.layout.ats:
        value = value.plain()
    return value.to_local()


def _out_placements(
    placements: Sequence[Placed] | Placements | None, count: int
) -> Sequence[Placed]:
    """Return one entry per result."""
    if isinstance(placements, Placement):
        return [[placements]] * count
    if placements is None:
        return [None] * count
    listed: list[Any] = list(placements)
    if listed and all(isinstance(entry, Placement) for entry in listed):
        return [listed] * count
    if len(listed) != count:
        raise LayoutError(
            f"local_map: out_placements has {len(listed)} entries, the function gave {count} "
            "result(s); give one a result, None where it is no array"
        )
    return listed
