from collections.abc import Callable, Set
from typing import Any

class Way:
    def __init__(
        self, kind: str, method: Callable[..., Any], numpys: Callable[..., Any] | None = None, /
    ) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

def adopt(
    objects: dict[str, Any], slots: dict[str, Any], elements: Set[str], most: int, /
) -> None: ...
