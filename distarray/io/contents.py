"""Contents of a file: its arrays by name, and checks of the names that a format can write."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from distarray.array import DistArray
from distarray.io.sections import Source

__all__ = ["Contents", "Lazy", "check_labels", "check_tree"]

Value = TypeVar("Value")


@dataclass(slots=True)
class Contents:
    """Contents of a file, as opened by one rank.

    Attributes
    ----------
    arrays : mapping of str to Source
        The stored arrays by name. In a format without names, the name of the only array is "".
    attrs : mapping
        Attributes of the file.
    dims : mapping of str to tuple of str
        Names of the dimensions, for the arrays that have such names.
    array_attrs : mapping of str to mapping
        Attributes of the arrays.
    close : callable
        Closes the file.
    refused : mapping of str to str
        Arrays of the file that are not read: name to reason.
    missing : mapping of str to str
        Names that refer to no object: name to reason.
    """

    arrays: Mapping[str, Source]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    dims: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    array_attrs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    close: Callable[[], None] | None = None
    refused: Mapping[str, str] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)


class Lazy(Mapping[str, Value]):
    """Mapping whose values are made at each access."""

    __slots__ = ("_make", "_names")

    def __init__(self, names: Iterable[str], make: Callable[[str], Value]) -> None:
        self._names = dict.fromkeys(names)
        self._make = make

    def __getitem__(self, name: str) -> Value:
        if name not in self._names:
            raise KeyError(name)
        return self._make(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def check_tree(path: str, names: Iterable[str]) -> None:
    """Raise if a name belongs to both an array and a group, or two names mean the same array.

    The check is for formats in which slashes make groups.
    """
    parts = {name: tuple([part for part in name.split("/") if part]) for name in names}
    for name, own in parts.items():
        if "." in own:
            raise ValueError(f"{path}: {name!r} names a group or an array '.', which means itself")
    known: dict[tuple[str, ...], str] = {}
    for name, own in parts.items():
        if not own or known.setdefault(own, name) != name:
            other = f"the same as {known[own]!r}" if own else "no name"
            raise ValueError(f"{path}: {name!r} is {other}, for slashes make groups; rename it")
    for name, own in parts.items():
        for end in range(1, len(own)):
            if own[:end] in known:
                raise ValueError(
                    f"{path}: {name!r} is in a group {'/'.join(own[:end])!r}, and an array of that "
                    "name already exists, for slashes make groups; rename one of them"
                )


def check_labels(
    arrays: Mapping[str, DistArray],
    dims: Mapping[str, Sequence[str]] | None,
    array_attrs: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    """Raise if labels are for an array that is not written, or for a wrong number of dimensions.

    Parameters
    ----------
    arrays : mapping of str to DistArray
        The arrays that are written.
    dims : mapping of str to sequence of str, optional
        Names of the dimensions, by array.
    array_attrs : mapping of str to mapping, optional
        Attributes, by array.
    """
    for what, labels in (("dims", dims), ("array_attrs", array_attrs)):
        for name in labels or ():
            if name not in arrays:
                raise ValueError(
                    f"{what}[{name!r}]: there is no such array; written are {[*arrays]}"
                )
    for name, words in (dims or {}).items():
        if len(words) != arrays[name].ndim:
            raise ValueError(
                f"dims[{name!r}] = {tuple(words)} names {len(words)} dimension(s) of an array of "
                f"{arrays[name].ndim}"
            )
