"""HTML of placements, layouts and meshes in a notebook; it needs no communication."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from distarray.layout.pictures import described, layout_svg, mesh_svg, placement_svg

if TYPE_CHECKING:
    from distarray.layout.layout import Coords, Layout
    from distarray.layout.placement import Placement

__all__ = ["layout_html", "mesh_html", "placement_html"]

_PLACEMENTS = {
    "At": "the array is at one coordinate alone",
    "Partial": "each coordinate has a contribution of full shape; the array is their fold",
    "Replicate": "each coordinate has the whole array",
    "Shard": "each coordinate has a block of the array",
}


def placement_html(placement: "Placement") -> str:
    """Return HTML of a placement and its effect on an array on four ranks."""
    words = _PLACEMENTS.get(type(placement).__name__, "")
    rows = [("along its mesh dimension", words)]
    return described(repr(placement), rows, placement_svg(placement))


def layout_html(layout: "Layout") -> str:
    """Return HTML of a layout and the blocks into which it cuts an array."""
    rows: list[tuple[str, Any]] = [
        ("shape", layout.shape),
        ("placements", ", ".join(map(repr, layout.placements))),
        ("mesh", layout.mesh_shape),
    ]
    if not layout.is_canonical:
        rows.append(("cuts", layout.sharded_cuts()))
    return described("Layout", rows, layout_svg(layout))


def mesh_html(
    shape: tuple[int, ...],
    names: Sequence[str] | None,
    device_type: str,
    coords: "Coords | None",
) -> str:
    """Return HTML of a mesh and the grid of its ranks, with this rank marked."""
    here = "does not belong to it" if coords is None else coords
    rows: list[tuple[str, Any]] = [("shape", shape), ("blocks", device_type), ("this rank", here)]
    if names:
        rows.insert(1, ("dimensions", ", ".join(names)))
    return described("DeviceMesh", rows, mesh_svg(shape, names, coords))
