"""Objects of types that cannot be hashed, since their metaclass defines its own comparison.

Tables of this library are keyed by type. NumPy accepts such objects in most places, and so does
this library: a failed call is repeated with a proxy in place of the object. The proxy has the same
behavior, and its type is hashable.
"""

from collections.abc import Callable, Mapping
from operator import is_
from typing import Any

__all__ = ["made_again"]

#: Names that concern the type itself, not the behavior of its objects.
_OF_THE_TYPE = frozenset({*vars(type), *vars(object), "__slots__", "__getattr__", "__del__"}) - {
    *("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__str__", "__repr__"),
    *("__format__", "__or__", "__ror__", "__call__"),
}


def made_again(
    act: Callable[..., Any], args: tuple[Any, ...], named: Mapping[str, Any]
) -> tuple[Any] | None:
    """Repeat a call that has raised TypeError, if the type of an argument explains the error.

    Parameters
    ----------
    act, args, named
        The function and its arguments; objects in tuples, lists and dictionaries count, too.

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
    """Replace objects of unhashable types by proxies; without any return the value itself."""
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
    """Make a proxy: an object with the special methods and attributes of another."""
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
