"""Pictures of arrays, layouts, meshes and placements, for notebooks and for files."""

import os
from pathlib import Path
from typing import Any

from distarray.array.base import Base
from distarray.comm import DeviceMesh
from distarray.layout import Layout
from distarray.layout.pictures import layout_svg, mesh_svg, placement_svg
from distarray.layout.placement import Placement

__all__ = ["Picture", "visualize"]


class Picture:
    """Picture that a notebook displays; made by :func:`distarray.visualize`.

    Attributes
    ----------
    svg : str
        Source text of the picture.
    """

    def __init__(self, svg: str) -> None:
        self.svg = svg

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture as an SVG file; every rank that calls this method writes.

        Parameters
        ----------
        path : str or path
        """
        Path(path).write_text(self.svg, encoding="utf-8")

    def _repr_html_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"<Picture of {len(self.svg)} characters of SVG; .save(path) writes it>"


def visualize(x: Any) -> Picture:
    """Draw the placement of an array on the ranks, a mesh or a placement; never communicates.

    Parameters
    ----------
    x : DistArray, Layout, DeviceMesh or placement
        In the picture of an array or a mesh, this rank's block has a frame. Of an array with more
        than two dimensions two are drawn, preferably dimensions that are cut.

    Returns
    -------
    Picture

    Examples
    --------
    >>> import distarray
    >>> import distarray.numpy as np
    >>> picture = distarray.visualize(np.zeros((1000, 1000)))
    >>> picture.svg[:4]
    '<svg'
    """
    if isinstance(x, Base):
        return Picture(layout_svg(x.layout, x.mesh.coords))
    if isinstance(x, Layout):
        return Picture(layout_svg(x))
    if isinstance(x, DeviceMesh):
        return Picture(mesh_svg(x.shape, x.mesh_dim_names, x.coords))
    if isinstance(x, Placement):
        return Picture(placement_svg(x))
    raise TypeError(
        "visualize(x): x is a DistArray, a Layout, a DeviceMesh or a placement, not "
        f"{type(x).__name__}"
    )
