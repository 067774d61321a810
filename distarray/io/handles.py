"""Opening, reading and writing files of arrays, whatever their format."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, cast

import numpy as np

from distarray.array import DistArray
from distarray.array.creation import as_distarray, common_mesh
from distarray.array.keys import basic_entries
from distarray.comm import DeviceMesh, default_mesh
from distarray.comm.agree import agree
from distarray.io.formats import Contents, find_format, local_path, module_of
from distarray.io.parts import Part
from distarray.io.sections import Placements, Source, read_array
from distarray.io.storing import alike

__all__ = ["File", "Variable", "open", "read", "write"]

#: Placements for all arrays, by name, or by a function of name and shape.
ManyPlacements = (
    Placements | Mapping[str, Placements] | Callable[[str, tuple[int, ...]], Placements]
)


class Variable:
    """An array in a file, not read yet.

    Indexing reads: ``v[10:20, ::2]`` is a DistArray of that part, ``v[...]`` one of the whole.
    Attributes never communicate nor touch the file.

    Attributes
    ----------
    name : str
        Its name in the file; empty in a file of one array.
    shape, dtype, ndim, size, nbytes
        Of the stored array.
    chunks : tuple of int or None
        Pieces that the file stores whole.
    dims : tuple of str
        Names of the dimensions, if the file has such.
    attrs : mapping
        What the file says about the array.

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

    def __init__(self, name: str, source: Source, file: "File") -> None:
        self.name = name
        self.dims = file._contents.dims.get(name, ())
        self.attrs = file._contents.array_attrs.get(name, {})
        self._source = source
        self._file = file

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the stored array."""
        return tuple(self._source.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Data type of the elements."""
        return self._source.dtype

    @property
    def chunks(self) -> tuple[int, ...] | None:
        """Shape of the pieces that the file stores whole."""
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
        """Bytes of the array in memory."""
        return self.size * self.dtype.itemsize

    def read(
        self, key: Any = ..., *, mesh: DeviceMesh | None = None, placements: Placements = None
    ) -> DistArray:
        """Read the array or a part of it, each rank its own bytes; collective.

        Parameters
        ----------
        key : int, slice, Ellipsis or tuple of these
            The part, as in indexing. Between the elements of a slice with a step only those of
            the last dimension are read as well.
        mesh : DeviceMesh, optional
            The one the file was opened with by default.
        placements : sequence of Placement, optional
            Where the result goes; large results are cut and small ones replicated by default.

        Raises
        ------
        IndexError
            If the key does not fit, or is an array: read a slice, and index that.
        TypeError
            If the elements are of varying length (strings, lists).
        ValueError
            If the file was closed.

        Cost
        ----
        The bytes of the part, each read by one rank; see :func:`distarray.io.read`.
        """
        if self._file.closed:
            raise ValueError(f"{self._file.path} is closed; read inside `with distarray.io.open`")
        if self.dtype.hasobject:
            raise TypeError(
                f"{self!r} has elements of varying length, which are Python objects in memory and "
                "cannot be distributed; read it with the format's own library, on one rank"
            )
        mesh = self._file.mesh if mesh is None else mesh
        entries = basic_entries(key, self.shape, arrays=True)
        if entries is None:
            raise IndexError(
                f"{self!r} is read by slices and integers, not by {key!r}; read a slice and index "
                "the array that it gives"
            )
        part = Part.of(self._source, entries)
        return read_array(self._source if part is None else part, mesh, placements)

    def __getitem__(self, key: Any) -> DistArray:
        return self.read(key)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __enter__(self) -> "Variable":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file it is in."""
        self._file.close()

    def __repr__(self) -> str:
        where = f"{self.name!r} of " if self.name else ""
        return f"<Variable {where}{self._file.path}: {self.dtype} {self.shape}>"


class File(Mapping[str, Variable]):
    """The arrays of an open file, by name; use it in a ``with`` statement.

    Attributes
    ----------
    path : str
        As it was given.
    mesh : DeviceMesh
        Where arrays go that are read without a mesh.
    attrs : mapping
        What the file says about itself.
    closed : bool
        Whether it has been closed.

    Examples
    --------
    >>> import tempfile, distarray
    >>> import distarray.numpy as np
    >>> with tempfile.TemporaryDirectory() as mine:  # of which all ranks take rank 0's
    ...     path = distarray.default_mesh().group.broadcast_object(mine + "/wind.npz")
    ...     distarray.io.write(path, {"u": np.ones((4, 3)), "v": np.zeros(4)})
    ...     with distarray.io.open(path) as file:
    ...         print({name: variable.shape for name, variable in file.items()})
    {'u': (4, 3), 'v': (4,)}
    """

    def __init__(self, path: str, contents: Contents, mesh: DeviceMesh) -> None:
        self.path, self.mesh, self.closed = path, mesh, False
        self.attrs = contents.attrs
        self._contents = contents

    def __getitem__(self, name: str) -> Variable:
        source = self._contents.arrays.get(name)
        if source is None:
            if name in self._contents.refused:
                raise KeyError(f"{self.path}: {name!r} {self._contents.refused[name]}")
            known = list(self._contents.arrays)
            shown = ", ".join(map(repr, known[:20])) + (", ..." if len(known) > 20 else "")
            raise KeyError(f"{self.path} has no array {name!r}; it has {shown or 'none'}")
        return Variable(name, source, self)

    def __iter__(self) -> Iterator[str]:
        return iter(self._contents.arrays)

    def __len__(self) -> int:
        return len(self._contents.arrays)

    def close(self) -> None:
        """Give up the open file; reading raises afterwards. Local."""
        if not self.closed and self._contents.close is not None:
            self._contents.close()
        self.closed = True

    def __enter__(self) -> "File":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<File {self.path}: {len(self)} arrays>"


def open(
    path: str | os.PathLike[str],
    *,
    mesh: DeviceMesh | None = None,
    format: str | None = None,
    **options: Any,
) -> File | Variable:
    """Open a file of arrays without reading them; collective.

    Parameters
    ----------
    path : str or path-like
        A file, a directory for formats that are directories, or a URL where the format allows.
    mesh : DeviceMesh, optional
        Where arrays go that are read without a mesh; the default mesh if not given.
    format : str, optional
        By the ending of the name, or by the first bytes of the file, if not given.
    **options
        What the format takes besides.

    Returns
    -------
    File
        A mapping of names to :class:`Variable`; of a format that holds a single array without a
        name, that Variable.

    Raises
    ------
    OSError, ValueError, ImportError, ...
        On all ranks, if the file cannot be opened on one of them.

    Cost
    ----
    Each rank reads the file's description; two allreduces of an integer or two.

    Examples
    --------
    >>> import tempfile, distarray
    >>> import distarray.numpy as np
    >>> with tempfile.TemporaryDirectory() as mine:  # of which all ranks take rank 0's
    ...     path = distarray.default_mesh().group.broadcast_object(mine + "/wind.npz")
    ...     distarray.io.write(path, {"u": np.ones((4, 3)), "v": np.zeros(4)})
    ...     with distarray.io.open(path) as file:
    ...         print(list(file), float(file["u"][1:].sum()))
    ['u', 'v'] 9.0
    """
    mesh = default_mesh() if mesh is None else mesh
    name = _one_path(path, mesh, "open")
    contents, error = None, None
    try:
        contents = module_of(find_format(name, format)).open_file(name, mesh, **options)
    except Exception as caught:
        error = caught
    try:
        agree(mesh.group, error)
    except Exception:
        if contents is not None and contents.close is not None:
            contents.close()
        raise
    file = File(name, cast("Contents", contents), mesh)
    return file[""] if list(file) == [""] else file


def _one_path(path: str | os.PathLike[str], mesh: DeviceMesh, what: str) -> str:
    """The path, which all ranks give: a part of another file would be no part of this one."""
    name = local_path(os.fspath(path))
    if not alike(name, mesh.group):
        raise ValueError(
            f"distarray.io.{what}: the ranks name different files, and do together what is done "
            "with one; give the same path on all ranks, or a mesh of one rank for a file of its own"
        )
    return name


def read(
    path: str | os.PathLike[str],
    names: str | Sequence[str] | None = None,
    *,
    key: Any = ...,
    mesh: DeviceMesh | None = None,
    placements: ManyPlacements = None,
    format: str | None = None,
    **options: Any,
) -> Any:
    """Read arrays from a file, each rank its own bytes; collective.

    Parameters
    ----------
    path : str or path-like
        See :func:`distarray.io.open`.
    names : str or sequence of str, optional
        One array, or those of a list; all that the file has if not given.
    key : int, slice, Ellipsis or tuple of these
        The part of each array to read.
    mesh : DeviceMesh, optional
        The default mesh if not given.
    placements : sequence of Placement, mapping or callable, optional
        Where the arrays go: one answer for all of them, one by name (those it does not name are
        placed by default), or a function of name and shape.
    format : str, optional
        As for :func:`distarray.io.open`.
    **options
        What the format takes besides.

    Returns
    -------
    DistArray or dict of str to DistArray
        One array for one name, and for a format that holds a single one; otherwise a dict.

    Raises
    ------
    KeyError
        If the file has no array of that name.
    OSError, ValueError, ...
        On all ranks, if reading fails on one of them.

    Cost
    ----
    Each byte is read by one rank; along replicating mesh dimensions every rank reads a part and
    they exchange them. Peak memory is twice the blocks of the array at hand where that happens.

    Examples
    --------
    >>> import tempfile, distarray
    >>> import distarray.numpy as np
    >>> with tempfile.TemporaryDirectory() as mine:  # of which all ranks take rank 0's
    ...     path = distarray.default_mesh().group.broadcast_object(mine + "/wind.npz")
    ...     distarray.io.write(path, {"u": np.ones((4, 3)), "v": np.zeros(4)})
    ...     u = distarray.io.read(path, "u", placements=[distarray.Shard(1)])
    >>> u.placements, float(u.sum())
    ((Shard(1),), 12.0)
    """
    with open(path, mesh=mesh, format=format, **options) as file:
        if isinstance(file, Variable):
            if names not in (None, "", file.name):
                raise KeyError(f"{file!r} is one array without a name; leave out names={names!r}")
            return file.read(key, placements=_placed(placements, "", file.shape))
        wanted = list(file) if names is None else [names] if isinstance(names, str) else names
        variables = [file[name] for name in wanted]
        found = {
            v.name: v.read(key, placements=_placed(placements, v.name, v.shape)) for v in variables
        }
        return found[names] if isinstance(names, str) else found


def _placed(placements: ManyPlacements, name: str, shape: tuple[int, ...]) -> Placements:
    """What was said about one array."""
    if isinstance(placements, Mapping):
        return placements.get(name)
    if callable(placements):
        return placements(name, shape)
    return placements


def write(
    path: str | os.PathLike[str],
    arrays: Any,
    *,
    mesh: DeviceMesh | None = None,
    format: str | None = None,
    **options: Any,
) -> None:
    """Write arrays to a file, all of it or nothing; collective.

    The file is written under another name beside its own, brought to disk, and renamed: whatever
    happens meanwhile, what was there before is there whole, or the new file is.

    Parameters
    ----------
    path : str or path-like
        The file; replaced if it exists.
    arrays : DistArray, array_like, or mapping of str to these
        By name; a format that holds one array without a name takes the array itself. NumPy arrays
        and numbers count as equal on every rank.
    mesh : DeviceMesh, optional
        Whose ranks write; that of the arrays if not given.
    format : str, optional
        By the ending of the name if not given.
    **options
        What the format takes besides, such as compression and attributes.

    Raises
    ------
    OSError, TypeError, ...
        On all ranks, if writing fails on one of them.

    Cost
    ----
    Each element is written once. Formats that several processes can write at a time send nothing
    where blocks end with stored chunks; others send all to rank 0 in pieces of 32 MiB.

    Examples
    --------
    >>> import tempfile, distarray
    >>> import distarray.numpy as np
    >>> with tempfile.TemporaryDirectory() as mine:  # of which all ranks take rank 0's
    ...     path = distarray.default_mesh().group.broadcast_object(mine + "/heights.npy")
    ...     distarray.io.write(path, np.arange(6.0))
    ...     print(distarray.io.read(path).tolist())
    [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    """
    named = dict(arrays) if isinstance(arrays, Mapping) else {"": arrays}
    for key in named:
        if not isinstance(key, str) or (not key and isinstance(arrays, Mapping)):
            raise TypeError(f"distarray.io.write: names of arrays are str and not empty: {key!r}")
        if "\0" in key:
            raise ValueError(
                f"distarray.io.write: a name ends where it has a null character: {key!r}"
            )
    mesh = common_mesh(*named.values()) if mesh is None else mesh
    name = _one_path(path, mesh, "write")
    module = module_of(find_format(name, format))
    placed = {key: as_distarray(value, mesh) for key, value in named.items()}
    for key, x in placed.items():
        if x.dtype.hasobject:
            raise TypeError(
                f"distarray.io.write: {key or 'the array'} has dtype {x.dtype}: Python objects "
                "have no form in files; convert it with x.astype(...)"
            )
    module.write_file(name, placed, mesh, **options)
