"""Arrays in files that are mapped into memory; pages are read on first use."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

import numpy as np

from distarray.array import DistArray, placed_layout
from distarray.comm import DeviceMesh, default_mesh
from distarray.comm.agree import agreed
from distarray.io.file_paths import PathLike
from distarray.io.fingerprints import described
from distarray.io.npy_header import Header
from distarray.io.ordinary_files import check_seekable
from distarray.io.rank_zero import found_on_rank_zero
from distarray.layout import Replicate
from distarray.typing import Array, DType, DTypeLike, Placements, ShapeLike

__all__ = ["mapped_file", "memmap"]

_LONG_NAMES = {"readonly": "r", "copyonwrite": "c", "readwrite": "r+", "write": "w+"}
_MODES = ("r", "c", "r+", "w+")


class memmap(DistArray):
    """Array in a file, of which each rank maps its block; see :class:`numpy.memmap`.

    Results of computations are ordinary arrays (:class:`~distarray.DistArray`); views of a memmap
    are mapped as well. Collective.

    Parameters
    ----------
    filename : path-like or file object
        Equal on all ranks, on a file system that all ranks share. On several ranks only the name
        of a file object is used.
    dtype : dtype
        Data type of the elements.
    mode : {"r+", "r", "w+", "c"}
        Read and write, read only, make a file, or change in memory only.
    offset : int
        First byte of the elements.
    shape : int or tuple of int, optional
        By default all elements of the file, in one dimension.
    order : {"C", "F"}
        Order of the elements in the file.
    mesh : DeviceMesh, optional
        The default mesh if not given.
    placements : sequence of Placement, optional
        As for :func:`distarray.distribute`. With mode "r+" or "w+", the first of several replicas
        is mapped and writes to the file; the other replicas are copies in memory.

    Attributes
    ----------
    filename : str or pathlib.Path or None
    mode : str
    offset : int

    Cost
    ----
    Pages are read from the file on first use.
    """

    __slots__ = ("_map", "filename", "mode", "offset")

    filename: str | Path | None
    mode: str
    offset: int
    _map: np.memmap[Any, Any] | None

    def __new__(
        cls,
        filename: PathLike,
        dtype: DTypeLike = np.uint8,
        mode: str = "r+",
        offset: int = 0,
        shape: ShapeLike | None = None,
        order: Literal["C", "F"] = "C",
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> memmap:
        """Map the file; parameters are those of the class."""
        mode = _LONG_NAMES.get(mode, mode)
        if mode not in _MODES:
            raise ValueError(f"mode must be one of {[*_MODES, *_LONG_NAMES]!r} (got {mode!r})")
        mesh = default_mesh() if mesh is None else mesh
        path = _path_of(filename, mesh)
        kind = np.dtype(dtype)
        if mode == "w+":
            mesh.group.barrier()  # afterwards no rank reads an old file any more
        given = described((mode, placements, kind, offset, shape, order))
        extent = found_on_rank_zero(
            lambda: _map(path, mode, kind, offset, shape, order).shape,
            mesh,
            f"{_shown(path)}, {given}",
        )
        header = Header(extent, order == "F", kind, offset)
        made = mapped_file(path, header, "r+" if mode == "w+" else mode, mesh, placements, mode)
        if isinstance(filename, os.PathLike):
            made.filename = Path(filename).resolve()
        return made

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: `__new__` has made the array."""

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        if type(found) is memmap:  # a view of the same file
            found._map, found.filename = self._map, self.filename
            found.mode, found.offset = self.mode, self.offset
        return found

    def flush(self) -> None:
        """Bring changes to disk; collective."""
        mapped = self._map
        agreed(self.mesh.group, lambda: None if mapped is None else mapped.flush())


def _path_of(filename: Any, mesh: DeviceMesh) -> Any:
    """Return the file for NumPy to map: a path, or on a single rank also a file object."""
    if not hasattr(filename, "read"):
        return os.fspath(filename)
    if mesh.size() == 1:
        return filename
    if not isinstance(filename.name, str):
        raise TypeError("several ranks can map a file only by its name")
    if filename.writable():
        filename.flush()
    return filename.name


def _shown(path: Any) -> str | None:
    """Return the absolute path of a file; None if it has no name."""
    name = getattr(path, "name", path)
    return os.path.abspath(name) if isinstance(name, str) else None


def mapped_file(
    path: Any,
    header: Header,
    mode: str,
    mesh: DeviceMesh,
    placements: Placements | None,
    said: str | None = None,
) -> memmap:
    """Map the array of an existing file; collective.

    Parameters
    ----------
    path : str or file object
        Equal on all ranks.
    header : Header
        Equal on all ranks.
    mode : {"r", "r+", "c"}
        As for :class:`memmap`.
    mesh, placements
        As for :class:`memmap`.
    said : str, optional
        The attribute `mode` of the result; by default `mode`.
    """
    if mode not in _MODES[:3]:
        raise ValueError(f"an existing file is mapped with one of {_MODES[:3]}, not {mode!r}")
    if mesh.xp is not np and mode == "r+":
        raise ValueError(
            "memory of a device cannot be mapped to a file; map it read-only, or use a mesh of "
            "CPUs: distarray.init_device_mesh('cpu', ...)"
        )
    layout = placed_layout(header.shape, header.dtype, mesh, placements)
    order: Literal["C", "F"] = "F" if header.fortran else "C"
    section = tuple([slice(low, high) for low, high in layout.section(mesh.coords)])

    def act() -> tuple[np.memmap[Any, Any] | None, Array]:
        if mesh.coords is None:
            return None, np.empty(layout.local_shape(None), header.dtype)
        mapped = _map(path, mode, header.dtype, header.start, header.shape, order)
        block = np.asarray(mapped)
        block = block[section] if section else block
        # Only one replica maps the pages: another would see its changes before making its own.
        spare = [m for m, p in enumerate(layout.placements) if isinstance(p, Replicate)]
        if mode == "r+" and any(mesh.coords[m] for m in spare):
            return None, block.copy(order="K")
        return mapped, mesh.asarray(block)

    mapped, block = agreed(mesh.group, act)
    self: memmap = object.__new__(memmap)
    self.block, self.layout, self.mesh = block, layout, mesh
    self.filename, self.mode, self.offset = _shown(path), said or mode, header.start
    self._map = mapped if mode == "r+" else None
    return self


def _map(
    path: Any,
    mode: str,
    dtype: DType,
    offset: int,
    shape: ShapeLike | None,
    order: Literal["C", "F"],
) -> np.memmap[Any, Any]:
    check_seekable(path if isinstance(path, (str, bytes)) else None)
    known: Any = mode  # one of _MODES
    return np.memmap(path, dtype, known, offset, shape, order)  # type: ignore[arg-type]
