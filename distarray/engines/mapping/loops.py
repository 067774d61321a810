"""Loops: a Python function called once for each index, divided among the ranks.

The calls are divided among all ranks, including ranks that hold replicas: a Python call costs more
than sending its result. As in NumPy, the first call's result determines the data type and shape of
all results; the rank that makes this call broadcasts them. The ranks agree on errors twice: after
their first calls and after all calls. Functions that may have side effects are called by
:mod:`distarray.engines.mapping.every_rank`.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple, TypeVar

import numpy as np

from distarray.array import DistArray, default_layout, floaterrors, to_layout, wrap
from distarray.comm import DeviceMesh, alone
from distarray.comm.agree import agreed
from distarray.config import config
from distarray.engines.mapping.every_rank import refuse_changeable
from distarray.layout import Cut, Layout
from distarray.plan import propagate, rank_of, restrict
from distarray.typing import Array, DTypeLike

__all__ = [
    "Loop",
    "attempted",
    "looped",
    "make_loop",
    "own_block",
    "placed",
    "unlooped",
]


T = TypeVar("T")


class Loop(NamedTuple):
    """Division of a loop among the ranks, and this rank's parts of the operands.

    Attributes
    ----------
    layout : Layout
        Layout of the loop's index space; it determines which rank makes which calls.
    follow : Layout
        Layout of the index space that follows the operands; it may have replicas.
    blocks : list of array
        This rank's part of each operand, broadcast to its part of the loop.
    mesh : DeviceMesh
        The mesh of the operands.
    """

    layout: Layout
    follow: Layout
    blocks: list[Array]
    mesh: DeviceMesh

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of this rank's part of the loop."""
        return self.layout.local_shape(self.mesh.coords)

    @property
    def root(self) -> int:
        """Rank of the mesh that makes the first call."""
        return _first_rank(self.layout)


def make_loop(
    operands: Sequence[DistArray],
    core_ndims: Sequence[int],
    divide: bool = True,
) -> Loop:
    """Redistribute operands for calls on slices of them.

    Parameters
    ----------
    operands : sequence of DistArray
        Arrays on one mesh. Their leading dimensions broadcast and form the loop.
    core_ndims : sequence of int
        Number of trailing dimensions of each operand that a call takes whole (core dimensions).
    divide : bool
        True to divide the calls among all ranks, including replicas. If False, they are divided
        only along mesh dimensions that cut loop or core dimensions of the operands.

    Cost
    ----
    An exchange for each operand whose core dimensions are cut, or whose layout differs from the
    loop's.
    """
    mesh = operands[0].mesh
    outer, sizes = [], []
    for x, ndim in zip(operands, core_ndims, strict=True):
        kept = x.layout.cuts[: x.ndim - ndim]
        outer.append(Layout.from_cuts(kept, mesh.shape))
        sizes.append(x.itemsize * prod(x.shape[x.ndim - ndim :]))
    follow = propagate(tuple(outer), tuple(sizes)).result
    layout = divided(follow, None if divide else _inner_mesh_dims(operands, core_ndims))
    blocks = []
    for x, ndim in zip(operands, core_ndims, strict=True):
        core = x.shape[x.ndim - ndim :]
        wanted = restrict(layout, x.shape[: x.ndim - ndim])
        cuts = (*wanted.cuts, *[Cut.whole(extent) for extent in core])
        block = to_layout(x, Layout.from_cuts(cuts, mesh.shape)).block
        blocks.append(np.broadcast_to(block, layout.local_shape(mesh.coords) + core))
    return Loop(layout, follow, blocks, mesh)


def _inner_mesh_dims(operands: Sequence[DistArray], core_ndims: Sequence[int]) -> tuple[int, ...]:
    """Return the mesh dimensions that cut core dimensions."""
    found: set[int] = set()
    for x, ndim in zip(operands, core_ndims, strict=True):
        for cut in x.layout.cuts[x.ndim - ndim :]:
            found.update(cut.mesh_dims)
    return tuple(sorted(found))


@lru_cache(maxsize=1024)
def divided(layout: Layout, mesh_dims: tuple[int, ...] | None) -> Layout:
    """Return the layout, cut also by mesh dimensions (by default all) that replicate it."""
    chosen = range(len(layout.mesh_shape)) if mesh_dims is None else mesh_dims
    free = [m for m in chosen if layout.mesh_shape[m] > 1]
    free = [m for m in free if not any(m in cut.mesh_dims for cut in layout.cuts)]
    layout = layout.settled()
    for mesh_dim in free:
        canonical = [d for d, cut in enumerate(layout.cuts) if cut.is_canonical]
        lengths = [cut.extent / cut.parts for cut in layout.cuts]
        if canonical:
            dim = max(canonical, key=lengths.__getitem__)
            cut = layout.cuts[dim]
            radix = (*cut.radix, layout.mesh_shape[mesh_dim])
            layout = layout.replace(dim, Cut.chunked(cut.extent, (*cut.mesh_dims, mesh_dim), radix))
    return layout


@lru_cache(maxsize=1024)
def _first_rank(layout: Layout) -> int:
    """Return the lowest rank that holds the index (0, 0, ...) of a layout."""
    coords = [0] * len(layout.mesh_shape)
    for cut in layout.cuts:
        if cut.mesh_dims and cut.extent:
            for mesh_dim, digit in zip(cut.mesh_dims, cut.digits(cut.owner(0)), strict=True):
                coords[mesh_dim] = digit
    return rank_of(tuple(coords), layout.mesh_shape)


def attempted(call: Callable[[], T]) -> tuple[T | None, Exception | None]:
    """Return (result, None) of a call, or (None, exception) if it raises."""
    try:
        return call(), None
    except Exception as error:
        return None, error


def own_block(value: Any) -> Any:
    """Convert a distributed array to this rank's block; return other values unchanged."""
    return value.to_local() if isinstance(value, DistArray) else value


def looped(
    loop: Loop,
    function: Callable[[tuple[int, ...]], Sequence[Any]],
    dtypes: Sequence[DTypeLike] = (),
) -> list[Array]:
    """Call ``function(index)`` for each index of this rank's part of a nonempty loop.

    Parameters
    ----------
    loop : Loop
        A loop of any size but 0.
    function : callable
        Returns the results of one call, equally many each time.
    dtypes : sequence of dtype or None
        Data types of the results; None for that of the first call's result.

    Returns
    -------
    list of array
        One block per result: the loop's dimensions, then the result's own.

    Cost
    ----
    A broadcast of shapes and types, and two allreduces of an integer to agree on errors.
    """
    group, shape = loop.mesh.group, loop.shape
    floaterrors.divide(loop.mesh)
    indices: Iterator[tuple[int, ...]] = np.ndindex(shape)
    index = next(indices, None)
    convert = loop.mesh.xp.asarray

    def call_first() -> list[Any]:
        with alone(loop.mesh), floaterrors.as_the_program_has_it():
            return [] if index is None else [convert(own_block(value)) for value in function(index)]

    first = agreed(group, call_first)
    described = group.broadcast_object([(r.shape, r.dtype) for r in first], loop.root)
    chosen = [*dtypes] if dtypes else [None] * len(described)
    made = [
        loop.mesh.xp.zeros(shape + core, dtype if wanted is None else wanted)
        for (core, dtype), wanted in zip(described, chosen, strict=True)
    ]

    def call_rest() -> None:
        for target, value in zip(made, first, strict=False):
            target[index] = value
        with alone(loop.mesh), floaterrors.as_the_program_has_it():
            for place in indices:
                for target, value in zip(made, function(place), strict=True):
                    target[place] = convert(own_block(value))
        for target in made:
            refuse_changeable(target, loop.mesh)

    agreed(group, call_rest)
    return made


def placed(loop: Loop, block: Array) -> DistArray:
    """Return the array of a result's blocks: in `loop.follow` if it is small, else as computed.

    Cost
    ----
    An exchange, if calls were divided among replicas and the result is small.
    """
    core = [Cut.whole(extent) for extent in block.shape[loop.layout.ndim :]]
    made, wanted = (
        Layout.from_cuts((*layout.cuts, *core), layout.mesh_shape)
        for layout in (loop.layout, loop.follow)
    )
    result = wrap(block, made, loop.mesh)
    if made is wanted or (result.nbytes >= config.replicate_below):
        return result
    return to_layout(result, wanted)


def unlooped(result: DistArray) -> DistArray:
    """Remove the loop's dimension from the result of a loop of one call."""
    lone = result[0, ...]
    target = default_layout(lone.shape, lone.itemsize, lone.mesh)
    lone.settle()
    return to_layout(lone, target)
