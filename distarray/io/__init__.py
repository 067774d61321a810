"""Files: arrays that each rank reads and writes its own part of.

:func:`open` gives the arrays of a file without reading them, :func:`read` reads, :func:`write`
writes. The format follows from the file's name: see :mod:`distarray.io.formats`. Names are loaded
on first use; importing this package starts no MPI and loads no library for any format.
"""

from typing import TYPE_CHECKING

from distarray.lazy import lazy_names

if TYPE_CHECKING:
    from distarray.io.opening import File, Variable, open, read
    from distarray.io.writing import write

__all__ = ["File", "Variable", "open", "read", "write"]

#: How users call its functions (see :mod:`distarray.comm.waits.stacks`).
SHOWN_AS = "distarray.io."

_HOMES = {
    "File": "distarray.io.opening",
    "Variable": "distarray.io.opening",
    "open": "distarray.io.opening",
    "read": "distarray.io.opening",
    "write": "distarray.io.writing",
}

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
