"""File formats: their modules, and detection of the format by name or by first bytes.

A format's module has two functions:

``open_file(path, mesh, **options) -> Contents``
    Return the stored arrays of a file. Local to a rank; every rank calls the function.
``write_file(path, arrays, mesh, **options) -> None``
    Write a file of named arrays, completely or not at all. Collective over the mesh. `arrays` maps
    names to DistArrays on the mesh; a format without names takes the array with the name "".
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any

from distarray.io.file_paths import is_zarr

__all__ = ["FORMATS", "Format", "check_options", "find_format", "format_of_name", "module_of"]


@dataclass(frozen=True, slots=True)
class Format:
    """File format.

    Attributes
    ----------
    name : str
        Value of the argument ``format=``.
    suffixes : tuple of str
        Endings of file names, lower case.
    module : str
        The module that reads and writes the format; imported at the first use.
    magic : tuple of bytes
        First bytes of the format's files.
    """

    name: str
    suffixes: tuple[str, ...]
    module: str
    magic: tuple[bytes, ...] = ()


#: Magic bytes of NetCDF's classic formats: offsets of 32 bits, of 64 bits, and sizes of 64 bits.
_CLASSIC = (b"CDF\x01", b"CDF\x02", b"CDF\x05")
FORMATS: tuple[Format, ...] = (
    Format("hdf5", (".h5", ".hdf5", ".he5", ".hdf"), "distarray.io.hdf5", (b"\x89HDF\r\n\x1a\n",)),
    Format("netcdf", (".nc", ".nc4", ".cdf"), "distarray.io.netcdf", _CLASSIC),
    Format("zarr", (".zarr", ".zarr.zip"), "distarray.io.zarr"),
    Format("npy", (".npy",), "distarray.io.npy", (b"\x93NUMPY",)),
    Format("npz", (".npz",), "distarray.io.npz"),
    Format("safetensors", (".safetensors", ".safetensors.index.json"), "distarray.io.safetensors"),
)


def find_format(path: str, name: str | None = None) -> Format:
    """Return the format that the caller names, else that of the path's ending or content.

    Raises
    ------
    ValueError
        If the format cannot be determined; the error lists the formats.
    """
    known = format_of_name(path, name)
    if known is not None:
        return known
    if is_zarr(path):
        return find_format(path, "zarr")
    start = _first_bytes(path)
    for known in FORMATS:
        if known.magic and start.startswith(known.magic):
            return known
    endings = ", ".join(s for f in FORMATS for s in f.suffixes)
    raise ValueError(
        f"{path}: neither its ending (known: {endings}) nor its first bytes tell the format; "
        f"say format=..., one of {_names(FORMATS)}"
    )


def format_of_name(path: str, name: str | None = None) -> Format | None:
    """Return the format that the caller names, else that of the path's ending; None if unknown.

    Raises
    ------
    ValueError
        If no format has the given name.
    """
    if name is not None:
        for known in FORMATS:
            if known.name == name:
                return known
        raise ValueError(f"format={name!r}: the formats are {_names(FORMATS)}")
    lower = path.rstrip("/").lower()
    matches = [(s, f) for f in FORMATS for s in f.suffixes if lower.endswith(s)]
    return max(matches, key=lambda match: len(match[0]))[1] if matches else None


def check_options(known: Format, function: str, options: Mapping[str, Any], call: str) -> None:
    """Raise if a format's function does not take these options.

    Options that a format passes to its library are checked by the library.
    """
    taken = signature(getattr(module_of(known), function)).parameters.values()
    names = [each.name for each in taken if each.kind is each.KEYWORD_ONLY]
    if any(each.kind is each.VAR_KEYWORD for each in taken):
        return
    for name in options:
        if name not in names:
            has = f"its options are {', '.join(names)}" if names else "it has none"
            raise TypeError(f"{call}: {known.name} files have no option {name!r}; {has}")


def module_of(known: Format) -> ModuleType:
    """Import the module of a format."""
    return import_module(known.module)


def _first_bytes(path: str) -> bytes:
    if "://" in path or not Path(path).is_file():
        return b""
    with Path(path).open("rb") as file:
        return file.read(16)


def _names(formats: Iterable[Format]) -> str:
    return ", ".join(repr(known.name) for known in formats)
