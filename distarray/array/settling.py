"""Settling of arguments: pending folds are reduced and lone arrays replicated where needed."""

from collections.abc import Iterable
from typing import Any

from distarray.array.base import Base, sequence_like
from distarray.array.registry import Row
from distarray.typing import ArrayLike

__all__ = ["ATOMS", "as_they_are", "settled_arguments"]

#: Types of arguments that need no settling.
ATOMS = frozenset({type(None), bool, int, float, complex, str, type})


def as_they_are(values: Iterable[Any], lists: bool = False) -> bool:
    """Return True if no argument or item of a sequence needs settling or has dtype object.

    With `lists`, the items of lists and tuples are not checked.
    """
    for value in values:
        if type(value) in ATOMS:
            continue
        if isinstance(value, Base):
            if not value.layout.is_plain or value.dtype.hasobject:
                return False
        elif isinstance(value, (tuple, list)) and not (lists or _all_as_they_are(value)):
            return False
    return True


def _all_as_they_are(values: Iterable[Any]) -> bool:
    return ATOMS.issuperset(map(type, values)) or as_they_are(values)  # lists may be long


def _settled(value: Any, row: Row) -> Any:
    """Settle an argument as far as the implementation needs; return it unchanged if possible."""
    if isinstance(value, Base):
        layout = value.layout
        if layout.is_plain:
            return value
        folds = {layout.placements[m].op for m in layout.partials}  # type: ignore[attr-defined]
        fits = (row.at or not layout.ats) and folds <= row.through
        return value if fits else value.plain()
    if isinstance(value, (list, tuple)):
        items = [_settled(item, row) for item in value]
        if any(new is not old for new, old in zip(items, value, strict=True)):
            return sequence_like(value, items)
    return value


def _settle_folds(out: ArrayLike | None) -> None:
    """Carry out pending folds of output arrays, without moving them."""
    for value in out if isinstance(out, (tuple, list)) else (out,):
        if isinstance(value, Base) and value.layout.partials:
            value.settle()


def settled_arguments(
    row: Row, args: Iterable[Any], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Settle arguments as far as an implementation needs.

    Pending folds are carried out in place. An array at one coordinate is replicated into a copy:
    the array may be a view, and later writes to it must still reach its base.
    """
    found = []
    for position, value in enumerate(args):
        if position == row.out:
            _settle_folds(value)
        found.append(value if position == row.out else _settled(value, row))
    named = {}
    for name, value in kwargs.items():
        if name == "out":
            _settle_folds(value)
        named[name] = value if name == "out" else _settled(value, row)
    return tuple(found), named
