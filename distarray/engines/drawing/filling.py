"""Arrays of numbers by position: each rank draws the tiles that its section intersects.

A method of NumPy's Generator draws each tile, from the stream that the tile's number addresses
(:mod:`distarray.engines.drawing.streams`). Nothing is sent.
"""

from collections.abc import Callable

import numpy as np

from distarray.array import DistArray, wrap
from distarray.comm import DeviceMesh
from distarray.engines.drawing.drawn_tiles import TILE, Tile, tiles
from distarray.engines.drawing.streams import Call
from distarray.layout import Box, Layout
from distarray.typing import Array, DTypeLike

__all__ = ["Draw", "DrawInto", "fill", "filled"]

#: Draws one tile from the generator at the beginning of its stream.
Draw = Callable[[np.random.Generator, Tile], Array]
#: Draws one tile into a contiguous array.
DrawInto = Callable[[np.random.Generator, Tile, Array], object]


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
