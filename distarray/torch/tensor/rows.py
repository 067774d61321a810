"""Lists of tensors some rows of which are plain, in a model that is distributed in part."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

__all__ = ["apart", "has_rows"]


def has_rows(name: str) -> bool:
    """Return True if an operator treats each row of its lists alike."""
    return name.startswith(("aten._foreach_", "aten._fused_ada", "aten._fused_sgd"))


def apart(
    op: Callable[..., Any],
    call: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any],
    error: RuntimeError,
) -> Any:
    """Call the operator on rows with distributed tensors, and torch's operator on the plain rows.

    Parameters
    ----------
    op, call : callable
        The operator for plain tensors, and for distributed tensors.
    args, kwargs
        Its arguments; `call` takes them as two arguments.
    error : RuntimeError
        Raised if every row has a distributed tensor: then a plain tensor is in the same row.
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
    """Return the arguments with distributed tensors replaced by global tensors."""
    return [x.full_tensor() if hasattr(x, "_spec") else x for x in args]


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and any(isinstance(x, Tensor) for x in value)


def _picked(value: Any, places: Sequence[int], count: int) -> Any:
    """Return the rows of a list, or of a tensor with a number for each row; else the argument."""
    if isinstance(value, (list, tuple)) and len(value) == count:
        return [value[n] for n in places]
    if isinstance(value, Tensor) and value.shape == (count,):
        return value[list(places)]
    return value
