"""Zarr stores, in directories or at URLs of fsspec; reading of versions 2 and 3, writing of 3.

Each rank reads and writes its own chunks. By default an array's chunk grid follows its layout, so
that no two ranks write to the same file. A directory gets its final name when its content is on
disk; other stores cannot be renamed.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np

from distarray.array import DistArray
from distarray.comm import DeviceMesh
from distarray.comm.agree import agreed
from distarray.comm.progress import advance
from distarray.config import config
from distarray.errors import DamagedFileError, DistArrayError
from distarray.io import directories
from distarray.io.atomic_file import discarded_on_error
from distarray.io.box_pieces import chunk_aligned_pieces, within
from distarray.io.chunk_grids import files_of, plan_shards
from distarray.io.contents import Contents, Lazy, check_labels, check_tree
from distarray.io.file_errors import creating
from distarray.io.file_paths import is_zarr
from distarray.io.held_files import HeldDirectory
from distarray.io.rank_zero import on_rank_zero
from distarray.io.sections import write_array
from distarray.io.zarr_guard import OwnDirectory, led_elsewhere, own_store, passed_over
from distarray.layout import Box
from distarray.lazy import needs
from distarray.typing import Array, DType, Shape

__all__ = ["open_file", "write_file"]

T = TypeVar("T")
#: Names of the dimensions: one sequence for all arrays, or a sequence by array.
Dims: TypeAlias = Sequence[str] | Mapping[str, Sequence[str]] | None
#: Maximum length of the name of a directory in bytes, on nearly all file systems.
_LONGEST = 255


class _Stored:
    """Array of a store that is read."""

    def __init__(self, array: Any, held: HeldDirectory | None) -> None:
        self._array, self._held = array, held
        self.chunks: Shape = tuple(array.chunks)
        if min(self.chunks, default=1) < 1:
            raise ValueError(f"{array.name} claims to have chunks of shape {self.chunks}")
        self.shape, self.dtype = tuple(array.shape), np.dtype(array.dtype)

    def read(self, section: Box, out: Array) -> None:
        """Decode the chunks of a box, some chunks at a time, directly into `out`."""
        if self._held is not None:
            self._held.check()
        try:
            self._decode(section, out)
            if self._held is not None:  # the chunks must not come from two stores
                self._held.check()
        except (MemoryError, DistArrayError):
            raise
        except Exception as error:
            if getattr(error, "errno", None) is not None:
                raise
            raise DamagedFileError(
                f"{self._array.store_path}: {type(error).__name__}: {error}. A chunk is damaged or "
                "not complete; write the array again, or read a copy"
            ) from error

    def _decode(self, section: Box, out: Array) -> None:
        buffers = needs("zarr.core.buffer", "io").default_buffer_prototype()
        selection = tuple([slice(start, stop) for start, stop in section])
        if not selection:
            out[...] = self._array[()]
        elif out.dtype.kind in "TO" or out.ndim == 0:
            out[...] = self._array[selection]
        else:
            for piece in chunk_aligned_pieces(section, self.chunks, self.dtype.itemsize):
                target = buffers.nd_buffer.from_ndarray_like(out[within(piece, section)])
                selection = tuple([slice(start, stop) for start, stop in piece])
                self._array.get_basic_selection(selection, out=target)
                advance(out[within(piece, section)].nbytes)


def open_file(
    path: str,
    mesh: DeviceMesh,
    *,
    storage_options: Mapping[str, Any] | None = None,
    external: bool = False,
) -> Contents:
    """Return the arrays of a store.

    Parameters
    ----------
    path : str
        A directory, a ``*.zip`` of a directory, or a URL such as ``s3://bucket/field.zarr``.
    mesh : DeviceMesh
        Not used: each rank opens the store by itself.
    storage_options : mapping, optional
        Options of fsspec.
    external : bool
        If True, follow symbolic links in the directory, which may refer to any file.

    Raises
    ------
    FileNotFoundError, ValueError
        If the path is no store.
    """
    zarr = needs("zarr")
    remote = "://" in path
    with ExitStack() as stack:
        place: Any = path
        held, own = None, None
        if path.endswith(".zip") and not remote:
            place = stack.enter_context(closing(zarr.storage.ZipStore(path, mode="r")))
        elif os.path.isdir(path):
            held = stack.enter_context(closing(HeldDirectory(path)))
            if not external:
                place, own = own_store(path), OwnDirectory(path)
        try:
            node = zarr.open(place, mode="r", storage_options=_options(storage_options, remote))
            found = _contents(zarr, node, held, own)
        except MemoryError:
            raise
        except Exception as error:
            if remote or getattr(error, "errno", None) is not None or not is_zarr(path):
                raise
            why = f"{type(error).__name__}: {error}"
            raise DamagedFileError(
                f"{path} is a damaged Zarr store ({why}); write it again, or read a copy"
            ) from error
        found.close = stack.pop_all().close
        return found


def _contents(
    zarr: ModuleType, node: Any, held: HeldDirectory | None, own: OwnDirectory | None
) -> Contents:
    """Return the arrays of a group, or a single array."""
    if isinstance(node, zarr.Array):
        attrs = {"": dict(node.attrs)}
        return Contents({"": _Stored(node, held)}, array_attrs=attrs)
    members = dict(sorted(node.members(max_depth=None)))
    found = {name: each for name, each in members.items() if isinstance(each, zarr.Array)}
    refused = {} if own is None else led_elsewhere(own, members)
    found = {name: each for name, each in found.items() if name not in refused}
    dims = {name: _dims(array) for name, array in found.items()}
    groups = [name for name in members if name not in found and name not in refused]
    if held is not None:
        refused |= passed_over(held.path, ["", *groups], members, own)
    return Contents(
        Lazy(found, lambda name: _Stored(found[name], held)),
        attrs=dict(node.attrs),
        dims={name: names for name, names in dims.items() if names},
        array_attrs={name: dict(array.attrs) for name, array in found.items()},
        refused=refused,
    )


def _dims(array: Any) -> tuple[str, ...]:
    names = getattr(array.metadata, "dimension_names", None)
    return tuple([name or "" for name in names]) if names else ()


def _options(storage_options: Mapping[str, Any] | None, remote: bool) -> dict[str, Any] | None:
    """Return the options for fsspec; None for a directory, which fsspec does not open."""
    return dict(storage_options) if storage_options and remote else None


def write_file(
    path: str,
    arrays: Mapping[str, DistArray],
    mesh: DeviceMesh,
    *,
    chunks: Shape | Mapping[str, Shape] | None = None,
    shards: Shape | Mapping[str, Shape] | None = None,
    compressor: Any = "zstd",
    checksum: bool = True,
    attrs: Mapping[str, Any] | None = None,
    dims: Dims = None,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Write a Zarr v3 store; each rank writes its own chunks; collective.

    Parameters
    ----------
    path : str
        A directory, replaced if it is a Zarr store, or a URL.
    arrays : mapping of str to DistArray
        The arrays by name; slashes make groups. An array named "" is stored without a group.
    mesh : DeviceMesh
        The mesh whose ranks write.
    chunks, shards : tuple of int or mapping of str to tuple, optional
        Shapes of chunks, and of files of several chunks each (the sharding codec). By default every
        rank writes files of at most 8 MiB, in chunks of half that size.
    compressor : {"zstd", "gzip", "blosc", None} or codec of zarr.codecs, or list of these
        The compression of the chunks.
    checksum : bool
        If True, store a CRC32C with each chunk.
    attrs : mapping, optional
        Attributes of the store, in JSON.
    dims : sequence of str or mapping of str to sequence, optional
        Names of the dimensions.
    storage_options : mapping, optional
        Options of fsspec.

    Raises
    ------
    FileExistsError
        If `path` exists and is not a Zarr store.
    ValueError
        If `path` ends with ``.zip``: such files are read, not written.
    TypeError
        If Zarr does not support the data type of an array.

    Notes
    -----
    In addition to its block a rank needs up to five times the size of a file, 40 MiB by default.
    Larger `shards` make fewer files and need more memory.

    A directory is written under a temporary name and renamed. For other stores (URLs) an old store
    is removed first, and a killed job leaves an unfinished store.
    """
    needs("zarr")
    if mesh.coords is None:
        return
    remote = "://" in path
    _check(path, arrays, dims)
    final = Path(os.path.realpath(path))
    place = path if remote else str(on_rank_zero(mesh.group, lambda: _begin(final)))
    with discarded_on_error(place, path, mesh.rank == 0 and not remote):
        grids = {
            name: _grid(x, _for_array(chunks, name), _for_array(shards, name))
            for name, x in arrays.items()
        }
        codecs = agreed(mesh.group, lambda: _codecs(compressor, checksum))
        options = _options(storage_options, remote)
        new = _New(path, place, attrs or {}, dims, options)
        on_rank_zero(mesh.group, lambda: _create(new, arrays, grids, codecs))
        for name, x in arrays.items():
            chunk, file = grids[name]
            write_array(_Written(new, name, file or chunk), x)
        on_rank_zero(mesh.group, lambda: None if remote else _commit(Path(place), final))


class _New(NamedTuple):
    """New store: its final path and the path where it is made, attributes, dims, options."""

    path: str
    place: str
    attrs: Mapping[str, Any]
    dims: Dims
    options: Mapping[str, Any] | None


def _check(path: str, arrays: Mapping[str, DistArray], dims: Dims) -> None:
    """Raise if the arrays cannot be stored at this path."""
    if path.endswith(".zip"):
        raise ValueError(
            f"{path}: all ranks write a Zarr store at once, which a zip file cannot be; write a "
            "directory, and pack it with zip -0 -r"
        )
    if list(arrays) != [""]:
        check_tree(path, arrays)
    for name in arrays:
        parts = name.split("/")
        reserved = "\\" in name or not {"zarr.json", ".."}.isdisjoint(parts)
        if reserved or any(len(os.fsencode(part)) > _LONGEST for part in parts):
            raise ValueError(f"{path}: {name!r} is no name in a Zarr store; rename it")
    if isinstance(dims, Mapping):
        check_labels(arrays, dims)


class _Written:
    """Array of a new store that is written; opened at the first write."""

    writers: Literal["all"] = "all"

    def __init__(self, store: _New, name: str, chunks: Shape) -> None:
        self._store, self._name, self.chunks = store, name, chunks

    @cached_property
    def _array(self) -> Any:
        try:
            return needs("zarr").open_array(
                self._store.place,
                path=self._name,
                mode="r+",
                storage_options=self._store.options,
            )
        except FileNotFoundError:
            raise FileNotFoundError(
                f"{self._store.place}: another rank finds nothing where rank 0 has made the store; "
                "write to a place that all ranks see (memory:// is one process's own)"
            ) from None

    def write(self, section: Box, block: Array) -> None:
        """Encode and write the chunks of a box."""
        self._array[tuple([slice(start, stop) for start, stop in section])] = block
        advance(block.nbytes)


def _begin(final: Path) -> Path:
    directories.recover(final)
    if (
        os.path.lexists(final)
        and not is_zarr(str(final))
        and (not final.is_dir() or os.listdir(final))
    ):
        raise FileExistsError(f"{final} exists and is no Zarr store; nothing has been written")
    if not final.parent.is_dir():
        raise FileNotFoundError(f"cannot write {final}: there is no directory {final.parent}")
    return directories.begin(final)


def _commit(aside: Path, final: Path) -> None:
    if config.durable:
        directories.flush_all(aside)
    directories.commit(aside, final)


def _for_array(given: T | Mapping[str, T] | None, name: str) -> T | None:
    """Return the caller's argument for one array."""
    return given.get(name) if isinstance(given, Mapping) else given


def _grid(x: DistArray, chunks: Shape | None, shards: Shape | None) -> tuple[Shape, Shape | None]:
    """Return the shape of the chunks, and the shape of the shards or None."""
    if chunks is None and shards is None:
        layout = x.layout.settled()
        chunk, file = files_of(plan_shards(layout, x.itemsize)[0], x.itemsize)
        return chunk, None if file == chunk else file
    for lengths in (chunks, shards):
        if lengths is not None and len(lengths) != x.ndim:
            raise ValueError(
                f"an array of shape {x.shape} has {x.ndim} dimensions; chunks and shards give one "
                f"length for each, unlike {tuple(lengths)}"
            )
        if lengths is not None and min(lengths, default=1) < 1:
            raise ValueError(f"chunks and shards are of one element at least, not {tuple(lengths)}")
    whole = tuple([max(1, n) for n in x.shape])
    return tuple(chunks or shards or whole), None if shards is None else tuple(shards)


def _codecs(compressor: Any, checksum: bool) -> list[Any]:
    """Return the codecs that convert the bytes of a chunk to the bytes of a file."""
    codecs = needs("zarr.codecs")
    known = {
        "zstd": codecs.ZstdCodec,
        "gzip": codecs.GzipCodec,
        "blosc": codecs.BloscCodec,
    }
    chosen = [] if compressor is None else compressor
    found = []
    for one in chosen if isinstance(chosen, (list, tuple)) else [chosen]:
        if isinstance(one, str) and one not in known:
            raise ValueError(f"compressor={one!r}: one of {', '.join(known)}, None, or a codec")
        found.append(known[one]() if isinstance(one, str) else one)
    return [*found, codecs.Crc32cCodec()] if checksum else found


def _create(
    new: _New,
    arrays: Mapping[str, DistArray],
    grids: Mapping[str, tuple[Shape, Shape | None]],
    codecs: list[Any],
) -> None:
    """Create the store and its arrays, without chunks; on one rank."""
    zarr = needs("zarr")
    alone = list(arrays) == [""]
    attributes = dict(new.attrs)
    common = {"zarr_format": 3, "storage_options": new.options}
    if not alone:
        zarr.create_group(new.place, attributes=attributes, overwrite=True, **common)
    for name, x in arrays.items():
        chunks, shards = grids[name]
        dtype = _type_for(name, x.dtype)
        with creating(new.path, f"array {name!r}", "distarray.io.zarr.write_file"):
            zarr.create_array(
                new.place,
                name=name or None,
                shape=x.shape,
                dtype=dtype,
                chunks=chunks,
                shards=shards,
                compressors=codecs,
                attributes=attributes if alone else None,
                dimension_names=_for_array(new.dims, name),
                overwrite=alone,
                **common,
            )


def _type_for(name: str, dtype: DType) -> DType:
    """Return an array's data type for Zarr, which has one of NumPy's two 64-bit integer types."""
    plain = np.dtype(dtype.str) if dtype.kind in "iu" else dtype
    try:
        kind = needs("zarr.dtype").parse_dtype(plain, zarr_format=3)
        written = kind.to_json_scalar(kind.default_scalar(), zarr_format=3)  # the fill value
        kind.from_json_scalar(written, zarr_format=3)  # raises for times without a unit
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"{name or 'the array'} has dtype {dtype}, which Zarr has no type for ({error}); "
            "convert it with x.astype(...) or, of records, write x[field] one by one"
        ) from None
    return plain
