"""map_blocks: a function of the aligned blocks of several arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from distarray.array import DistArray, wrap
from distarray.array.divergence import verify
from distarray.comm import DeviceMesh, alone
from distarray.engines.blockwise import prepare
from distarray.engines.folds import RULES, neutral
from distarray.engines.mapping.loops import attempted, own_block
from distarray.engines.mapping.results import common_dtype
from distarray.errors import LayoutError
from distarray.layout import Cut, Layout, Placement, normalize_placements, recounted_cut
from distarray.typing import Array, ArrayLike, DType, DTypeLike, Placements

__all__ = ["map_blocks"]

#: Ufunc of each fold; a rank that has not called the function contributes its neutral element.
_UFUNCS = {rule.fold: ufunc for ufunc, rule in RULES.items() if rule.fold is not None}


def map_blocks(
    function: Callable[..., Any],
    *arrays: ArrayLike,
    dtype: DTypeLike = None,
    shape: Sequence[int] | None = None,
    placements: Placements | None = None,
    **kwargs: Any,
) -> DistArray:
    """Call a function on the ranks' blocks, and return an array of the blocks that it returns.

    Parameters
    ----------
    function : callable
        Called once on every rank that holds elements, with NumPy (or CuPy) arrays that broadcast
        against one another, in the order of `arrays`. It must not communicate.
    *arrays : DistArray or array_like
        Arrays that broadcast. Arrays of different layouts are redistributed to one layout.
    dtype : dtype, optional
        Data type of the result; by default the common type of the blocks that `function` returns.
    shape : sequence of int, optional
        Shape of the result, if known; then the ranks need not exchange the blocks' shapes.
    placements : sequence of Placement, optional
        Placements of the result, one per mesh dimension; by default those of the arrays. `Partial`
        means that the blocks are contributions to a fold.
    **kwargs
        Keyword arguments of `function`.

    Returns
    -------
    DistArray
        The result. Blocks may change their length along any dimension, and lose or gain trailing
        dimensions.

    Raises
    ------
    LayoutError
        If the blocks do not fit together, on all ranks.
    Exception
        Any exception of `function`, on all ranks.

    Cost
    ----
    An exchange for each array whose layout differs from the common one. Then one allreduce of a few
    integers, and if blocks changed shape, and no `shape` is given, an allgather of their shapes.

    Examples
    --------
    >>> import numpy, distarray
    >>> x = distarray.distribute(numpy.arange(6.0), placements=[distarray.Shard(0)])
    >>> distarray.map_blocks(lambda block: block**2, x).full()
    array([ 0.,  1.,  4.,  9., 16., 25.])
    """
    if not arrays:
        raise ValueError("map_blocks: give at least one array")
    verify(map_blocks, arrays, kwargs)
    operands = [x.plain() if isinstance(x, DistArray) else np.asarray(x) for x in arrays]
    blocks, layout, mesh = prepare(*operands)

    def call() -> Array:
        with alone(mesh):
            value = mesh.asarray(own_block(function(*blocks, **kwargs)))
        made: Array = value if dtype is None else value.astype(dtype, copy=False)
        return made

    value, error = attempted(call) if _runs(layout, mesh) else (None, None)
    target = _wanted(layout, shape, placements, mesh)
    if target is not None and error is None:
        error = _misfit(value, target, mesh)
    kind, target = _described(value, error, layout, target, placements, mesh)
    kind = kind if dtype is None else np.dtype(dtype)
    if value is None:
        value = _absent(target, kind, mesh)
    return wrap(value.astype(kind, copy=False), target, mesh)


def _runs(layout: Layout, mesh: DeviceMesh) -> bool:
    """Return True if this rank calls the function: it holds elements, or no rank does."""
    return mesh.coords is not None and (0 not in layout.local_shape(mesh.coords) or not layout.size)


def _described(
    value: Array | None,
    error: Exception | None,
    layout: Layout,
    target: Layout | None,
    placements: Placements | None,
    mesh: DeviceMesh,
) -> tuple[DType, Layout]:
    """Return data type and layout of the result, equal on all ranks; raise any rank's error."""
    differs = value is not None and value.shape != layout.local_shape(mesh.coords)
    kind, changed = common_dtype(mesh, error, None if value is None else value.dtype, differs)
    if target is None and not changed and placements is None:
        target = layout
    return kind, _layout_of_blocks(value, layout, placements, mesh) if target is None else target


def _misfit(value: Array | None, target: Layout, mesh: DeviceMesh) -> LayoutError | None:
    """Return the error if a block does not fit the layout that the caller requests, else None."""
    wanted = target.local_shape(mesh.coords)
    if value is None:
        return _lacking(mesh.rank, target) if 0 not in wanted and mesh.coords is not None else None
    if value.shape == wanted:
        return None
    return LayoutError(
        f"map_blocks: the function gave a block of shape {value.shape}, where shape="
        f"{tuple(target.shape)} has one of {wanted}"
    )


def _lacking(rank: int, target: Layout) -> LayoutError | None:
    """Return the error if a rank without elements must provide some; a fold does not need any."""
    folds = {target.placements[m].op for m in target.partials}  # type: ignore[attr-defined]
    if len(folds) == 1 and folds <= _UFUNCS.keys():
        return None
    return LayoutError(
        f"map_blocks: rank {rank} holds no elements and computes nothing, but {target} puts some "
        "there; use fewer ranks or other placements"
    )


def _absent(target: Layout, dtype: DType, mesh: DeviceMesh) -> Array:
    """Return the block of a rank that has not called the function.

    It is uninitialized, or filled with the neutral element of a fold.
    """
    shape = target.local_shape(mesh.coords)
    block: Array = mesh.xp.empty(shape, dtype)
    if target.partials:
        fold = target.placements[target.partials[0]].op  # type: ignore[attr-defined]
        block.fill(neutral(_UFUNCS[fold], dtype))
    return block


def _wanted(
    layout: Layout, shape: Sequence[int] | None, placements: Placements | None, mesh: DeviceMesh
) -> Layout | None:
    """Return the layout of the result if the caller passes its shape, else None."""
    if shape is None:
        return None
    placed = layout.placements if placements is None else placements
    return Layout.chunked(tuple(shape), mesh.shape, placed)  # type: ignore[arg-type]


def _layout_of_blocks(
    value: Array | None, layout: Layout, placements: Placements | None, mesh: DeviceMesh
) -> Layout:
    """Return the layout of blocks of new shapes, each on the rank that has computed it."""
    shapes = mesh.group.allgather_object(None if value is None else value.shape, "block shapes")
    ndims = {len(found) for found in shapes if found is not None}
    if len(ndims) > 1:
        raise LayoutError(f"map_blocks: the results have different numbers of dimensions, {ndims}")
    ndim = ndims.pop() if ndims else layout.ndim
    cuts, others = _cuts(layout, placements, ndim, mesh)
    lengths = [_lengths(dim, cut, shapes, mesh) for dim, cut in enumerate(cuts)]
    cuts = [_recut(cut, counts) for cut, counts in zip(cuts, lengths, strict=True)]
    target = Layout.from_cuts(cuts, mesh.shape, others)
    for rank, shape in enumerate(shapes):
        if shape is None and 0 not in target.local_shape(mesh.coords_of(rank)):
            error = _lacking(rank, target)
            if error is not None:
                raise error
    return target


def _cuts(
    layout: Layout, placements: Placements | None, ndim: int, mesh: DeviceMesh
) -> tuple[list[Cut], dict[int, Placement]]:
    """Return cuts by the result's mesh dimensions, of arbitrary extents; the other placements."""
    if placements is not None:
        placed = normalize_placements(placements, ndim, mesh.shape)  # type: ignore[arg-type]
        template = Layout.chunked((0,) * ndim, mesh.shape, placed)
        return list(template.cuts), template.others
    lost = [dim for dim in layout.sharded_dims if dim >= ndim]
    if lost:
        raise LayoutError(
            f"map_blocks: the results have {ndim} dimension(s), and the arrays are cut along "
            f"dimension {lost[0]}; say with placements= where the blocks of the result belong"
        )
    return [*layout.cuts[:ndim], *[Cut.whole(0)] * (ndim - layout.ndim)], {}


def _lengths(
    dim: int, cut: Cut, shapes: Sequence[tuple[int, ...] | None], mesh: DeviceMesh
) -> list[int]:
    """Return the length of each block along a dimension; 0 if no rank has computed the block."""
    counts: dict[int, int] = {}
    for rank, shape in enumerate(shapes):
        if shape is None:
            continue
        part = cut.part(mesh.coords_of(rank))
        if counts.setdefault(part, shape[dim]) != shape[dim]:
            raise LayoutError(
                f"map_blocks: rank {rank} gives a block of shape {shape}, others beside it one of "
                f"length {counts[part]} along dimension {dim}; along a dimension that is not cut "
                "all blocks must have one length"
            )
    return [counts.get(part, 0) for part in range(cut.parts)]


def _recut(cut: Cut, counts: Sequence[int]) -> Cut:
    if not cut.mesh_dims:
        return Cut.whole(counts[0])
    kept = [stop - start for start, stop in map(cut.interval, range(cut.parts))]
    return cut if kept == list(counts) else recounted_cut(cut, counts)
