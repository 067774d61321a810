"""Side effects visible in the bytecode of a function: its assignments, and the names it reads."""

import dis
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType
from typing import NamedTuple

from distarray.engines.mapping.known_effects import is_pure_import

__all__ = ["Facts", "read_code"]

#: Instructions without an effect of their own.
_SILENT = frozenset({"CACHE", "COPY_FREE_VARS", "EXTENDED_ARG", "NOP", "PUSH_NULL", "RESUME"})
_ATTRIBUTES = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_NAMES = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})
_CELLS = frozenset({"LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"})
#: Instructions with a side effect, and the text that describes it.
_WRITES = {
    "STORE_GLOBAL": "it assigns to the global name",
    "DELETE_GLOBAL": "it deletes the global name",
    "STORE_NAME": "it assigns to the name",
    "DELETE_NAME": "it deletes the name",
    "STORE_ATTR": "it assigns to an attribute,",
    "DELETE_ATTR": "it deletes an attribute,",
    "STORE_DEREF": "it assigns to an outer function's name",
    "DELETE_DEREF": "it deletes an outer function's name",
    "LOAD_BUILD_CLASS": "it makes a class",
}
#: Methods that set attributes of a newly created object.
_MAKERS = frozenset({"__init__", "__post_init__"})


class Facts(NamedTuple):
    """Facts about a function from its bytecode.

    Attributes
    ----------
    effect : str or None
        A side effect that the function certainly has.
    reads : tuple
        Names from outside, each with the attributes that the function reads, for example
        ("np", "random", "rand").
    """

    effect: str | None
    reads: tuple[tuple[str, ...], ...]


@lru_cache(maxsize=1024)
def read_code(code: CodeType) -> Facts:
    """Collect the facts about a function and about functions defined in its code."""
    reads: dict[tuple[str, ...], None] = {}
    outer = frozenset(code.co_freevars)
    for part in _parts(code):
        effect = _read(part, outer, reads)
        if effect is not None:
            return Facts(effect, ())
    return Facts(None, tuple(reads))


def _parts(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _parts(constant)


def _read(code: CodeType, outer: frozenset[str], reads: dict[tuple[str, ...], None]) -> str | None:
    """Add the names that a code object reads to `reads`; return its first side effect or None."""
    path: tuple[str, ...] = ()
    before: dis.Instruction | None = None
    for now in dis.get_instructions(code):
        operation = now.opname
        if operation in _SILENT:
            continue
        if path and operation in _ATTRIBUTES:
            path = (*path, now.argval)
            continue
        if path:
            reads[path] = None
        from_outside = operation in _NAMES or (operation in _CELLS and now.argval in outer)
        path = (now.argval,) if from_outside else ()
        effect = _effect(code, now, before, outer)
        if effect is not None:
            return effect
        before = now
    return None


def _effect(
    code: CodeType, now: dis.Instruction, before: dis.Instruction | None, outer: frozenset[str]
) -> str | None:
    """Return the side effect of an instruction outside of the call, or None."""
    operation, name = now.opname, now.argval
    if operation == "IMPORT_NAME":
        return None if is_pure_import(name) else f"it imports `{name}`"
    said = _WRITES.get(operation)
    if said is None or (operation.endswith("_DEREF") and name not in outer):
        return None
    if operation == "STORE_ATTR" and code.co_name in _MAKERS and _is_self(code, before):
        return None
    return said if operation == "LOAD_BUILD_CLASS" else f"{said} `{name}`"


def _is_self(code: CodeType, before: dis.Instruction | None) -> bool:
    """Return True if an instruction has loaded the first argument."""
    if before is None or "LOAD_FAST" not in before.opname or not code.co_argcount:
        return False
    loaded = before.argval[-1] if isinstance(before.argval, tuple) else before.argval
    return bool(loaded == code.co_varnames[0])
