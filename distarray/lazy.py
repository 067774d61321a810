"""Loading on first use: public names (PEP 562), and libraries that are extras."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["lazy_names", "load_operations", "needs"]


#: Loads the operations of arrays; set by the package, which knows the rooms.
loader: list[Callable[[], None]] = []


def load_operations() -> None:
    """Register the operations of arrays, NumPy's file functions included; arrays need them."""
    for load in loader:
        load()


def lazy_names(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package whose names make or take arrays.

    Parameters
    ----------
    package : str
        Its ``__name__``.
    homes : mapping of str to str
        The module in which each public name is defined.
    """
    names = vars(sys.modules[package])

    def getattribute(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = names[name] = getattr(import_module(home), name)
        load_operations()
        return value

    def listed() -> list[str]:
        return sorted({*names, *homes})

    return getattribute, listed


def needs(module: str, extra: str = "io") -> Any:
    """Import a library that comes with an extra of this package.

    Raises
    ------
    ImportError
        If it is not installed; the message names the extra.
    """
    try:
        return import_module(module)
    except ImportError as missing:
        if missing.name is None or missing.name.partition(".")[0] != module.partition(".")[0]:
            raise
        raise ImportError(
            f"this needs {module.partition('.')[0]}, which is not installed: "
            f"pip install 'distarray-mpi[{extra}]'",
            name=missing.name,
        ) from None
