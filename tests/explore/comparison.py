"""What is compared after each line: outcomes, all live values, and what shares memory."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np

from tests.explore.grammar import MAY_COPY

__all__ = ["Comparison"]

Difference = tuple[str, str]  # its kind, and words for it


class Comparison:
    """Compares two namespaces, on every rank of a group in step.

    The ranks tell one another what they found, so that all go on or all stop.
    """

    def __init__(self, group: Any, plain: dict[str, Any], ours: dict[str, Any]) -> None:
        self.group = group
        self.plain = plain
        self.ours = ours

    def after(self, line: str, found: Any, wanted: Any) -> Difference | None:
        """The difference that there is after a line, if there is one; the same on all ranks."""
        difference = self._agreed(self._of_outcomes(found, wanted))
        if difference is not None:
            return difference
        difference = self._agreed(self._of_values())
        return difference or self._agreed(self._of_memory(line))

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
        if len(set(said)) > 1:
            return "ranks differ", "; ".join([f"rank {r}: {text}" for r, text in enumerate(said)])
        if found is None and wanted is not None:
            return "does not raise", f"NumPy raises {words(wanted)}"
        if wanted is None and found is not None:
            return f"raises {type(found).__name__}", f"NumPy does not; {words(found)}"
        if wanted is not None and not isinstance(found, type(wanted)):
            return "other exception", f"{words(found)}; NumPy: {words(wanted)}"
        return None

    # -- values ----------------------------------------------------------------------------------

    def _of_values(self) -> Difference | None:
        names, others = (variables(world) for world in (self.plain, self.ours))
        if list(names) != list(others):
            return "variables", f"{list(others)}; NumPy: {list(names)}"
        for name, wanted in names.items():
            try:
                text = difference_of(others[name], wanted)
            except Exception as error:
                text = words(error)
            if text is not None:
                return "value", f"{name}: {text}"
        return None

    # -- memory ----------------------------------------------------------------------------------

    def _of_memory(self, line: str) -> Difference | None:
        """Whether two arrays share memory here as they do in NumPy.

        Where a line may copy what NumPy gives a view of, and does, NumPy's array becomes a copy.
        """
        arrays = {n: v for n, v in variables(self.plain).items() if isinstance(v, np.ndarray)}
        pairs = list(combinations(arrays, 2))
        here = [self._overlap(*pair) for pair in pairs]
        shared = np.array([two[0] for two in here], bool)
        lone = np.array([two[1] for two in here], bool)
        votes = self.group.allgather(np.stack([shared, lone]))
        for position, (one, other) in enumerate(pairs):
            wanted = np.shares_memory(arrays[one], arrays[other])
            found = bool(votes[:, 0, position].any())
            if found == wanted:
                continue
            if wanted and any(name in line for name in MAY_COPY) and line.startswith(f"{other} ="):
                self._let_go(other)
                return self._of_memory(line)
            text = f"{one} and {other} share memory: {found}; NumPy: {wanted}"
            return "memory", text
        return None

    def _overlap(self, one: str, other: str) -> tuple[bool, bool]:
        blocks = [block_of(self.ours[name]) for name in (one, other)]
        if any(block is None for block in blocks):
            return False, False
        return np.shares_memory(*blocks), False

    def _let_go(self, name: str) -> None:
        before = self.plain[name]
        after = before.copy(order="K")
        after.flags.writeable = before.flags.writeable
        for key, value in list(self.plain.items()):
            if value is before:
                self.plain[key] = after


def words(error: BaseException) -> str:
    """An exception in a line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]


def variables(world: dict[str, Any]) -> dict[str, Any]:
    """The variables of a program, in the order of their numbers."""
    numbers = sorted([int(name[1:]) for name in world if name[0] == "v" and name[1:].isdigit()])
    return {f"v{number}": world[f"v{number}"] for number in numbers}


def block_of(value: Any) -> Any:
    """The memory that a rank has of a value; None of what is no array."""
    if isinstance(value, np.ndarray):
        return value
    block = getattr(value, "_block", None)
    return block if isinstance(block, np.ndarray) else None


def difference_of(found: Any, wanted: Any) -> str | None:
    """What is otherwise in a value than in NumPy's; None if nothing is."""
    from distarray.array import DistArray

    if isinstance(wanted, (list, tuple)):
        if type(found) is not type(wanted) or len(found) != len(wanted):
            return f"{type(found).__name__} {found!r}; NumPy: {wanted!r}"
        for one, other in zip(found, wanted, strict=True):
            text = difference_of(one, other)
            if text is not None:
                return text
        return None
    if isinstance(found, DistArray):
        return _of_arrays(found, wanted)
    if isinstance(found, (np.ndarray, np.generic)):
        return _of_elements(found, wanted)
    if type(found) is not type(wanted):
        return f"{type(found).__name__} {found!r}; NumPy: {type(wanted).__name__} {wanted!r}"
    return None if found == wanted or found != found else f"{found!r}; NumPy: {wanted!r}"


def _of_arrays(found: Any, wanted: Any) -> str | None:
    """The same for a distributed array, of which this rank looks at its block where it can."""
    whole = None if found.layout.is_plain else found.full()  # all ranks, whatever they find
    if not isinstance(wanted, (np.ndarray, np.generic)):
        return f"an array {found!r}; NumPy: {type(wanted).__name__} {wanted!r}"
    if found.shape != wanted.shape:
        return f"shape {found.shape}; NumPy: {wanted.shape}"
    if found.dtype != wanted.dtype:
        return f"dtype {found.dtype}; NumPy: {wanted.dtype}"
    scalar = not found.ndim and isinstance(found._block, np.generic)
    if scalar != isinstance(wanted, np.generic):
        return f"{'a scalar' if scalar else 'a 0-d array'}; NumPy: {type(wanted).__name__}"
    if not scalar and found.flags.writeable != wanted.flags.writeable:
        return f"writeable: {found.flags.writeable}; NumPy: {wanted.flags.writeable}"
    layout, coords = found.layout, found.mesh.coords
    if found.to_local().shape != layout.local_shape(coords):
        return f"a block of shape {found.to_local().shape} under {layout}"
    if whole is not None:
        return _of_elements(whole, np.asarray(wanted))
    section = (..., *[slice(start, stop) for start, stop in layout.section(coords)])
    return _of_elements(found.to_local(), np.asarray(wanted)[section])


def _of_elements(found: Any, wanted: Any) -> str | None:
    if type(found) is not type(wanted) or found.dtype != wanted.dtype:
        return f"{type(found).__name__} {found!r}; NumPy: {wanted!r}"
    same = found.shape == wanted.shape and _bits(found) == _bits(wanted)
    return None if same else f"{_line(found)}; NumPy: {_line(wanted)}"


def _bits(values: Any) -> bytes:
    """The bytes of elements, with one NaN for all; -0.0 is not 0.0."""
    values = np.array(values)
    if values.dtype.names:
        return b"".join([_bits(values[name]) for name in values.dtype.names])
    if values.dtype.kind == "c":
        return _bits(values.real) + _bits(values.imag)
    if values.dtype.kind == "f":
        values[np.isnan(values)] = np.nan
    return values.tobytes()


def _line(values: Any) -> str:
    return " ".join(repr(values).split())[:300]
