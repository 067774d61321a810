"""Numbers in text: ``numpy.savetxt``, ``loadtxt`` and ``genfromtxt``, each rank some of the lines.

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

# NumPy's stubs have overloads, which arguments handed on do not match.
_savetxt: Any = np.savetxt
_loadtxt: Any = np.loadtxt
_genfromtxt: Any = np.genfromtxt

Converter: TypeAlias = Callable[[Any], Any]
#: Columns by name or number.
Columns: TypeAlias = int | str | Sequence[int | str] | None
#: Values or functions by column, or in the order of the columns.
ByColumn: TypeAlias = Mapping[Any, Any] | Sequence[Any] | str | None

#: Elements that a rank formats at a time.
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
    """Save an array as text, byte for byte as NumPy does; see :func:`numpy.savetxt`.

    Parameters
    ----------
    fname : path-like or file object
        As for :func:`numpy.save` of distributed arrays.
    X : DistArray
        In one or two dimensions, of any layout.
    fmt, delimiter, newline, header, footer, comments, encoding
        As in NumPy.

    Cost
    ----
    Every rank formats and writes its share of the lines, in rounds of 65,536 elements a rank: rows
    that other ranks hold are sent, and one allgather a round exchanges the lengths of the lines.
    Smaller arrays, file objects and compressed files are gathered and written by rank 0.
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
    """The text before the rows and the text after them."""
    if not 1 <= x.ndim <= 2:
        raise ValueError(f"Expected 1D or 2D array, got {x.ndim}D array instead")
    hollow = np.empty((0, *x.shape[1:]), x.dtype)
    head, tail = ({**marks, other: ""} for other in ("footer", "header"))
    return _text(hollow, form | head), _text(hollow, form | tail)


def _is_worth(path: str, x: DistArray, encoding: str | None) -> bool:
    """Whether all ranks should write."""
    several = x.mesh.size() > 1 and x.size > _BATCH and not x.dtype.hasobject
    return several and is_divisible(encoding) and not path.endswith(COMPRESSED)


def _wrapping(path: str, encoding: str | None) -> Callable[[BufferedWriter], IO[Any]]:
    """Makes of a binary file one for text, which is compressed if the path says so."""

    def wrapped(file: BufferedWriter) -> IO[Any]:
        below: Any = file
        match os.path.splitext(path)[1]:
            case ".gz":
                below = GzipFile(path, "wb", fileobj=file)  # has the name in it
            case ".bz2":
                below = import_module("bz2").BZ2File(file, "wb")  # some Pythons lack it
            case ".xz" | ".lzma":
                below = import_module("lzma").LZMAFile(file, "wb")
        return TextIOWrapper(below, encoding=encoding)

    return wrapped


class _Encoding:
    """A file that takes text, or bytes if it takes no text."""

    def __init__(self, file: IO[Any], encoding: str) -> None:
        self._file, self._encoding, self._takes_text = file, encoding, True

    def write(self, text: str) -> None:
        """Write text."""
        if self._takes_text:
            try:
                self._file.write(text)
                return
            except TypeError:
                self._takes_text = False
        self._file.write(text.encode(self._encoding))


def _text(rows: Array, form: Mapping[str, Any]) -> str:
    """Rows as NumPy formats them."""
    buffer = StringIO(newline="")
    _savetxt(buffer, rows, **form)
    return buffer.getvalue()


def _batches(x: DistArray, ranks: int) -> Iterator[DistArray]:
    """The array in batches of whole rows, with some thousand elements for each rank."""
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
    """Write lines to this rank's file, if it has one; returns the error, if there is one."""
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
    """Write a file of lines, every rank its own; collective."""
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
    """The numbers of a text file; see :func:`numpy.loadtxt`.

    Parameters
    ----------
    fname : path-like, file object or iterable of lines
        A path, equal on all ranks; or what each rank has opened, with the same content.
    dtype, comments, delimiter, converters, skiprows, usecols, unpack, ndmin, encoding, max_rows, \
    quotechar
        As in NumPy.
    like : DistArray, optional
        By default its mesh is used.
    mesh : DeviceMesh, optional
        The default mesh if not given.
    placements : sequence of Placement, optional
        As for :func:`distarray.distribute`.

    Cost
    ----
    Every rank reads and parses the lines in its share of the bytes, if the file has a mebibyte or
    more; one allgather exchanges the numbers of rows, and rows are sent to where they belong.
    Every rank reads the whole file with `max_rows` or `quotechar`, if it is compressed or not a
    path, and after a mistake in the text, so that NumPy's error names the line.
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
    """Whether converters may leave something behind: every rank then reads all lines."""
    listed = list(converters.values()) if isinstance(converters, Mapping) else [converters]
    return have_effects([function for function in listed if callable(function)], mesh)


def _is_open_kind(kind: DType) -> bool:
    """Whether the data type of the result depends on all of the text, or is an unusual one."""
    return kind.hasobject or kind.subdtype is not None or (kind.kind in "SUMm" and not kind.names)


def _shaped(rows: DistArray, ndmin: int, unpack: bool) -> DistArray | list[DistArray]:
    """Rows as NumPy returns them: without needless dimensions, perhaps by columns."""
    x: Any = rows  # NumPy's functions give distributed arrays for one
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
    """The values of a text file, with some missing; see :func:`numpy.genfromtxt`.

    A masked array (`usemask`) comes back as NumPy's, the same on every rank.

    Cost
    ----
    As :func:`numpy.loadtxt`. Every rank also reads all where the names or types of the columns are
    found in the text (``names=True``, ``dtype=None``), rows at the end are left out, a masked array
    is wanted, or fields without `usecols` leave open how many columns there are.
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
    """The type of the columns; None if it is found in the text, or genfromtxt makes it."""
    try:
        return None if dtype is None else np.dtype(dtype)
    except TypeError:  # a list of types
        return None


def _has_known_columns(kind: DType | None, usecols: Columns) -> bool:
    """Whether some lines alone tell the columns and their types.

    Columns without a field are dropped, and yet all lines must have as many of them. Negative
    numbers count from the end of the first line, which another rank may have.
    """
    if kind is None:
        return False
    counted = usecols is not None or kind.names is None
    return counted and not _is_open_kind(kind) and not _counts_from_the_end(usecols)


def _counts_from_the_end(usecols: Columns) -> bool:
    """Whether columns are chosen by negative numbers."""
    columns: Any = usecols
    return any(isinstance(column, Integral) and column < 0 for column in np.ravel(columns).tolist())


def fromregex(
    file: FileLike,
    regexp: str | bytes | re.Pattern[Any],
    dtype: DTypeLike,
    encoding: str | None = None,
) -> DistArray | list[DistArray]:
    """Records that a regular expression finds in a file; see :func:`numpy.fromregex`.

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
