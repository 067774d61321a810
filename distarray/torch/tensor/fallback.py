"""Fallback for operators without a rule: operands are gathered, and the result is replicated."""

from collections.abc import Sequence
from typing import Any

import torch

from distarray.comm.user_lines import warn_program
from distarray.config import config
from distarray.errors import NotDistributedError, PerformanceWarning
from distarray.layout import Layout
from distarray.torch.tensor.table import Decision

__all__ = ["gathering", "refuse_or_warn"]


def gathering(layouts: Sequence[Layout], results: Sequence[tuple[int, ...]] | None) -> Decision:
    """Return the decision to gather: every operand and result is replicated.

    Parameters
    ----------
    layouts : sequence of Layout
        The layouts of the operands.
    results : sequence of tuple of int, optional
        The shapes of the results, if they are known.
    """
    whole = [Layout.replicated(layout.shape, layout.mesh_shape) for layout in layouts]
    mesh_shape = layouts[0].mesh_shape
    if results is None:
        return Decision(whole, [])
    return Decision(whole, [Layout.replicated(shape, mesh_shape) for shape in results])


def refuse_or_warn(name: str, operands: Sequence[Any]) -> None:
    """Warn at the program's line that an operator gathers; raise if the configuration forbids it.

    Raises
    ------
    NotDistributedError
        If `config.fallback` is "error", or the operands exceed `config.fallback_limit`.
    """
    nbytes = sum([spec.layout.size * spec.dtype.itemsize for spec in operands])
    settings = config.settings
    if settings.fallback == "error" or nbytes > settings.fallback_limit:
        reason = (
            "config.fallback is 'error'"
            if settings.fallback == "error"
            else f"config.fallback_limit is {settings.fallback_limit} bytes"
        )
        raise NotDistributedError(
            f"{name} has no rule for these layouts ({', '.join([_told(s) for s in operands])}). "
            f"Gathering its operands would bring {nbytes} bytes to every rank, and {reason}. "
            "x.full_tensor() does so in any case, if there is enough memory"
        )
    if settings.fallback == "warn":
        backward = " in the backward pass" if torch._C._current_graph_task_id() != -1 else ""
        warn_program(
            f"{name}{backward} gathers its operands ({nbytes} bytes on every rank) and gives a "
            "replicated result",
            PerformanceWarning,
        )


def _told(spec: Any) -> str:
    return f"{tuple(spec.shape)} {spec.dtype} {list(spec.layout.placements)}"
