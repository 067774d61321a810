"""Objects whose type cannot be hashed, since its metaclass compares types in its own way.

Tables here are asked by type. NumPy takes such objects in most places, and so do we: a call that
has failed is made again with an object in its place that does what it does, and whose type is
usual.
"""

from collections.abc import Callable, Mapping
from operator import is_
from typing import Any

__all__ = ["made_again"]

#: Names that a type has for itself, not for what its objects do.
_OF_THE_TYPE = frozenset({*vars(type), *vars(object), "__slots__", "__getattr__", "__del__"}) - {
    *("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__str__", "__repr__"),
    *("__format__", "__or__", "__ror__", "__call__"),
}


def made_again(
    act: Callable[..., Any], args: tuple[Any, ...], named: Mapping[str, Any]
) -> tuple[Any] | None:
    """Make a call that has raised TypeError once more, if the type of an argument explains it.

    Parameters
    ----------
    act, args, named
        The function and its arguments; those in tuples, lists and dictionaries count.

    Returns
    -------
    tuple of one result, or None
        None if the types of all arguments can be hashed.
    """
    given, more = _usual(args), _usual(dict(named))
    if given is args and all(more[name] is named[name] for name in named):
        return None
    return (act(*given, **more),)


def _usual(value: Any) -> Any:
    """The value with stand-ins for what it holds; itself if nothing has to be replaced."""
    kind = type(value)
    if not _is_hashable(kind):
        return _stand_in(value)
    if kind is tuple or kind is list:
        items = [_usual(item) for item in value]
        return value if all(map(is_, items, value)) else kind(items)
    if kind is dict:
        found = {name: _usual(item) for name, item in value.items()}
        return value if all(map(is_, found.values(), value.values())) else found
    return value


def _is_hashable(kind: type) -> bool:
    if type(kind).__hash__ is type.__hash__:
        return True
    try:
        hash(kind)
    except TypeError:
        return False
    return True


def _stand_in(value: Any) -> Any:
    """An object with the special methods of another, and its attributes."""
    kind = type(value)
    space: dict[str, Any] = {"__slots__": (), "__getattr__": lambda _, name: getattr(value, name)}
    for base in kind.__mro__[:-1]:
        for name, found in vars(base).items():
            if name.startswith("__") and name not in _OF_THE_TYPE:
                space.setdefault(name, _forwarding(value, found) if callable(found) else found)
    return type(kind.__name__, (), space)()


def _forwarding(value: Any, method: Callable[..., Any]) -> Callable[..., Any]:
    def forward(_: Any, *args: Any, **named: Any) -> Any:
        return method(value, *args, **named)

    return forward
