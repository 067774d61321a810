"""Errors that name the file and a remedy, and errors that are kept until all ranks agree."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, ParamSpec

from distarray.errors import DamagedFileError, DistArrayError
from distarray.layout import Box
from distarray.typing import Array

if TYPE_CHECKING:
    from distarray.io.sections import Source

__all__ = ["NamedSource", "as_given", "creating", "reading", "tried"]

P = ParamSpec("P")


def tried(act: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> Exception | None:
    """Call a function; return the exception that it raises, or None."""
    try:
        act(*args, **kwargs)
    except Exception as caught:
        return caught
    return None


@contextmanager
def reading(path: str, what: str) -> Iterator[None]:
    """Convert errors of a format's library to errors that name the file and a remedy.

    Parameters
    ----------
    path : str
    what : str
        Name of the object that is read, for the error text.
    """
    error: Exception
    try:
        yield
        return
    except (ImportError, MemoryError, DistArrayError):
        raise
    except Exception as caught:
        error = caught
    number = getattr(error, "errno", None) or 0  # positive: the system; negative: NetCDF
    if number >= 0 and os.path.basename(path.rstrip("/")) in str(error):
        raise error
    if number > 0:
        raise type(error)(number, os.strerror(number), path) from error
    raise DamagedFileError(
        f"{path}: {what} cannot be read ({type(error).__name__}: {error}). It is damaged, not "
        "complete, or of another format than it seems; write it again, or read a copy"
    ) from error


@contextmanager
def creating(path: str, what: str, whose: str) -> Iterator[None]:
    """Convert a library's error in a creation to an error that names the file and the object.

    Parameters
    ----------
    path : str
    what : str
        Name of the object that is created, for the error text.
    whose : str
        The function that takes the options.
    """
    try:
        yield
    except (TypeError, ValueError, RuntimeError) as error:
        if path in str(error):
            raise
        kind = TypeError if isinstance(error, TypeError) else ValueError
        why = f"{path}: {what} cannot be written: {error}. Options are those of {whose}"
        raise kind(why) from error


def as_given(error: Exception, path: str) -> Exception:
    """Return the error of a file that cannot be opened, with the path that the caller gave."""
    number = error.errno if isinstance(error, OSError) else None
    if number not in (errno.ENOENT, errno.EACCES):
        return error
    return OSError(number, os.strerror(number), path)


class NamedSource:
    """Stored array whose errors name the file.

    Parameters
    ----------
    source : Source
    path, what : str
        The file, and the name of the array in the file.
    """

    __slots__ = ("_path", "_source", "_what", "chunks", "dtype", "shape")

    def __init__(self, source: "Source", path: str, what: str) -> None:
        self._source, self._path, self._what = source, path, what
        self.shape, self.dtype, self.chunks = source.shape, source.dtype, source.chunks

    def read(self, section: Box, out: Array) -> None:
        """Read a box into `out`."""
        with reading(self._path, self._what):
            self._source.read(section, out)
