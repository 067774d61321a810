"""Printed forms of arrays; no communication, unless `config.print_gathered` is set."""

from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from distarray.array.base import Base, raw_block
from distarray.array.blocks_out import is_old
from distarray.comm.ledger import size_text
from distarray.config import config
from distarray.layout import Layout
from distarray.typing import DType

__all__ = ["array_html", "array_repr", "array_str", "local_form", "local_text", "summary", "whole"]


def summary(x: Base) -> str:
    """Return one line: type, shape, dtype and placements."""
    return _summary(x.layout, x.dtype)


@lru_cache(maxsize=256)
def _summary(layout: Layout, dtype: DType) -> str:
    places = ", ".join([repr(placement) for placement in layout.placements])
    return f"DistArray(shape={layout.shape}, dtype={dtype}, placements=[{places}])"


def whole(x: Base) -> Any:
    """Return the array for NumPy to print, if this rank has it or may gather it; else None."""
    if x.mesh.coords is None:
        return None
    if x.layout.is_replicated:
        return x.block
    return np.asarray(x.full()) if config.print_gathered else None


def array_repr(x: Base) -> str:
    """Return NumPy's `repr` of a replicated array; else the layout and this rank's block."""
    values = whole(x)
    if values is not None:
        return repr(values)
    return local_form(x, local_text(x, repr))


def array_str(x: Base) -> str:
    """Return NumPy's `str` of a replicated array; else the layout and this rank's block."""
    values = whole(x)
    if values is not None:
        return str(values)
    return local_form(x, local_text(x, str))


def local_text(x: Base, form: Callable[[Any], str]) -> str:
    """Return the text of this rank's block; a hint to `refresh` if the block may be stale."""
    block = raw_block(x)
    if is_old(x):
        return "(written to through another array since: x.refresh() brings it up to date)"
    return form(x.mesh.asarray(block) if isinstance(block, np.generic) else block)


def local_form(x: Base, block: str) -> str:
    """Return the layout, this rank and its section, and the text of its block."""
    mesh = x.mesh
    if mesh.coords is None:
        return f"{summary(x)} on a mesh that this rank does not belong to"
    box = ", ".join([f"{start}:{stop}" for start, stop in x.layout.section(mesh.coords)])
    kind = "contribution" if x.layout.partials else "block"
    lines = block.replace("\n", "\n  ")
    return f"{summary(x)}\n  rank {mesh.rank} of {mesh.size()}, {kind} [{box}]:\n  {lines}"


def array_html(x: Base) -> str:
    """Return HTML for notebooks: properties, picture of the blocks, this rank; sends nothing."""
    from distarray.layout.pictures import described, layout_svg

    mesh, layout, here = x.mesh, x.layout, "does not belong to the mesh"
    if mesh.coords is not None:
        box = ", ".join([f"{start}:{stop}" for start, stop in layout.section(mesh.coords)])
        nbytes = prod(layout.local_shape(mesh.coords)) * x.dtype.itemsize
        here = f"rank {mesh.rank} of {mesh.size()}, [{box}], {size_text(nbytes)}"
    rows = [
        ("shape", str(x.shape)),
        ("dtype", str(x.dtype)),
        ("bytes", size_text(x.nbytes)),
        ("placements", ", ".join([repr(placement) for placement in layout.placements])),
        ("mesh", repr(mesh)),
        ("this rank", here),
    ]
    return described("DistArray", rows, layout_svg(layout, mesh.coords))
