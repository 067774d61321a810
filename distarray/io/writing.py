"""Writing of files of arrays, in any format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from distarray.array import DistArray
from distarray.array.creation import as_distarray, common_mesh
from distarray.comm import DeviceMesh
from distarray.comm.same_call import same_call
from distarray.io.file_paths import PathLike, local_path
from distarray.io.fingerprints import options_said, path_said, value_words
from distarray.io.formats import check_options, find_format, format_of_name, module_of
from distarray.io.rank_zero import on_rank_zero
from distarray.typing import ArrayLike

__all__ = ["write"]

_CALL = "distarray.io.write"


def write(
    path: PathLike,
    arrays: ArrayLike | Mapping[str, ArrayLike],
    *,
    mesh: DeviceMesh | None = None,
    format: str | None = None,
    **options: Any,
) -> None:
    """Write arrays to a file, completely or not at all; collective.

    The file is written under a temporary name in the same directory, brought to disk, and renamed.
    Hence at any time either the old file or the complete new file exists.

    Parameters
    ----------
    path : str or path-like
        The file; replaced if it exists.
    arrays : DistArray, array_like, or mapping of str to these
        The arrays by name; for a format with a single array without a name, the array itself. NumPy
        arrays and numbers must be equal on all ranks.
    mesh : DeviceMesh, optional
        The mesh whose ranks write; by default the mesh of the arrays.
    format : str, optional
        By default the format is determined by the ending of the name.
    **options
        Options of the format, such as compression and attributes.

    Raises
    ------
    OSError, TypeError, ...
        On all ranks, if writing fails on one rank.

    Cost
    ----
    Each element is written once. In formats that several processes can write at the same time, no
    message is sent if blocks end at the boundaries of stored chunks. In other formats all elements
    are sent to rank 0, in pieces of 32 MiB.

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
    named: dict[str, ArrayLike] = dict(arrays) if isinstance(arrays, Mapping) else {"": arrays}
    mesh = common_mesh(*named.values()) if mesh is None else mesh
    name, placed, error = "", {}, None
    words: dict[str, str] = {}
    try:
        name = local_path(path)
        _check_names(named, isinstance(arrays, Mapping))
        words = {key: value_words(value) for key, value in named.items()}
        placed = {key: _as_array(key, value, mesh) for key, value in named.items()}
    except Exception as caught:
        error = caught
    said = [path_said(name), *options_said({**options, "format": format})]
    order = same_call(mesh.group, _CALL, said, words, error).order
    known = format_of_name(name, format) or on_rank_zero(mesh.group, lambda: find_format(name))
    check_options(known, "write_file", options, _CALL)
    module_of(known).write_file(name, {key: placed[key] for key in order}, mesh, **options)


def _check_names(names: Iterable[object], given: bool) -> None:
    """Raise if a key is not a valid name of an array."""
    for key in names:
        if not isinstance(key, str) or (not key and given):
            raise TypeError(f"{_CALL}: names of arrays are str and not empty: {key!r}")
        if "\0" in key:
            raise ValueError(f"{_CALL}: a name has no null character: {key!r}")
        if any("\ud800" <= letter <= "\udfff" for letter in key):
            raise ValueError(f"{_CALL}: a name is text that UTF-8 can encode: {key!r}")


def _as_array(name: str, value: ArrayLike, mesh: DeviceMesh) -> DistArray:
    """Convert a value to a DistArray; raise if its elements are Python objects."""
    x = as_distarray(value, mesh)
    if x.dtype.hasobject:
        raise TypeError(
            f"{_CALL}: {name or 'the array'} has dtype {x.dtype}: Python objects have no form in "
            "files; convert it with x.astype(...)"
        )
    return x
