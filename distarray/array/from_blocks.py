"""Construction of distributed arrays from blocks that the ranks already hold."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any
from zlib import crc32

import numpy as np

from distarray.array.core import DistArray, wrap
from distarray.array.creation import Placements, listed
from distarray.array.divergence import verify_equal
from distarray.array.lending import lent_in
from distarray.array.storage import natural, unlike
from distarray.comm import DeviceMesh, default_mesh
from distarray.comm.agree import agree
from distarray.config import config
from distarray.errors import LayoutError
from distarray.layout import At, Cut, Fold, Layout, Partial, Placement, Replicate, Shard
from distarray.layout import normalize_placements as normalized
from distarray.typing import Array

__all__ = ["from_blocks", "from_local", "from_ranks", "vouched"]

_ROWS = Shard(0)
_WHOLE = Replicate()


def from_blocks(
    block: Array, counts: Sequence[int], dim: int, mesh: DeviceMesh, mesh_dim: int
) -> DistArray:
    """Make an array whose blocks have the given lengths along one dimension."""
    cut = Cut.ragged(counts, (mesh_dim,), (mesh.shape[mesh_dim],))
    layout = Layout.replicated(block.shape, mesh.shape).replace(dim, cut)
    return wrap(block, layout, mesh)


def from_local(
    block: Array,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
    shape: Sequence[int] | None = None,
    *,
    check: bool = True,
) -> DistArray:
    """Make a distributed array of the blocks that the ranks hold; they are not copied.

    Parameters
    ----------
    block : array_like
        This rank's block, or its contribution if the placement is Partial.
    mesh : DeviceMesh, optional
        The default mesh if not given.
    placements : sequence of Placement, optional
        One per mesh dimension; by default Shard(0) along the first and Replicate along the others.
    shape : tuple of int, optional
        The global shape. The blocks must then be those of its canonical layout, so that no lengths
        are exchanged. Without `shape` the lengths of the blocks are exchanged, and may be unequal.
    check : bool
        False: nothing is exchanged, `shape` is needed, and the caller guarantees that the blocks
        of all ranks fit; a block that does not fit then raises an error only on its own rank.

    Returns
    -------
    DistArray
        Writeable, unless the block of some rank is read-only.

    Raises
    ------
    LayoutError
        On all ranks, if the blocks do not fit together or do not fit `shape`.
    DivergenceError
        On all ranks, under ``distarray.config.check``, if ranks along a replicated mesh dimension
        have different values.

    Cost
    ----
    One small allreduce, and one small allgather of the lengths if `shape` is not given; nothing
    with ``check=False`` or on one rank.

    Examples
    --------
    >>> import numpy, distarray
    >>> mesh = distarray.default_mesh()
    >>> mine = numpy.full((10, 3), float(mesh.rank))  # read or computed by this rank
    >>> x = distarray.from_local(mine, mesh, [distarray.Shard(0)])
    >>> x.shape == (10 * mesh.size(), 3)
    True
    """
    mesh = default_mesh() if mesh is None else mesh
    result = from_ranks(mesh.asarray(block), None, mesh, placements, shape, check=check)
    lent_in(result)
    return result


def from_ranks(
    block: Array,
    problem: Exception | None,
    mesh: DeviceMesh,
    placements: Placements | None,
    shape: Sequence[int] | None,
    *,
    check: bool = True,
) -> DistArray:
    """Make an array as :func:`from_local`; a rank may have an error in place of its block.

    All ranks raise the error of the lowest rank that has an error.
    """
    if len(mesh.ranks) == 1 or not check:
        if problem is not None:
            raise problem
        return vouched(block, mesh, placements, shape)
    mark = 0
    placed: tuple[Placement, ...] = ()
    layout = None
    if problem is None:
        placed = _placed(block, mesh, placements)
        layout = _layout_if_fitting(block, mesh, placed, shape)
        mark = _mark(block.dtype, block.ndim, placed, shape and tuple(shape))
    told = np.array([mark, -mark, layout is None, _is_read_only(block), *_gaps(block)])
    high, low, wrong, locked, *gaps = mesh.group.allreduce(told, Fold.MAX, "from_local").tolist()
    if layout is None or wrong or high != -low:
        agree(mesh.group, problem)
        return _compared(block, mesh, placed, shape)
    if shape is None:
        shapes = mesh.group.allgather(np.array(block.shape, np.int64), "from_local").tolist()
        layout = _fitted([tuple(found) for found in shapes], mesh, placed, None)
    if mesh.device_type == "cpu" and block.flags.writeable is bool(locked):
        block = _with_flag(block, not locked)
    _verify_replicas(block, placed, mesh)
    return _in_order(wrap(block, layout, mesh), gaps)


def _in_order(x: DistArray, gaps: Sequence[int]) -> DistArray:
    """Mark an array as stored in C order on all ranks, or as possibly in different orders."""
    if all(gaps) and not x.layout.is_whole:
        unlike(x)
    return x if gaps[0] else natural(x)


def _gaps(block: Array | None) -> tuple[bool, bool]:
    """Return two flags: this rank's block is not C-contiguous; it is not Fortran-contiguous."""
    if block is None or not block.size:
        return False, False
    return not block.flags.c_contiguous, not block.flags.f_contiguous


def _is_read_only(block: Array | None) -> bool:
    """Return True if this rank's block has elements and is read-only."""
    if block is None or not block.size:
        return False
    return not getattr(block.flags, "writeable", True)


def _with_flag(block: Array, writeable: bool) -> Any:
    """Return the block with the flag of all ranks: if one rank's block is read-only, all are."""
    if writeable:  # this rank's block has no elements
        return np.empty(block.shape, block.dtype)
    block = block.view()
    block.flags.writeable = False
    return block


def _verify_replicas(block: Array, placements: Sequence[Placement], mesh: DeviceMesh) -> None:
    """Raise on all ranks if ranks along replicated mesh dimensions have different values."""
    if not config.settings.check:
        return
    along = tuple([m for m, placement in enumerate(placements) if placement == _WHOLE])
    if along and mesh.coords is not None and block.dtype.kind != "O":
        verify_equal(mesh.subgroup(along), mesh.to_host(block), f"from_local: {block.dtype}")


def _placed(block: Array, mesh: DeviceMesh, placements: Placements | None) -> tuple[Placement, ...]:
    if placements is None:
        return ((_ROWS if block.ndim else _WHOLE), *(_WHOLE,) * (mesh.ndim - 1))
    return tuple(listed(placements, mesh))


@lru_cache(maxsize=1024)
def _mark(
    dtype: np.dtype[Any],
    ndim: int,
    placements: tuple[Placement, ...],
    shape: tuple[int, ...] | None,
) -> int:
    """Return a number that is equal on ranks whose arguments are equal."""
    return crc32(repr((dtype, ndim, placements, shape)).encode())


def _layout_if_fitting(
    block: Array, mesh: DeviceMesh, placements: tuple[Placement, ...], shape: Sequence[int] | None
) -> Layout | None:
    """Return the layout of this global shape if this rank's block fits it, else None.

    Without a global shape, return any layout: the lengths of the other blocks are not known yet.
    """
    if shape is None:
        return Layout.replicated(block.shape, mesh.shape)
    try:
        layout, wanted = _chunked_at(tuple(shape), mesh.shape, placements, mesh.coords)
    except (LayoutError, TypeError):
        return None  # all ranks raise the error together later
    return layout if block.shape == wanted else None


def _compared(
    block: Array, mesh: DeviceMesh, placements: tuple[Placement, ...], shape: Sequence[int] | None
) -> DistArray:
    """Raise an error on every rank if the blocks do not fit together."""
    described = mesh.group.allgather_object(
        (block.shape, str(block.dtype), placements, shape and tuple(shape))
    )
    _check_alike(described, mesh)
    layout = _fitted([tuple(found) for found, *_ in described], mesh, placements, shape)
    return wrap(block, layout, mesh)


def _fitted(
    shapes: Sequence[tuple[int, ...]],
    mesh: DeviceMesh,
    placements: tuple[Placement, ...],
    shape: Sequence[int] | None,
) -> Layout:
    """Return the layout of the blocks of all ranks, or raise LayoutError."""
    placed = normalized(placements, len(shapes[0]), mesh.shape)
    if shape is not None:
        layout = Layout.chunked(shape, mesh.shape, placed)
    else:
        layout = _layout_of_blocks(shapes, placed, mesh)
    for rank, found in enumerate(shapes):
        wanted = layout.local_shape(mesh.coords_of(rank))
        if found != wanted:
            raise LayoutError(
                f"from_local: rank {rank} has a block of shape {found}, but {layout} puts "
                f"one of shape {wanted} there"
                + ("; leave out `shape` to keep blocks of any length" if shape is not None else "")
            )
    return layout


def vouched(
    block: Array, mesh: DeviceMesh, placements: Placements | None, shape: Sequence[int] | None
) -> DistArray:
    """Make an array as :func:`from_local` with ``check=False``, or on a single rank.

    Repeated arguments (tuples, or a list of placements) are found in the cache.
    """
    if isinstance(placements, list):
        placements = tuple(placements)
    elif not isinstance(placements, tuple):
        placements = _placed(block, mesh, placements)
    if not isinstance(shape, tuple):
        if shape is None and len(mesh.ranks) > 1:
            raise LayoutError("from_local: check=False needs the global shape, shape=(...)")
        shape = block.shape if shape is None else tuple(shape)
    layout, wanted = _chunked_at(shape, mesh.shape, placements, mesh.coords)
    if block.shape != wanted:
        raise LayoutError(
            f"from_local: rank {mesh.rank} has a block of shape {block.shape}, but {layout} "
            f"puts one of shape {wanted} there"
        )
    return wrap(block, layout, mesh)


@lru_cache(maxsize=1024)
def _chunked_at(
    shape: tuple[int, ...],
    mesh_shape: tuple[int, ...],
    placements: tuple[Placement, ...],
    coords: tuple[int, ...] | None,
) -> tuple[Layout, tuple[int, ...]]:
    """Return the canonical layout and the shape of a rank's block; cached for training loops."""
    layout = Layout.chunked(shape, mesh_shape, placements)
    return layout, layout.local_shape(coords)


def _check_alike(described: Sequence[tuple[Any, ...]], mesh: DeviceMesh) -> None:
    for position, what in ((1, "dtype"), (2, "placements"), (3, "shape")):
        values = [entry[position] for entry in described]
        for rank, value in enumerate(values):
            if value != values[0]:
                raise LayoutError(
                    f"from_local: rank 0 has {what} {values[0]}, rank {rank} {value}; it must be "
                    "the same on all ranks of the mesh"
                )
    ndims = [len(entry[0]) for entry in described]
    if len(set(ndims)) > 1:
        raise LayoutError(f"from_local: the blocks have different numbers of dimensions, {ndims}")


def _layout_of_blocks(
    shapes: Sequence[tuple[int, ...]], placements: Sequence[Placement], mesh: DeviceMesh
) -> Layout:
    """Return the layout that keeps every block; ranks along each cut determine its lengths."""
    if not shapes:
        return Layout.chunked((), mesh.shape, [Replicate()] * len(mesh.shape))
    cuts = []
    for dim in range(len(shapes[0])):
        mesh_dims = tuple([m for m, p in enumerate(placements) if p == Shard(dim)])
        radix = tuple([mesh.shape[m] for m in mesh_dims])
        if not mesh_dims:
            cuts.append(Cut.whole(shapes[0][dim]))
            continue
        counts = [0] * int(np.prod(radix))
        probe = Cut.chunked(0, mesh_dims, radix)
        for rank, shape in enumerate(shapes):
            counts[probe.part(mesh.coords_of(rank))] = shape[dim]
        cuts.append(Cut.ragged(counts, mesh_dims, radix))
    others = {m: p for m, p in enumerate(placements) if isinstance(p, (Partial, At))}
    return Layout.from_cuts(cuts, mesh.shape, others)


DistArray.from_local = staticmethod(from_local)  # type: ignore[method-assign]
