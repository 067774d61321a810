from collections.abc import Callable, Set
from typing import Any

from distarray.typing import Array

class Way:
    def __init__(
        self, kind: str, method: Callable[..., Any], numpys: Callable[..., Any] | None = None, /
    ) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

def adopt(
    objects: dict[str, Any], slots: dict[str, Any], elements: Set[str], most: int, /
) -> None: ...
def noting(slots: dict[str, Any], /) -> Callable[[Any, Any, Any], Any]: ...
def getter(member: Any, /) -> Callable[[Any], Any]: ...
def grouped(
    keys: Array,
    starts: Array,
    arrays: tuple[Array, ...],
    into: tuple[Array, ...],
    /,
) -> list[int]: ...
def scattered(block: Array, places: Array, start: int, values: Array, /) -> None: ...

class Steps:
    """Operations that are run together, piece by piece.

    `steps` has for each NumPy's loop and the numbers of the operands and the result; a negative
    one is a constant: an array of one element. For each other value `between` has the number of
    the buffer, or -1 for an array, and `buffers` the bytes of an element in each.
    """

    def __init__(
        self,
        steps: tuple[tuple[Any, tuple[int, ...]], ...],
        constants: tuple[Any, ...],
        between: tuple[int, ...],
        buffers: tuple[int, ...],
        /,
    ) -> None: ...
    def run(self, values: list[Any], /) -> list[tuple[int, str]]: ...
