"""The engine of random numbers: each rank draws the tiles that its section intersects.

A method of NumPy's Generator draws each tile, from the stream that the tile's number addresses
(:mod:`distarray.engines.drawing.streams`). Nothing is sent unless parameters are distributed.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any

import numpy as np

from distarray.array import DistArray, common_mesh, movement, placed_layout, wrap
from distarray.array.divergence import verify_text
from distarray.array.placing import as_shape
from distarray.comm import DeviceMesh, default_mesh
from distarray.comm.agree import agree
from distarray.config import config
from distarray.engines.drawing.bounded import drawing_bounded
from distarray.engines.drawing.distributions import Distribution, distribution, surely_valid
from distarray.engines.drawing.drawn_tiles import TILE, Tile, tile_extents, tiles
from distarray.engines.drawing.parameters import Placed, as_parameters, common_shape
from distarray.engines.drawing.streams import Call, Philox
from distarray.errors import MeshError
from distarray.layout import Box, Cut, Layout
from distarray.plan import propagate
from distarray.typing import Array, ArrayLike, DTypeLike, Placements, ShapeLike

__all__ = [
    "Draw",
    "Source",
    "check_values",
    "fill",
    "filled",
    "layout_for",
    "probe",
    "tiled_layout",
]

#: Draws one tile from the generator at the beginning of its stream.
Draw = Callable[[np.random.Generator, Tile], Array]
#: Draws one tile into a contiguous array.
DrawInto = Callable[[np.random.Generator, Tile, Array], object]

#: Checks parameters; the numbers that it draws are not used.
_PROBE = np.random.Generator(np.random.Philox(0))


def probe(name: str, *args: Any, **keywords: Any) -> Any:
    """The result of NumPy's method, or its error; takes no numbers from the program's streams."""
    return getattr(_PROBE, name)(*args, **keywords)


def fill(
    block: Array,
    shape: tuple[int, ...],
    section: Box,
    call: Call,
    draw: Draw,
    draw_into: DrawInto | None = None,
    room: int = TILE,
) -> None:
    """Fill a block with the random numbers of its section.

    Parameters
    ----------
    block : ndarray
        Has the dimensions of `shape` first, and possibly others.
    shape : tuple of int
        The global shape, which the tiles cover.
    section : Box
        The block's part of it.
    call : Call
        The streams.
    draw : callable
        ``draw(generator, tile)`` returns an array of numbers of shape ``tile.extents``.
    draw_into : callable, optional
        ``draw_into(generator, tile, array)`` draws into a contiguous array; used instead of `draw`.
    room : int
        The most elements of a tile.
    """
    for tile in tiles(shape, section, room):
        target = block[tile.target] if shape else block
        generator = call.tile(tile.number)
        if draw_into is None:
            numbers = draw(generator, tile)
        elif tile.whole and target.flags.c_contiguous:
            draw_into(generator, tile, target)
            continue
        else:
            numbers = np.empty(tile.extents, block.dtype)
            draw_into(generator, tile, numbers)
        target[...] = numbers if tile.whole else numbers[tile.wanted]


def filled(
    layout: Layout,
    mesh: DeviceMesh,
    dtype: DTypeLike,
    call: Call,
    draw: Draw,
    draw_into: DrawInto | None = None,
) -> DistArray:
    """A new array of random numbers."""
    block = np.empty(layout.local_shape(mesh.coords), dtype)
    if mesh.coords is not None:
        fill(block, layout.shape, layout.section(mesh.coords), call, draw, draw_into)
    return wrap(block if mesh.device_type == "cpu" else mesh.asarray(block), layout, mesh)


class Source:
    """A source of random numbers: a bit generator, and the mesh of the arrays that it makes.

    Parameters
    ----------
    bit_generator : Philox
        Counts the calls.
    mesh : DeviceMesh, optional
        The mesh of new arrays; by default that of distributed parameters, or the default mesh.
    """

    def __init__(self, bit_generator: Philox, mesh: DeviceMesh | None = None) -> None:
        self._bit_generator = bit_generator
        self._mesh = mesh

    def _mesh_for(self, mesh: DeviceMesh | None, *operands: ArrayLike | None) -> DeviceMesh:
        """The requested mesh, that of distributed operands, or the generator's."""
        arrays = [x for x in operands if isinstance(x, DistArray) and x.ndim]
        if not arrays:
            return mesh or self._mesh or default_mesh()
        found = common_mesh(*arrays)
        if mesh is not None and mesh is not found:
            raise MeshError(
                f"operands live on {found}, not on {mesh}; bring them there with "
                "x.redistribute(mesh, placements)"
            )
        return found

    def _begin(self, name: str, mesh: DeviceMesh) -> Call:
        """The numbers of the next call; under `config.check` all ranks must make the same one."""
        if config.check:
            verify_text(f"Generator.{name} of {self._bit_generator.summary()}", mesh)
        return self._bit_generator.call()

    def _sample(
        self,
        name: str,
        values: Sequence[Any],
        size: ShapeLike | None,
        mesh: DeviceMesh | None,
        placements: Placements | None,
        **keywords: Any,
    ) -> Any:
        """Numbers of a distribution with parameters."""
        mesh = self._mesh_for(mesh, *values)
        parameters = as_parameters(values)
        if all(np.ndim(value) == 0 for value in parameters):
            return self._scalar_parameters(name, parameters, size, mesh, placements, **keywords)
        shapes = [x.shape if hasattr(x, "shape") else np.shape(x) for x in parameters]
        shape = common_shape(size, *shapes)
        dtype = probe(name, *[_emptied(value) for value in parameters], **keywords).dtype
        row = distribution(name, **keywords)
        layout = layout_for(shape, dtype, mesh, placements, parameters)
        near = any(isinstance(value, DistArray) for value in parameters)
        work = layout
        if near and not row.steady:
            work = tiled_layout(layout, tile_extents(layout.shape))
        placed = [Placed(value, work, mesh) for value in parameters]
        box = work.section(mesh.coords)
        values = [value.section(box) for value in placed] if near else parameters
        check_values(row, partial(probe, name, **keywords), values, mesh if near else None)
        call = self._begin(name, mesh)
        draws = _drawing(name, row, lambda tile: [value.part(tile) for value in placed], keywords)
        result = filled(work, mesh, dtype, call, *draws)
        if work is layout:
            return result
        return wrap(movement.moved(result.block, work, layout, mesh), layout, mesh)

    def _scalar_parameters(
        self,
        name: str,
        parameters: Sequence[Any],
        size: ShapeLike | None,
        mesh: DeviceMesh,
        placements: Placements | None,
        **keywords: Any,
    ) -> Any:
        """Numbers of a distribution whose parameters are scalars."""
        shape = None if size is None else as_shape(size)
        sample = probe(name, *parameters, **keywords)
        call = self._begin(name, mesh)
        if shape is None:
            return getattr(call.tile(0), name)(*parameters, **keywords)
        dtype = np.asarray(sample).dtype
        layout = placed_layout(shape, dtype, mesh, placements)
        row = distribution(name, **keywords)
        draw, draw_into = _drawing(name, row, lambda tile: parameters, keywords)
        bounded = drawing_bounded(parameters, **keywords) if name == "integers" else None
        if bounded is not None:
            draw_into = _alike(bounded)
        return filled(layout, mesh, dtype, call, draw, draw_into)


def _drawing(
    name: str, row: Distribution, parts: Callable[[Tile], Sequence[Any]], keywords: dict[str, Any]
) -> tuple[Draw, DrawInto | None]:
    """Functions that draw tiles of a distribution; `parts` maps a tile to its parameters."""
    method, made = getattr(np.random.Generator, name), row.made

    def draw(generator: np.random.Generator, tile: Tile) -> Array:
        own = parts(tile)
        given = any(
            np.shape(part) == tile.extents for part in own
        )  # NumPy is faster without a size
        size = None if given else tile.extents
        numbers: Array = method(generator, *own, size=size, **keywords)
        return numbers

    if row.standard is None or made is None:
        return draw, None
    standard = getattr(np.random.Generator, row.standard)

    def draw_into(generator: np.random.Generator, tile: Tile, target: Array) -> None:
        standard(generator, out=target)
        made(target, *[np.asarray(part, np.float64) for part in parts(tile)])

    return draw, draw_into


def _alike(draw: Callable[[np.random.Generator, Array], object]) -> DrawInto:
    """A function that draws every tile in the same way."""
    return lambda generator, tile, target: draw(generator, target)


def _emptied(value: Any) -> Any:
    """An array without elements of a parameter's data type; scalars as they are."""
    return np.empty((0,), value.dtype) if np.ndim(value) else value


def check_values(
    row: Distribution, show: Callable[..., Any], values: list[Any], mesh: DeviceMesh | None
) -> None:
    """Raise NumPy's error, on every rank, if parameters are out of bounds.

    Parameters
    ----------
    row : Distribution
        The bounds within which parameters are valid.
    show : callable
        NumPy's method, which checks all others.
    values : list
        The parameters, or this rank's parts of them.
    mesh : DeviceMesh, optional
        The ranks that hold the parts, and agree; None if every rank holds all parameters.
    """
    error: BaseException | None = None
    if (mesh is None or mesh.coords is not None) and not surely_valid(row, values):
        try:
            show(*values)
        except Exception as raised:
            error = raised
    if mesh is not None:
        agree(mesh.group, error)
    elif error is not None:
        raise error


def layout_for(
    shape: tuple[int, ...],
    dtype: DTypeLike,
    mesh: DeviceMesh,
    placements: Placements | None,
    parameters: Sequence[Any] = (),
) -> Layout:
    """The layout of the result: the requested one, or the one that distributed parameters imply."""
    sharded = [value for value in parameters if isinstance(value, DistArray)]
    if placements is not None or not sharded:
        return placed_layout(shape, np.dtype(dtype), mesh, placements)
    layouts = [value.layout for value in sharded]
    sizes = [value.itemsize for value in sharded]
    return propagate((*layouts, Layout.replicated(shape, mesh.shape)), (*sizes, 0)).result


@lru_cache(maxsize=1024)
def tiled_layout(layout: Layout, extents: tuple[int, ...]) -> Layout:
    """The nearest layout whose cuts fall between tiles.

    Where the parameters of an element determine how many numbers it takes from the stream, a rank
    needs those of whole tiles. In this layout only parameters of tiles that are cut move. `extents`
    are those of the tiles, along the first dimensions.
    """
    for dim, (cut, extent) in enumerate(zip(layout.cuts, extents, strict=False)):
        if cut.mesh_dims:
            layout = layout.replace(dim, _between_tiles(cut, extent))
    return layout


def _between_tiles(cut: Cut, extent: int) -> Cut:
    """The canonical cut with each bound moved to the nearest bound of a tile."""
    plain = Cut.chunked(cut.extent, cut.mesh_dims, cut.radix)
    bounds = [plain.interval(part)[0] for part in range(plain.parts)]
    near = [min((bound + extent // 2) // extent * extent, cut.extent) for bound in bounds]
    counts = [b - a for a, b in pairwise([*near, cut.extent])]
    return Cut.ragged(counts, cut.mesh_dims, cut.radix)
