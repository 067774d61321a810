"""HDF5 files, read and written by h5py.

With an h5py that was built for MPI all ranks write at the same time. Otherwise rank 0 writes, and
the other ranks send it their blocks: only one process has the file open for writing, so that two
processes cannot damage it. All ranks read in parallel in both cases.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import Any, Literal, NamedTuple

import numpy as np

from distarray.array import DistArray
from distarray.comm import DeviceMesh
from distarray.comm.agree import agreed
from distarray.comm.progress import advance
from distarray.io.atomic_file import replacing
from distarray.io.box_pieces import pieces_of, within
from distarray.io.contents import Contents, Lazy, check_labels, check_tree
from distarray.io.deferred_errors import ErrorDeferringFile
from distarray.io.file_errors import creating
from distarray.io.hdf5_handles import open_shared
from distarray.io.hdf5_links import HDF5Names
from distarray.io.sections import write_array
from distarray.layout import Box
from distarray.lazy import needs
from distarray.typing import Array, DType, Shape

__all__ = ["open_file", "write_file"]

#: Bytes per call of HDF5 if a block must be copied into C order first.
_PIECE = 1 << 25


class _Stored:
    """Dataset that is read."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self.shape: Shape = tuple(dataset.shape or ())
        self.dtype: DType = np.dtype(dataset.dtype)
        self.chunks: Shape | None = dataset.chunks

    def read(self, section: Box, out: Array) -> None:
        """Read a box into `out`."""
        if self._dataset.shape is None:
            raise TypeError(f"{self._dataset.name} is empty, without a shape: there is no array")
        for piece, part in _contiguous(section, out, self.dtype.itemsize):
            key = tuple([slice(start, stop) for start, stop in piece])
            if part.flags.c_contiguous:
                self._dataset.read_direct(part, key)
            else:
                part[...] = self._dataset[key]
            advance(part.nbytes)


class _Target:
    """Dataset that is written."""

    chunks = None

    def __init__(self, dataset: Any, new: "_New", writers: Literal["all", "one"]) -> None:
        self._dataset, self._new = dataset, new
        self.writers: Literal["all", "one"] = writers

    def write(self, section: Box, block: Array) -> None:
        """Write a block to a box."""
        for piece, part in _contiguous(section, block, block.dtype.itemsize):
            key = tuple([slice(start, stop) for start, stop in piece])
            self._dataset[key] = np.asarray(part, order="C").view(self._dataset.dtype)
            self._new.check()
            advance(part.nbytes)


def _contiguous(section: Box, block: Array, itemsize: int) -> Iterator[tuple[Box, Array]]:
    """Yield a block as a whole if it is in C order, else in pieces whose copies are small."""
    if block.flags.c_contiguous:
        yield section, block
        return
    for piece in pieces_of(section, itemsize, _PIECE):
        yield piece, block[within(piece, section)]


def open_file(path: str, mesh: DeviceMesh, *, external: bool = False, **options: Any) -> Contents:
    """Return the datasets of a file, also of its groups: ``group/subgroup/dataset``.

    A dataset has one name for each link to it. Soft links to groups are not followed.

    Parameters
    ----------
    path : str
        A file, or a URL that fsspec can open.
    mesh : DeviceMesh
        Not used: each rank opens the file by itself.
    external : bool
        If True, follow external links, and read datasets that are assembled from other files. The
        default is False, since the author of the file chooses the other files.
    **options
        Options of `h5py.File`; of fsspec if the path is a URL.
    """
    h5py = needs("h5py")
    if "://" in path:
        file, close = _remote(h5py, path, options)
    else:
        file, close = _local(h5py, path, options)
    try:
        found = HDF5Names(h5py, file, external)
    except BaseException:
        close()
        raise
    return Contents(
        Lazy(found.kept, lambda name: _Stored(found.kept[name])),
        dict(file.attrs),
        Lazy(found.kept, lambda name: _dims(found.kept[name])),
        Lazy(found.kept, lambda name: dict(found.kept[name].attrs)),
        close,
        found.refused,
        found.missing,
    )


def _remote(
    h5py: ModuleType, url: str, options: Mapping[str, Any]
) -> tuple[Any, Callable[[], None]]:
    stream = needs("fsspec").open(url, "rb", **options).open()
    file = h5py.File(stream, "r")

    def close() -> None:
        file.close()
        stream.close()

    return file, close


def _local(
    h5py: ModuleType, path: str, options: Mapping[str, Any]
) -> tuple[Any, Callable[[], None]]:
    try:
        return open_shared(h5py, path, **{"locking": "best-effort", **options})
    except TypeError as error:
        raise TypeError(f"{path}: {error}; options are those of h5py.File") from error


def _dims(dataset: Any) -> tuple[str, ...]:
    """Return the names of the dimensions: their labels, else the names of their scales."""
    names = []
    for dim in dataset.dims:
        scale = dim.keys()[0] if len(dim) else ""
        names.append(str(dim.label or scale))
    return tuple(names) if any(names) else ()


def write_file(
    path: str,
    arrays: Mapping[str, DistArray],
    mesh: DeviceMesh,
    *,
    attrs: Mapping[str, Any] | None = None,
    array_attrs: Mapping[str, Mapping[str, Any]] | None = None,
    dims: Mapping[str, tuple[str, ...]] | None = None,
    **options: Any,
) -> None:
    """Write a file of datasets, completely or not at all; collective.

    Parameters
    ----------
    path : str
        The file, replaced if it exists.
    arrays : mapping of str to DistArray
        The arrays by name; a slash in a name makes groups.
    mesh : DeviceMesh
        The mesh whose ranks write.
    attrs, array_attrs : mapping, optional
        Attributes of the file; attributes of the arrays by name.
    dims : mapping of str to tuple of str, optional
        Labels of the dimensions, by array.
    **options
        Options of `h5py.Group.create_dataset`, such as ``chunks=True, compression="gzip"``. They
        are not used for arrays that are empty or without dimensions. A chunk shape is used for
        arrays with the same number of dimensions. With any option rank 0 writes alone.
    """
    if "" in arrays:
        raise TypeError(
            f"{path}: arrays in an HDF5 file have names; write a dict, {{'name': array}}"
        )
    check_tree(path, arrays)
    check_labels(arrays, dims, array_attrs)
    h5py = agreed(mesh.group, lambda: needs("h5py"))
    parallel = bool(h5py.get_config().mpi and hasattr(mesh.group, "comm") and not options)
    writers: Literal["all", "one"] = "all" if parallel else "one"
    if mesh.coords is None:
        return

    with (
        replacing(path, mesh.group, writers=writers) as aside,
        _opened(h5py, path, aside, mesh, parallel) as new,
    ):
        labels = _Labels(attrs or {}, array_attrs or {}, dims or {})
        made = agreed(mesh.group, lambda: _created(h5py, new, path, arrays, labels, options))
        for name, x in arrays.items():
            write_array(_Target(made.get(name), new, writers), x)


class _Labels(NamedTuple):
    """Attributes of a new file and of its arrays, and names of the arrays' dimensions."""

    attrs: Mapping[str, Any]
    array_attrs: Mapping[str, Mapping[str, Any]]
    dims: Mapping[str, tuple[str, ...]]


def _created(
    h5py: ModuleType,
    new: "_New",
    path: str,
    arrays: Mapping[str, DistArray],
    labels: _Labels,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """Create the datasets of a new file; return them by name, an empty dict if not writing."""
    file = new.file
    if file is None:
        return {}
    file.attrs.update(sorted(labels.attrs.items()))
    made = {}
    for name, x in arrays.items():  # in the same order on all ranks
        dtype = _type_for(h5py, name, x.dtype)
        with creating(path, f"array {name!r}", "h5py.Group.create_dataset"):
            made[name] = _dataset(file, name, x, dtype, options)
            for dim, word in zip(made[name].dims, labels.dims.get(name, ())):
                dim.label = word
            made[name].attrs.update(sorted(labels.array_attrs.get(name, {}).items()))
    new.check()
    return made


def _type_for(h5py: ModuleType, name: str, dtype: DType) -> DType:
    """Return the data type of an array in a file."""
    if dtype.kind in "mM":
        opaque: DType = h5py.opaque_dtype(dtype)
        return opaque
    if dtype.kind == "U":
        raise TypeError(
            f"{name} has dtype {dtype}, which HDF5 has no type for; write x.astype('S...'), or "
            "numpy.strings.encode(x)"
        )
    return dtype


def _dataset(file: Any, name: str, x: DistArray, dtype: DType, options: Mapping[str, Any]) -> Any:
    """Create a dataset for an array, without writing its elements."""
    if not x.size or not x.ndim:
        options = {}  # HDF5 has no empty chunks
    chunks = options.get("chunks")
    if isinstance(chunks, tuple) and len(chunks) != x.ndim:
        options = {**options, "chunks": True}
    return file.create_dataset(name, x.shape, dtype, **options)


class _New(NamedTuple):
    """New file that is open for writing.

    Attributes
    ----------
    file : h5py.File or None
        None on the ranks that do not write.
    below : ErrorDeferringFile or None
        The file object that HDF5 writes to; None if it writes in parallel.
    """

    file: Any = None
    below: ErrorDeferringFile | None = None

    def check(self) -> None:
        """Raise the deferred error, if there is one."""
        if self.below is not None:
            self.below.check()

    def close(self) -> None:
        """Close the file; raise its first error, if there is one."""
        try:
            if self.file is not None:
                self.file.close()
        finally:
            if self.below is not None:
                self.below.close()
                self.below.check()


@contextmanager
def _opened(
    h5py: ModuleType, path: str, name: str, mesh: DeviceMesh, parallel: bool
) -> Iterator[_New]:
    """Open a new file for writing, on rank 0 alone or, if `parallel`, on all ranks."""

    def create() -> _New:
        if parallel:
            return _New(h5py.File(name, "w", driver="mpio", comm=mesh.comm()))
        if mesh.rank:
            return _New()
        below = ErrorDeferringFile(name, path)
        return _New(h5py.File(below, "w"), below)

    new = agreed(mesh.group, create)
    try:
        yield new
    except BaseException:
        with suppress(Exception):
            new.close()
        raise
    agreed(mesh.group, new.close)
