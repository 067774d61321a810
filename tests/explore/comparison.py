"""Comparison after each line: outcomes, all live values, and what shares memory."""

from __future__ import annotations

import ast
import re
from itertools import combinations
from threading import Lock
from typing import Any

import numpy as np

from distarray.array.base import Base, raw_block, storage_of
from distarray.array.storage import is_contiguous
from tests.explore.grammar import MAY_COPY

__all__ = ["Comparison"]

#: Python 3.11 fails where two threads make trees at the same time.
_parsing = Lock()
Difference = tuple[str, str]  # its kind, and words for it

#: What is wrong with records that are to become numbers.
_RECORDS = re.compile(r"Cannot cast array data from dtype\((\[\(|\{'names)")
_NEW_VARIABLE = re.compile(r"v\d+ = ")
#: Lines that go through elements in their order in memory, or depend on that order.
_IN_MEMORY = re.compile("['\"][AK]['\"]|vectorize|frompyfunc")


class Comparison:
    """Compares two namespaces, on every rank of a group in step.

    The ranks tell one another what they found, so that all go on or all stop.

    Attributes
    ----------
    signs : bool
        Whether -0.0 is not 0.0.
    aliases : bool
        Whether values are compared at the end alone: that brings all aliases up to date. Nothing
        may copy then what NumPy gives a view of.
    over : bool
        Whether the programs part lawfully: from here on NumPy's says nothing about ours.
    """

    def __init__(
        self,
        group: Any,
        plain: dict[str, Any],
        ours: dict[str, Any],
        signs: bool,
        aliases: bool = False,
    ) -> None:
        self.group = group
        self.aliases = aliases
        self.signs = signs
        self.plain = plain
        self.ours = ours
        self.over = False

    def after(self, line: str, found: Any, wanted: Any) -> Difference | None:
        """The difference that there is after a line, if there is one; the same on all ranks."""
        difference = self._agreed(self._of_outcomes(found, wanted))
        if difference is not None and "C-Array" in str(wanted):
            self.over = not self._stored_alike(out_of(line))
            return None if self.over else difference
        if difference is None and wanted is None and self._is_unpredictable(line):
            self.over = True
        if difference is not None and "raise" in difference[0]:
            text = line.partition(".shape =")[0] if ".shape =" in line else operand_of(line)
            by_order = ".shape =" in line or ".view(" in line
            self.over = by_order and not self._stored_alike(text)
        if difference is None:
            difference = self._of_memory(line)
        if difference is None and not self.over and not self.aliases:
            difference = self._agreed(self._of_values())
        missing = difference is not None or self.aliases
        if missing and wanted is not None and "put(" in line:
            self.over = True  # NumPy drops what `put` wrote before an error where there are gaps
        differs = self.aliases if difference is None else difference[0] == "value"
        if differs and _IN_MEMORY.search(line):
            self.over = not all(self._stored_alike(text) for text in arrays_in(line))
        if difference is not None and "WRITEABLE" in str(wanted):
            self.over = self._is_of_windows(line)
        return None if self.over else difference

    def at_end(self) -> Difference | None:
        """The difference between values at the end, if they were not compared before."""
        return self._agreed(self._of_values()) if self.aliases else None

    def _agreed(self, difference: Difference | None) -> Difference | None:
        """What the first rank with a difference says."""
        found = self.group.allgather_object(difference)
        ranks = [rank for rank, one in enumerate(found) if one is not None]
        if not ranks:
            return None
        kind, text = found[ranks[0]]
        return kind, f"{text} (on ranks {ranks} of {len(found)})"

    # -- outcomes --------------------------------------------------------------------------------

    def _of_outcomes(self, found: Any, wanted: Any) -> Difference | None:
        said = self.group.allgather_object(None if found is None else words(found))
        if isinstance(wanted, TypeError) and all(" loop " in (text or "") for text in said):
            return None  # which of its two errors NumPy raises depends on what other threads do
        if len(set(said)) > 1:
            return "ranks differ", "; ".join([f"rank {r}: {text}" for r, text in enumerate(said)])
        if found is None and wanted is not None:
            return "does not raise", f"NumPy raises {words(wanted)}"
        if wanted is None and found is not None:
            return f"raises {type(found).__name__}", f"NumPy does not; {words(found)}"
        if wanted is not None and not isinstance(found, type(wanted)):
            if _RECORDS.search(words(found)):
                return None  # NumPy's functions look at shapes before that, or after
            return "other exception", f"{words(found)}; NumPy: {words(wanted)}"
        return None

    # -- values ----------------------------------------------------------------------------------

    def _of_values(self) -> Difference | None:
        names, others = (variables(world) for world in (self.plain, self.ours))
        if list(names) != list(others):
            return "variables", f"{list(others)}; NumPy: {list(names)}"
        first = None
        for name, wanted in names.items():  # all of them: the others may have to be asked
            try:
                text = difference_of(others[name], wanted, self.signs)
            except Exception as error:
                text = words(error)
            if text is not None and first is None:
                first = "value", f"{name}: {text}"
        return first

    # -- memory ----------------------------------------------------------------------------------

    def _of_memory(self, line: str) -> Difference | None:
        """Whether arrays share memory here as they do in NumPy; the same answer on all ranks.

        Where a line may copy what NumPy gives a view of, and does, NumPy's array becomes a copy.
        """
        arrays = {n: v for n, v in variables(self.plain).items() if isinstance(v, np.ndarray)}
        pairs = [pair for pair in combinations(arrays, 2) if pair[1] in self.ours]
        here = np.array([self._overlap(*pair) for pair in pairs], bool)
        for (one, other), found in zip(pairs, self.group.allgather(here).any(axis=0), strict=True):
            wanted = np.shares_memory(arrays[one], arrays[other])
            linked = found != wanted or line.startswith(f"{other} =")
            linked = linked and self._are_linked(one, other)
            if not wanted and linked and not self._stored_alike(operand_of(line)):
                self.over = True  # whether it is a copy depends on the order
                return None
            if found == wanted or (wanted and linked):
                continue
            if wanted and line.startswith(f"{other} =") and self._may_copy(line, one, other):
                self._let_go(other)
                return self._of_memory(line)
            if line.startswith(f"{other} =") and not self._stored_alike(operand_of(line)):
                self.over = True
                return None
            return "memory", f"{one} and {other} share memory: {found}; NumPy: {wanted}"
        return None

    def _overlap(self, one: str, other: str) -> bool:
        blocks = [block_of(self.ours[name]) for name in (one, other)]
        return not any(block is None for block in blocks) and np.shares_memory(*blocks)

    def _may_copy(self, line: str, one: str, other: str) -> bool:
        """Whether a line may copy: what has to change rank, or is NumPy's and gets distributed."""
        plain = isinstance(self.ours[one], np.ndarray) and block_of(self.ours[other]) is not None
        moved = plain and not isinstance(self.ours[other], np.ndarray)
        return moved or (not self.aliases and any(name in line for name in MAY_COPY))

    def _are_linked(self, one: str, other: str) -> bool:
        """Whether arrays are over two materializations of one memory."""
        arrays = [x for x in (self.ours[one], self.ours[other]) if is_array(x)]
        sources = [getattr(storage_of(x), "source", None) for x in arrays]
        memories = {id(source.memory) for source in sources if source is not None}
        return len(sources) == 2 and None not in sources and len(memories) == 1

    def _stored_alike(self, text: str | None) -> bool:
        """Whether an array that a line mentions is stored in the same order as in NumPy.

        What a function gives may be stored in another order than NumPy's result, and a view that is
        cut may have no gaps where NumPy's has.
        """
        if text is None:
            return True
        plain, ours = (eval(text, dict(world)) for world in (self.plain, self.ours))
        if not hasattr(ours, "layout") or not isinstance(plain, np.ndarray):
            return True
        flags = plain.flags.c_contiguous, plain.flags.f_contiguous
        return flags == (is_contiguous(ours, "C"), is_contiguous(ours, "F"))

    def _is_unpredictable(self, line: str) -> bool:
        """Whether a line writes to elements that overlap.

        NumPy's documentation calls it unpredictable what they are then.
        """
        if _NEW_VARIABLE.match(line):
            return False
        named = [self.plain[name] for name in re.findall(r"\bv\d+\b", line) if name in self.plain]
        return any(isinstance(x, np.ndarray) and _overlaps(x) for x in named)

    def _is_of_windows(self, line: str) -> bool:
        """Whether a line sets a flag of windows.

        NumPy refuses to set it to what it is: what it has as their base is no array.
        """
        plain = eval(line.partition(".flags")[0].partition(".setflags")[0], dict(self.plain))
        return plain.base is not None and not isinstance(plain.base, np.ndarray)

    def _let_go(self, name: str) -> None:
        shared = self.plain[name]
        is_one = [extent > 1 and not step for extent, step in zip(shared.shape, shared.strides)]
        after = shared[tuple([slice(0, 1) if one else slice(None) for one in is_one])].copy()
        if any(is_one) and not self.ours[name].flags.writeable:
            # What is broadcast is stored so here as well.
            self.plain[name] = np.broadcast_to(after, shared.shape)
            return
        after.flags.writeable = bool(self.ours[name].flags.writeable)
        self.plain[name] = after


def _overlaps(x: np.ndarray[Any, Any]) -> bool:
    """Whether elements of an array share bytes."""
    reach = x.itemsize
    for step, extent in sorted(zip(map(abs, x.strides), x.shape, strict=True)):
        if extent > 1 and step < reach:
            return True
        reach += step * (extent - 1)
    return False


def _parsed(line: str) -> Any:
    """The statement of a line."""
    with _parsing:
        return ast.parse(line).body[0]


def operand_of(line: str) -> str | None:
    """The array that a line of the form ``v1 = function(array, ...)`` is about, or a method."""
    tree = _parsed(line)
    call = getattr(tree, "value", None)
    if not isinstance(call, ast.Call):
        return None
    method = isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) != "np"
    if method:
        return ast.unparse(call.func.value)
    if not call.args:
        return None
    first = call.args[0]
    return ast.unparse(first.value if isinstance(first, ast.Starred) else first)


def arrays_in(line: str) -> list[str]:
    """The variables that a line reads, with their attributes and indices: `v1`, `v1.T[0]`."""

    def within(node: ast.AST) -> list[str]:
        parts = list(ast.walk(node))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            inner = [node.func.value, *node.args, *node.keywords]
            return [text for child in inner for text in within(child)]
        if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
            named = any(isinstance(part, ast.Name) and _is_variable(part.id) for part in parts)
            if named and not any(isinstance(part, ast.Call) for part in parts):
                return [ast.unparse(node)]
        return [text for child in ast.iter_child_nodes(node) for text in within(child)]

    statement = _parsed(line)
    return within(getattr(statement, "value", statement))


def out_of(line: str) -> str | None:
    """What a line of the form ``v1 = function(..., out=array)`` writes to."""
    call = getattr(_parsed(line), "value", None)
    named = {word.arg: word.value for word in getattr(call, "keywords", ())}
    return ast.unparse(named["out"]) if "out" in named else None


def words(error: BaseException) -> str:
    """An exception in a line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]


def variables(world: dict[str, Any]) -> dict[str, Any]:
    """The variables of a program, in the order of their numbers."""
    numbers = sorted([int(name[1:]) for name in world if _is_variable(name)])
    return {f"v{number}": world[f"v{number}"] for number in numbers}


def is_array(value: Any) -> bool:
    """Whether a value is a distributed array."""
    return isinstance(value, Base)


def _is_variable(name: str) -> bool:
    return name[0] == "v" and name[1:].isdigit()


def block_of(value: Any) -> Any:
    """The memory that a rank has of a value; None of what is no array."""
    if isinstance(value, np.ndarray):
        return value
    block = raw_block(value) if is_array(value) else None
    return block if isinstance(block, np.ndarray) else None


def difference_of(found: Any, wanted: Any, signs: bool = True) -> str | None:
    """What is otherwise in a value than in NumPy's; None if nothing is."""
    from distarray.array import DistArray

    if isinstance(wanted, (list, tuple)):
        if type(found) is not type(wanted) or len(found) != len(wanted):
            return f"{type(found).__name__} {found!r}; NumPy: {wanted!r}"
        for one, other in zip(found, wanted, strict=True):
            text = difference_of(one, other, signs)
            if text is not None:
                return text
        return None
    if isinstance(found, DistArray):
        return _of_arrays(found, wanted, signs)
    if isinstance(found, (np.ndarray, np.generic)):
        return _of_elements(found, wanted, signs)
    if type(found) is not type(wanted):
        return f"{type(found).__name__} {found!r}; NumPy: {type(wanted).__name__} {wanted!r}"
    return None if found == wanted or found != found else f"{found!r}; NumPy: {wanted!r}"


def _of_arrays(found: Any, wanted: Any, signs: bool) -> str | None:
    """The same for a distributed array, of which this rank looks at its block where it can."""
    whole = None if found.layout.is_plain else found.full()  # all ranks, whatever they find
    if not isinstance(wanted, (np.ndarray, np.generic)):
        return f"an array {found!r}; NumPy: {type(wanted).__name__} {wanted!r}"
    if found.shape != wanted.shape:
        return f"shape {found.shape}; NumPy: {wanted.shape}"
    if found.dtype != wanted.dtype:
        return f"dtype {found.dtype}; NumPy: {wanted.dtype}"
    scalar = not found.ndim and isinstance(found.block, np.generic)
    if scalar != isinstance(wanted, np.generic):
        return f"{'a scalar' if scalar else 'a 0-d array'}; NumPy: {type(wanted).__name__}"
    if not scalar and found.flags.writeable != wanted.flags.writeable:
        return f"writeable: {found.flags.writeable}; NumPy: {wanted.flags.writeable}"
    layout, coords = found.layout, found.mesh.coords
    block = np.asarray(found.block) if scalar else found.block  # `to_local` would end what is kept
    if block.shape != layout.local_shape(coords):
        return f"a block of shape {block.shape} under {layout}"
    if whole is not None:
        return _of_elements(whole, np.asarray(wanted), signs)
    section = (..., *[slice(start, stop) for start, stop in layout.section(coords)])
    return _of_elements(block, np.asarray(wanted)[section], signs)


def _of_elements(found: Any, wanted: Any, signs: bool) -> str | None:
    if type(found) is not type(wanted) or found.dtype != wanted.dtype:
        return f"{type(found).__name__} {found!r}; NumPy: {wanted!r}"
    same = found.shape == wanted.shape and _bits(found, signs) == _bits(wanted, signs)
    return None if same else f"{_line(found)}; NumPy: {_line(wanted)}"


def _bits(values: Any, signs: bool) -> bytes:
    """The bytes of elements, with one NaN for all, and one zero unless signs count."""
    values = np.array(values)
    if values.dtype.names:
        return b"".join([_bits(values[name], signs) for name in values.dtype.names])
    if values.dtype.hasobject:
        return repr([(type(item), item) for item in values.ravel()]).encode()
    if values.dtype.kind == "c":
        return _bits(values.real, signs) + _bits(values.imag, signs)
    if values.dtype.kind == "f":
        values[np.isnan(values)] = np.nan
        if not signs:
            values += 0.0
    return values.tobytes()


def _line(values: Any) -> str:
    return " ".join(repr(values).split())[:300]
