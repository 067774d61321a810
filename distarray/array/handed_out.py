"""Detection of programs that may access blocks of cut arrays, by the names in their code.

One rank alone may ask for its block and write to it. Ranks that cache elements of that block would
not notice, and could find out only by a message. So nothing is cached if the program might do that:
if a function that runs, or a module of the program, uses one of the names listed below.
"""

import sys
from collections.abc import Iterator, Mapping
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

from distarray.array.passed import passed
from distarray.comm.user_lines import is_house, is_installed, is_library, of_program, passage

__all__ = ["hand_out", "names_blocks"]

#: Names of functions and attributes that expose blocks to the program.
_NAMES = frozenset({"to_local", "block", "from_dlpack", "__dlpack__"})
_NAMES |= {"map_blocks", "map_overlap", "local_map"}
#: Name of the module whose tensors share memory with blocks.
_TENSORS = f"{__name__.partition('.')[0]}.torch"


def hand_out() -> None:
    """Count that the block of a cut array is exposed to the program."""
    passed.number += 1
    passed.exports += 1


def names_blocks(names: frozenset[str] = _NAMES) -> bool:
    """Return True if the program's code uses a name that exposes blocks, or Python is interactive.

    It is also True for the default names once the module of tensors is imported.
    """
    if _TENSORS in sys.modules and names is _NAMES:
        return True
    if hasattr(sys, "ps1"):
        return True
    frame: Any = sys._getframe(1)
    while frame is not None:
        ours = is_house(frame) or is_library(frame)
        if not ours and (_has_names(frame.f_code, names) or _any_has(frame.f_globals, names)):
            return True
        frame = frame.f_back
    return any(_any_has(vars(module), names) for module in _modules())


def _modules() -> Iterator[Any]:
    """Yield the program's modules: not those of this library, of other libraries or of Python."""
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if not isinstance(path, str) or passage(name):
            continue
        if name.partition(".")[0] in of_program or not is_installed(path):
            yield module


def _any_has(scope: Mapping[str, Any], names: frozenset[str]) -> bool:
    """Return True if functions or classes that a module itself defines use one of the names."""
    name = scope.get("__name__")
    own = [x for x in list(scope.values()) if getattr(x, "__module__", None) == name]
    return any(_has_names(code, names) for value in own for code in _codes(value))


def _codes(value: Any) -> Iterator[CodeType]:
    """Yield the code objects of a function, or of a class's methods."""
    if isinstance(value, type):
        for item in list(vars(value).values()):
            if not isinstance(item, type):
                yield from _codes(item)
        return
    for found in (value, getattr(value, "__func__", None), getattr(value, "fget", None)):
        while isinstance(found, FunctionType):
            yield found.__code__
            found = getattr(found, "__wrapped__", None)


@lru_cache(maxsize=4096)
def _has_names(code: CodeType, names: frozenset[str] = _NAMES) -> bool:
    inner = [item for item in code.co_consts if isinstance(item, CodeType)]
    return not names.isdisjoint(code.co_names) or any(_has_names(item, names) for item in inner)
