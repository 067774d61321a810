"""The file formats: which of them a name or a file's first bytes stand for, and their modules.

A format's module has two functions:

``open_file(path, mesh, **options) -> Contents``
    The stored arrays of a file. Local to a rank; every rank calls it.
``write_file(path, arrays, mesh, **options) -> None``
    Write a file of named arrays, all or nothing. Collective over the mesh. `arrays` maps names
    to DistArrays on the mesh; a format without names takes the one that is named "".
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
    """One file format.

    Attributes
    ----------
    name : str
        What ``format=`` takes.
    suffixes : tuple of str
        Endings of file names, lower case.
    module : str
        The module that reads and writes it; imported at the first use.
    magic : tuple of bytes
        What its files begin with.
    """

    name: str
    suffixes: tuple[str, ...]
    module: str
    magic: tuple[bytes, ...] = ()


#: The classic formats of NetCDF: with offsets of 32 bits, of 64, and with sizes of 64.
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
    """The format of a path: the one that the caller names, else by its ending or its content.

    Raises
    ------
    ValueError
        If nothing tells the format; names those that there are.
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
    """The format that the caller names, or that of a path's ending; None if neither tells it.

    Raises
    ------
    ValueError
        If there is no format of that name.
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
    """Raise if a format's function takes no such options.

    A library checks the options that a format hands on to it.
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
    """The module of a format."""
    return import_module(known.module)


def _first_bytes(path: str) -> bytes:
    if "://" in path or not Path(path).is_file():
        return b""
    with Path(path).open("rb") as file:
        return file.read(16)


def _names(formats: Iterable[Format]) -> str:
    return ", ".join(repr(known.name) for known in formats)
