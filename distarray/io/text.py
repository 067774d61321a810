"""Numbers in text: ``numpy.savetxt``, ``loadtxt`` and ``genfromtxt``; ranks divide the lines.

On each rank NumPy itself formats and parses the lines.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from gzip import GzipFile
from importlib import import_module
from io import BufferedWriter, StringIO, TextIOWrapper
from locale import getpreferredencoding
from numbers import Integral
from typing import IO, Any, TypeAlias

import numpy as np

from distarray.array import DistArray, as_distarray, common_mesh
from distarray.array.like import obeys_like
from distarray.array.movement import moved
from distarray.comm import DeviceMesh
from distarray.comm.files import SharedFile
from distarray.engines.mapping.every_rank import have_effects
from distarray.io.file_errors import tried
from distarray.io.file_paths import FileLike
from distarray.io.input_files import InputFile, origin_of, read_whole
from distarray.io.output_files import target_for, write_file
from distarray.io.text_lines import COMPRESSED, Comments, is_divisible, parsed, spread
from distarray.layout import Layout, Shard
from distarray.typing import Array, ArrayLike, DType, DTypeLike, Placements

__all__ = ["fromregex", "genfromtxt", "loadtxt", "savetxt"]

# NumPy's stubs have overloads that do not match forwarded arguments.
_savetxt: Any = np.savetxt
_loadtxt: Any = np.loadtxt
_genfromtxt: Any = np.genfromtxt

Converter: TypeAlias = Callable[[Any], Any]
#: Selection of columns by name or number.
Columns: TypeAlias = int | str | Sequence[int | str] | None
#: Values or functions for columns, by column or in the order of the columns.
ByColumn: TypeAlias = Mapping[Any, Any] | Sequence[Any] | str | None

#: Number of elements that a rank formats at a time.
_BATCH = 1 << 16


def savetxt(
    fname: FileLike,
    X: ArrayLike,
    fmt: str | Sequence[str] = "%.18e",
    delimiter: str = " ",
    newline: str = "\n",
    header: str = "",
    footer: str = "",
    comments: str = "# ",
    encoding: str | None = None,
) -> None:
    """Save an array as text, with the same bytes as :func:`numpy.savetxt`.

    Parameters
    ----------
    fname : path-like or file object
        As for :func:`numpy.save` of distributed arrays.
    X : DistArray
        An array of one or two dimensions and any layout.
    fmt, delimiter, newline, header, footer, comments, encoding
        As in NumPy.

    Cost
    ----
    Every rank formats and writes its share of the lines, in rounds of 65,536 elements per rank: the
    holders send rows to the rank that writes them, and one allgather per round exchanges the
    lengths of the text. Rank 0 gathers and writes smaller arrays, file objects and compressed
    files.
    """
    x = as_distarray(X, common_mesh(X))
    form = {"fmt": fmt, "delimiter": delimiter, "newline": newline}
    marks = {"header": header, "footer": footer, "comments": comments}
    ends = ("", "")
    error: Exception | None = None
    try:
        ends = _ends(x, form, marks)
    except Exception as caught:
        error = caught
    mesh, said = x.mesh, form | marks | {"encoding": encoding}
    target = target_for("numpy.savetxt", fname, {"X": X}, mesh, said, error=error)
    if mesh.coords is None:
        return
    is_open = hasattr(fname, "write")
    path = "" if is_open else os.fsdecode(target.file)  # type: ignore[arg-type]

    def write(file: IO[Any] | None, everywhere: bool) -> Exception | None:
        coded = _Encoding(file, encoding or "latin1") if is_open and file is not None else file
        return _write_in_order(coded, x, ends, form, everywhere)

    def together(file: SharedFile) -> None:
        _write_together(file, x, ends, form, encoding)

    worth = not is_open and _is_worth(path, x, encoding)
    write_file(target, mesh, write, together if worth else None, wrap=_wrapping(path, encoding))


def _ends(x: DistArray, form: dict[str, Any], marks: dict[str, str]) -> tuple[str, str]:
    """Return the text before the rows and the text after the rows."""
    if not 1 <= x.ndim <= 2:
        raise ValueError(f"Expected 1D or 2D array, got {x.ndim}D array instead")
    hollow = np.empty((0, *x.shape[1:]), x.dtype)
    head, tail = ({**marks, other: ""} for other in ("footer", "header"))
    return _text(hollow, form | head), _text(hollow, form | tail)


def _is_worth(path: str, x: DistArray, encoding: str | None) -> bool:
    """Return True if all ranks should write: the array is large and the text can be divided."""
    several = x.mesh.size() > 1 and x.size > _BATCH and not x.dtype.hasobject
    return several and is_divisible(encoding) and not path.endswith(COMPRESSED)


def _wrapping(path: str, encoding: str | None) -> Callable[[BufferedWriter], IO[Any]]:
    """Return a function that wraps a binary file for text; compressed by the path's ending."""

    def wrapped(file: BufferedWriter) -> IO[Any]:
        below: Any = file
        match os.path.splitext(path)[1]:
            case ".gz":
                below = GzipFile(path, "wb", fileobj=file)  # stores the name
            case ".bz2":
                below = import_module("bz2").BZ2File(file, "wb")  # not in every Python
            case ".xz" | ".lzma":
                below = import_module("lzma").LZMAFile(file, "wb")
        return TextIOWrapper(below, encoding=encoding)

    return wrapped


class _Encoding:
    """Adapter for a file that accepts text, or bytes if it does not accept text."""

    def __init__(self, file: IO[Any], encoding: str) -> None:
        self._file, self._encoding, self._takes_text = file, encoding, True

    def write(self, text: str) -> None:
        """Write text, encoded if the file does not accept text."""
        if self._takes_text:
            try:
                self._file.write(text)
                return
            except TypeError:
                self._takes_text = False
        self._file.write(text.encode(self._encoding))


def _text(rows: Array, form: Mapping[str, Any]) -> str:
    """Format rows by NumPy."""
    buffer = StringIO(newline="")
    _savetxt(buffer, rows, **form)
    return buffer.getvalue()


def _batches(x: DistArray, ranks: int) -> Iterator[DistArray]:
    """Divide the array into batches of whole rows, with some thousand elements per rank."""
    width = x.size // max(1, x.shape[0])
    rows = ranks * max(1, _BATCH // max(1, width))
    rest = tuple([(0, 1, extent) for extent in x.shape[1:]])
    for start in range(0, x.shape[0], rows):
        yield x.sliced(((start, 1, min(rows, x.shape[0] - start)), *rest))


def _write_in_order(
    file: IO[Any] | _Encoding | None,
    x: DistArray,
    ends: tuple[str, str],
    form: Mapping[str, Any],
    everywhere: bool,
) -> Exception | None:
    """Write lines to this rank's file, if it has one; return the exception or None."""
    error: Exception | None = None
    if file is not None and ends[0]:
        error = tried(file.write, ends[0])
    mesh = x.mesh
    for view in _batches(x, 1):
        layout = Layout.replicated(view.shape, mesh.shape)
        if not everywhere:
            layout = Layout.lone(view.shape, mesh.shape, mesh.coords_of(0))
        rows = mesh.to_host(moved(view.block, view.layout, layout, mesh))
        if file is not None and error is None:
            text, error = _formatted(rows, form)
            error = error or tried(file.write, text)
    if file is not None and ends[1] and error is None:
        error = tried(file.write, ends[1])
    return error


def _formatted(rows: Array, form: Mapping[str, Any]) -> tuple[str, Exception | None]:
    try:
        return _text(rows, form), None
    except Exception as caught:
        return "", caught


def _write_together(
    file: SharedFile,
    x: DistArray,
    ends: tuple[str, str],
    form: Mapping[str, Any],
    encoding: str | None,
) -> None:
    """Write a file of lines, each rank its own lines; collective."""
    mesh, coding = x.mesh, encoding or getpreferredencoding(False)
    error: Exception | None = None
    first = ends[0].encode(coding)
    file.write_at(0, first if mesh.rank == 0 else None)
    place = len(first)
    for view in _batches(x, mesh.size()):
        target = Layout.chunked(view.shape, mesh.shape, [Shard(0)] * len(mesh.shape))
        rows = mesh.to_host(moved(view.block, view.layout, target, mesh))
        data = b""
        if len(rows) and error is None:
            data, error = _encoded(rows, form, coding)
        lengths = mesh.group.allgather(np.array(len(data)), "lengths of lines")
        file.write_at(place + int(lengths[: mesh.rank].sum()), data)
        place += int(lengths.sum())
    file.write_at(place, ends[1].encode(coding) if mesh.rank == 0 else None)
    file.agree(error)


def _encoded(rows: Array, form: Mapping[str, Any], coding: str) -> tuple[bytes, Exception | None]:
    text, error = _formatted(rows, form)
    try:
        return text.encode(coding), error
    except UnicodeError as caught:
        return b"", error or caught


@obeys_like(np.loadtxt)
def loadtxt(
    fname: InputFile,
    dtype: DTypeLike | None = float,
    comments: Comments = "#",
    delimiter: str | None = None,
    converters: Mapping[int, Converter] | Converter | None = None,
    skiprows: int = 0,
    usecols: int | Sequence[int] | None = None,
    unpack: bool = False,
    ndmin: int = 0,
    encoding: str | None = None,
    max_rows: int | None = None,
    *,
    quotechar: str | None = None,
    like: ArrayLike | None = None,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> DistArray | list[DistArray]:
    """Load the numbers of a text file; see :func:`numpy.loadtxt`.

    Parameters
    ----------
    fname : path-like, file object or iterable of lines
        A path, equal on all ranks; or a file object or lines on each rank, with the same content.
    dtype, comments, delimiter, converters, skiprows, usecols, unpack, ndmin, encoding, max_rows, \
    quotechar
        As in NumPy.
    like : DistArray, optional
        The array whose mesh is used if `mesh` is not given.
    mesh : DeviceMesh, optional
        The default mesh if neither `mesh` nor `like` is given.
    placements : sequence of Placement, optional
        As for :func:`distarray.distribute`.

    Cost
    ----
    If the file has a mebibyte or more, every rank reads and parses the lines in its share of the
    bytes. One allgather exchanges the numbers of rows, and rows are sent to the ranks that hold
    them. Every rank reads the whole file with `max_rows` or `quotechar`, if the file is compressed
    or not a path, and after an error in the text, so that NumPy's error names the line.
    """
    mesh = common_mesh(like) if mesh is None else mesh
    words = {
        "dtype": dtype, "comments": comments, "delimiter": delimiter, "converters": converters,
        "usecols": usecols, "encoding": encoding,
    }  # fmt: skip
    kind = np.dtype(float if dtype is None else dtype)
    rest = {
        "skiprows": skiprows, "unpack": unpack, "ndmin": ndmin, "max_rows": max_rows,
        "quotechar": quotechar,
    }  # fmt: skip
    call, own = "numpy.loadtxt", None
    origin = origin_of(call, fname, mesh, {**words, **rest, "placements": placements})
    alike = max_rows is None and quotechar is None and not _is_open_kind(kind)
    if alike and not _has_effects(converters, mesh):
        shape = {"ndmin": 1 if kind.names else 2}
        own = parsed(origin, _loadtxt, words | shape, int(skiprows), mesh)
    if own is None:
        values = read_whole(origin, call, lambda: _loadtxt(fname, **words, **rest), mesh)
        return spread(values, mesh, placements)
    return spread(_shaped(own, ndmin, unpack), mesh, placements)


def _has_effects(converters: Any, mesh: DeviceMesh) -> bool:
    """Return True if converters may have side effects: then every rank reads all lines."""
    listed = list(converters.values()) if isinstance(converters, Mapping) else [converters]
    return have_effects([function for function in listed if callable(function)], mesh)


def _is_open_kind(kind: DType) -> bool:
    """Return True if the result's data type depends on the whole text, or is unusual."""
    return kind.hasobject or kind.subdtype is not None or (kind.kind in "SUMm" and not kind.names)


def _shaped(rows: DistArray, ndmin: int, unpack: bool) -> DistArray | list[DistArray]:
    """Reshape rows as NumPy does: squeeze dimensions, and if `unpack` return columns."""
    x: Any = rows  # NumPy's functions return distributed arrays for a distributed array
    if x.ndim > ndmin:
        x = np.squeeze(x)
    if x.ndim < ndmin:
        x = np.atleast_1d(x) if ndmin == 1 else np.atleast_2d(x).T
    if unpack and x.dtype.names is not None:
        return [x[name] for name in x.dtype.names]
    shaped: DistArray = x.T if unpack else x
    return shaped


@obeys_like(np.genfromtxt)
def genfromtxt(
    fname: InputFile,
    dtype: DTypeLike | None = float,
    comments: str | None = "#",
    delimiter: str | int | Sequence[int] | None = None,
    skip_header: int = 0,
    skip_footer: int = 0,
    converters: ByColumn = None,
    missing_values: ByColumn = None,
    filling_values: ByColumn | float = None,
    usecols: Columns = None,
    names: bool | str | Sequence[str] | None = None,
    excludelist: Sequence[str] | None = None,
    deletechars: str = " !#$%&'()*+,-./:;<=>?@[\\]^{|}~",
    replace_space: str = "_",
    autostrip: bool = False,
    case_sensitive: bool | str = True,
    defaultfmt: str = "f%i",
    unpack: bool | None = None,
    usemask: bool = False,
    loose: bool = True,
    invalid_raise: bool = True,
    max_rows: int | None = None,
    encoding: str | None = None,
    *,
    ndmin: int = 0,
    like: ArrayLike | None = None,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> Any:
    """Load the values of a text file, of which some may be missing; see :func:`numpy.genfromtxt`.

    With `usemask` the result is NumPy's masked array, equal on every rank.

    Cost
    ----
    As :func:`numpy.loadtxt`. Every rank also reads the whole file if the text determines names or
    types of the columns (``names=True``, ``dtype=None``), with `skip_footer` or `usemask`, and if
    `dtype` has fields but `usecols` is not given, so that the number of columns is unknown.
    """
    mesh = common_mesh(like) if mesh is None else mesh
    words = {
        "dtype": dtype, "comments": comments, "delimiter": delimiter, "converters": converters,
        "missing_values": missing_values, "filling_values": filling_values, "usecols": usecols,
        "names": names, "excludelist": excludelist, "deletechars": deletechars,
        "replace_space": replace_space, "autostrip": autostrip,
        "case_sensitive": case_sensitive, "defaultfmt": defaultfmt, "loose": loose,
        "invalid_raise": invalid_raise, "encoding": encoding,
    }  # fmt: skip
    rest = {
        "skip_header": skip_header, "skip_footer": skip_footer, "unpack": unpack,
        "usemask": usemask, "max_rows": max_rows, "ndmin": ndmin,
    }  # fmt: skip
    whole = names is True or skip_footer or usemask or max_rows is not None or not invalid_raise
    piecewise = not whole and _has_known_columns(_known_type(dtype), usecols)
    piecewise = piecewise and not _has_effects(converters, mesh)
    call = "numpy.genfromtxt"
    origin = origin_of(call, fname, mesh, {**words, **rest, "placements": placements})
    if piecewise:
        columns = words | {"ndmin": 2}
        own = parsed(origin, _genfromtxt, columns, int(skip_header), mesh)
        if own is not None:
            return spread(_shaped(own, ndmin, bool(unpack)), mesh, placements)
    values = read_whole(origin, call, lambda: _genfromtxt(fname, **words, **rest), mesh)
    return values if usemask else spread(values, mesh, placements)


def _known_type(dtype: DTypeLike) -> DType | None:
    """Return the type of the columns; None if the text or genfromtxt determines it."""
    try:
        return None if dtype is None else np.dtype(dtype)
    except TypeError:  # a list of types
        return None


def _has_known_columns(kind: DType | None, usecols: Columns) -> bool:
    """Return True if a subset of the lines determines the columns and their types.

    Columns without a field are dropped, but all lines must have the same number of columns.
    Negative column numbers count from the end of the first line, which another rank may have.
    """
    if kind is None:
        return False
    counted = usecols is not None or kind.names is None
    return counted and not _is_open_kind(kind) and not _counts_from_the_end(usecols)


def _counts_from_the_end(usecols: Columns) -> bool:
    """Return True if columns are selected by negative numbers."""
    columns: Any = usecols
    return any(isinstance(column, Integral) and column < 0 for column in np.ravel(columns).tolist())


def fromregex(
    file: FileLike,
    regexp: str | bytes | re.Pattern[Any],
    dtype: DTypeLike,
    encoding: str | None = None,
) -> DistArray | list[DistArray]:
    """Load the records that a regular expression finds in a file; see :func:`numpy.fromregex`.

    Cost
    ----
    Every rank reads the whole file.
    """
    mesh, call = common_mesh(), "numpy.fromregex"
    said = {"regexp": regexp, "dtype": dtype, "encoding": encoding}
    origin = origin_of(call, file, mesh, said)
    read: Any = np.fromregex
    values = read_whole(origin, call, lambda: read(file, regexp, dtype, encoding), mesh)
    return spread(values, mesh, None)
