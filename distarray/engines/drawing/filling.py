"""Arrays of random numbers by position: each rank draws the tiles that its section intersects.

A method of NumPy's Generator draws each tile, from the stream that the tile's number addresses
(:mod:`distarray.engines.drawing.streams`). No messages are sent.
"""

from collections.abc import Callable

import numpy as np

from distarray.array import DistArray, wrap
from distarray.comm import DeviceMesh
from distarray.engines.drawing.drawn_tiles import tiles
from distarray.engines.drawing.streams import Call
from distarray.layout import Box, Layout
from distarray.typing import Array, DTypeLike, Shape

__all__ = ["Draw", "fill", "filled"]

#: Function that draws an array of a shape, from a generator at the start of a tile's stream.
Draw = Callable[[np.random.Generator, Shape], Array]


def fill(block: Array, shape: Shape, section: Box, call: Call, draw: Draw) -> None:
    """Fill a block with the random numbers of its section of an array of a shape."""
    for tile in tiles(shape, section):
        numbers = draw(call.tile(tile.number), tile.extents)
        target = block[tile.target] if shape else block
        target[...] = numbers if tile.whole else numbers[tile.wanted]


def filled(layout: Layout, mesh: DeviceMesh, dtype: DTypeLike, call: Call, draw: Draw) -> DistArray:
    """Make a new array of random numbers."""
    block = np.empty(layout.local_shape(mesh.coords), dtype)
    if mesh.coords is not None:
        fill(block, layout.shape, layout.section(mesh.coords), call, draw)
    return wrap(block if mesh.device_type == "cpu" else mesh.asarray(block), layout, mesh)
