"""Functions of the user's on distributed arrays: along lines, element by element, on blocks."""

from distarray.ops.mapping import lines, pyfuncs
from distarray.ops.mapping.blocks import map_blocks
from distarray.ops.mapping.local import local_map
from distarray.ops.mapping.overlap import map_overlap
from distarray.ops.mapping.vectorizing import vectorize

__all__ = ["lines", "local_map", "map_blocks", "map_overlap", "pyfuncs", "vectorize"]
