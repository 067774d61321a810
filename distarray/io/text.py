"""Numbers in text: ``numpy.savetxt``, ``loadtxt`` and ``genfromtxt``, each rank some of the lines.

What is written is formatted, and what is read is parsed, by NumPy itself on each rank's lines.
"""

from collections.abc import Iterator
from io import StringIO
from locale import getpreferredencoding
from numbers import Integral
from typing import Any

import numpy as np
from numpy.lib.npyio import DataSource

from distarray.array import DistArray, as_distarray, common_mesh
from distarray.array.movement import moved
from distarray.comm import DeviceMesh
from distarray.comm.files import open_file
from distarray.io.contiguous_reading import Placements
from distarray.io.encodings import PACKED, is_piecewise
from distarray.io.input_files import origin_of, read_by_each
from distarray.io.output_files import target_for, write_through
from distarray.io.text_lines import parsed, spread
from distarray.layout import Layout, Shard

__all__ = ["fromregex", "genfromtxt", "loadtxt", "savetxt"]

# NumPy's stubs know these by overloads that arguments handed on do not match.
_savetxt: Any = np.savetxt
_loadtxt: Any = np.loadtxt
_genfromtxt: Any = np.genfromtxt

#: Elements that a rank formats at a time.
_BATCH = 1 << 16


def savetxt(
    fname: Any,
    X: Any,
    fmt: Any = "%.18e",
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
        In one or two dimensions, laid out anyhow.
    fmt, delimiter, newline, header, footer, comments, encoding
        As in NumPy.

    Cost
    ----
    Every rank formats and writes its share of the lines, in rounds of 65,536 elements a rank: rows
    that other ranks hold are sent, and one allgather a round tells how long the lines are. Below
    that, into file objects and into compressed files, rank 0 writes what it gathers.
    """
    x = as_distarray(X, common_mesh(X))
    form = {"fmt": fmt, "delimiter": delimiter, "newline": newline}
    marks = {"header": header, "footer": footer, "comments": comments}
    ends, error = ("", ""), None
    try:
        ends = _ends(x, form, marks)
    except Exception as caught:
        error = caught
    mesh, said = x.mesh, form | marks | {"encoding": encoding}
    target = target_for("numpy.savetxt", fname, {"X": X}, mesh, said, error=error)
    if mesh.coords is None:
        return
    is_open = hasattr(fname, "write")
    if target.one and _is_worth(target.file, x, encoding):
        _together(target.file, x, ends, form, encoding)
        return

    def write(file: Any, everywhere: bool) -> Exception | None:
        coded = _Coded.of(file, encoding or "latin1") if is_open else file
        return _in_turn(coded, x, ends, form, everywhere)

    write_through(target, write, mesh, None if is_open else _opener(target.file, encoding))


def _ends(x: DistArray, form: dict[str, Any], marks: dict[str, str]) -> tuple[str, str]:
    """What stands before the rows and after them."""
    if not 1 <= x.ndim <= 2:
        raise ValueError(f"Expected 1D or 2D array, got {x.ndim}D array instead")
    hollow = np.empty((0, *x.shape[1:]), x.dtype)
    head, tail = ({**marks, other: ""} for other in ("footer", "header"))
    return _text(hollow, form | head), _text(hollow, form | tail)


def _is_worth(path: str, x: DistArray, encoding: str | None) -> bool:
    """Whether all ranks should write."""
    several = x.mesh.size() > 1 and x.size > _BATCH and not x.dtype.hasobject
    return several and is_piecewise(encoding) and not path.endswith(PACKED)


def _opener(path: str, encoding: str | None) -> Any:
    """What opens a path for writing text, compressed if its name says so."""

    def opened() -> Any:
        open(path, "w").close()  # a data source opens what there is
        return DataSource(None).open(path, "wt", encoding=encoding)

    return opened


class _Coded:
    """A file that takes text, or bytes if it takes no text."""

    def __init__(self, file: Any, encoding: str) -> None:
        self._file, self._encoding, self._takes_text = file, encoding, True

    @classmethod
    def of(cls, file: Any, encoding: str) -> "_Coded | None":
        """The file as one that takes text; None for None."""
        return None if file is None else cls(file, encoding)

    def write(self, text: str) -> None:
        """Write text."""
        if self._takes_text:
            try:
                self._file.write(text)
                return
            except TypeError:
                self._takes_text = False
        self._file.write(text.encode(self._encoding))


def _text(rows: Any, form: dict[str, Any]) -> str:
    """Rows as NumPy formats them."""
    buffer = StringIO(newline="")
    _savetxt(buffer, rows, **form)
    return buffer.getvalue()


def _batches(x: DistArray, ranks: int) -> Iterator[DistArray]:
    """The array in whole rows, so many elements for each rank."""
    width = x.size // max(1, x.shape[0])
    rows = ranks * max(1, _BATCH // max(1, width))
    rest = tuple([(0, 1, extent) for extent in x.shape[1:]])
    for start in range(0, x.shape[0], rows):
        yield x.sliced(((start, 1, min(rows, x.shape[0] - start)), *rest))


def _in_turn(
    file: Any, x: DistArray, ends: tuple[str, str], form: dict[str, Any], everywhere: bool
) -> Exception | None:
    """Write lines to this rank's file, if it has one; brings back what went wrong."""
    error: Exception | None = None

    def write(text: str) -> Exception | None:
        try:
            file.write(text)
        except Exception as caught:
            return caught
        return None

    if file is not None and ends[0]:
        error = write(ends[0])
    mesh = x.mesh
    for view in _batches(x, 1):
        layout = Layout.replicated(view.shape, mesh.shape)
        if not everywhere:
            layout = Layout.lone(view.shape, mesh.shape, mesh.coords_of(0))
        rows = mesh.to_host(moved(view.block, view.layout, layout, mesh))
        if file is not None and error is None:
            text, error = _formatted(rows, form)
            error = error or write(text)
    if file is not None and ends[1] and error is None:
        error = write(ends[1])
    return error


def _formatted(rows: Any, form: dict[str, Any]) -> tuple[str, Exception | None]:
    try:
        return _text(rows, form), None
    except Exception as caught:
        return "", caught


def _together(
    path: str, x: DistArray, ends: tuple[str, str], form: dict[str, Any], encoding: str | None
) -> None:
    """Write a file of lines, every rank its own; collective."""
    mesh, coding = x.mesh, encoding or getpreferredencoding(False)
    error: Exception | None = None
    with open_file(mesh.group, path, "w") as file:
        first = ends[0].encode(coding)
        file.write_all(0, first if mesh.rank == 0 else None)
        place = len(first)
        for view in _batches(x, mesh.size()):
            target = Layout.chunked(view.shape, mesh.shape, [Shard(0)] * len(mesh.shape))
            rows = mesh.to_host(moved(view.block, view.layout, target, mesh))
            data = b""
            if len(rows) and error is None:
                data, error = _encoded(rows, form, coding)
            lengths = mesh.group.allgather(np.array(len(data)), "lengths of lines")
            file.write_all(place + int(lengths[: mesh.rank].sum()), data)
            place += int(lengths.sum())
        file.write_all(place, ends[1].encode(coding) if mesh.rank == 0 else None)
        file.agree(error)


def _encoded(rows: Any, form: dict[str, Any], coding: str) -> tuple[bytes, Exception | None]:
    text, error = _formatted(rows, form)
    try:
        return text.encode(coding), error
    except UnicodeError as caught:
        return b"", error or caught


def loadtxt(
    fname: Any,
    dtype: Any = float,
    comments: Any = "#",
    delimiter: str | None = None,
    converters: Any = None,
    skiprows: int = 0,
    usecols: Any = None,
    unpack: bool = False,
    ndmin: int = 0,
    encoding: Any = None,
    max_rows: int | None = None,
    *,
    quotechar: str | None = None,
    like: Any = None,
    mesh: DeviceMesh | None = None,
    placements: Placements = None,
) -> Any:
    """The numbers of a text file; see :func:`numpy.loadtxt`.

    Parameters
    ----------
    fname : path-like, file object or iterable of lines
        One path, equal on all ranks; or what each rank has, with the same content.
    dtype, comments, delimiter, converters, skiprows, usecols, unpack, ndmin, encoding, max_rows, \
    quotechar
        As in NumPy.
    like : DistArray, optional
        Gives the mesh if `mesh` does not.
    mesh : DeviceMesh, optional
        The default mesh if not given.
    placements : sequence of Placement, optional
        As for :func:`distarray.distribute`.

    Cost
    ----
    Of a file of a mebibyte and more, every rank reads and parses the lines in its share of the
    bytes; they learn from one another how many rows there are, and rows move to where they belong.
    With `max_rows` or `quotechar`, of compressed files, of what is no path, and after a mistake in
    the text, which NumPy then names by its line, every rank reads all.
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
    if max_rows is None and quotechar is None and not _is_open_kind(kind):
        shape = {"ndmin": 1 if kind.names else 2}
        own = parsed(origin, _loadtxt, words | shape, int(skiprows), "skiprows", mesh)
    if own is None:
        values = read_by_each(call, lambda: _loadtxt(fname, **words, **rest), mesh)
        return spread(values, mesh, placements)
    return spread(_shaped(own, ndmin, unpack), mesh, placements)


def _is_open_kind(kind: np.dtype[Any]) -> bool:
    """Whether the data type of the result depends on all of the text, or is an unusual one."""
    return kind.hasobject or kind.subdtype is not None or (kind.kind in "SUMm" and not kind.names)


def _shaped(x: Any, ndmin: int, unpack: bool) -> Any:
    """Rows as NumPy returns them: without needless dimensions, perhaps by columns."""
    if x.ndim > ndmin:
        x = np.squeeze(x)
    if x.ndim < ndmin:
        x = np.atleast_1d(x) if ndmin == 1 else np.atleast_2d(x).T
    if not unpack:
        return x
    return [x[name] for name in x.dtype.names] if x.dtype.names is not None else x.T


def genfromtxt(
    fname: Any,
    dtype: Any = float,
    comments: Any = "#",
    delimiter: Any = None,
    skip_header: int = 0,
    skip_footer: int = 0,
    converters: Any = None,
    missing_values: Any = None,
    filling_values: Any = None,
    usecols: Any = None,
    names: Any = None,
    excludelist: Any = None,
    deletechars: str = " !#$%&'()*+,-./:;<=>?@[\\]^{|}~",
    replace_space: str = "_",
    autostrip: bool = False,
    case_sensitive: Any = True,
    defaultfmt: str = "f%i",
    unpack: bool | None = None,
    usemask: bool = False,
    loose: bool = True,
    invalid_raise: bool = True,
    max_rows: int | None = None,
    encoding: Any = None,
    *,
    ndmin: int = 0,
    like: Any = None,
    mesh: DeviceMesh | None = None,
    placements: Placements = None,
) -> Any:
    """The values of a text file, with some missing; see :func:`numpy.genfromtxt`.

    A masked array (`usemask`) comes back as NumPy's, the same on every rank.

    Cost
    ----
    As :func:`numpy.loadtxt`. Every rank reads all, too, where the names or types of the columns are
    to be found in the text (``names=True``, ``dtype=None``), rows at the end are left out, a
    masked array is wanted, or fields without `usecols` leave open how many columns there are.
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
    piecewise = (
        dtype is not None and names is not True and not skip_footer and not usemask
        and max_rows is None and invalid_raise and not _is_open_kind(np.dtype(dtype))
        # Columns that have no field are dropped, and yet all lines must have as many of them.
        and (usecols is not None or np.dtype(dtype).names is None)
        and not _counts_from_the_end(usecols)  # of the first line, which another rank may have
    )  # fmt: skip
    rest = {
        "skip_header": skip_header, "skip_footer": skip_footer, "unpack": unpack,
        "usemask": usemask, "max_rows": max_rows, "ndmin": ndmin,
    }  # fmt: skip
    call = "numpy.genfromtxt"
    origin = origin_of(call, fname, mesh, {**words, **rest, "placements": placements})
    if piecewise:
        columns = words | {"ndmin": 2}
        own = parsed(origin, _genfromtxt, columns, int(skip_header), "skip_header", mesh)
        if own is not None:
            return spread(_shaped(own, ndmin, bool(unpack)), mesh, placements)
    values = read_by_each(call, lambda: _genfromtxt(fname, **words, **rest), mesh)
    return values if usemask else spread(values, mesh, placements)


def _counts_from_the_end(usecols: Any) -> bool:
    """Whether columns are chosen by negative numbers."""
    return any(isinstance(column, Integral) and column < 0 for column in np.ravel(usecols).tolist())


def fromregex(file: Any, regexp: Any, dtype: Any, encoding: Any = None) -> Any:
    """Records that a regular expression finds in a file; see :func:`numpy.fromregex`.

    Cost
    ----
    Every rank reads the whole file.
    """
    mesh, call = common_mesh(), "numpy.fromregex"
    origin_of(call, file, mesh, {"regexp": regexp, "dtype": dtype, "encoding": encoding})
    values = read_by_each(call, lambda: np.fromregex(file, regexp, dtype, encoding), mesh)
    return spread(values, mesh, None)
