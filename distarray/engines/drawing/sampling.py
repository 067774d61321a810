"""Calls of NumPy's random methods, shared among the ranks: strategy and layout of the result.

Numbers are drawn in C order: the ranks draw rows, in the order of the ranks. Results with another
layout are redistributed afterwards. Small arrays, and arrays on one rank, take one call of NumPy's
method.
"""

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from distarray.array import DistArray, common_mesh, movement, placed_layout, wrap
from distarray.array.divergence import verify_text
from distarray.array.placing import as_shape
from distarray.comm import DeviceMesh, default_mesh
from distarray.config import config
from distarray.engines.drawing.cutting import drawn_and_joined
from distarray.engines.drawing.fixed import drawn_at_places
from distarray.engines.drawing.job import Job, Request, Share, fingerprint
from distarray.engines.drawing.methods import Row, Way, integer_way, parsed_by
from distarray.engines.drawing.outputs import drawn_into, of_whole
from distarray.engines.drawing.parameters import as_parameter, common_shape, on_host, part_of
from distarray.engines.drawing.places import Source, state_of
from distarray.engines.drawing.turns import drawn_in_turns
from distarray.errors import GatherLimitError, MeshError
from distarray.layout import Layout, Replicate, Shard
from distarray.plan import propagate
from distarray.typing import Array, DTypeLike, Placements, Shape

__all__ = ["Place", "layout_for", "mesh_for", "sample", "verify_place"]

#: Up to this many numbers are drawn by every rank, which is faster than a message.
_FEW = 1 << 14


class Place(NamedTuple):
    """Target of a result: a mesh and placements, or None for the defaults."""

    mesh: DeviceMesh | None
    placements: Placements | None


def mesh_for(
    mesh: DeviceMesh | None, own: DeviceMesh | None, operands: Sequence[Any]
) -> DeviceMesh:
    """Return the requested mesh, the mesh of distributed operands, or the generator's own mesh."""
    arrays = [x for x in operands if isinstance(x, DistArray) and x.ndim]
    if not arrays:
        return mesh or own or default_mesh()
    found = common_mesh(*arrays)
    if mesh is not None and mesh is not found:
        raise MeshError(
            f"operands live on {found}, not on {mesh}; bring them there with "
            "x.redistribute(mesh, placements)"
        )
    return found


def verify_place(source: Source, name: str, mesh: DeviceMesh) -> None:
    """Under `config.check`, raise on every rank if the generators' states differ between ranks."""
    if config.settings.check:
        mark = fingerprint(state_of(source))
        verify_text(f"{type(source).__name__}.{name} at place {mark:08x}", mesh)


def sample(
    source: Source,
    name: str,
    row: Row,
    arguments: tuple[tuple[Any, ...], dict[str, Any]],
    place: Place,
    own_mesh: DeviceMesh | None = None,
) -> Any:
    """Draw a sample by a NumPy method: a distributed array, or a number where NumPy returns one.

    Parameters
    ----------
    source : Generator or RandomState
        The NumPy generator. After the call its state is, on all ranks, the state that the call
        leaves in NumPy.
    name : str
        The name of the method.
    row : Row
        The table's row: how the method takes numbers from the stream.
    arguments : tuple
        The method's positional and keyword arguments.
    place : Place
        The mesh and placements of the result.
    own_mesh : DeviceMesh, optional
        The mesh of the generator.
    """
    args, kwargs = arguments
    try:
        bound = parsed_by(type(source).__name__, name).bind(*args, **kwargs)
    except TypeError:
        getattr(source, name)(*args, **kwargs)
        raise
    bound.apply_defaults()
    named = dict(bound.arguments)
    size, out = named.pop("size", None), named.pop("out", None)
    given = [named.pop(key) for key in list(named)[: len(row.cores)]]
    mesh = mesh_for(place.mesh, own_mesh, [*given, out])
    verify_place(source, name, mesh)
    values = [as_parameter(on_host(value) if row.gathers else value) for value in given]
    if out is not None:
        method, rest = getattr(source, name), (values, named, place._replace(mesh=mesh))
        return drawn_into(
            out,
            named["dtype"],
            None if size is None else as_shape(size),
            lambda target: method(*values, size=size, out=target, **named),
            lambda shape: _sampled(source, name, row, shape, *rest),
            any(isinstance(value, DistArray) for value in values),
            by_memory=not values,
        )
    shape = None if size is None else as_shape(size)
    return _sampled(source, name, row, shape, values, named, place._replace(mesh=mesh))


def _sampled(
    source: Source,
    name: str,
    row: Row,
    shape: Shape | None,
    values: list[Any],
    others: dict[str, Any],
    place: Place,
) -> Any:
    """Draw the sample of a call whose mesh is known."""
    mesh = place.mesh
    assert mesh is not None
    lanes = [np.shape(v)[: np.ndim(v) - core] for v, core in zip(values, row.cores, strict=True)]
    varies = any(lanes) and not row.gathers
    if not varies and not shape:
        drawn = getattr(source, name)(*values, size=shape, **others)
        return of_whole(drawn, mesh) if isinstance(drawn, np.ndarray) else drawn
    whole = common_shape(shape, *lanes) if varies or shape is None else shape
    small = [_emptied(value, core) for value, core in zip(values, row.cores, strict=True)]
    probe = type(source)(np.random.PCG64(0))
    shown = getattr(probe, name)(*small, size=None if varies else 1, **others)
    call = Request(source, name, row, values, others, whole, shown.shape[1:], shown.dtype)
    layout = layout_for((*whole, *call.tail), call.dtype, mesh, place.placements, values)
    if layout.is_whole:
        return _drawn_alike(call, shape, layout, mesh)
    return _shared(call, varies, layout, mesh)


def _drawn_alike(call: Request, size: Shape | None, layout: Layout, mesh: DeviceMesh) -> DistArray:
    """Make one NumPy call, whose result every rank draws whole."""
    if mesh.coords is None and any(isinstance(value, DistArray) for value in call.values):
        drawn = np.broadcast_to(np.empty((), call.dtype), layout.shape)
    else:
        drawn = call.at_once([on_host(value) for value in call.values], size)
    return of_whole(drawn, mesh, layout)


def _emptied(value: Any, core: int) -> Any:
    """Return an empty array of a parameter's type; return a parameter of one element unchanged."""
    if np.ndim(value) <= core:
        return value
    return np.empty((0, *value.shape[value.ndim - core :]), value.dtype)


# -- calls shared by the ranks --------------------------------------------------------------------


def _shared(call: Request, varies: bool, layout: Layout, mesh: DeviceMesh) -> DistArray:
    """Draw a result that is cut."""
    near = any(isinstance(value, DistArray) for value in call.values)
    row = _row_of(call, varies)
    if not near and not varies and prod(layout.shape) <= _FEW:
        row = row._replace(way=Way.WHOLE)
    if row.way is Way.WHOLE or not _tells_its_state(call.source):
        return _cut_from_whole(call, layout, mesh)
    work = _rows(layout)
    lanes = work.with_cuts(work.cuts[: len(call.lanes)])
    if mesh.coords is None and near:
        return wrap(mesh.xp.empty(layout.local_shape(None), call.dtype), layout, mesh)
    values = [part_of(v, core, lanes, mesh) for v, core in zip(call.values, row.cores, strict=True)]
    job = Job(call._replace(row=row, values=values), varies)
    part = _part(job, _share(lanes, mesh), lanes.local_shape(mesh.coords))
    block = part if mesh.device_type == "cpu" else mesh.asarray(part)
    return wrap(movement.moved(block, work, layout, mesh), layout, mesh)


def _row_of(call: Request, varies: bool) -> Row:
    """Return the row with the strategy that these parameters allow."""
    row, size = call.row, np.dtype(call.dtype).itemsize
    if call.name in ("integers", "randint"):
        if not varies:
            return integer_way(row, call.values[0], call.values[1], call.others)
        return row._replace(way=Way.TURNS if size > 2 else Way.WHOLE)
    if call.name == "random" and size == 4:
        row = row._replace(halves=1)
    if varies and row.steady is None and row.way is not Way.WHOLE:
        row = row._replace(way=Way.TURNS)
    return row


def _tells_its_state(source: Source) -> bool:
    """Return True if a bit generator, possibly defined by the user, exposes a state."""
    try:
        return bool(state_of(source))
    except (NotImplementedError, AttributeError, TypeError):
        return False


def _rows(layout: Layout) -> Layout:
    """Return a layout of the same shape in which the ranks hold rows, in rank order."""
    if layout.is_plain and layout.sharded_dims == (0,) and layout.cuts[0].step == 1:
        return layout
    placements = [Shard(0) if isinstance(p, Shard) else Replicate() for p in layout.placements]
    return Layout.chunked(layout.shape, layout.mesh_shape, placements)


def _share(lanes: Layout, mesh: DeviceMesh) -> Share:
    """Divide the elements among the ranks that draw them."""
    cut, width = lanes.cuts[0], prod(lanes.shape[1:])
    ends = [cut.interval(part) for part in range(cut.parts)]
    bounds = [(start * width, stop * width) for start, stop in ends]
    active = [rank for rank, (start, stop) in enumerate(bounds) if start < stop]
    group = None if mesh.coords is None else mesh.subgroup(cut.mesh_dims)
    return Share(group, bounds, active)


def _part(job: Job, share: Share, shape: Shape) -> Array:
    """Draw this rank's elements by the row's strategy; the generator ends past all elements."""
    if job.walker is not None and job.row.way is Way.FIXED:
        return drawn_at_places(job, share, shape)
    if share.group is None:
        _follow(job, share.bounds[-1][1])
        return job.empty(shape)
    if job.walker is not None and job.row.way is Way.CUT:
        part = drawn_and_joined(job, share, shape)
        if part is not None:
            return part
    return drawn_in_turns(job, share, shape)


def _follow(job: Job, total: int) -> None:
    """Draw and discard the elements of all ranks of the mesh, on a rank outside the mesh."""
    if not job.varies:
        step = max(1, _FEW // max(1, job.width))
        for first in range(0, total, step):
            job.draw(min(step, total - first))


def _cut_from_whole(call: Request, layout: Layout, mesh: DeviceMesh) -> DistArray:
    """Draw the whole array on every rank, and keep this rank's block."""
    nbytes = layout.size * np.dtype(call.dtype).itemsize
    if nbytes > config.fallback_limit:
        raise GatherLimitError(
            f"{type(call.source).__name__}.{call.name} of these arguments cannot be drawn in "
            f"parts, and its {nbytes} bytes on each rank exceed config.fallback_limit "
            f"({config.fallback_limit}); draw wider integers and cast them, or take numbers by "
            "position from distarray.random.default_rng"
        )
    return _drawn_alike(call, call.lanes, layout, mesh)


def layout_for(
    shape: Shape,
    dtype: DTypeLike,
    mesh: DeviceMesh,
    placements: Placements | None,
    parameters: Sequence[Any] = (),
) -> Layout:
    """Return the requested layout, or the layout that distributed parameters imply."""
    sharded = [value for value in parameters if isinstance(value, DistArray)]
    if placements is not None or not sharded:
        return placed_layout(shape, np.dtype(dtype), mesh, placements)
    layouts = [value.layout for value in sharded if value.ndim <= len(shape)]
    sizes = [8] * len(layouts)
    return propagate((*layouts, Layout.replicated(shape, mesh.shape)), (*sizes, 0)).result
