"""Whether a program may be handed the blocks of cut arrays: what its code names, and who calls.

One rank alone may ask for its block and write to it. Ranks that keep elements of others would not
know, and cannot ask without a message. Therefore they keep none where the program might do that:
where its code has one of the names that stand for it, in a function that runs or in its modules.
"""

import sys
from collections.abc import Iterator, Mapping
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

from distarray.array.passed import passed
from distarray.comm.user_lines import is_house, is_installed, is_library, of_program, passage

__all__ = ["hand_out", "names_blocks"]

#: The names of what hands out blocks.
_NAMES = frozenset({"to_local", "block", "from_dlpack", "__dlpack__"})
_NAMES |= {"map_blocks", "map_overlap", "local_map"}
#: The module of tensors over the same memory.
_TENSORS = f"{__name__.partition('.')[0]}.torch"


def hand_out() -> None:
    """Note that the block of a cut array is handed out."""
    passed.number += 1
    passed.exports += 1


def names_blocks(names: frozenset[str] = _NAMES) -> bool:
    """Whether the program's code has names of what hands out blocks, or it is typed in by hand."""
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
    """The program's modules: neither this library's, nor of other libraries, nor of Python."""
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if not isinstance(path, str) or passage(name):
            continue
        if name.partition(".")[0] in of_program or not is_installed(path):
            yield module


def _any_has(scope: Mapping[str, Any], names: frozenset[str]) -> bool:
    """Whether a module's own functions and classes have names; not those that it imports."""
    name = scope.get("__name__")
    own = [x for x in list(scope.values()) if getattr(x, "__module__", None) == name]
    return any(_has_names(code, names) for value in own for code in _codes(value))


def _codes(value: Any) -> Iterator[CodeType]:
    """The code of a function, or of a class's methods."""
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
