"""Construction of distributed arrays, from arrays or empty, and conversion of operands."""

import sys
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from distarray.array import movement
from distarray.array.core import DistArray, wrap
from distarray.array.divergence import verify_text
from distarray.array.movement import moved
from distarray.array.registry import Objects, implements
from distarray.array.storage import natural
from distarray.comm import DeviceMesh, default_mesh, own_mesh
from distarray.config import config
from distarray.errors import LayoutError, MeshError
from distarray.layout import Fold, Layout, Placement, Replicate, Shard
from distarray.plan import Route, plan_across, stays
from distarray.typing import Array, ArrayLike, DType, DTypeLike

__all__ = [
    "as_distarray",
    "common_mesh",
    "default_layout",
    "distribute",
    "empty",
    "from_section",
    "given_by",
    "grown_layout",
    "listed",
    "placed_layout",
    "reversed_dims",
    "to_layout",
]

#: Prefix under which users call these functions (see :mod:`distarray.comm.waits.stacks`).
SHOWN_AS = "np."

Placements = Sequence[Placement] | Placement


def default_layout(shape: Sequence[int], itemsize: int, mesh: DeviceMesh) -> Layout:
    """Return the default layout of a new array.

    Small arrays (below `config.replicate_below` bytes, four times as many if they have two or
    more dimensions) are replicated. So are arrays of `itemsize` 0, which callers pass for Python's
    objects. Others are cut along their first dimension, or along the longest dimension if the first
    is too short to give every rank a block.
    """
    return _default_layout(tuple(shape), itemsize, mesh.shape, config.settings.cut_from)


def grown_layout(
    shape: Sequence[int], itemsize: int, mesh: DeviceMesh, operands: Iterable[Any]
) -> Layout:
    """Return the layout of the broadcast of replicated operands (no communication).

    It is replicated unless the result is larger than each operand: then it is the default layout.
    """
    nbytes = itemsize * prod(shape)
    if all(x.nbytes < nbytes for x in operands):
        return default_layout(shape, itemsize, mesh)
    return Layout.replicated(tuple(shape), mesh.shape)


@lru_cache(maxsize=1024)
def _default_layout(
    shape: tuple[int, ...], itemsize: int, mesh_shape: tuple[int, ...], limits: tuple[int, int]
) -> Layout:
    if not shape or not itemsize or itemsize * prod(shape) < limits[len(shape) > 1]:
        return Layout.replicated(shape, mesh_shape)
    dim = 0 if shape[0] >= prod(mesh_shape) else shape.index(max(shape))
    return Layout.chunked(shape, mesh_shape, [Shard(dim)] * len(mesh_shape))


def empty(layout: Layout, dtype: DTypeLike, mesh: DeviceMesh) -> DistArray:
    """Make an uninitialized array of a layout."""
    return wrap(mesh.xp.empty(layout.local_shape(mesh.coords), dtype), layout, mesh)


def from_section(
    fill: Callable[[tuple[slice, ...]], Any], layout: Layout, mesh: DeviceMesh
) -> DistArray:
    """Make an array whose blocks the ranks compute themselves: `fill(section)` returns the block.

    The section is this rank's box of the global index space as slices.
    """
    section = tuple([slice(start, stop) for start, stop in layout.section(mesh.coords)])
    return wrap(fill(section), layout, mesh)


def common_mesh(*operands: ArrayLike | slice | tuple[Any, ...] | None) -> DeviceMesh:
    """Return the common mesh of all distributed operands; the default mesh if there are none.

    Raises
    ------
    MeshError
        If there are two meshes.
    """
    first: DistArray | None = None
    for operand in operands:
        if isinstance(operand, DistArray) and (first is None or operand.mesh is not first.mesh):
            if first is not None:
                own = own_mesh()
                if own is not None:
                    return own
                raise MeshError(
                    f"operands live on different meshes: {first.summary()} on {first.mesh}, "
                    f"{operand.summary()} on {operand.mesh}; bring one to the other's with "
                    "x.redistribute(mesh, placements)"
                )
            first = operand
    return default_mesh() if first is None else first.mesh


def as_distarray(
    x: ArrayLike, mesh: DeviceMesh | None = None, dtype: DTypeLike = None
) -> DistArray:
    """Convert an operand to a distributed array; other array-likes are assumed replicated.

    Does not communicate.
    """
    if isinstance(x, DistArray):
        if mesh is not None and x.mesh is not mesh:
            x = _at_hand(x, mesh)
        cast: DistArray = x if dtype is None or x.dtype == dtype else x.astype(dtype)
        return cast
    mesh = default_mesh() if mesh is None else mesh
    try:
        block = x if isinstance(x, np.generic) and dtype is None else mesh.asarray(x, dtype)
    except ValueError:
        given = given_by(x)
        if given is None:
            raise
        return as_distarray(given, mesh, dtype)
    return _replicated(block, mesh)


def given_by(x: Any) -> DistArray | None:
    """Return the result of the ``__array__`` of a program's own class, if it is a DistArray."""
    if isinstance(x, (DistArray, np.ndarray, np.generic, type)) or not hasattr(x, "__array__"):
        return None
    found = x.__array__()
    return found if isinstance(found, DistArray) else None


def _at_hand(x: DistArray, mesh: DeviceMesh) -> DistArray:
    """Rewrap a replicated array of the program, for a function that this rank runs alone."""
    if mesh is own_mesh() and x.layout.is_replicated:
        return _replicated(x.block, mesh)
    return x


def _replicated(block: Any, mesh: DeviceMesh) -> DistArray:
    """Make an array that every rank of the mesh holds; other ranks hold no elements."""
    layout = Layout.replicated(block.shape, mesh.shape)
    if mesh.coords is None and block.shape:
        block = block[(slice(0),) * block.ndim]
    return wrap(block, layout, mesh)


def to_layout(x: DistArray, layout: Layout) -> DistArray:
    """Return `x` in another layout of its shape on its mesh.

    If no rank has to receive anything, the result shares memory with `x` on all ranks, otherwise on
    none. Collective unless the layout is the array's own or the array is replicated.
    """
    if x.layout is layout:
        return x
    if x.layout.partials:
        x.settle()
    block = moved(x.block, x.layout, layout, x.mesh)
    if not stays(x.layout, layout) and (block is x.block or block.base is not None):
        block = block.copy()
    return wrap(block, layout, x.mesh)


def distribute(
    x: ArrayLike,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
    src: int | None = 0,
) -> DistArray:
    """Split an array over a mesh.

    Parameters
    ----------
    x : array_like or DistArray
        The global array. With `src=r` only rank r's array is read, and other ranks may pass None.
        A DistArray is redistributed.
    mesh : DeviceMesh, optional
        The default mesh, all ranks in one dimension, if not given.
    placements : sequence of Placement, optional
        One per mesh dimension. By default large arrays are cut along one dimension and small arrays
        are replicated.
    src : int or None
        Rank of the mesh that sends its values to the others. None means that every rank already
        holds the same `x`; then nothing is sent.

    Returns
    -------
    DistArray
        It shares no memory with `x`.

    Raises
    ------
    LayoutError
        If the placements do not fit, or request a pending fold.

    Cost
    ----
    With `src`, shape and dtype are broadcast, then each rank receives its own block.

    Examples
    --------
    >>> import numpy, distarray
    >>> x = distarray.distribute(numpy.arange(6), placements=[distarray.Replicate()], src=None)
    >>> x
    array([0, 1, 2, 3, 4, 5])
    """
    if isinstance(x, DistArray):
        target = (
            placements if placements is not None or mesh not in (None, x.mesh) else x.placements
        )
        return x.redistribute(mesh, target)
    mesh = default_mesh() if mesh is None else mesh
    if config.check:
        verify_text(f"distribute(..., src={src})", mesh)
    if src is None:
        block = mesh.asarray(x)
        layout = placed_layout(block.shape, block.dtype, mesh, placements)
        return _copied(_replicated(block, mesh), layout, _is_fortran(block))
    if not 0 <= src < mesh.size():
        raise ValueError(f"distribute(src={src}): the mesh has ranks 0 to {mesh.size() - 1}")
    block, shape, dtype, fortran = _from_root(x, mesh, src)
    layout = placed_layout(shape, dtype, mesh, placements)
    coords = mesh.coords_of(src)
    lone = Layout.lone(shape, mesh.shape, coords)
    if not shape:
        block = mesh.xp.empty((), dtype) if block is None else block
        result = wrap(block, lone, mesh)
        result.settle()
        return wrap(result.block.copy(), result.layout, mesh)
    if block is None:
        block = mesh.xp.empty(lone.local_shape(mesh.coords), dtype)
    return _copied(wrap(block, lone, mesh), layout, fortran)


def _is_fortran(block: Array) -> bool:
    """Return True if an array is in Fortran order in memory, but not in C order."""
    flags = getattr(block, "flags", None)
    return flags is not None and bool(flags.f_contiguous and not flags.c_contiguous)


def _from_root(x: ArrayLike, mesh: DeviceMesh, src: int) -> tuple[Any, tuple[int, ...], Any, bool]:
    """Return the root's array (else None), shape, dtype, order; raise its error on every rank."""
    if mesh.coords is None:
        if x is None:
            raise LayoutError(
                f"distribute: this rank is outside of {mesh!r} and receives nothing, not even the "
                "shape: pass an array of the same shape and dtype, with any values, or make the "
                "call only on ranks of the mesh"
            )
        outside = np.asarray(x)
        return None, outside.shape, outside.dtype, _is_fortran(outside)
    block: Any = None
    error = None
    if mesh.rank == src:
        try:
            block = mesh.asarray(x)
            if block.dtype.hasobject:
                raise TypeError(
                    f"distribute: rank {src}'s value has dtype {block.dtype}, whose elements "
                    "cannot be sent; pass src=None if every rank has the value"
                )
        except Exception as caught:
            error = caught
    about = (getattr(block, "shape", ()), getattr(block, "dtype", None), _is_fortran(block))
    (shape, dtype, fortran), error = mesh.group.broadcast_object((about, error), src)
    if error is not None:
        raise error
    return block, shape, dtype, fortran


def placed_layout(
    shape: Sequence[int], dtype: DType, mesh: DeviceMesh, placements: Placements | None
) -> Layout:
    """Return the canonical layout of the requested placements; the default layout without any.

    Raises
    ------
    LayoutError
        If the placements do not fit, request a pending fold, or cut an array of Python objects.
    """
    if dtype.itemsize * prod(shape) > sys.maxsize:
        np.empty(shape, dtype)  # NumPy's error, which one block might not raise
    if config.settings.check:  # making the text costs more than the rest of this function
        verify_text(f"a new array {dtype} {tuple(shape)} {placements or ''}", mesh)
    if placements is None:
        size = 0 if dtype.hasobject else dtype.itemsize  # objects are not sent
        return default_layout(shape, size, mesh)
    layout = Layout.chunked(shape, mesh.shape, listed(placements, mesh))
    if dtype.hasobject and not layout.is_replicated:
        raise LayoutError(
            f"an array of {dtype} cannot be placed as {list(layout.placements)}: Python objects "
            "cannot be sent; use Replicate(), or a numeric dtype"
        )
    if layout.partials:
        raise LayoutError(
            "an array cannot be distributed as pending contributions; use Shard or Replicate "
            "(DistArray.from_local makes an array with a pending fold from contributions)"
        )
    return layout


def listed(placements: Placements, mesh: DeviceMesh) -> list[Placement]:
    """Return placements as a list; a single placement may be given without one."""
    return [placements] if isinstance(placements, Placement) else list(placements)


def reversed_dims(x: DistArray) -> DistArray:
    """Return the array with reversed dimensions, which turns C order into Fortran order.

    The result is not registered as a view: callers use only one of the two arrays afterwards.
    """
    axes = tuple(reversed(range(x.ndim)))
    return wrap(x.block.transpose(axes), x.layout.transpose(axes), x.mesh) if axes else x


def _copied(x: DistArray, layout: Layout, fortran: bool = False) -> DistArray:
    """Copy `x` to another layout with memory of its own, in C order, or Fortran order if asked."""
    if fortran:
        axes = tuple(reversed(range(x.ndim)))
        return reversed_dims(_copied(reversed_dims(x), layout.transpose(axes)))
    block = moved(x.block, x.layout, layout, x.mesh)
    shared = block is x.block or block.base is not None
    return natural(wrap(block.copy() if shared else block, layout, x.mesh))  # type: ignore[no-any-return]


@implements(DistArray.redistribute, through=Fold, at=True, objects=Objects.ENGINE)
def _redistribute(
    x: DistArray, mesh: DeviceMesh | Placements | None = None, placements: Placements | None = None
) -> DistArray:
    if mesh is not None and not isinstance(mesh, DeviceMesh):
        mesh, placements = None, mesh
    target = x.mesh if mesh is None else mesh
    if placements is None:
        placements = [Replicate()] * len(target.shape)
    layout = Layout.chunked(x.shape, target.shape, listed(placements, target))
    if target is x.mesh and layout.partials:
        return _keep_partial(x, layout)
    if layout.partials:
        raise LayoutError(f"{x.summary()} cannot be redistributed to pending contributions")
    goal = layout if target is x.mesh else None
    settled = wrap(*movement.settled(x.block, x.layout, x.mesh, goal), x.mesh)
    if target is not x.mesh:
        return _across(settled, layout, target)
    return _copied(settled, layout)


def _keep_partial(x: DistArray, layout: Layout) -> DistArray:
    if layout.placements != x.placements:
        raise LayoutError(
            f"{x.summary()} cannot be redistributed to {list(layout.placements)}: a pending fold "
            "can be kept or carried out, but not created"
        )
    return wrap(x.block.copy(), x.layout, x.mesh)


def _across(x: DistArray, layout: Layout, mesh: DeviceMesh) -> DistArray:
    """Send an array to another mesh, in an exchange over the ranks of both meshes."""
    group, src_ranks, dst_ranks = x.mesh.joined(mesh)
    block, xp = x.to_local(), mesh.xp
    if x.mesh.device_type != mesh.device_type:  # both ends of a message need one kind of device
        block, xp = x.mesh.to_host(block), np
    target = xp.empty(layout.local_shape(mesh.coords), x.dtype)
    if group is None:
        return wrap(mesh.asarray(target), layout, mesh)
    plan = plan_across(x.layout, layout, src_ranks, dst_ranks, group.rank)
    group.exchange(
        [(t.peer, movement.part_of(block, t.slices)) for t in plan.sends],
        [(t.peer, movement.part_of(target, t.slices)) for t in plan.receives],
        Route(x.layout, layout),
    )
    if plan.kept:
        target[plan.kept[1]] = block[plan.kept[0]]
    return wrap(mesh.asarray(target), layout, mesh)
