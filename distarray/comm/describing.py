"""Descriptions of calls that are the same on every rank: functions, arguments, and ranks."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

__all__ = ["described", "named", "ranks_in_words"]

#: Largest number of list items that are described individually.
_MOST = 32
_PLAIN = (int, float, complex, str, bytes, slice, np.generic, type(None), type(Ellipsis))


def described(value: Any) -> str:
    """Describe an argument without its elements: dtype, shape and placements, or a plain value."""
    kind = type(value)
    if isinstance(value, (list, tuple)):
        inner = ", ".join([described(item) for item in value[:_MOST]])
        return f"[{inner}{', ...' if len(value) > _MOST else ''}]"
    if isinstance(value, np.ndarray):
        return f"ndarray {value.dtype} {value.shape}"
    if hasattr(kind, "layout") and hasattr(kind, "block"):
        layout = value.layout
        cuts = "" if layout.is_canonical else f" {layout.sharded_cuts()}"
        return f"{value.block.dtype} {layout.shape} {list(layout.placements)}{cuts}"
    if kind.__module__.partition(".")[0] == "torch" and hasattr(kind, "shape"):
        return f"{value.dtype} {tuple(value.shape)}"
    return repr(value) if isinstance(value, _PLAIN) else kind.__name__


def named(function: Callable[..., Any]) -> str:
    """Return the name of a function as programs write it: ``np.linalg.solve``."""
    if isinstance(function, np.ufunc):
        return f"np.{function.__name__}"
    module = getattr(function, "__module__", None) or ""
    name = str(getattr(function, "__qualname__", None) or repr(function))
    return f"np{module[len('numpy') :]}.{name}" if module.startswith("numpy") else name


def ranks_in_words(ranks: Iterable[int]) -> str:
    """Return the numbers of some ranks as text: "rank 2", "ranks 0-2, 5"."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and runs[-1][1] == rank - 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    words = ", ".join([str(a) if a == b else f"{a}-{b}" for a, b in runs])
    return f"rank{'s' if len(runs) > 1 or (runs and runs[0][0] != runs[0][1]) else ''} {words}"
