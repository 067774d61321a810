"""Opening and reading files of arrays, whatever their format."""

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, cast

import numpy as np

from distarray.array import DistArray
from distarray.array.keys import basic_entries
from distarray.comm import DeviceMesh, default_mesh
from distarray.comm.alike import Said, same_call
from distarray.io.fingerprints import described, options_said, path_said
from distarray.io.formats import (
    Contents,
    Named,
    check_options,
    find_format,
    local_path,
    module_of,
    naming,
)
from distarray.io.hyperslabs import Part
from distarray.io.sections import Placements, Source, read_array

__all__ = ["File", "ManyPlacements", "Variable", "open", "read"]

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
        self._source: Source = Named(
            source, file._place, f"array {name!r}" if name else "the array"
        )
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
        mesh = self._file.mesh if mesh is None else mesh
        source, error = self._source, None
        try:
            source = self._part(key)
        except Exception as caught:
            error = caught
        said = f"{self.name!r} of {self._file._place}, [{described(key)}]"
        return read_array(source, mesh, placements, said=said, error=error)

    def _part(self, key: Any) -> Source:
        """What a key selects; raises if that cannot be read."""
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
        part = Part.of(self._source, entries)
        return self._source if part is None else part

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
        self._place = os.path.abspath(path) if "://" not in path else path

    def __getitem__(self, name: str) -> Variable:
        with naming(self._place, f"array {name!r}" if name else "the array"):
            source = self._contents.arrays.get(name)
            if source is None and "/" in name:  # in these formats a slash more says no more
                name = "/".join([part for part in name.split("/") if part])
                source = self._contents.arrays.get(name)
        if source is None:
            for why in (self._contents.refused, self._contents.missing):
                if name in why:
                    raise KeyError(f"{self.path}: {name!r} {why[name]}")
            known = list(self._contents.arrays)
            shown = ", ".join(map(repr, known[:20])) + (", ..." if len(known) > 20 else "")
            raise KeyError(f"{self.path} has no array {name!r}; it has {shown or 'none'}")
        return Variable(name, source, self)

    def __iter__(self) -> Iterator[str]:
        return iter(self._contents.arrays)

    def __len__(self) -> int:
        return len(self._contents.arrays)

    def _all(self) -> list[str]:
        """All names; raises if something is there that is not read."""
        for name, why in self._contents.refused.items():
            raise ValueError(
                f"{self.path}: {name!r} {why}. To read the other arrays, name them: "
                f"distarray.io.read(path, {[*self][:3]})"
            )
        return list(self)

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
    return _opened("distarray.io.open", path, mesh, format, options)[0]


def _opened(
    call: str,
    path: str | os.PathLike[str],
    mesh: DeviceMesh | None,
    format: str | None,
    options: Mapping[str, Any],
    wanted: Iterable[str] = (),
    **said: Any,
) -> tuple[File | Variable, list[str]]:
    """A file, and the names of the arrays wanted in an order that all ranks have; collective."""
    mesh = default_mesh() if mesh is None else mesh
    name = ""
    error: Exception | None = None
    try:
        name = local_path(path)
    except TypeError as caught:
        error = caught
    given = [path_said(name), *options_said({**options, **said, "format": format})]
    order = same_call(mesh.group, call, given, dict.fromkeys(wanted, "wanted"), error).order
    contents = None
    try:
        known = find_format(name, format)
        check_options(known, "open_file", options, call)
        place = name if "://" in name else os.path.abspath(name)  # wherever the program goes
        with naming(place, f"this {known.name} file"):
            contents = module_of(known).open_file(place, mesh, **options)
    except Exception as caught:
        error = _as_named(caught, name)
    found = "" if contents is None else repr([*contents.arrays])
    try:
        same_call(
            mesh.group, call, [Said("the ranks see different files", found, _SHARED)], error=error
        )
    except Exception:
        if contents is not None and contents.close is not None:
            contents.close()
        raise
    file = File(name, cast("Contents", contents), mesh)
    return file[""] if list(file) == [""] else file, order


def _as_named(error: Exception, name: str) -> Exception:
    """The error of a file that cannot be opened, with the path as the caller has it."""
    number = error.errno if isinstance(error, OSError) else None
    if number not in (errno.ENOENT, errno.EACCES):
        return error
    return OSError(number, os.strerror(number), name)


_SHARED = "give a path on a file system that all ranks share"


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
    wanted = [] if names is None else [names] if isinstance(names, str) else list(names)
    given = None if names is None else "given"
    said = {"key": key, "placements": placements, "names": given}
    opened, order = _opened("distarray.io.read", path, mesh, format, options, wanted, **said)
    with opened as file:
        if isinstance(file, Variable):
            if names not in (None, "", file.name):
                raise KeyError(f"{file!r} is one array without a name; leave out names={names!r}")
            return file.read(key, placements=_placed(placements, "", file.shape))
        variables = {name: file[name] for name in (file._all() if names is None else order)}
        found = {
            name: v.read(key, placements=_placed(placements, name, v.shape))
            for name, v in variables.items()
        }
        return found[names] if isinstance(names, str) else found


def _placed(placements: ManyPlacements, name: str, shape: tuple[int, ...]) -> Placements:
    """What was said about one array."""
    if isinstance(placements, Mapping):
        return placements.get(name)
    if callable(placements):
        return placements(name, shape)
    return placements
