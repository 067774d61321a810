"""Loading on first use: public names (PEP 562) and libraries that are optional extras."""

import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

__all__ = [
    "RANK_VARIABLES",
    "after_import",
    "lazy_names",
    "load_operations",
    "needs",
    "warn_of_old_project",
]


#: Environment variables in which launchers store the rank of a process.
RANK_VARIABLES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")
#: Functions that load the operations of arrays; set by ``distarray/__init__.py``.
loader: list[Callable[[], None]] = []


def load_operations() -> None:
    """Register the operations of arrays, NumPy's file functions included."""
    for load in loader:
        load()


def lazy_names(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package whose names make or take arrays.

    Parameters
    ----------
    package : str
        The package's ``__name__``.
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
    """Import a library that an extra of this package installs.

    Raises
    ------
    ImportError
        If the library is not installed; the error names the extra.
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


def warn_of_old_project(init: str) -> None:
    """Warn if another project's package `distarray` is installed in the same directory.

    On the package index an older project has the name `distarray`. pip does not detect that both
    projects install files in one directory. This function looks for one file of that project, which
    takes some microseconds, instead of its metadata. Only rank 0 of a job warns.

    Parameters
    ----------
    init : str
        The path of the package's ``__init__.py``.
    """
    if not os.path.exists(f"{os.path.dirname(init)}/globalapi/__init__.py"):
        return
    ranks = [os.environ.get(name, "0") for name in RANK_VARIABLES]
    if all(rank == "0" for rank in ranks):
        warnings.warn(
            "the project `distarray` of the package index and this one, `distarray-mpi`, have both "
            f"been installed in {os.path.dirname(init)}, where their files are mixed: "
            "pip uninstall distarray distarray-mpi, and then pip install distarray-mpi",
            stacklevel=3,
        )


class _Awaiting:
    """Finder that finds awaited modules on the path, and calls a function on each after its import.

    The class does not derive from `importlib.abc.MetaPathFinder`: importing that module takes as
    long as importing all modules used here.
    """

    def __init__(self) -> None:
        self.acts: dict[str, Callable[[ModuleType], None]] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of an awaited module; None for other modules."""
        act = self.acts.pop(fullname, None)
        spec = None if act is None else PathFinder.find_spec(fullname, path, target)
        if act is None or spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_act(module: ModuleType) -> None:
            execute(module)
            act(module)

        spec.loader.exec_module = execute_and_act  # type: ignore[method-assign]
        return spec


_awaiting = _Awaiting()


def after_import(name: str, act: Callable[[ModuleType], None]) -> None:
    """Call a function on a module: now if it is loaded, else after its import."""
    module = sys.modules.get(name)
    if module is not None:
        act(module)
        return
    if _awaiting not in sys.meta_path:
        sys.meta_path.insert(0, _awaiting)
    _awaiting.acts[name] = act
