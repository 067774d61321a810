"""Files: arrays that each rank reads and writes its own part of.

:func:`open` gives the arrays of a file without reading them, :func:`read` reads, :func:`write`
writes. The format follows from the file's name: see :mod:`distarray.io.formats`. Names are loaded
on first use; importing this package starts no MPI and loads no library for any format.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distarray.io.handles import File, Variable, open, read, write

__all__ = ["File", "Variable", "open", "read", "write"]

_HOMES = {
    "File": "distarray.io.handles",
    "Variable": "distarray.io.handles",
    "open": "distarray.io.handles",
    "read": "distarray.io.handles",
    "write": "distarray.io.handles",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'distarray.io' has no attribute {name!r}")
    import_module("distarray.ops")  # an array without its operations is of no use
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
