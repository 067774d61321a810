"""Arrays in files that are mapped into memory: read when they are used, as far as they are."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from distarray.array import DistArray, placed_layout
from distarray.comm import DeviceMesh, default_mesh
from distarray.comm.agree import agreed
from distarray.io.contiguous_reading import Placements
from distarray.io.fingerprints import described
from distarray.io.numpy_save import Header, found_on_rank_0
from distarray.layout import Replicate

__all__ = ["mapped_file", "memmap"]

_LONG_NAMES = {"readonly": "r", "copyonwrite": "c", "readwrite": "r+", "write": "w+"}
_MODES = ("r", "c", "r+", "w+")


class memmap(DistArray):
    """An array in a file, of which each rank has its part mapped; see :class:`numpy.memmap`.

    What is computed from it is an ordinary :class:`~distarray.DistArray`; views of it are mapped
    as it is. Collective.

    Parameters
    ----------
    filename : path-like
        Equal on all ranks, which all must see it.
    dtype : dtype
        Of the elements.
    mode : {"r+", "r", "w+", "c"}
        Read and write, read, make a file, or change in memory alone.
    offset : int
        Where the elements begin, in bytes.
    shape : int or tuple of int, optional
        As long as the file reaches, if not given.
    order : {"C", "F"}
        Of the elements in the file.
    mesh : DeviceMesh, optional
        The default mesh if not given.
    placements : sequence of Placement, optional
        As for :func:`distarray.distribute`. Of replicas the first one writes to the file; the
        others are in memory.

    Attributes
    ----------
    filename : str
    mode : str
    offset : int

    Cost
    ----
    Pages are read from the file when they are touched, and only those.
    """

    __slots__ = ("_map", "filename", "mode", "offset")

    filename: str
    mode: str
    offset: int
    _map: Any

    def __new__(
        cls,
        filename: Any,
        dtype: Any = np.uint8,
        mode: str = "r+",
        offset: int = 0,
        shape: int | Sequence[int] | None = None,
        order: Any = "C",
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements = None,
    ) -> "memmap":
        """Map the file: see the class."""
        mode = _LONG_NAMES.get(mode, mode)
        if mode not in _MODES:
            raise ValueError(f"mode must be one of {[*_MODES, *_LONG_NAMES]!r} (got {mode!r})")
        mesh = default_mesh() if mesh is None else mesh
        path = os.fspath(filename)
        given = (np.dtype(dtype), offset, shape, order)
        if mode == "w+":
            mesh.group.barrier()  # nobody still reads what was there
        said = f"{os.path.abspath(path)}, {described((mode, placements, *given))}"
        extent = found_on_rank_0(lambda: _map(path, mode, *given).shape, mesh, said)
        header = Header(extent, order == "F", given[0], offset)
        return mapped_file(path, header, "r+" if mode == "w+" else mode, mesh, placements, mode)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: `__new__` has done it."""

    def flush(self) -> None:
        """Bring what was changed to disk; collective."""
        agreed(self.mesh.group, lambda: None if self._map is None else self._map.flush())


def mapped_file(
    path: str,
    header: Header,
    mode: str,
    mesh: DeviceMesh,
    placements: Placements,
    said: str | None = None,
) -> memmap:
    """The array of a file that exists, mapped; collective.

    Parameters
    ----------
    path : str
        Equal on all ranks.
    header : Header
        Where the elements lie; equal on all ranks.
    mode : {"r", "r+", "c"}
        How to map it.
    mesh, placements
        As for :class:`memmap`.
    said : str, optional
        The mode that the result shows.
    """
    if mode not in _MODES[:3]:
        raise ValueError(f"an existing file is mapped with one of {_MODES[:3]}, not {mode!r}")
    if mesh.xp is not np and mode == "r+":
        raise ValueError(
            "memory of a device cannot be mapped to a file; map it read-only, or use a mesh of "
            "CPUs: distarray.init_device_mesh('cpu', ...)"
        )
    layout = placed_layout(header.shape, header.dtype, mesh, placements)
    order = "F" if header.fortran else "C"
    section = tuple([slice(low, high) for low, high in layout.section(mesh.coords)])

    def act() -> tuple[Any, Any]:
        if mesh.coords is None:
            return None, np.empty(layout.local_shape(None), header.dtype)
        mapped = _map(path, mode, header.dtype, header.start, header.shape, order)
        block = np.asarray(mapped)
        block = block[section] if section else block
        # A second writer of the same pages would see the first one's changes before its own.
        spare = [m for m, p in enumerate(layout.placements) if isinstance(p, Replicate)]
        if mode == "r+" and any(mesh.coords[m] for m in spare):
            return None, block.copy(order="K")
        return mapped, mesh.asarray(block)

    mapped, block = agreed(mesh.group, act)
    self: memmap = object.__new__(memmap)
    self.block, self.layout, self.mesh = block, layout, mesh
    self.filename, self.mode, self.offset = os.path.abspath(path), said or mode, header.start
    self._map = mapped if mode == "r+" else None
    return self


def _map(path: str, mode: Any, dtype: Any, offset: int, shape: Any, order: Any) -> Any:
    return np.memmap(path, dtype, mode, offset, shape, order)
