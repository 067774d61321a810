"""Registration of NumPy's functions that read and write files; modules load at the first call.

Each function is registered as a wrapper that imports the implementation, so that programs without
files do not wait for these imports.
"""

from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from inspect import signature
from typing import Any

import numpy as np

from distarray.array import DistArray, Objects, implements

__all__ = ["HOMES"]

#: Modules of the implementations.
HOMES: dict[Callable[..., Any], str] = {
    np.save: "distarray.io.numpy_save",
    np.savez: "distarray.io.numpy_savez",
    np.savez_compressed: "distarray.io.numpy_savez",
    np.savetxt: "distarray.io.text",
    np.loadtxt: "distarray.io.text",
    np.genfromtxt: "distarray.io.text",
    np.fromfile: "distarray.io.raw_binary",
    DistArray.tofile: "distarray.io.raw_binary",
    DistArray.dump: "distarray.io.raw_binary",
}
#: Functions that make arrays and take NumPy's argument ``like=``.
_MAKING = {np.loadtxt, np.genfromtxt, np.fromfile}


def _register(function: Callable[..., Any], home: str) -> None:
    name = function.__name__

    def late(*args: Any, **kwargs: Any) -> Any:
        return getattr(import_module(home), name)(*args, **kwargs)

    late.__name__ = late.__qualname__ = name
    late.__doc__ = function.__doc__
    with suppress(ValueError):  # before NumPy 2.4, functions written in C have no signature
        late.__signature__ = signature(function)  # type: ignore[attr-defined]
    implements(function, like=function in _MAKING, objects=Objects.ENGINE, small=False)(late)


for _function, _home in HOMES.items():
    _register(_function, _home)
