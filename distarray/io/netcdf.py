"""NetCDF files, by netCDF4: every rank reads, rank 0 writes.

Values are decoded by the rules of the CF conventions that xarray follows: packed integers are
scaled, missing values become NaN. ``decode=False`` returns the stored values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import RLock
from types import ModuleType
from typing import Any, Literal, NamedTuple

import numpy as np

from distarray.array import DistArray
from distarray.comm import DeviceMesh
from distarray.comm.agree import agreed
from distarray.comm.progress import advance
from distarray.io.atomic_file import replacing
from distarray.io.contents import Contents, Lazy, check_labels, check_tree
from distarray.io.file_errors import creating
from distarray.io.netcdf_closing import close_written
from distarray.io.netcdf_guard import check_netcdf
from distarray.io.sections import write_array
from distarray.layout import Box
from distarray.lazy import needs
from distarray.typing import Array, ArrayLike, DType, Shape

__all__ = ["open_file", "write_file"]

#: Lock for all calls of netCDF4, whose C library is not thread-safe.
_lock = RLock()
_MISSING = ("_FillValue", "missing_value")


class _Packing(NamedTuple):
    """Packing of values by the CF conventions; `dtype` is the type of decoded values."""

    dtype: DType
    missing: tuple[Any, ...] = ()
    scale: Any = None
    offset: Any = None
    unsigned: bool = False

    @classmethod
    def of(cls, stored: DType, attrs: Mapping[str, Any]) -> _Packing:
        """Return the packing that a variable's attributes describe."""
        unsigned = attrs.get("_Unsigned") == "true" and stored.kind == "i"
        if unsigned:
            stored = np.dtype(f"{stored.byteorder}u{stored.itemsize}")
        if stored.kind not in "iuf":
            return cls(stored)
        missing: list[Any] = []
        for name in _MISSING:
            missing += np.ravel(np.asarray(attrs.get(name, []))).astype(stored).tolist()
        scale, offset = attrs.get("scale_factor"), attrs.get("add_offset")
        if not missing and scale is None and offset is None:
            return cls(stored, unsigned=unsigned)
        found = _float_for(stored, scale, offset)
        return cls(found, tuple(dict.fromkeys(missing)), scale, offset, unsigned)

    def unpack(self, values: Array, out: Array) -> None:
        """Fill `out` with the decoded values."""
        if self.unsigned:
            values = values.view(values.dtype.str.replace("i", "u"))
        out[...] = values
        absent = np.isin(values, [m for m in self.missing if m == m])  # NaN needs no decoding
        if self.scale is not None:
            out *= self.scale
        if self.offset is not None:
            out += self.offset
        if absent.any():
            out[absent] = np.nan


def _float_for(stored: DType, scale: ArrayLike | None, offset: ArrayLike | None) -> DType:
    """Return the floating-point type of decoded values; xarray chooses the same type.

    The result is the type of scale and offset if these types are equal and can represent the packed
    integers. Otherwise it is single precision if that represents all stored values exactly, and
    double precision if not.
    """
    kinds = [np.asarray(value).dtype for value in (scale, offset) if value is not None]
    if kinds:
        alike = kinds[0] == kinds[-1] and kinds[0] in (np.float32, np.float64)
        if offset is None:
            return kinds[0] if kinds[0].kind == "f" else np.dtype(np.float64)
        wide = stored.kind in "iu" and stored.itemsize >= 4
        if scale is not None and alike and not wide:
            return kinds[0]
        return np.dtype(np.float64)
    narrow = stored.itemsize <= (4 if stored.kind == "f" else 2)
    return np.dtype(np.float32 if narrow else np.float64)


class _Stored:
    """Variable that is read."""

    def __init__(self, variable: Any, decode: bool) -> None:
        self._variable = variable
        self.shape: Shape = tuple([int(n) for n in variable.shape])
        ragged = variable.dtype is str or isinstance(variable.datatype, needs("netCDF4").VLType)
        stored = np.dtype(object if ragged else variable.dtype)
        self._packing = _Packing.of(stored, _attrs(variable)) if decode else _Packing(stored)
        self.dtype: DType = self._packing.dtype
        chunks = variable.chunking()
        self.chunks: Shape | None = tuple(chunks) if isinstance(chunks, list) else None

    def read(self, section: Box, out: Array) -> None:
        """Read a box into `out`, and decode it."""
        with _lock:
            values = self._variable[tuple([slice(start, stop) for start, stop in section])]
        values = np.asarray(values).reshape(out.shape)
        self._packing.unpack(values, out)
        advance(out.nbytes)


def open_file(
    path: str, mesh: DeviceMesh, *, decode: bool = True, external: bool = False
) -> Contents:
    """Return the variables of a file, also of its groups: ``group/variable``.

    Parameters
    ----------
    path : str
        A NetCDF-4 or classic file, or an OPeNDAP URL if the library was built for it.
    mesh : DeviceMesh
        Not used: each rank opens the file by itself.
    decode : bool
        If True, scale packed integers and replace missing values by NaN.
    external : bool
        If True, read other files as well (a NetCDF-4 file, being an HDF5 file, may refer to them)
        and accept every kind of URL. The default is False, since the author of the file chooses
        the other files.

    Raises
    ------
    OtherFileError
        If the file refers to other files: the library opens all of them together.
    """
    netcdf = needs("netCDF4")
    if not external:
        check_netcdf(path)
    with _lock:
        file = netcdf.Dataset(path, "r")
        variables = dict(_variables(file, ""))
        for variable in variables.values():
            variable.set_auto_maskandscale(False)
            variable.set_auto_chartostring(False)
        arrays = {name: _Stored(variable, decode) for name, variable in variables.items()}
        attrs = _attrs(file)
        dims = {name: tuple(variable.dimensions) for name, variable in variables.items()}

    def close() -> None:
        with _lock:
            file.close()

    return Contents(
        arrays, attrs, dims, Lazy(variables, lambda name: _attrs(variables[name])), close
    )


def _variables(group: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for name, variable in group.variables.items():
        yield prefix + name, variable
    for name, below in group.groups.items():
        yield from _variables(below, f"{prefix}{name}/")


def _attrs(item: Any) -> dict[str, Any]:
    with _lock:
        return {name: item.getncattr(name) for name in item.ncattrs()}


class _Target:
    """Variable that is written."""

    chunks = None
    writers: Literal["all", "one"] = "one"

    def __init__(self, variable: Any, path: str) -> None:
        self._variable, self._path = variable, path

    def write(self, section: Box, block: Array) -> None:
        """Write a block to a box."""
        with _lock, _written(self._path):
            self._variable[tuple([slice(start, stop) for start, stop in section])] = block
        advance(block.nbytes)


def write_file(
    path: str,
    arrays: Mapping[str, DistArray],
    mesh: DeviceMesh,
    *,
    dims: Mapping[str, tuple[str, ...]] | None = None,
    attrs: Mapping[str, Any] | None = None,
    array_attrs: Mapping[str, Mapping[str, Any]] | None = None,
    chunks: tuple[int, ...] | None = None,
    **options: Any,
) -> None:
    """Write a NetCDF-4 file of variables, completely or not at all; collective.

    Parameters
    ----------
    path : str
        The file, replaced if it exists.
    arrays : mapping of str to DistArray
        The arrays by name. An array with the same name as its only dimension is a coordinate.
    mesh : DeviceMesh
        The mesh whose ranks hold the arrays; rank 0 writes.
    dims : mapping of str to tuple of str, optional
        Names of the dimensions, by array; by default ``<array>_0``, ...
    attrs, array_attrs : mapping, optional
        Attributes of the file; attributes of the arrays by name.
    chunks : tuple of int, optional
        Chunk shape of arrays with the same number of dimensions.
    **options
        Options of `netCDF4.Dataset.createVariable`, such as ``compression="zlib"``.

    Raises
    ------
    ValueError
        If a dimension has different lengths in two arrays, or `dims` does not fit an array.
    """
    if "" in arrays:
        raise TypeError(
            f"{path}: variables in a NetCDF file have names; write a dict, {{'name': array}}"
        )
    check_tree(path, arrays)
    check_labels(arrays, dims, array_attrs)
    if chunks is not None:
        options["chunksizes"] = tuple(chunks)
    named, lengths = _dimensions(arrays, dims or {})
    netcdf = agreed(mesh.group, lambda: needs("netCDF4"))
    if mesh.coords is None:
        return

    with (
        replacing(path, mesh.group, writers="one") as aside,
        _opened(netcdf, path, aside, mesh) as file,
    ):
        about = _About(path, named, lengths, attrs or {}, array_attrs or {}, options)
        made = agreed(mesh.group, lambda: _made(file, arrays, about))
        for name, x in arrays.items():
            write_array(_Target(made.get(name), path), x)


class _About(NamedTuple):
    """Description of a new file: path, names and lengths of dimensions, attributes, options."""

    path: str
    named: Mapping[str, tuple[str, ...]]
    lengths: Mapping[str, int]
    attrs: Mapping[str, Any]
    array_attrs: Mapping[str, Mapping[str, Any]]
    options: Mapping[str, Any]


def _made(file: Any, arrays: Mapping[str, DistArray], about: _About) -> dict[str, Any]:
    """Create the variables of a new file; return them by name, an empty dict if not writing."""
    if file is None:
        return {}
    made = {}
    with _lock:
        file.setncatts(dict(about.attrs))
        for dim, length in about.lengths.items():
            with creating(about.path, f"dimension {dim!r}", "netCDF4.Dataset.createDimension"):
                file.createDimension(dim, length)
        for name, x in arrays.items():
            _check_type(name, x.dtype)
            with creating(about.path, f"array {name!r}", "netCDF4.Dataset.createVariable"):
                attrs = about.array_attrs.get(name)
                made[name] = _created(file, name, x, about.named[name], attrs, about.options)
    return made


def _dimensions(
    arrays: Mapping[str, DistArray], dims: Mapping[str, tuple[str, ...]]
) -> tuple[dict[str, tuple[str, ...]], dict[str, int]]:
    """Return the dimension names of each array, and the length of each dimension of the file."""
    named: dict[str, tuple[str, ...]] = {}
    lengths: dict[str, int] = {}
    for name in sorted(arrays, key=lambda name: name not in dims):  # arrays with given names first
        x, found = arrays[name], []
        for number, length in enumerate(x.shape):
            dim = dims[name][number] if name in dims else f"{name.replace('/', '_')}_{number}"
            while name not in dims and lengths.get(dim, length) != length:
                dim += "_"  # another array uses the name
            if lengths.setdefault(dim, length) != length:
                raise ValueError(
                    f"dimension {dim!r} has length {lengths[dim]} in one array and {length} in "
                    f"{name!r}"
                )
            found.append(dim)
        named[name] = tuple(found)
    return named, lengths


def _check_type(name: str, dtype: DType) -> None:
    """Raise if NetCDF does not have the data type."""
    if dtype.kind not in "iuf" or dtype.itemsize not in (1, 2, 4, 8) or dtype == np.float16:
        raise TypeError(
            f"{name} has dtype {dtype}, which NetCDF has no type for; convert it with "
            'x.astype("i1") (bool), x.real and x.imag (complex), x.astype("i8") (times)'
        )


def _created(
    file: Any,
    name: str,
    x: DistArray,
    dims: tuple[str, ...],
    attrs: Mapping[str, Any] | None,
    options: Mapping[str, Any],
) -> Any:
    """Create a variable for an array, without writing its elements."""
    values = dict(attrs or {})
    fill = values.pop("_FillValue", None)
    chunks = options.get("chunksizes", ())
    if chunks and (len(chunks) != x.ndim or not x.size):
        options = {key: value for key, value in options.items() if key != "chunksizes"}
    variable = file.createVariable(
        name, x.dtype.newbyteorder("="), dims, fill_value=fill, **options
    )
    variable.set_auto_maskandscale(False)
    variable.setncatts(values)
    return variable


@contextmanager
def _written(path: str = "") -> Iterator[None]:
    """Convert the library's write errors, which do not name the cause, to OSError."""
    try:
        yield
    except RuntimeError as error:
        raise OSError(
            f"{error}: {path or 'the file'} could not be written; is there room left on the disk, "
            "and in your quota?"
        ) from error


@contextmanager
def _opened(netcdf: ModuleType, path: str, name: str, mesh: DeviceMesh) -> Iterator[Any]:
    """Open a new file for writing on rank 0; yield None on the other ranks."""

    def create() -> Any:
        if mesh.rank:
            return None
        with _lock, _written(path):
            try:
                return netcdf.Dataset(name, "w")
            except OSError as error:  # its errno is a guess of the library
                raise RuntimeError(f"NetCDF: {error.strerror}") from error

    def close() -> None:
        with _lock, _written(path):
            if file is not None:
                close_written(file, name)

    file = agreed(mesh.group, create)
    try:
        yield file
    except BaseException:
        with suppress(Exception):
            close()
        raise
    agreed(mesh.group, close)
