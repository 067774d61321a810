"""Movement of blocks: exchanges between two layouts, pending folds and gathers.

The functions of this module take (block, layout, mesh); :class:`~distarray.array.DistArray` wraps
them.
"""

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np

from distarray.array.portable import as_array, contiguous
from distarray.comm import DeviceMesh, devices, ledger
from distarray.comm.pending import FINISHED, Lasting, Pending
from distarray.layout import Coords, Cut, Fold, Layout, Shard
from distarray.plan import Exchange, Route, moved_elements, plan_exchange
from distarray.typing import Array

__all__ = [
    "Piece",
    "assign",
    "assign_each",
    "assign_rest",
    "bring",
    "gathered",
    "moved",
    "part_of",
    "pieces",
    "scatter_target",
    "settled",
    "starts",
]

#: Maximum number of blocks that are sent to every rank point to point. More blocks are gathered,
#: which takes each rank about log2(number of ranks) messages.
FEW = 16
#: Maximum bytes of send buffers that are copied so that an exchange can complete later.
MOST_COPIED = 1 << 20
#: Section of the target block, and the elements for it.
Piece = tuple[tuple[slice, ...], Array]


class Brought(NamedTuple):
    """This rank's block in another layout, in pieces: local ones as views, and received ones.

    The received pieces are complete when `pending` is.
    """

    own: list[Piece]
    received: list[Piece]
    pending: Pending


def starts(layout: Layout, mesh: DeviceMesh) -> tuple[int, ...]:
    """Return the global index of this rank's first element, one number per dimension."""
    return tuple([start for start, _ in layout.section(mesh.coords)])


def pieces(block: Array, src: Layout, dst: Layout, mesh: DeviceMesh) -> list[Piece]:
    """Return this rank's block of `dst` in pieces: local ones as views, the others as received.

    Communicates unless every rank has all the elements it needs.
    """
    found = bring(block, src, dst, mesh)
    return [*found.own, *found.received]


def bring(block: Array, src: Layout, dst: Layout, mesh: DeviceMesh, late: bool = False) -> Brought:
    """Fetch this rank's block of `dst` in pieces; with `late`, the receives may still be pending.

    Receives are pending only for numbers on a host. This rank's block may change before they
    complete, so outgoing elements are copied. If there are so many that copying costs more than
    waiting, they are sent at once.
    """
    if src is dst:
        return Brought([(tuple([slice(0, extent) for extent in block.shape]), block)], [], FINISHED)
    if not block.dtype.itemsize:
        return bring(_of_no_bytes(block, dst, mesh), dst, dst, mesh)
    _meet(mesh, src, dst)
    plan, block, route = plan_exchange(src, dst, mesh.coords), as_array(block), Route(src, dst)
    own: list[Piece] = [(plan.kept[1], part_of(block, plan.kept[0]))] if plan.kept else []
    received = [(t.slices, mesh.xp.empty(t.shape, block.dtype)) for t in plan.receives]
    into = [part for _, part in received]
    if late and plan.elements_sent * block.itemsize <= MOST_COPIED:
        return Brought(own, received, _begin_to_talk(plan, block, into, mesh, route))
    _talk(plan, block, into, mesh, route)
    return Brought(own, received, FINISHED)


def _of_no_bytes(block: Array, layout: Layout, mesh: DeviceMesh) -> Array:
    """Return a block of empty strings without communication.

    NumPy allocates one character for each of them.
    """
    found: Array = mesh.xp.zeros(layout.local_shape(mesh.coords), block.dtype)
    return found


def part_of(block: Array, slices: tuple[slice, ...]) -> Array:
    """Return a view of a box of a block, even if indexing would return a scalar."""
    return block[slices] if slices else block


def moved(block: Array, src: Layout, dst: Layout, mesh: DeviceMesh) -> Array:
    """Return this rank's block of `dst`: the same block or a view of it if nothing has to move."""
    if src is dst:
        return block
    if not block.dtype.itemsize:
        return _of_no_bytes(block, dst, mesh)
    _meet(mesh, src, dst)
    if dst.is_replicated and mesh.coords is not None and mesh.size() > FEW:
        mesh_dims = _many(src, mesh)
        if mesh_dims:
            return _collected(as_array(block), src, mesh, mesh.coords, mesh_dims)
    plan, block = plan_exchange(src, dst, mesh.coords), as_array(block)
    shape = dst.local_shape(mesh.coords)
    kept = plan.kept
    if kept and not plan.receives and not plan.sends and block[kept[0]].shape == shape:
        return part_of(block, kept[0])
    target: Array = mesh.xp.empty(shape, block.dtype)
    _run(plan, _bare(block), _bare(target), mesh, Route(src, dst))
    return target


def _many(src: Layout, mesh: DeviceMesh) -> tuple[int, ...]:
    """Return the mesh dimensions that cut an array into many blocks; empty for few blocks."""
    mesh_dims = tuple(sorted([m for cut in src.cuts for m in cut.mesh_dims]))
    parts = prod([mesh.shape[m] for m in mesh_dims])
    return mesh_dims if parts > FEW and src.size and src.is_plain else ()


def _bare(block: Array) -> Array:
    """Return a view of records as bytes.

    NumPy copies only the fields, and would leave the padding between them uninitialized.
    """
    dtype = block.dtype
    if dtype.names is None or dtype.hasobject or not dtype.itemsize:
        return block
    return block.view(f"V{dtype.itemsize}")


def _collected(
    block: Array, src: Layout, mesh: DeviceMesh, at: Coords, mesh_dims: tuple[int, ...]
) -> Array:
    """Replicate the whole array by an allgather along the mesh dimensions that cut it."""
    route = Route(src, Layout.replicated(src.shape, src.mesh_shape))
    if mesh.group.guarded:
        mesh.group.check_exchange(block.nbytes, route)
    everywhere = [mesh_dims.index(m) if m in mesh_dims else -1 for m in range(mesh.ndim)]
    places = []
    for found in product(*[range(mesh.shape[m]) for m in mesh_dims]):
        coords = [found[n] if n >= 0 else at[m] for m, n in enumerate(everywhere)]
        places.append(src.section(tuple(coords)))
    shapes = [tuple([stop - start for start, stop in place]) for place in places]
    line, counts = contiguous(block).reshape(-1), [prod(shape) for shape in shapes]
    parts = mesh.subgroup(mesh_dims).allgather_varied(line, counts, route)
    whole: Array = mesh.xp.empty(src.shape, block.dtype)
    for place, shape, part in zip(places, shapes, parts, strict=True):
        whole[tuple([slice(*pair) for pair in place])] = part.reshape(shape)
    return whole


def _meet(mesh: DeviceMesh, src: Layout, dst: Layout) -> None:
    """Let all ranks agree on the transport of messages between GPUs, before the exchange.

    Ranks that neither send nor receive do not take part in the exchange itself.
    """
    if mesh.device_type != "cpu" and mesh.coords is not None:
        group = mesh.group
        if not group.has_met and moved_elements(src, dst):
            group.meet_devices(mesh.xp)


def _talk(
    plan: Exchange, block: Array, received: Sequence[Array], mesh: DeviceMesh, route: Route
) -> None:
    """Send the elements that other ranks need, and receive into the given arrays."""
    _check_allowed(plan, block, mesh, route)
    if plan.sends or plan.receives:
        mesh.group.exchange(*_messages(plan, block, received), route)


def _begin_to_talk(
    plan: Exchange, block: Array, received: Sequence[Array], mesh: DeviceMesh, route: Route
) -> Pending:
    """Begin the exchange of :func:`_talk` with send buffers copied; return it as pending."""
    _check_allowed(plan, block, mesh, route)
    if not plan.sends and not plan.receives:
        return FINISHED
    sends, receives = _messages(plan, block, received)
    copies = [(peer, part.copy()) for peer, part in sends]
    begun = Lasting(mesh.group.begin_exchange(copies, receives, route))
    return begun if receives else FINISHED


def _messages(
    plan: Exchange, block: Array, received: Sequence[Array]
) -> tuple[list[tuple[int, Array]], list[tuple[int, Array]]]:
    """Return the views to send to other ranks, and those to receive into, each with its rank."""
    return (
        [(t.peer, part_of(block, t.slices)) for t in plan.sends],
        [(t.peer, part) for t, part in zip(plan.receives, received, strict=True)],
    )


def _check_allowed(plan: Exchange, block: Array, mesh: DeviceMesh, route: Route) -> None:
    """Raise an error if communication is forbidden.

    A rank with nothing to send must raise, too: otherwise it would wait for the ranks that raise.
    """
    if mesh.group.guarded and moved_elements(*route):
        mesh.group.check_exchange(plan.elements_sent * block.dtype.itemsize, route)


def _run(plan: Exchange, block: Array, target: Array, mesh: DeviceMesh, route: Route) -> None:
    _talk(plan, block, [part_of(target, t.slices) for t in plan.receives], mesh, route)
    if plan.kept:
        # Pass a 0-d block as an array: NumPy rejects scalars that do not fit the data type. But a
        # device accepts only scalars from the host.
        of_host = mesh.device_type != "cpu" and not devices.on_device(block)
        target[plan.kept[1]] = block[()] if of_host else block[plan.kept[0] or ...]


def assign(target: Array, dst: Layout, block: Array, src: Layout, mesh: DeviceMesh) -> None:
    """Copy an array into another of the same shape on the same mesh, casting as NumPy does.

    Only missing elements are sent, directly from and into the blocks.
    """
    if src is dst:
        target[...] = block
        return
    _meet(mesh, src, dst)
    plan, block = plan_exchange(src, dst, mesh.coords), as_array(block)
    if block.dtype != target.dtype and (plan.sends or plan.receives):
        block = block.astype(target.dtype)
    if plan.receives and np.may_share_memory(block, target):
        # Messages must not overwrite elements that are still to be sent or copied.
        found = [(slices, part.copy()) for slices, part in pieces(block, src, dst, mesh)]
        for slices, part in found:
            target[slices] = part
        return
    _run(plan, block, target, mesh, Route(src, dst))


def assign_rest(target: Array, dst: Layout, block: Array, src: Layout, mesh: DeviceMesh) -> None:
    """Send and receive only the remote parts of `assign`; the local part is already in place."""
    if src is not dst:
        _meet(mesh, src, dst)
        plan = plan_exchange(src, dst, mesh.coords)
        into = [part_of(target, t.slices) for t in plan.receives]
        _talk(plan, block, into, mesh, Route(src, dst))


def assign_each(parts: Sequence[tuple[Array, Layout, Array, Layout]], mesh: DeviceMesh) -> None:
    """Assign several (target, dst, block, src) as :func:`assign`, all in one exchange.

    Thus data in one direction does not wait for data in the other. Ranks on which a target and a
    block overlap in memory have to process the assignments one by one. They still match the other
    ranks, since messages between two ranks arrive in the order of the assignments.
    """
    if any(np.may_share_memory(target, block) for target, _, block, _ in parts):
        for part in parts:
            assign(*part, mesh)
        return
    sends, receives, kept, routes = [], [], [], []
    for target, dst, block, src in parts:
        _meet(mesh, src, dst)
        plan, route = plan_exchange(src, dst, mesh.coords), Route(src, dst)
        _check_allowed(plan, block, mesh, route)
        if block.dtype != target.dtype and plan.sends:
            block = block.astype(target.dtype)
        sends += [(t.peer, part_of(block, t.slices)) for t in plan.sends]
        receives += [(t.peer, part_of(target, t.slices)) for t in plan.receives]
        kept += [(target, plan.kept[1], block, plan.kept[0])] if plan.kept else []
        routes.append(route)
    if sends or receives:
        note = " and ".join(dict.fromkeys(map(str, routes))) if ledger.watching else None
        mesh.group.exchange(sends, receives, note)
    for target, into, block, of in kept:
        target[into] = block[of]


def settled(
    block: Array, layout: Layout, mesh: DeviceMesh, target: Layout | None = None
) -> tuple[Array, Layout]:
    """Carry out pending folds, and replicate an array that is at one coordinate.

    The result of a fold is replicated, by an allreduce along its mesh dimensions. But if `target`
    cuts a dimension by the fold's mesh dimension, so does the result, by a reduce-scatter.
    Communicates along these mesh dimensions, if there are any.
    """
    if layout.is_plain:
        return block, layout
    if mesh.coords is None:
        return block, layout.settled()
    if layout.ats:
        block, layout = _from_coordinate(block, layout, mesh)
    dtype = block.dtype
    folds: dict[Fold, list[int]] = {}
    for mesh_dim in layout.partials:
        fold = layout.placements[mesh_dim].op  # type: ignore[attr-defined]
        wanted = None if target is None else target.placements[mesh_dim]
        if isinstance(wanted, Shard) and not layout.cuts[wanted.dim].mesh_dims:
            block, layout = _scattered(block, layout, mesh, mesh_dim, wanted.dim)
        else:
            folds.setdefault(fold, []).append(mesh_dim)
    for fold, mesh_dims in folds.items():
        route = Route(layout, layout.settled())
        block = mesh.subgroup(tuple(mesh_dims)).allreduce(block, fold, route)
    if not dtype.isnative and block.dtype == dtype.newbyteorder("="):
        block = block.astype(dtype)  # the fold is in native byte order
    return block, layout.settled()


def _scattered(
    block: Array, layout: Layout, mesh: DeviceMesh, mesh_dim: int, dim: int
) -> tuple[Array, Layout]:
    """Carry out the fold along a mesh dimension, and cut the result along `dim` by it."""
    cut = Cut.chunked(layout.shape[dim], (mesh_dim,), (layout.mesh_shape[mesh_dim],))
    parts = []
    for part in range(cut.parts):
        key = [slice(None)] * layout.ndim
        key[dim] = slice(*cut.interval(part))
        parts.append(block[tuple(key)])
    fold = layout.placements[mesh_dim].op  # type: ignore[attr-defined]
    target = layout.replace(dim, cut)
    route = Route(layout, target)
    return mesh.subgroup((mesh_dim,)).reduce_scatter(parts, fold, route), target


def scatter_target(layout: Layout) -> Layout:
    """Return the layout in which to settle a large array with pending folds.

    Uncut dimensions are cut by the mesh dimensions of the folds, if they are long enough.
    """
    placements = list(layout.settled().placements)
    free = [d for d, cut in enumerate(layout.cuts) if not cut.mesh_dims]
    for mesh_dim in layout.partials:
        wide = [d for d in free if layout.shape[d] >= layout.mesh_shape[mesh_dim]]
        if wide:
            placements[mesh_dim] = Shard(wide[0])
            free.remove(wide[0])
    return Layout.chunked(layout.shape, layout.mesh_shape, placements)


def _from_coordinate(block: Array, layout: Layout, mesh: DeviceMesh) -> tuple[Array, Layout]:
    partials = {m: layout.placements[m] for m in layout.partials}
    result = Layout.from_cuts(layout.cuts, layout.mesh_shape, partials)
    shape = result.local_shape(mesh.coords)
    own = mesh.xp.empty(shape, block.dtype)
    if layout.holds(mesh.coords):
        own[...] = block
    block = own
    for mesh_dim in layout.ats:
        root = layout.placements[mesh_dim].coordinate  # type: ignore[attr-defined]
        block = mesh.subgroup((mesh_dim,)).broadcast(block, root, Route(layout, result))
    return block, result


def gathered(
    block: Array, layout: Layout, mesh: DeviceMesh, root: int | None = None
) -> Array | None:
    """Gather the whole array into a new NumPy array, on all ranks or only `root` (else None)."""
    block, layout = settled(block, layout, mesh)
    if root is None or layout.is_replicated:
        target = Layout.replicated(layout.shape, layout.mesh_shape)
    else:
        target = Layout.lone(layout.shape, layout.mesh_shape, mesh.coords_of(root))
    result = moved(block, layout, target, mesh)
    if root is not None and mesh.rank != root:
        return None
    own = result.copy() if result is block or result.base is not None else result
    return np.asarray(mesh.to_host(own))  # a 0-d block may be a NumPy scalar
