"""Imports: the program's own modules get ``distarray.numpy`` as ``numpy``, all others get NumPy.

Each module of the program gets its own ``__builtins__``, whose ``__import__`` returns
``distarray.numpy`` for ``import numpy``. The interpreter takes ``__import__`` from the builtins of
the importing frame. So libraries, which have the ordinary builtins, get the real NumPy.
`belongs_to_program` recognizes the program's code by the builtins of its frame.
"""

import builtins
import importlib
import importlib.util
import os
import stat
import sys
import sysconfig
from collections.abc import Callable, Collection, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from distarray.comm.user_lines import of_program

__all__ = [
    "ProgramFinder",
    "belongs_to_program",
    "install",
    "program_builtins",
    "replace",
    "replace_builtin",
    "when_imported",
]

_real_import = builtins.__import__
_real_import_module = importlib.import_module
_real_lstat = os.lstat

#: Builtins of the program's frames; filled by `install`.
program_builtins = ModuleType("builtins", builtins.__doc__)
#: Builtins of the program that replace Python's own.
_replaced: dict[str, Any] = {}


def replace_builtin(name: str, ours: "Callable[..., Any] | staticmethod[..., Any]") -> None:
    """Replace a builtin function in the program's modules, but not in libraries."""
    _replaced[name] = ours


def belongs_to_program(frame: FrameType) -> bool:
    """Return True if a frame runs code of the program rather than of a library."""
    return frame.f_builtins is program_builtins.__dict__


def install(home: Path, packages: Collection[str] = ()) -> None:
    """Mark the modules below a directory, and those of `packages`, as the program's.

    Parameters
    ----------
    home : Path
        The program's directory; modules found there or below get ``distarray.numpy``.
    packages : collection of str
        Top-level packages anywhere that also belong to the program (``-m package``,
        ``--include package``).
    """
    of_program.update(packages)
    program_builtins.__dict__.update(vars(builtins) | _replaced)
    program_builtins.__dict__["__import__"] = program_import
    importlib.import_module = import_module
    index = next((i for i, f in enumerate(sys.meta_path) if f is PathFinder), len(sys.meta_path))
    sys.meta_path.insert(index, ProgramFinder(home, packages))


def program_import(
    name: str,
    globals: Mapping[str, object] | None = None,
    locals: Mapping[str, object] | None = None,
    fromlist: Sequence[str] | None = (),
    level: int = 0,
) -> ModuleType:
    """Import a module; the ``__import__`` of the program's modules."""
    if level or not _is_numpy(name) or _by_c_code(fromlist):
        found = _real_import(name, globals, locals, fromlist or (), level)
        for imported in [known for known in _awaited if known in sys.modules]:
            _awaited.pop(imported)(sys.modules[imported])
        return found if level else _views.get(name, found)
    module = drop_in(name)
    if not fromlist:
        return sys.modules["distarray.numpy"]
    for item in fromlist:
        if item != "*":
            _import_member(module, name, item)
    return module


class _View(ModuleType):
    """Module as the program sees it: some names are replaced, all others are the module's own."""

    def __init__(self, real: ModuleType, names: dict[str, Any]) -> None:
        vars(self).update(__name__=real.__name__, __doc__=real.__doc__, _real=real, **names)

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["_real"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(vars(self)["_real"], name, value)

    def __dir__(self) -> list[str]:
        return dir(vars(self)["_real"])


_views: dict[str, ModuleType] = {}


def replace(module: ModuleType, **names: Any) -> None:
    """Give the program other objects for some names of a module; libraries keep the module's."""
    _views[module.__name__] = _View(module, names)


_awaited: dict[str, Callable[[ModuleType], None]] = {}


def when_imported(name: str, act: Callable[[ModuleType], None]) -> None:
    """Call a function on a library after the program has imported it."""
    _awaited[name] = act


def drop_in(name: str) -> ModuleType:
    """Return the module that replaces ``numpy`` or a submodule of it.

    Raises
    ------
    ImportError
        If `distarray.numpy` has no such module. The real one would compute on this rank alone, or
        gather, without a warning. (Where that does no harm, `distarray.numpy` has the real one, as
        in ``np.testing``.)
    """
    namespace = _real_import_module("distarray.numpy")
    parts = name.split(".")[1:]
    if not parts:
        return namespace
    try:
        member = getattr(namespace, parts[0])
    except AttributeError as error:
        raise ModuleNotFoundError(f"no module {name!r}: {error}", name=name) from None
    if not isinstance(member, ModuleType):
        raise ModuleNotFoundError(f"no module {name!r}: distarray.{name} is not one", name=name)
    if len(parts) > 1 and parts[0] == "testing":
        return _real_import_module(name)  # ours has only the public names
    for number, part in enumerate(parts[1:], 1):
        inner = vars(member).get(part)
        if not isinstance(inner, ModuleType):
            return _real_import_module(".".join([member.__name__, *parts[number:]]))
        member = inner
    return member


def import_module(name: str, package: str | None = None) -> ModuleType:
    """Import a module for the program or for a library, as `importlib.import_module`."""
    if belongs_to_program(sys._getframe(1)):
        if _is_numpy(name):
            return drop_in(name)
        if name in _views:
            return _views[name]
    return _real_import_module(name, package)


def _is_numpy(name: str) -> bool:
    return name == "numpy" or name.startswith("numpy.")


def _by_c_code(fromlist: Sequence[str] | None) -> bool:
    """Return True if C code (NumPy's own) imports while a line of the program runs.

    Such an import also uses the ``__import__`` of the frame, with an empty list where an import
    statement passes a tuple or None.
    """
    return type(fromlist) is list and not fromlist


def _import_member(module: ModuleType, name: str, item: str) -> None:
    """Import an attribute or submodule for ``from numpy import item``, or raise with the reason."""
    try:
        getattr(module, item)
    except AttributeError as error:
        full = f"{module.__name__}.{item}"
        if hasattr(module, "__path__") and importlib.util.find_spec(full):
            _real_import_module(full)
            return
        where = getattr(module, "__file__", None)
        raise ImportError(
            f"cannot import name {item!r} from {name!r}: {error}", name=name, path=where
        ) from None


class ProgramLoader(SourceFileLoader):
    """Loader that runs a module of the program with the program's builtins."""

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module."""
        module.__dict__["__builtins__"] = program_builtins.__dict__
        super().exec_module(module)


class ProgramFinder(MetaPathFinder):
    """Finder that finds modules as Python does, and marks those of the program."""

    def __init__(self, home: Path, packages: Collection[str] = ()) -> None:
        self.home = home.resolve()
        self.packages = frozenset(packages)
        paths = sysconfig.get_paths()
        library = {Path(paths[key]).resolve() for key in ("stdlib", "platstdlib")}
        library |= {Path(paths[key]).resolve() for key in ("purelib", "platlib")}
        #: Libraries that may be below the program's directory (a virtual environment, this
        #: package).
        self.libraries = {path for path in library if path != self.home}
        self.libraries.add(Path(__file__).resolve().parent.parent)
        #: Directories in which modules have been found; True for those of the program.
        self._directories: dict[str, bool] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module's spec; the loader of a module of the program is a `ProgramLoader`."""
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or type(spec.loader) is not SourceFileLoader:
            return spec
        if spec.origin and self.is_program(fullname, spec.origin):
            spec.loader = ProgramLoader(fullname, spec.origin)
        return spec

    def is_program(self, fullname: str, origin: str) -> bool:
        """Return True if a module belongs to the program rather than to a library."""
        if fullname.partition(".")[0] in self.packages:
            return True
        if stat.S_ISLNK(_real_lstat(origin).st_mode):
            return self._is_below_home(Path(origin).resolve().parent)
        directory = os.path.dirname(origin)
        found = self._directories.get(directory)
        if found is None:
            found = self._is_below_home(Path(directory).resolve())
            self._directories[directory] = found
        return found

    def _is_below_home(self, directory: Path) -> bool:
        """Return True if a directory is the program's, and not that of a library below it."""
        parents = [directory, *directory.parents]
        if self.home not in parents or any(library in parents for library in self.libraries):
            return False
        below = parents[: parents.index(self.home)]
        return not any(parent.name in ("site-packages", "dist-packages") for parent in below)
