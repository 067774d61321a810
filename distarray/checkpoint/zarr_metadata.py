"""Zarr v3 metadata of the arrays in a checkpoint: writing, and parsing of untrusted metadata.

A checkpoint uses a small subset of Zarr: a regular grid of chunks in shards of one or several
chunks. A chunk consists of the bytes of its elements and a CRC32C. All readers of Zarr v3 support
this subset.
"""

import base64
import re
import sys
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from distarray.errors import CheckpointError
from distarray.io.chunk_grids import Grid
from distarray.typing import DType, Shape

__all__ = [
    "CHECK",
    "Json",
    "Stored",
    "array_json",
    "dtype_from",
    "dtype_name",
    "many",
    "parse_array",
]

#: Value that has been parsed from untrusted JSON.
Json: TypeAlias = dict[str, Any] | list[Any] | str | float | bool | None

#: Size of a CRC32C in bytes.
CHECK = 4
_MOST_DIMS = 64
_LARGEST_INDEX = 1 << 26
_NUMBERS = {
    name: np.dtype(name)
    for name in (
        "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
        "float16", "float32", "float64", "complex64", "complex128",
    )
}  # fmt: skip
_NAT = -(1 << 63)


class Stored(NamedTuple):
    """Array in a checkpoint.

    Attributes
    ----------
    name : str
        The array's directory relative to the checkpoint's, with slashes.
    dtype : numpy.dtype
    grid : Grid
    """

    name: str
    dtype: DType
    grid: Grid

    @property
    def shape(self) -> Shape:
        """Shape of the array."""
        return self.grid.shape

    @property
    def nbytes(self) -> int:
        """Size of the elements in bytes."""
        return prod(self.grid.shape) * self.dtype.itemsize

    @property
    def chunk_bytes(self) -> int:
        """Size of a chunk in a file in bytes, without its checksum."""
        return prod(self.grid.chunk) * self.dtype.itemsize

    @property
    def chunks_a_file(self) -> int:
        """Maximum number of chunks in a file."""
        return prod(self.grid.chunks)

    @property
    def files(self) -> int:
        """Number of files of chunks."""
        return prod(self.grid.shards) if self.nbytes else 0

    @property
    def chunk_count(self) -> int:
        """Number of chunks."""
        counts = [-(-n // c) for n, c in zip(self.grid.shape, self.grid.chunk)]
        return prod(counts) if self.nbytes else 0

    @property
    def index_bytes(self) -> int:
        """Size of the index at the end of a file in bytes; 0 if shards have a single chunk."""
        return 16 * self.chunks_a_file + CHECK if self.grid.chunked else 0

    def present(self, shard: tuple[int, ...]) -> int:
        """Return the number of chunks of a shard that are within the array."""
        box = self.grid.shard_box(shard)
        return prod([-(-(b - a) // c) for (a, b), c in zip(box, self.grid.chunk)])

    def file_bytes(self, shard: tuple[int, ...]) -> int:
        """Return the size of the file of a shard in bytes."""
        return self.present(shard) * (self.chunk_bytes + CHECK) + self.index_bytes

    @staticmethod
    def file_name(shard: tuple[int, ...]) -> str:
        """Return the name of the file of a shard, within the array's directory."""
        return ".".join(["c", *map(str, shard)])


def dtype_name(dtype: DType) -> str | list[Any]:
    """Describe a data type in JSON: a NumPy string, a list of fields, or a name of ml_dtypes."""
    if dtype.kind == "V" and dtype.type is not np.void:
        return f"{dtype.type.__module__.partition('.')[0]}.{dtype.name}"
    described: Any = np.lib.format.dtype_to_descr(dtype)
    return described if isinstance(described, str) else [_listed(entry) for entry in described]


def _listed(described: Any) -> Any:
    """Convert a description of fields to the form that JSON returns: tuples become lists."""
    if isinstance(described, (list, tuple)):
        return [_listed(entry) for entry in described]
    return described


def _tupled(fields: Any) -> Any:
    """Invert `_listed`: return a list of fields, each a tuple."""
    if isinstance(fields, str):
        return fields
    return [
        (entry[0], _tupled(entry[1]), *[tuple(shape) for shape in entry[2:]]) for entry in fields
    ]


def dtype_from(described: Json) -> DType:
    """Parse the description of a data type by :func:`dtype_name`.

    Raises
    ------
    CheckpointError
        If the description is not a data type, or the type has Python objects.
    """
    try:
        if isinstance(described, str) and re.fullmatch(r"ml_dtypes\.\w{3,30}", described):
            import ml_dtypes

            dtype: DType = np.dtype(getattr(ml_dtypes, described.partition(".")[2]))
        elif isinstance(described, (str, list)):
            dtype = np.lib.format.descr_to_dtype(_tupled(described))
        else:
            raise TypeError("neither a string nor a list of fields")
    except ImportError:
        raise CheckpointError(
            f"data type {described!r} needs ml_dtypes: pip install ml_dtypes"
        ) from None
    except Exception as error:
        raise CheckpointError(f"{str(described)[:80]!r} is not a data type: {error}") from None
    if dtype.hasobject:
        raise CheckpointError(f"data type {dtype} has Python objects, which are never loaded")
    return dtype


def array_json(stored: Stored) -> dict[str, Any]:
    """Return the content of ``zarr.json`` of an array."""
    data_type, fill, attributes = _data_type(stored.dtype)
    order = stored.dtype.byteorder
    endian = "big" if order == ">" or (order == "=" and sys.byteorder == "big") else "little"
    plain = [{"name": "bytes", "configuration": {"endian": endian}}, {"name": "crc32c"}]
    grid, codecs = stored.grid, plain
    if grid.chunked:
        inner = {
            "chunk_shape": list(grid.chunk),
            "codecs": plain,
            "index_codecs": [
                {"name": "bytes", "configuration": {"endian": "little"}},
                {"name": "crc32c"},
            ],
            "index_location": "end",
        }
        codecs = [{"name": "sharding_indexed", "configuration": inner}]
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(grid.shape),
        "data_type": data_type,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(grid.shard)}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},
        "fill_value": fill,
        "codecs": codecs,
        "attributes": attributes,
        "storage_transformers": [],
    }


def _data_type(dtype: DType) -> tuple[Any, Any, dict[str, Any]]:
    """Return Zarr's data type, its fill value, and attributes for types that Zarr lacks."""
    if dtype.name in _NUMBERS:
        zero: Any = {"b": False, "f": 0.0, "c": [0.0, 0.0]}.get(dtype.kind, 0)
        return dtype.name, zero, {}
    if dtype.kind in "mM":
        unit, count = np.datetime_data(dtype)
        name = "numpy.datetime64" if dtype.kind == "M" else "numpy.timedelta64"
        configuration = {"unit": unit, "scale_factor": count}
        return {"name": name, "configuration": configuration}, _NAT, {}
    if dtype.kind in "US" and dtype.itemsize:
        name = "fixed_length_utf32" if dtype.kind == "U" else "null_terminated_bytes"
        return {"name": name, "configuration": {"length_bytes": dtype.itemsize}}, "", {}
    length = max(1, dtype.itemsize)
    raw = {"name": "raw_bytes", "configuration": {"length_bytes": length}}
    fill = base64.b64encode(bytes(length)).decode()
    return raw, fill, {"dtype": dtype_name(dtype)}


def parse_array(name: str, metadata: Any) -> Stored:
    """Parse the metadata of an array, which must be equal to the output of :func:`array_json`.

    Raises
    ------
    CheckpointError
        If the metadata differ from it, or contain lengths or counts that are not possible.
    """
    try:
        stored = _parsed(name, metadata)
        again = array_json(stored)
    except CheckpointError as error:
        raise CheckpointError(f"array {name!r}: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise CheckpointError(f"array {name!r}: its metadata are malformed ({error!r})") from None
    if again != metadata:
        raise CheckpointError(f"array {name!r}: its metadata are not those of a checkpoint")
    if stored.index_bytes > _LARGEST_INDEX:
        raise CheckpointError(
            f"array {name!r} claims {stored.chunks_a_file} chunks a file, which no save makes"
        )
    return stored


def _parsed(name: str, metadata: Mapping[str, Any]) -> Stored:
    shape = _extents(metadata["shape"], 0)
    shard = _extents(metadata["chunk_grid"]["configuration"]["chunk_shape"], 1)
    codecs = metadata["codecs"]
    chunk = shard
    if codecs[0]["name"] == "sharding_indexed":
        inner = codecs[0]["configuration"]
        chunk, codecs = _extents(inner["chunk_shape"], 1), inner["codecs"]
    if not len(shape) == len(shard) == len(chunk) or any(s % c for s, c in zip(shard, chunk)):
        raise CheckpointError(f"chunks {chunk} of shards {shard} do not divide shape {shape}")
    order: Any = ">" if codecs[0]["configuration"]["endian"] == "big" else "<"
    dtype = _dtype_of(metadata["data_type"], metadata["attributes"])
    ordered = dtype.newbyteorder(order)
    if "dtype" not in metadata["attributes"] and ordered != dtype:
        dtype = ordered  # else kept: an explicit native order changes NumPy's text of the type
    return Stored(name, dtype, Grid(shape, shard, chunk))


def _extents(values: Json, least: int) -> Shape:
    if not isinstance(values, list) or len(values) > _MOST_DIMS:
        raise CheckpointError("a shape is a list of at most 64 lengths")
    for value in values:
        if type(value) is not int or not least <= value < 1 << 62:
            raise CheckpointError(f"a length of {value!r} is not possible")
    if prod(values) >= 1 << 62:
        raise CheckpointError(f"{'x'.join(map(str, values))} elements are not possible")
    return tuple(values)


def _dtype_of(data_type: str | dict[str, Any], attributes: Mapping[str, Any]) -> DType:
    if isinstance(data_type, str):
        if data_type not in _NUMBERS:
            raise CheckpointError(f"data type {data_type[:80]!r} is not one that is saved")
        return _NUMBERS[data_type]
    name, configuration = data_type["name"], data_type["configuration"]
    if name in ("numpy.datetime64", "numpy.timedelta64"):
        return _time_dtype(name, configuration)
    length = configuration["length_bytes"]
    if type(length) is not int or not 0 < length < 1 << 31:
        raise CheckpointError(f"elements of {length!r} bytes are not possible")
    if name == "fixed_length_utf32":
        return np.dtype(f"U{length // 4}")
    if name == "null_terminated_bytes":
        return np.dtype(f"S{length}")
    dtype = dtype_from(attributes["dtype"])
    if max(1, dtype.itemsize) != length:
        raise CheckpointError(f"{dtype} has not the {length} bytes that are claimed")
    return dtype


def _time_dtype(name: str, configuration: Mapping[str, Any]) -> DType:
    kind, unit = "M" if name == "numpy.datetime64" else "m", configuration["unit"]
    if unit == "generic":
        return np.dtype(f"{kind}8")
    return np.dtype(f"{kind}8[{int(configuration['scale_factor'])}{unit}]")


def many(names: Sequence[str], most: int = 5) -> str:
    """Return the text of a list of names, shortened to `most` names, for error texts."""
    shown = ", ".join(map(repr, names[:most]))
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")
