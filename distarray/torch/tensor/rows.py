"""Lists of tensors some rows of which are plain: of a model that is distributed in part."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

__all__ = ["apart", "has_rows"]


def has_rows(name: str) -> bool:
    """Whether an operator does the same with each row of lists."""
    return name.startswith(("aten._foreach_", "aten._fused_ada", "aten._fused_sgd"))


def apart(
    op: Callable[..., Any],
    call: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any],
    error: RuntimeError,
) -> Any:
    """Call an operator with the rows that have distributed tensors, and torch's with the others.

    Parameters
    ----------
    op, call : callable
        The operator for plain tensors, and for distributed ones.
    args, kwargs
        Its arguments; `call` is given the two of them.
    error : RuntimeError
        What is raised if every row has a distributed tensor: a plain one is beside it.
    """
    lists = [x for x in (*args, *kwargs.values()) if _is_list(x)]
    ours = [any(hasattr(x, "_spec") for x in row) for row in zip(*lists)]
    if all(ours):
        raise error
    results: list[Any] = [None] * len(ours)
    for wanted in sorted(set(ours), reverse=True):
        places = [n for n, own in enumerate(ours) if own is wanted]
        picked = [_picked(x, places, len(ours)) for x in args]
        named = {name: _picked(x, places, len(ours)) for name, x in kwargs.items()}
        found = call(picked, named) if wanted else op(*_plain(picked), **named)
        for place, x in zip(places, found or ()):
            results[place] = x
    return None if all(x is None for x in results) else results


def _plain(args: Sequence[Any]) -> list[Any]:
    """With whole numbers for those that are distributed."""
    return [x.full_tensor() if hasattr(x, "_spec") else x for x in args]


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and any(isinstance(x, Tensor) for x in value)


def _picked(value: Any, places: Sequence[int], count: int) -> Any:
    """The rows of a list, or of numbers one for each row; other arguments as they are."""
    if isinstance(value, (list, tuple)) and len(value) == count:
        return [value[n] for n in places]
    if isinstance(value, Tensor) and value.shape == (count,):
        return value[list(places)]
    return value
