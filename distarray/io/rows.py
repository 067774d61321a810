"""What NumPy's functions do with files, registered; the code comes when one is called.

Importing this registers a function for each that imports the real one: programs that touch no
files need not wait for what reads and writes them.
"""

from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from inspect import signature
from typing import Any

import numpy as np

from distarray.array import DistArray, Objects, implements

__all__ = ["HOMES"]

#: Where the function is that stands behind one of NumPy's.
HOMES: dict[Callable[..., Any], str] = {
    np.save: "distarray.io.npy",
    np.savez: "distarray.io.npz",
    np.savez_compressed: "distarray.io.npz",
    np.savetxt: "distarray.io.text",
    np.loadtxt: "distarray.io.text",
    np.genfromtxt: "distarray.io.text",
    np.fromfile: "distarray.io.raw",
    DistArray.tofile: "distarray.io.raw",
}
#: Those that make arrays, and take the one that NumPy was handed as ``like=``.
_MAKING = {np.loadtxt, np.genfromtxt, np.fromfile}


def _found(home: str, name: str) -> Any:
    return getattr(import_module(home), name)


def _register(function: Callable[..., Any], home: str) -> None:
    name = function.__name__

    def late(*args: Any, **kwargs: Any) -> Any:
        return _found(home, name)(*args, **kwargs)

    late.__name__ = late.__qualname__ = name
    late.__doc__ = function.__doc__
    with suppress(ValueError):  # before NumPy 2.4 what is written in C has none
        late.__signature__ = signature(function)  # type: ignore[attr-defined]
    implements(function, like=function in _MAKING, objects=Objects.ENGINE)(late)


for _function, _home in HOMES.items():
    _register(_function, _home)
