"""Opening and reading of files of arrays, in any format."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

from distarray.comm import DeviceMesh, default_mesh
from distarray.comm.same_call import Argument, same_call
from distarray.io.contents import Contents
from distarray.io.file_errors import as_given, reading
from distarray.io.file_paths import PathLike, absolute_path, local_path
from distarray.io.fingerprints import options_said, path_said
from distarray.io.formats import check_options, find_format, module_of
from distarray.io.ordinary_files import check_ordinary
from distarray.io.variables import Key, Variable
from distarray.typing import Placements, Shape

__all__ = ["File", "ManyPlacements", "Variable", "open", "read"]

#: Placements: one for all arrays, by array name, or from a function of name and shape.
ManyPlacements: TypeAlias = (
    "Placements | Mapping[str, Placements] | Callable[[str, Shape], Placements | None]"
)
_SHARED = "give a path on a file system that all ranks share"


class File(Mapping[str, Variable]):
    """Mapping of names to the arrays of an open file, for use in a ``with`` statement.

    Attributes
    ----------
    path : str
        The path that the caller has given.
    mesh : DeviceMesh
        The default mesh of arrays that are read from this file.
    attrs : mapping
        Attributes of the file.
    closed : bool
        True if the file is closed.

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
        self._place = absolute_path(path)

    def __getitem__(self, name: str) -> Variable:
        with reading(self._place, f"array {name!r}" if name else "the array"):
            source = self._contents.arrays.get(name)
            if source is None and "/" in name:  # formats with groups ignore slashes at the ends
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
        """List all names; raise if the file has arrays that are not read."""
        for name, why in self._contents.refused.items():
            raise ValueError(
                f"{self.path}: {name!r} {why}. To read the other arrays, name them: "
                f"distarray.io.read(path, {[*self][:3]})"
            )
        return list(self)

    def close(self) -> None:
        """Close the file; a later read raises. Local."""
        if not self.closed and self._contents.close is not None:
            self._contents.close()
        self.closed = True

    def __enter__(self) -> File:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<File {self.path}: {len(self)} arrays>"


def open(
    path: PathLike,
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
        The mesh of arrays that are read without a `mesh`; by default the default mesh.
    format : str, optional
        By default the format is determined by the ending of the name or the file's first bytes.
    **options
        Options of the format.

    Returns
    -------
    File or Variable
        A mapping of names to :class:`Variable`; a Variable where the format holds a single array
        without a name.

    Raises
    ------
    OSError, ValueError, ImportError, ...
        On all ranks, if one rank cannot open the file.

    Cost
    ----
    Each rank reads the file's metadata; two allreduces of one or two integers.

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
    path: PathLike,
    mesh: DeviceMesh | None,
    format: str | None,
    options: Mapping[str, Any],
    wanted: Iterable[str] = (),
    **said: Any,
) -> tuple[File | Variable, list[str]]:
    """Open a file; return it and the wanted names in the same order on all ranks; collective."""
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
        contents = _contents(name, format, options, mesh, call)
    except Exception as caught:
        error = as_given(caught, name)
    found = "" if contents is None else repr([*contents.arrays])
    seen = Argument("the ranks see different files", found, _SHARED)
    try:
        same_call(mesh.group, call, [seen], error=error)
    except Exception:
        if contents is not None and contents.close is not None:
            contents.close()
        raise
    file = File(name, cast("Contents", contents), mesh)
    return file[""] if list(file) == [""] else file, order


def _contents(
    path: str, format: str | None, options: Mapping[str, Any], mesh: DeviceMesh, call: str
) -> Contents:
    """Open a file by its format's module and return its contents; local."""
    known = find_format(path, format)
    check_options(known, "open_file", options, call)
    place = absolute_path(path)
    if "://" not in place:
        check_ordinary(place, directory=known.name == "zarr")
    with reading(place, f"this {known.name} file"):
        found: Contents = module_of(known).open_file(place, mesh, **options)
    return found


def read(
    path: PathLike,
    names: str | Sequence[str] | None = None,
    *,
    key: Key = ...,
    mesh: DeviceMesh | None = None,
    placements: ManyPlacements | None = None,
    format: str | None = None,
    **options: Any,
) -> Any:
    """Read arrays from a file; each rank reads the bytes of its blocks; collective.

    Parameters
    ----------
    path : str or path-like
        See :func:`distarray.io.open`.
    names : str or sequence of str, optional
        One name or several names; by default all arrays of the file.
    key : int, slice, Ellipsis or tuple of these
        The section of each array to read.
    mesh : DeviceMesh, optional
        The default mesh if not given.
    placements : sequence of Placement, mapping or callable, optional
        Placements of all arrays; a mapping from names to placements (arrays that are not in it get
        the default placements); or a function of name and shape.
    format : str, optional
        As for :func:`distarray.io.open`.
    **options
        Options of the format.

    Returns
    -------
    DistArray or dict of str to DistArray
        An array if `names` is one name, or if the format holds a single array; otherwise a dict.

    Raises
    ------
    KeyError
        If the file has no array of that name.
    OSError, ValueError, ...
        On all ranks, if reading fails on one rank.

    Cost
    ----
    Each byte is read by one rank. Along replicating mesh dimensions every rank reads a section, and
    the ranks exchange the sections. Peak memory is then twice the blocks of the array being read.

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


def _placed(placements: ManyPlacements | None, name: str, shape: Shape) -> Placements | None:
    """Return the placements of one array."""
    if isinstance(placements, Mapping):
        return placements.get(name)
    if callable(placements):
        return placements(name, shape)
    return placements
