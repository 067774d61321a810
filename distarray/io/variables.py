"""Array in a file, which is read when it is indexed."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, TypeAlias

from distarray.array import DistArray
from distarray.array.keys import basic_entries
from distarray.comm import DeviceMesh
from distarray.io.file_errors import NamedSource
from distarray.io.fingerprints import described
from distarray.io.hyperslabs import Hyperslab
from distarray.io.sections import Source, read_array
from distarray.typing import DType, Placements, Shape

if TYPE_CHECKING:
    from types import EllipsisType

    from distarray.io.opening import File

__all__ = ["Key", "Variable"]

Index: TypeAlias = "int | slice | EllipsisType | None"
#: Key of basic indexing, which selects a hyperslab.
Key: TypeAlias = "Index | tuple[Index, ...]"


class Variable:
    """Array in a file that has not been read.

    Indexing reads: ``v[10:20, ::2]`` returns a DistArray of the section, ``v[...]`` a DistArray of
    the whole array. Attributes neither communicate nor access the file.

    Attributes
    ----------
    name : str
        The array's name in the file; empty in a format with a single array.
    shape, dtype, ndim, size, nbytes
        Attributes of the stored array.
    chunks : tuple of int or None
        Shape of the chunks that the file stores.
    dims : tuple of str
        Names of the dimensions, if the file has such names.
    attrs : mapping
        Attributes of the array.

    Examples
    --------
    >>> import tempfile, distarray
    >>> import distarray.numpy as np
    >>> with tempfile.TemporaryDirectory() as mine:  # of which all ranks take rank 0's
    ...     path = distarray.default_mesh().group.broadcast_object(mine + "/wind.npz")
    ...     distarray.io.write(path, {"u": np.ones((4, 3)), "v": np.zeros(4)})
    ...     with distarray.io.open(path) as file:
    ...         u = file["u"]
    ...         print(u.shape, u.dtype, u.nbytes, u[1:, ::2].shape)
    (4, 3) float64 96 (3, 2)
    """

    def __init__(self, name: str, source: Source, file: File) -> None:
        self.name = name
        self.dims = file._contents.dims.get(name, ())
        self.attrs = file._contents.array_attrs.get(name, {})
        self._source = NamedSource(source, file._place, f"array {name!r}" if name else "the array")
        self._file = file

    @property
    def shape(self) -> Shape:
        """Shape of the stored array."""
        return tuple(self._source.shape)

    @property
    def dtype(self) -> DType:
        """Data type of the elements."""
        return self._source.dtype

    @property
    def chunks(self) -> Shape | None:
        """Shape of the chunks that the file stores."""
        return self._source.chunks

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Size of the array in memory, in bytes."""
        return self.size * self.dtype.itemsize

    def read(
        self,
        key: Key = ...,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> DistArray:
        """Read the array or a section of it; each rank reads the bytes of its block; collective.

        Parameters
        ----------
        key : int, slice, Ellipsis or tuple of these
            The section, as in indexing. Elements that a step skips are read along the last
            dimension only.
        mesh : DeviceMesh, optional
            By default the mesh that the file was opened with.
        placements : sequence of Placement, optional
            Placements of the result; by default large results are cut, small results replicated.

        Raises
        ------
        IndexError
            If the key does not fit, or is an array: read a slice, and index the result.
        TypeError
            If the elements have varying lengths (strings, lists).
        ValueError
            If the file is closed.

        Cost
        ----
        Each byte of the section is read by one rank; see :func:`distarray.io.read`.
        """
        mesh = self._file.mesh if mesh is None else mesh
        source: Source = self._source
        error: Exception | None = None
        try:
            source = self._part(key)
        except Exception as caught:
            error = caught
        said = f"{self.name!r} of {self._file._place}, [{described(key)}]"
        return read_array(source, mesh, placements, said=said, error=error)

    def _part(self, key: Key) -> Source:
        """Return the section that a key selects; raise if it cannot be read."""
        if self._file.closed:
            raise ValueError(f"{self._file.path} is closed; read inside `with distarray.io.open`")
        if self.dtype.hasobject:
            raise TypeError(
                f"{self!r} has elements of varying length, which are Python objects in memory and "
                "cannot be distributed; read it with the format's own library, on one rank"
            )
        entries = basic_entries(key, self.shape, arrays=True)
        if entries is None:
            raise IndexError(
                f"{self!r} is read by slices and integers, not by {key!r}; read a slice and index "
                "the array that it gives"
            )
        part = Hyperslab.of(self._source, entries)
        return self._source if part is None else part

    def __getitem__(self, key: Key) -> DistArray:
        return self.read(key)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __enter__(self) -> Variable:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file that contains the array."""
        self._file.close()

    def __repr__(self) -> str:
        where = f"{self.name!r} of " if self.name else ""
        return f"<Variable {where}{self._file.path}: {self.dtype} {self.shape}>"
