"""Files of arrays, of which each rank reads and writes its own block.

:func:`open` returns the arrays of a file without reading their elements, :func:`read` reads them,
:func:`write` writes. The file's name determines the format: see :mod:`distarray.io.formats`. Names
are loaded on first use. Importing this package starts no MPI and loads no library for any format.
"""

from typing import TYPE_CHECKING

from distarray.lazy import lazy_names

if TYPE_CHECKING:
    from distarray.io.opening import File, Variable, open, read
    from distarray.io.writing import write

__all__ = ["File", "Variable", "open", "read", "write"]

#: Prefix of this package's functions in reports (see :mod:`distarray.comm.waits.stacks`).
SHOWN_AS = "distarray.io."

_HOMES = {
    "File": "distarray.io.opening",
    "Variable": "distarray.io.opening",
    "open": "distarray.io.opening",
    "read": "distarray.io.opening",
    "write": "distarray.io.writing",
}

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
